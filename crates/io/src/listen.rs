//! Listening sockets, and the options that every stream of ours gets.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use contract::{EtherAddress, EtherCard};
use packets::PacketKey;
use rustix::net::sockopt;

use crate::ether::{self, EtherPort};
use crate::lane::open::open_card;
use crate::lane::xdp::card::CardSocket;
use crate::taken::{PortProtocol, hint};
use crate::tls::ServerTls;
use crate::unix::{self, SocketFile};
use crate::{Endpoint, Error, UdpLanes, UnixPath};

/// Options of our TCP sockets.
#[derive(Clone, Debug, Default)]
pub struct TcpOptions {
    /// Congestion control by its kernel name. `None` means `cubic` for peers on this machine, where
    /// a paced one such as BBR only costs throughput, else the system's default.
    pub congestion: Option<String>,
    /// Size of the kernel's send and receive buffers in bytes; `None` leaves them to the kernel's
    /// own tuning.
    pub socket_buffer: Option<usize>,
}

impl TcpOptions {
    /// Applies the options to a stream whose other end is `address`; `None` for a Unix socket,
    /// which has buffers only. Options that the kernel refuses cost speed, not correctness, so a
    /// refusal is ignored.
    pub(crate) fn apply(&self, socket: impl AsFd, address: Option<SocketAddr>) {
        if let Some(bytes) = self.socket_buffer {
            let _ = sockopt::set_socket_send_buffer_size(&socket, bytes);
            let _ = sockopt::set_socket_recv_buffer_size(&socket, bytes);
        }
        let Some(address) = address else { return };
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        // Finds out, within two minutes, that an idle peer has vanished.
        let _ = sockopt::set_socket_keepalive(&socket, true);
        let _ = sockopt::set_tcp_keepidle(&socket, Duration::from_secs(60));
        let _ = sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(10));
        let _ = sockopt::set_tcp_keepcnt(&socket, 6);
        match &self.congestion {
            Some(name) => {
                let _ = sockopt::set_tcp_congestion(&socket, name);
            }
            None if address.ip().is_loopback() => {
                let _ = sockopt::set_tcp_congestion(&socket, "cubic");
            }
            None => {}
        }
    }
}

/// A socket, bound to an address, that accepts connections or receives packets.
#[derive(Debug)]
pub struct Listener {
    // Before the socket: while that is open, nobody takes the file for a dead server's.
    file: Option<SocketFile>,
    pub(crate) socket: Arc<OwnedFd>,
    /// Further sockets at the address, which share the packets with the first.
    others: Vec<Arc<OwnedFd>>,
    /// The listener's further lanes, each with its own sockets.
    pub(crate) also: Vec<Listener>,
    /// The port at an Ethernet card; `None` for other listeners.
    pub(crate) ether_port: Option<Box<EtherPort>>,
    /// The AF_XDP socket of the card, if frames go that way.
    pub(crate) card: Option<Box<CardSocket>>,
    endpoint: Endpoint,
    /// The TLS settings of the listener's connections; `None` without TLS.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// The key with which a listener's packets are sealed; `None` if they are not.
    pub(crate) key: Option<PacketKey>,
}

/// A handle to a listener's sockets, by which they are passed to another process. It does not keep
/// the listener open.
#[derive(Debug)]
pub struct ListenerHandle {
    sockets: Vec<Weak<OwnedFd>>,
    endpoint: Endpoint,
    stays: Option<Arc<AtomicBool>>,
}

impl ListenerHandle {
    /// Returns the sockets; `None` if the listener is closed. A listener for packets has one for
    /// each worker, and one that holds the port at an Ethernet card.
    pub fn sockets(&self) -> Option<Vec<Arc<OwnedFd>>> {
        self.sockets.iter().map(Weak::upgrade).collect()
    }

    /// Returns the address that the listener listens on.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sets whether the file of a Unix socket belongs to another process. If it does, the file
    /// stays when the listener closes.
    pub fn give_away(&self, is_given: bool) {
        if let Some(stays) = &self.stays {
            stays.store(is_given, Ordering::SeqCst);
        }
    }
}

