//! Load on an export of an NBD server: finding its size, and connecting to it.

use client::Loss;
use client::nbd::{Attachment, AttachmentOptions, Found, NbdLoss, NbdRefusal, NbdReport};
use contract::{CloseReason, REQUEST_BYTES_MAX};
use io::{Network, SocketsConfig};

use super::arguments::Arguments;
use super::block_server::{self, BlockServer, ConnectionEvent};
use super::problem::Problem;
use super::survey::hint;
use super::target::ServerAddress;
use flash::size_text;
use server::listen::{Protocol, url};

/// Advice for connections that fail because the two ends do not agree on TLS.
const TLS_HINT: &str =
    "`nearflash serve` says at its start which listeners have TLS: nbds://HOST:PORT/EXPORT";

/// The address of an NBD server, and the options of its clients with the name of the export.
#[derive(Clone, Debug)]
pub(super) struct NbdServer {
    reach: ServerAddress,
    options: AttachmentOptions,
}

/// Returns an error if the command line has options that NBD does not support.
pub(super) fn check(arguments: &Arguments) -> Result<(), Problem> {
    arguments.refuse_those_of_reflex(
        "NBD",
        [
            "its clients are known by their addresses",
            "the server's listener gives them a tenant",
            "name it: nbd://HOST:PORT/NAMESPACE",
            "leave it out",
        ],
    )
}

impl NbdServer {
    /// Connects once, and checks block size and write access against the export. Returns the
    /// connector for the load threads, and the size of the export in bytes.
    pub(super) fn find(
        arguments: &Arguments,
        reach: &ServerAddress,
        export: &str,
    ) -> Result<(NbdServer, u64), Problem> {
        let depth = arguments.queue_depth as usize;
        let options = AttachmentOptions {
            export: export.to_owned(),
            connections: 1,
            queue_depth: depth,
            over_tls: reach.tls.is_some(),
        };
        let server = NbdServer { reach: reach.clone(), options };
        let found = block_server::look(&server).map_err(Problem::Failed)?;
        let bytes = arguments.block_size;
        let most = (found.request_bytes_max as usize).min(REQUEST_BYTES_MAX);
        if bytes > most || !bytes.is_multiple_of(found.block_bytes as usize) {
            return Err(Problem::Usage(format!(
                "--block-size {} does not fit: the export has blocks of {} and takes at most {} at \
                 once",
                size_text(bytes as u64),
                size_text(u64::from(found.block_bytes)),
                size_text(most as u64)
            )));
        }
        if arguments.read_percent < 100 && !found.is_writable {
            let text = "the export is read-only: only --read-percent 100 can be";
            return Err(Problem::Usage(text.to_owned()));
        }
        Ok((server, found.bytes))
    }
}

impl BlockServer for NbdServer {
    type Client<N: Network> = Attachment<N>;
    type Found = Found;
    type Loss = NbdLoss;

    fn set_lanes(&mut self, lanes: usize) {
        self.options.connections = lanes;
    }

    fn open<N: Network>(&self, reactor: &N::Reactor) -> Result<Attachment<N>, String> {
        let config = SocketsConfig {
            connections_max: self.options.connections + 16,
            frames_max: Attachment::<N>::frames_max(&self.options),
            ..SocketsConfig::default()
        };
        io::raise_descriptor_limit();
        let mut sockets = N::new(reactor, config).map_err(|e| e.to_string())?;
        self.reach.dial(&mut sockets).map_err(|e| e.to_string())?;
        Ok(Attachment::new(sockets, self.options.clone()))
    }

    fn news<N: Network>(attachment: &mut Attachment<N>) -> Option<ConnectionEvent<Found, NbdLoss>> {
        attachment.next_report().map(|report| match report {
            NbdReport::Up(found) => ConnectionEvent::Up(found),
            NbdReport::Lost(loss) => ConnectionEvent::Lost(loss),
        })
    }

    fn note(loss: &NbdLoss) -> (bool, String) {
        (loss.reached(), format!("the connections are lost: {loss}; connecting again"))
    }

    fn explain(&self, loss: Option<NbdLoss>) -> String {
        let endpoint = &self.reach.endpoint;
        let place = url(Protocol::Nbd, endpoint);
        let (what, advice) = match loss {
            None => ("the server does not answer in time".to_owned(), "is it an NBD server?"),
            Some(NbdLoss::Connection(loss)) => {
                match loss.errno().map(std::io::Error::from_raw_os_error) {
                    Some(error) => (error.to_string(), hint(&error, endpoint)),
                    None if matches!(loss, Loss::Network(CloseReason::Insecure(_))) => {
                        (loss.to_string(), TLS_HINT)
                    }
                    None => (loss.to_string(), "is it an NBD server?"),
                }
            }
            Some(NbdLoss::Refused(refusal)) => (
                refusal.to_string(),
                match refusal {
                    refusal if refusal.wants_tls() => TLS_HINT,
                    NbdRefusal::Export(_) => "`nbdinfo --list` shows a server's exports",
                    NbdRefusal::Protocol(_) => "is it an NBD server?",
                },
            ),
        };
        format!("cannot use export `{}` of {place}: {what}\n{advice}", self.options.export)
    }
}
