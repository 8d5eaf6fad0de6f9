//! Load on a subsystem of an NVMe over TCP server: our identity there, the keys, and the
//! connection.
//!
//! Keys come from files or the environment, never from the command line, which all users can read.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use client::Loss;
use client::nvme::{
    Found, Host, HostLoss, HostOptions, HostReport, NvmeAddress, Patience, Refusal, Secret,
    TlsIdentity, TlsKey,
};
use contract::{BLOCK_BYTES, CloseReason, TlsFailure};
use io::{ClientTls, Endpoint, Network, SocketsConfig};

use super::arguments::Arguments;
use super::block_server::{self, BlockServer, ConnectionEvent};
use super::problem::Problem;
use super::survey::hint;
use flash::size_text;
use server::credentials::read_secret;
use server::host_identity::HostIdentity;
use server::listen::{Protocol, url};

/// The environment variable that holds the key if no file is named.
pub(crate) const KEY_VARIABLE: &str = "NEARFLASH_NVME_KEY";
const CONTROLLER_KEY_VARIABLE: &str = "NEARFLASH_NVME_CONTROLLER_KEY";
const TLS_KEY_VARIABLE: &str = "NEARFLASH_NVME_TLS_KEY";

/// The keep-alive timeout: the server drops a connection that is silent for this long.
const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(15);

/// The address of an NVMe/TCP server, and the options of a client: the host's name and its keys.
#[derive(Clone, Debug)]
pub(super) struct NvmeServer {
    endpoint: Endpoint,
    /// The TLS settings, with a key of the host; `None` without TLS.
    tls: Option<ClientTls>,
    options: HostOptions,
}

/// Returns an error if the command line has options that NVMe/TCP does not support.
pub(super) fn check(arguments: &Arguments) -> Result<(), Problem> {
    arguments.refuse_those_of_reflex(
        "NVMe over TCP",
        [
            "hosts are known by their names (?host=NQN)",
            "the server's configuration gives hosts tenants",
            "it stands in the address: ?nsid=N",
            "they stand in the address: ?digests=data",
        ],
    )
}

impl NvmeServer {
    /// Connects once, and checks the command line against the namespace. Returns the connector
    /// for the load threads, and the size of the namespace in bytes.
    pub(super) fn find(
        arguments: &Arguments,
        endpoint: &Endpoint,
        address: &NvmeAddress,
        queues: usize,
    ) -> Result<(NvmeServer, u64), Problem> {
        let key = |file: &Option<PathBuf>, variable| {
            secret(file.as_deref(), variable, Secret::parse).map_err(Problem::Failed)
        };
        let tls_key =
            secret(arguments.nvme.tls_key_file.as_deref(), TLS_KEY_VARIABLE, TlsKey::parse)
                .map_err(Problem::Failed)?;
        let identity = HostIdentity::of(address.host.as_deref());
        let options = HostOptions {
            subsystem: address.subsystem.clone(),
            host: identity.nqn,
            host_id: identity.id,
            nsid: address.nsid,
            queues: 0,
            queue_depth: u16::try_from(arguments.queue_depth).unwrap_or(u16::MAX - 1),
            digests: address.digests,
            in_capsule: address.in_capsule,
            keep_alive: KEEP_ALIVE,
            key: key(&arguments.nvme.key_file, KEY_VARIABLE)?,
            controller_key: key(&arguments.nvme.controller_key_file, CONTROLLER_KEY_VARIABLE)?,
            chance: [0; 32],
        };
        let tls = match (&tls_key, address.tls) {
            (Some(key), _) => Some(tls_of(key, &options).map_err(Problem::Failed)?),
            (None, false) => None,
            (None, true) => {
                return Err(Problem::Usage(format!(
                    "tls=required needs the TLS key of host {}: put it into a file for \
                     --tls-key-file, or into {TLS_KEY_VARIABLE}",
                    options.host
                )));
            }
        };
        let mut server = NvmeServer { endpoint: endpoint.clone(), tls, options };
        let found = block_server::look(&server).map_err(Problem::Failed)?;
        server.options.queues = queues;
        let granted = usize::from(found.queues);
        if queues > granted {
            let refusal = Refusal::Queues { wanted: queues, granted: found.queues };
            return Err(Problem::Usage(server.reason(&HostLoss::Refused(refusal))));
        }
        let bytes = arguments.block_size;
        if bytes > found.request_bytes_max || !bytes.is_multiple_of(found.block_bytes as usize) {
            return Err(Problem::Usage(format!(
                "--block-size {} does not fit: the namespace has blocks of {} and takes at most {} \
                 at once",
                size_text(bytes as u64),
                size_text(u64::from(found.block_bytes)),
                size_text(found.request_bytes_max as u64)
            )));
        }
        Ok((server, found.blocks * BLOCK_BYTES as u64))
    }

    /// Returns a message for the user: why the connections were lost or refused, and what to do
    /// about it.
    fn reason(&self, loss: &HostLoss) -> String {
        let place = url(Protocol::NvmeTcp, &self.endpoint);
        let (what, advice) = match loss {
            HostLoss::Connection(Loss::Network(CloseReason::Insecure(why))) => {
                (why.to_string(), self.advice_on_tls(*why))
            }
            HostLoss::Connection(loss) => match loss.errno().map(std::io::Error::from_raw_os_error)
            {
                Some(error) => (error.to_string(), hint(&error, &self.endpoint).to_owned()),
                None => (loss.to_string(), "is it an NVMe/TCP server?".to_owned()),
            },
            HostLoss::Refused(refusal) => (refusal.to_string(), self.advice(refusal)),
        };
        format!("cannot use {place}/{}: {what}\n{advice}", self.options.subsystem)
    }