/// Maximum number of connections that wait to be accepted, within the kernel's own limit.
const BACKLOG: i32 = 4096;

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// Fails if the system refuses the address, such as when another server has it.
    pub fn bind(address: SocketAddr, options: &TcpOptions) -> Result<Listener, Error> {
        let fail =
            |e: std::io::Error| Error::system(format!("cannot listen on {address}{}", hint(&e)), e);
        let listener = PortProtocol::Tcp.bind(address, || TcpListener::bind(address));
        let listener = listener.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        if let Some(name) = &options.congestion {
            sockopt::set_tcp_congestion(&listener, name).map_err(|e| {
                let known = "/proc/sys/net/ipv4/tcp_available_congestion_control";
                Error::system(format!("cannot use congestion control {name:?} (see {known})"), e)
            })?;
        }
        rustix::net::listen(&listener, BACKLOG).map_err(|e| fail(e.into()))?;
        options.apply(&listener, Some(address));
        Ok(Listener::over(Arc::new(listener.into()), address.into()))
    }

    /// Listens on the Unix socket `path`, whose file gets the permissions `mode` and is removed
    /// with the listener. A socket left by a dead server is replaced.
    ///
    /// # Errors
    /// Fails if another server listens there, the path is a file that is no socket, or its
    /// directory is missing.
    pub fn bind_unix(path: &UnixPath, mode: u32) -> Result<Listener, Error> {
        let (socket, file) = unix::listen(path, mode, BACKLOG)?;
        let (socket, endpoint) = (Arc::new(socket), path.clone().into());
        Ok(Listener { file: Some(file), ..Listener::over(socket, endpoint) })
    }

    /// Receives packets at all addresses that are wanted, over UDP; port 0 takes a free one.
    ///
    /// # Errors
    /// Fails if the system refuses an address, such as when another server has it.
    pub fn bind_packets(wanted: &UdpLanes) -> Result<Listener, Error> {
        let bind = |address: &SocketAddr| {
            let socket = crate::datagram::bind(*address)?;
            let fail = |e| Error::system(format!("cannot receive packets at {address}"), e);
            let any = rustix::net::getsockname(&socket).map_err(fail)?;
            Ok((socket, SocketAddr::try_from(any).map_err(fail)?))
        };
        let bound: Result<Vec<_>, Error> = wanted.all().iter().map(bind).collect();
        let mut bound = bound?.into_iter();
        let (first, address) = bound.next().expect("there is a lane");
        let (mut lanes, mut also) = (UdpLanes::from(address), Vec::new());
        for (socket, address) in bound {
            lanes.add(address)?;
            also.push(Listener::over(Arc::new(socket), Endpoint::Packets(address.into())));
        }
        lanes.window = wanted.window;
        Ok(Listener { also, ..Listener::over(Arc::new(first), Endpoint::Packets(lanes)) })
    }

    /// Receives packets in frames of Ethernet at network cards, for `workers` workers.
    ///
    /// # Errors
    /// Fails if a right is missing, another server has the port, or the interface cannot be used.
    pub fn bind_ether(at: &EtherAddress, workers: usize) -> Result<Listener, Error> {
        for (n, card) in at.cards().iter().enumerate() {
            let interface = card.interface();
            if at.cards()[..n].iter().any(|other| other.interface() == interface) {
                return Err(Error::new(format!("also={interface} is another lane, too")));
            }
        }
        let bind = |card: &EtherCard| Listener::bind_card(at.only(card.clone()), workers);
        let mut lanes: Vec<Listener> = at.cards().iter().map(bind).collect::<Result<_, _>>()?;
        let macs = lanes
            .iter()
            .filter_map(|lane| lane.ether_port.as_ref().map(|ether_port| ether_port.card.mac));
        let endpoint = Endpoint::Ethernet(at.at_cards(macs));
        let first = lanes.remove(0);
        Ok(Listener { also: lanes, endpoint, ..first })
    }

    /// Receives packets in frames of Ethernet at the first card of `at`.
    fn bind_card(at: EtherAddress, workers: usize) -> Result<Listener, Error> {
        let ether_port = EtherPort::listen(at.first(), at.port)?;
        ether_port.packet_bytes()?;
        // Beside AF_XDP, too: a successor goes on with it.
        let socket = Arc::new(ether_port.open()?);
        let way = (at.first().interface(), at.via);
        let card = open_card(&ether_port, way, workers)?.map(Box::new);
        if card.is_some() {
            // Nobody reads there until then.
            let fail = |e| Error::system("cannot keep frames from a packet socket", e);
            ether::hear(&socket, None).map_err(fail)?;
        }
        let endpoint = Endpoint::Ethernet(at.at_cards([ether_port.card.mac]));
        let listener = Listener::over(socket, endpoint);
        Ok(Listener { ether_port: Some(Box::new(ether_port)), card, ..listener })
    }

    /// Returns a listener over one socket, without TLS, key, file and card.
    fn over(socket: Arc<OwnedFd>, endpoint: Endpoint) -> Listener {
        let (file, others, also, ether_port, card) = (None, Vec::new(), Vec::new(), None, None);
        Listener { file, socket, others, also, ether_port, card, endpoint, tls: None, key: None }
    }

    /// Opens further sockets until a listener that receives packets has one for each of `workers`
    /// workers. Does nothing for other listeners, at which one worker accepts for all.
    ///
    /// # Errors
    /// Fails if there are too few descriptors.
    pub fn widen(&mut self, workers: usize) -> Result<(), Error> {
        while self.endpoint.is_of_packets() && 1 + self.others.len() < workers {
            let socket = match (&self.endpoint, &self.ether_port) {
                (Endpoint::Packets(lanes), _) => crate::datagram::join(lanes.first())?,
                (_, Some(ether_port)) => ether_port.open()?,
                (_, None) => break,
            };
            self.others.push(Arc::new(socket));
        }
        self.also.iter_mut().try_for_each(|lane| lane.widen(workers))
    }

    /// Divides a listener that receives packets into one for each worker, in their order. From now
    /// on the kernel gives each worker the packets of its associations. Another listener is
    /// returned whole.
    ///
    /// # Errors
    /// Fails if the kernel refuses to distribute packets, or there are too few descriptors.
    pub fn divide(mut self, workers: usize) -> Result<Vec<Listener>, Error> {
        if !self.endpoint.is_of_packets() {
            return Ok(vec![self]);
        }
        self.widen(workers)?;
        match self.ether_port {
            None => crate::datagram::steer(&self.socket, workers)?,
            Some(_) => {
                let sockets: Vec<_> = [&self.socket].into_iter().chain(&self.others).collect();
                ether::steer(&sockets, workers)?;
            }
        }
        // Sockets of more workers stay open, as those behind them would change their places.
        let surplus = self.others.split_off(workers - 1);
        let (endpoint, key, ether_port) =
            (self.endpoint.clone(), self.key.clone(), self.ether_port.clone());
        let of = |socket| {
            let listener = Listener::over(socket, endpoint.clone());
            Listener { key: key.clone(), ether_port: ether_port.clone(), ..listener }
        };
        let others: Vec<_> = std::mem::replace(&mut self.others, surplus);
        let also = std::mem::take(&mut self.also);
        let mut all: Vec<_> = [self].into_iter().chain(others.into_iter().map(of)).collect();
        for lane in also {
            let parts = lane.divide(workers)?;
            all.iter_mut().zip(parts).for_each(|(listener, part)| listener.also.push(part));
        }
        Ok(all)
    }

    /// Returns a duplicate of the socket's descriptor, for callers with an accept loop of their
    /// own. The file of a Unix socket still belongs to this listener.
    ///
    /// # Errors
    /// Fails if there are too few descriptors.
    pub fn try_clone(&self) -> std::io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Returns a listener over a socket that another process passed. The file of a Unix socket
    /// belongs to this listener from now on.
    ///
    /// # Errors
    /// Fails if the descriptor is no listening socket, or no socket for packets at `endpoint`.
    pub fn adopt(socket: OwnedFd, endpoint: Endpoint) -> Result<Listener, Error> {
        if let Endpoint::Packets(lanes) = &endpoint {
            crate::datagram::check(&socket, lanes.first())?;
            return Ok(Listener::over(Arc::new(socket), endpoint));
        }
        if let Endpoint::Ethernet(at) = &endpoint {
            ether::adopt(&socket, at)?;
            let ether_port = Some(Box::new(EtherPort::adopt(at.first(), at.port)?));
            return Ok(Listener { ether_port, ..Listener::over(Arc::new(socket), endpoint) });
        }
        let listens = rustix::net::sockopt::socket_acceptconn(&socket);
        if !listens.map_err(|e| Error::system(format!("cannot take over {endpoint}"), e))? {
            return Err(Error::new(format!("what was passed for {endpoint} does not listen")));
        }
        let file = match &endpoint {
            Endpoint::Unix(path) => SocketFile::of(path),
            _ => None,
        };
        Ok(Listener { file, ..Listener::over(Arc::new(socket), endpoint) })
    }

    /// Adds the further sockets that another process had at the address, in their order there,
    /// those of further lanes, and the one that holds an Ethernet port.
    ///
    /// # Errors
    /// Fails if a socket does not receive packets at the address.
    pub fn adopt_others(&mut self, sockets: Vec<OwnedFd>) -> Result<(), Error> {
        for socket in sockets {
            if let Some(other) = lane_of(&socket, &self.endpoint) {
                self.adopt_lane(socket, other)?;
                continue;
            }
            if let Endpoint::Ethernet(at) = &self.endpoint
                && at.cards().len() > 1
                && ether::interface_of(&socket) != ether::index_of(at.first().interface())
            {
                return Err(Error::new(format!(
                    "a card of {} is gone, or was made anew, since its socket was opened: stop the \
                     server, and start it again",
                    self.endpoint
                )));
            }
            match (&self.endpoint, &mut self.ether_port) {
                (Endpoint::Packets(lanes), _) => crate::datagram::check(&socket, lanes.first())?,
                (Endpoint::Ethernet(_), Some(ether_port)) if ether::is_claim(&socket) => {
                    ether_port.claim = Some(Arc::new(socket));
                    continue;
                }
                (Endpoint::Ethernet(at), _) => ether::adopt(&socket, at)?,
                _ => return Err(Error::new(format!("{} has one socket", self.endpoint))),
            }
            self.others.push(Arc::new(socket));
        }
        Ok(())
    }

    /// Adds a socket that another process had at a further lane.
    fn adopt_lane(&mut self, socket: OwnedFd, endpoint: Endpoint) -> Result<(), Error> {
        match self.also.iter_mut().find(|lane| lane.endpoint == endpoint) {
            Some(lane) => lane.adopt_others(vec![socket]),
            None => {
                self.also.push(Listener::adopt(socket, endpoint)?);
                Ok(())
            }
        }
    }

    /// Sets the permissions of a Unix socket's file; does nothing for other listeners.
    ///
    /// # Errors
    /// Fails if the system refuses. A file that somebody else put there meanwhile is left alone.
    pub fn set_mode(&self, mode: u32) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), |file| file.set_mode(mode))
    }

    /// Returns a handle to pass the listener's sockets to another process, even after the listener
    /// was moved.
    pub fn keep(&self) -> ListenerHandle {
        let stays = self.file.as_ref().map(SocketFile::stays);
        let sockets = [self].into_iter().chain(&self.also).flat_map(|lane| {
            let claim = lane.ether_port.as_ref().and_then(|ether_port| ether_port.claim.as_ref());
            [&lane.socket].into_iter().chain(&lane.others).chain(claim)
        });
        let sockets = sockets.map(Arc::downgrade).collect();
        ListenerHandle { sockets, endpoint: self.endpoint.clone(), stays }
    }

    /// Returns the listener with TLS for its connections, or without.
    pub fn with_tls(self, tls: Option<Arc<ServerTls>>) -> Listener {
        Listener { tls, ..self }
    }

    /// Returns the listener with a key for its packets, or without.
    pub fn with_key(self, key: Option<PacketKey>) -> Listener {
        Listener { key, ..self }
    }

    /// Returns the TLS settings of the listener's connections, if there are any.
    pub fn tls(&self) -> Option<&Arc<ServerTls>> {
        self.tls.as_ref()
    }

    /// Returns the address of the listener, with its actual port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Returns the endpoint of the lane behind the first to which a socket belongs; `None` if it