    /// Returns advice for the user about a TLS handshake that failed for the reason `why`.
    fn advice_on_tls(&self, why: TlsFailure) -> String {
        let host = &self.options.host;
        match (why, &self.tls) {
            (TlsFailure::Plain, _) => {
                "leave the TLS key out, or give the server's listener tls=required".to_owned()
            }
            (_, None) => format!(
                "this host is {host}: put its TLS key into a file for --tls-key-file, or into \
                 {TLS_KEY_VARIABLE}"
            ),
            (_, Some(_)) => format!(
                "this host is {host}: is the TLS key the one of the server's [[host]]? ?host=NQN \
                 connects as another"
            ),
        }
    }

    fn advice(&self, refusal: &Refusal) -> String {
        let host = &self.options.host;
        match refusal {
            Refusal::NoSubsystem => "`nvme discover` lists a server's subsystems, and so does \
                                     `nearflash subsystem list` on it"
                .to_owned(),
            Refusal::NotAllowed => format!(
                "this host is {host}: the server's [[subsystem]] has to name it in `hosts`, its \
                 access rules have to let it in, and where the subsystem asks for authentication a \
                 [[host]] needs its key; ?host=NQN connects as another"
            ),
            Refusal::KeyNeeded => format!(
                "this host is {host}: put its key into a file for --key-file, or into {KEY_VARIABLE}"
            ),
            Refusal::NotProven(_) => {
                format!("this host is {host}: is the key the one of the server's [[host]]?")
            }
            Refusal::NotAuthenticated => {
                "the server's [[host]] has no key for this host; leave the \
                                          controller's key out, or give the host one"
                    .to_owned()
            }
            Refusal::NoNamespace(_) => "name one of them in the address: ?nsid=N".to_owned(),
            Refusal::Queues { granted, .. } => {
                format!("at most {granted} --connections a thread (one less with --probe)")
            }
            Refusal::Depth { most, .. } => format!("at most --queue-depth {most}"),
            Refusal::Pieces => "smaller requests (--block-size) may do".to_owned(),
            Refusal::Protocol(_) => "is it an NVMe/TCP server?".to_owned(),
            Refusal::Step(..) => "the server's log may say more".to_owned(),
        }
    }
}

impl BlockServer for NvmeServer {
    type Client<N: Network> = Host<N>;
    type Found = Found;
    type Loss = HostLoss;

    fn set_lanes(&mut self, lanes: usize) {
        self.options.queues = lanes;
    }

    fn open<N: Network>(&self, reactor: &N::Reactor) -> Result<Host<N>, String> {
        let config = SocketsConfig {
            connections_max: self.options.queues + 16,
            frames_max: Host::<N>::frames_max(&self.options),
            ..SocketsConfig::default()
        };
        io::raise_descriptor_limit();
        let mut sockets = N::new(reactor, config).map_err(|e| e.to_string())?;
        sockets.dial_to(self.endpoint.clone());
        if let Some(tls) = self.tls.clone() {
            sockets.dial_over(tls).map_err(|e| e.to_string())?;
        }
        let mut options = self.options.clone();
        io::random(&mut options.chance);
        Ok(Host::new(sockets, options, Patience::default()))
    }

    fn news<N: Network>(host: &mut Host<N>) -> Option<ConnectionEvent<Found, HostLoss>> {
        host.next_report().map(|report| match report {
            HostReport::Up(found) => ConnectionEvent::Up(found),
            HostReport::Lost(loss) => ConnectionEvent::Lost(loss),
        })
    }

    fn note(loss: &HostLoss) -> (bool, String) {
        (loss.reached(), format!("the controller is lost: {loss}; connecting again"))
    }

    fn explain(&self, loss: Option<HostLoss>) -> String {
        loss.map_or_else(|| "the server does not answer in time".to_owned(), |l| self.reason(&l))
    }
}

/// Returns the TLS settings of a host with this key, for the subsystem of its options.
fn tls_of(key: &TlsKey, options: &HostOptions) -> Result<ClientTls, String> {
    let who = TlsIdentity::new(&options.host, &options.subsystem).map_err(|e| e.to_string())?;
    let offer = key.offered(&who);
    ClientTls::with_key(offer.identity.as_bytes(), offer.psk).map_err(|error| error.to_string())
}

/// Reads a key from the file or, without one, from the environment variable. Returns `None` if
/// neither is given. Errors never contain the key.
fn secret<K, E: Display>(
    file: Option<&Path>,
    variable: &str,
    parse: impl Fn(&str) -> Result<K, E>,
) -> Result<Option<K>, String> {
    let (text, place) = match (file, std::env::var(variable)) {
        (Some(file), _) => (read_secret(file)?, file.display().to_string()),
        (None, Ok(text)) if !text.is_empty() => (text.into(), variable.to_owned()),
        (None, _) => return Ok(None),
    };
    parse(text.trim()).map(Some).map_err(|error| format!("the key of {place} is {error}"))
}