/// belongs to none.
fn lane_of(socket: &OwnedFd, endpoint: &Endpoint) -> Option<Endpoint> {
    match endpoint {
        Endpoint::Packets(lanes) => {
            let own: SocketAddr = rustix::net::getsockname(socket).ok()?.try_into().ok()?;
            lanes.all()[1..].contains(&own).then(|| Endpoint::Packets(own.into()))
        }
        Endpoint::Ethernet(at) => {
            let index = ether::interface_of(socket)?;
            let is_there = |card: &&EtherCard| ether::index_of(card.interface()) == Some(index);
            let card = at.cards()[1..].iter().find(is_there)?;
            Some(Endpoint::Ethernet(at.only(card.clone())))
        }
        Endpoint::Internet(_) | Endpoint::Unix(_) => None,
    }
}

/// Returns whether a dialled stream is connected to itself: a dial to an unused port of this
/// machine may get that very port as its source, and TCP then connects the socket to itself. Such a
/// stream is reset when it is closed, so that it does not block the port for the server.
pub(crate) fn reached_itself(socket: impl AsFd, server: &Endpoint) -> bool {
    let Endpoint::Internet(server) = server else { return false };
    let own = rustix::net::getsockname(&socket).ok().and_then(|any| any.try_into().ok());
    let reached_itself = own == Some(*server);
    if reached_itself {
        let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
    }
    reached_itself
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_stream_to_itself_is_told_from_others() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(any).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!reached_itself(&stream, &listener.local_addr().unwrap().into()));
        // A socket that is bound to the address it connects to.
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        let own: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        rustix::net::connect(&socket, &own).unwrap();
        assert!(reached_itself(&socket, &own.into()));
    }

    #[test]
    fn an_unknown_congestion_control_is_named() {
        let options = TcpOptions { congestion: Some("nosuch".into()), socket_buffer: None };
        let bound = Listener::bind("127.0.0.1:0".parse().unwrap(), &options);
        let error = bound.unwrap_err().to_string();
        assert!(error.contains("nosuch") && error.contains("tcp_available"), "{error}");
    }

    #[test]
    fn an_occupied_port_is_named() {
        let options = TcpOptions::default();
        let first = Listener::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = first.endpoint().internet().unwrap();
        let error = Listener::bind(address, &options).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
        assert!(error.contains("another server"), "{error}");
    }
}
