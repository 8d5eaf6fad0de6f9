//! Ethernet cards: their properties in the kernel, claims of ports, and packet sockets at them
//! (docs/adr/0046-raw-ethernet.md).
//!
//! Each packet has four bytes of ours before it in its frame: the ports of receiver and sender, in
//! network order. This module deliberately leaves out sending and receiving (`lane`).

// UNSAFETY: options of sockets and facts about interfaces are read and written by pointers.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use contract::{EtherAddress, EtherCard, Mac};
use packets::Settings;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::{Error, datagram};

/// The type of our frames: the first of the two that IEEE 802 keeps for experiments in a segment.
pub(crate) const ETHERTYPE: u16 = 0x88b5;

/// Bytes before a packet in a frame's payload: the ports of receiver and sender.
pub(crate) const PORTS_BYTES: usize = 4;

/// Maximum bytes of a packet: one frame of a segment with jumbo frames.
const PACKET_BYTES_MAX: usize = 9000 - PORTS_BYTES;

/// The lowest port that a client takes.
const CLIENT_PORTS: u16 = 0x8000;

/// Number of random ports that a client tries to claim.
const CLIENT_TRIES: usize = 16;

/// Maximum number of repetitions, `PAUSE` apart, of an attempt that fails because the kernel has
/// not freed the descriptors of a killed server yet.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of repetitions, `PAUSE` apart, of an attempt that fails because the kernel has
/// not yet freed the resources of a killed server's ring. On a busy machine that takes seconds.
const TRIES_OF_RING: u32 = 200;

/// Maximum number of repetitions, `MEMORY_PAUSE` apart, of an attempt for which the system has no
/// memory at the moment.
const MEMORY_TRIES: u32 = 8;
const MEMORY_PAUSE: Duration = Duration::from_millis(500);

/// Size of a socket's receive buffer, and of its send buffer, in the kernel, in bytes. The system's
/// limits may make them smaller.
const SOCKET_BYTES: usize = 4 << 20;

/// The beginning of the name of a claim; the interface's index and the port follow.
const CLAIM: &str = "nearflash-ethernet-";

/// The packet type of a frame that was sent to the card's own address (`linux/if_packet.h`).
const PACKET_HOST: u32 = 0;

/// Options of packet sockets that make a fanout group and set its program, the kind of a fanout by
/// program, and the flag for a number that no other group has (packet(7), `linux/if_packet.h`).
const PACKET_FANOUT: i32 = 18;
const PACKET_FANOUT_DATA: i32 = 22;
const PACKET_FANOUT_CBPF: u32 = 6;
const PACKET_FANOUT_FLAG_UNIQUEID: u32 = 0x2000;

/// A network card of this machine, in the kernel's words an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) index: i32,
    pub(crate) mac: Mac,
    /// The largest payload of a frame in bytes.
    pub(crate) mtu: usize,
    /// The number of queues for received frames; 1 if the driver does not tell.
    pub(crate) queues: u32,
    /// The card, or its driver, takes the tags of VLANs off frames before a program sees them.
    pub(crate) takes_tags_off: bool,
    /// The interface is enabled (administratively up).
    is_up: bool,
}

impl Card {
    /// Finds a card that is up by the name of its interface.
    ///
    /// # Errors
    /// Fails if there is none, or if it is not up.
    fn find_up(interface: &str) -> Result<Card, Error> {
        match Card::find(interface)? {
            card if card.is_up => Ok(card),
            _ => Err(Error::new(format!(
                "the interface {interface} is down; bring it up: ip link set {interface} up"
            ))),
        }
    }

    /// Finds a card by the name of its interface.
    ///
    /// # Errors
    /// Fails if there is none.
    fn find(interface: &str) -> Result<Card, Error> {
        let fail = |e| Error::system(format!("cannot use the interface {interface}"), e);
        let flags = SocketFlags::CLOEXEC;
        let any = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        let any = any.map_err(|e| fail(e.into()))?;
        let ask = |what| request(&any, interface, what).map_err(fail);
        let (index, flags) = (ask(libc::SIOCGIFINDEX)?, ask(libc::SIOCGIFFLAGS)?);
        let (card, mtu) = (ask(libc::SIOCGIFHWADDR)?, ask(libc::SIOCGIFMTU)?);
        // SAFETY: the kernel has written the member that belongs to the request.
        let (index, flags, card, mtu) = unsafe {
            (
                index.ifr_ifru.ifru_ifindex,
                flags.ifr_ifru.ifru_flags,
                card.ifr_ifru.ifru_hwaddr,
                mtu.ifr_ifru.ifru_mtu,
            )
        };
        if card.sa_family != libc::ARPHRD_ETHER {
            return Err(Error::new(format!("{interface} is not a card of Ethernet")));
        }
        let is_up = i32::from(flags) & libc::IFF_UP != 0;
        let mac = Mac(std::array::from_fn(|n| card.sa_data[n] as u8));
        let (queues, takes_tags_off) = (queues(&any, interface), takes_tags_off(&any, interface));
        Ok(Card { index, mac, mtu: mtu as usize, queues, takes_tags_off, is_up })
    }
}

/// Returns the index of an interface; `None` if there is no such interface.
pub(crate) fn index_of(interface: &str) -> Option<i32> {
    let any = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    );
    let told = request(any.ok()?, interface, libc::SIOCGIFINDEX).ok()?;
    // SAFETY: the kernel has written the member that belongs to the request.
    Some(unsafe { told.ifr_ifru.ifru_ifindex })
}

/// Returns an `ifreq` structure with the interface's name, and zeroes in all other fields.
fn about(interface: &str) -> libc::ifreq {
    // SAFETY: every pattern of bits is a value of this plain structure.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    // An address has checked that the name leaves room for a zero.
    for (to, from) in asked.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    asked
}

/// Asks the kernel about an interface by the ioctl `what`.
fn request(
    socket: impl AsFd,
    interface: &str,
    what: libc::Ioctl,
) -> Result<libc::ifreq, std::io::Error> {
    let mut asked = about(interface);
    // SAFETY: the kernel reads and writes the structure, which outlives the call.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, &raw mut asked) } {
        0 => Ok(asked),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns the number of an interface's queues for received frames; 1 if its driver cannot tell.
fn queues(socket: impl AsFd, interface: &str) -> u32 {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    // The command, four maxima, and the numbers of queues: for received frames, for sent ones, for
    // neither, and for both.
    let mut channels = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: the command has nine words.
    let is_told = unsafe { ask_driver(socket, interface, &mut channels) };
    if is_told { (channels[5] + channels[8]).max(1) } else { 1 }
}

/// Returns `true` if the tags of VLANs are taken off received frames.
fn takes_tags_off(socket: impl AsFd, interface: &str) -> bool {
    const ETHTOOL_GFLAGS: u32 = 0x25;
    const ETH_FLAG_RXVLAN: u32 = 1 << 8;
    let mut flags = [ETHTOOL_GFLAGS, 0];
    // SAFETY: the command has two words.
    let is_told = unsafe { ask_driver(socket, interface, &mut flags) };
    is_told && flags[1] & ETH_FLAG_RXVLAN != 0
}

/// Has the kernel answer a command about an interface (`linux/ethtool.h`) in the command's own
/// words. Returns `false` if the driver cannot tell.
///
/// # Safety
/// The command, which is the first word, has no more words than these.
unsafe fn ask_driver<const N: usize>(
    socket: impl AsFd,
    interface: &str,
    words: &mut [u32; N],
) -> bool {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let mut asked = about(interface);
    asked.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the kernel writes the words that the request points to; both outlive the call.
    unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCETHTOOL, &raw mut asked) == 0 }
}

/// The answer to something that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BusyPolicy {
    /// Repeats the attempt for some time, because the kernel may not yet have freed the resource of
    /// a killed server.
    Waits,
    /// Fails at once, as a client does, whose program has other things to do than to wait.
    Fails,
}

impl BusyPolicy {
    /// Makes the attempt. One that waits repeats it up to [`TRIES`] times, `PAUSE` apart, while it
    /// fails because something is still in use (`EADDRINUSE` or `EBUSY`).
    pub(crate) fn attempt<T>(
        self,
        attempt: impl FnMut() -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        self.repeat(TRIES, PAUSE, &[libc::EADDRINUSE, libc::EBUSY], attempt)
    }

    /// Attempts to take a resource that the kernel frees only with a killed server's ring.
    /// `BusyPolicy::Waits` repeats the attempt for some seconds while it fails with `EBUSY`.
    pub(crate) fn attempt_after_ring<T>(
        self,
        attempt: impl FnMut() -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        self.repeat(TRIES_OF_RING, PAUSE, &[libc::EBUSY], attempt)
    }

    /// Makes an attempt that takes memory. One that waits repeats it for some seconds while the
    /// system has too little, such as until it frees a killed server's.
    pub(crate) fn attempt_for_memory<T>(
        self,
        mut attempt: impl FnMut() -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let passing = [libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN];
        let mut is_known = self == BusyPolicy::Fails;
        self.repeat(MEMORY_TRIES, MEMORY_PAUSE, &passing, || {
            let result = attempt();
            if let Err(error) = &result
                && error.raw_os_error().is_some_and(|errno| passing.contains(&errno))
                && !std::mem::replace(&mut is_known, true)
            {
                tracing::info!(%error, "waits for memory for packets");
            }
            result
        })
    }

    /// Makes the attempt. One that waits repeats it up to `tries` times, `pause` apart, while it
    /// fails with one of the errors `passing`.
    fn repeat<T>(
        self,
        tries: u32,
        pause: Duration,
        passing: &[i32],
        mut attempt: impl FnMut() -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let waits = if self == BusyPolicy::Waits { tries } else { 0 };
        for _ in 0..waits {
            match attempt() {
                Err(e) if e.raw_os_error().is_some_and(|errno| passing.contains(&errno)) => {
                    std::thread::sleep(pause);
                }
                result => return result,
            }
        }
        attempt()
    }
}

/// Takes a port at a card for this process. Nobody else in this network namespace gets it until the
/// returned socket, a Unix socket that sends nothing, is closed.
fn claim(card: &Card, port: u16) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let claim = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let name = format!("{CLAIM}{}-{port}", card.index);
    rustix::net::bind(&claim, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(claim)
}

/// A port for packets at a network card.
#[derive(Clone, Debug)]
pub(crate) struct EtherPort {
    pub(crate) card: Card,
    pub(crate) port: u16,
    /// The socket that keeps the port from others; `None` until the process that has taken the port
    /// passes it.
    pub(crate) claim: Option<Arc<OwnedFd>>,
    /// The answer to a card that is in use.
    pub(crate) patience: BusyPolicy,
}

impl EtherPort {
    /// Takes the port `port` of a server at a card of its machine.
    ///
    /// # Errors
    /// Fails if another server has the port, or if the interface is missing, down or has another
    /// address.
    pub(crate) fn listen(at: &EtherCard, port: u16) -> Result<EtherPort, Error> {
        let card = Card::find_up(at.interface())?;
        if let Some(mac) = at.mac.filter(|mac| *mac != card.mac) {
            return Err(Error::new(format!(
                "{} has the address {}; expected {mac}, or no address",
                at.interface(),
                card.mac
            )));
        }
        let patience = BusyPolicy::Waits;
        let claim = patience.attempt(|| claim(&card, port)).map_err(|e| {
            let hint = match e.kind() {
                std::io::ErrorKind::AddrInUse => " (is another server running there?)",
                _ => "",
            };
            Error::system(format!("cannot receive packets at {at}, port {port}{hint}"), e)
        })?;
        Ok(EtherPort { card, port, claim: Some(Arc::new(claim)), patience })
    }

    /// Returns the port `port` at a card, of which another process holds a server's socket. That
    /// process passes on its claim to the port later. The interface may be down for the moment.
    ///
    /// # Errors
    /// Fails if the interface is missing.
    pub(crate) fn adopt(at: &EtherCard, port: u16) -> Result<EtherPort, Error> {
        let (card, patience) = (Card::find(at.interface())?, BusyPolicy::Waits);
        Ok(EtherPort { card, port, claim: None, patience })
    }

    /// Takes a free port for a client at a card of its machine.
    ///
    /// # Errors
    /// Fails if the interface cannot be used, or if all ports that were tried are taken.
    pub(crate) fn call(interface: &str) -> Result<EtherPort, Error> {
        let card = Card::find_up(interface)?;
        let chance = crate::random::secret();
        let ports = chance.chunks_exact(2).map(|two| u16::from_ne_bytes([two[0], two[1]]));
        let free = ports.take(CLIENT_TRIES).find_map(|port| {
            let port = port | CLIENT_PORTS;
            claim(&card, port).ok().map(|claim| (port, claim))
        });
        let Some((port, claim)) = free else {
            return Err(Error::new(format!("cannot find a free port at {interface}")));
        };
        Ok(EtherPort { card, port, claim: Some(Arc::new(claim)), patience: BusyPolicy::Fails })
    }

    /// Opens a packet socket that receives the frames for the port.
    ///
    /// # Errors
    /// Fails if the system refuses the socket, as without the capability `CAP_NET_RAW`.
    pub(crate) fn open(&self) -> Result<OwnedFd, Error> {
        socket(&self.card, self.port).map_err(|e| {
            let hint = match e.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    " (raw Ethernet needs the capability CAP_NET_RAW: start as root, or with \
                     AmbientCapabilities=CAP_NET_RAW)"
                }
                _ => "",
            };
            Error::system(format!("cannot receive frames for port {}{hint}", self.port), e)
        })
    }

    /// Returns the largest packet that a frame carries, in bytes.
    ///
    /// # Errors
    /// Fails if the frames are too small for a hello.
    pub(crate) fn packet_bytes(&self) -> Result<usize, Error> {
        let bytes = self.card.mtu.saturating_sub(PORTS_BYTES).min(PACKET_BYTES_MAX);
        if bytes >= Settings::PACKET_BYTES_MIN {
            return Ok(bytes);
        }
        Err(Error::new(format!(
            "frames of {} bytes are too small for packets; expected an MTU of {} or more",
            self.card.mtu,
            Settings::PACKET_BYTES_MIN + PORTS_BYTES
        )))
    }
}

/// Returns a packet socket that receives the frames for a port at a card.
fn socket(card: &Card, port: u16) -> std::io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed. Without a protocol, nothing is received before the bind.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened the descriptor, which nobody else has.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    hear(&socket, Some(port))?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES);
    }
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    let address = link_address(card.index, Mac([0; 6]));
    // SAFETY: the kernel reads the address, which outlives the call.
    let bound = unsafe {
        let bytes = size_of_val(&address) as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes)
    };
    if bound == 0 { Ok(socket) } else { Err(std::io::Error::last_os_error()) }
}

/// Has a packet socket receive the frames for a port, or none.
pub(crate) fn hear(socket: impl AsFd, port: Option<u16>) -> std::io::Result<()> {
    let (mut some, mut none) = (port.map(filter), [KEEPS_NONE]);
    let program = some.as_mut().map_or(&mut none[..], |some| &mut some[..]);
    attach(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Checks that a socket of another process receives frames. One that was beside AF_XDP does so from
/// now on.
///
/// # Errors
/// Fails if the socket is of another kind.
pub(crate) fn adopt(socket: impl AsFd, at: &EtherAddress) -> Result<(), Error> {
    if sockopt::socket_domain(&socket) != Ok(AddressFamily::PACKET) {
        return Err(Error::new(format!("what was passed for {at} does not receive frames there")));
    }
    let fail = |e| Error::system(format!("cannot receive frames for port {}", at.port), e);
    hear(socket, Some(at.port)).map_err(fail)
}

/// Returns `true` if a socket, which another process passed, is the claim of a port and no packet
/// socket.
pub(crate) fn is_claim(socket: impl AsFd) -> bool {
    sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
}

/// Returns the index of the interface at which a socket, which another process passed, claims a
/// port or receives frames; `None` if it does neither.
pub(crate) fn interface_of(socket: impl AsFd) -> Option<i32> {
    if is_claim(&socket) {
        let own = SocketAddrUnix::try_from(rustix::net::getsockname(&socket).ok()?).ok()?;
        let name = std::str::from_utf8(own.abstract_name()?).ok()?;
        return name.strip_prefix(CLAIM)?.split_once('-')?.0.parse().ok();
    }
    let mut address = link_address(0, Mac([0; 6]));
    let mut bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to the address, which outlives the call.
    let told = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockname(fd, (&raw mut address).cast(), &raw mut bytes)
    };
    let is_of_card = told == 0 && i32::from(address.sll_family) == libc::AF_PACKET;
    is_of_card.then_some(address.sll_ifindex)
}

/// Makes the kernel distribute the frames for a port over the first `workers` of its sockets. A
/// hello goes to one by chance, any other packet to that of its association's worker. Sockets that
/// are in the group already keep their places.
pub(crate) fn steer(sockets: &[&Arc<OwnedFd>], workers: usize) -> Result<(), Error> {
    let fail = |e| Error::system("cannot distribute packets of Ethernet over workers", e);
    let Some(first) = sockets.first() else { return Ok(()) };
    let mut group = option(first, PACKET_FANOUT).map_err(fail)?;
    if sockets.len() == 1 && group == 0 {
        return Ok(());
    }
    for socket in sockets {
        if option(socket, PACKET_FANOUT).map_err(fail)? != 0 {
            continue;
        }
        let unique = if group == 0 { PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
        let value = group & 0xffff | (PACKET_FANOUT_CBPF | unique) << 16;
        set_option(socket, PACKET_FANOUT, value).map_err(fail)?;
        group = option(first, PACKET_FANOUT).map_err(fail)?;
    }
    let mut program = datagram::steering(workers as u32, PORTS_BYTES);
    attach(first, libc::SOL_PACKET, PACKET_FANOUT_DATA, &mut program).map_err(fail)
}

/// Returns the kernel's address of the card `mac` in the segment of the interface with this index.
pub(crate) fn link_address(index: i32, mac: Mac) -> libc::sockaddr_ll {
    let mut sll_addr = [0; 8];
    sll_addr[..6].copy_from_slice(&mac.0);
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ETHERTYPE.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr,
    }
}

/// Sends a frame with this payload to the card `to` without blocking: drops the frame if the send
/// queue is full. Errors are ignored.
pub(crate) fn send(socket: impl AsFd, index: i32, to: Mac, payload: &[u8]) {
    let (address, fd) = (link_address(index, to), socket.as_fd().as_raw_fd());
    // SAFETY: the kernel reads the payload and the address, which outlive the call. Nobody needs to
    // hear that nobody heard.
    unsafe {
        let bytes = size_of_val(&address) as libc::socklen_t;
        let (at, flags) = (payload.as_ptr().cast(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        libc::sendto(fd, at, payload.len(), flags, (&raw const address).cast(), bytes);
    }
}

/// Returns the bytes before a packet in its frame: the ports of receiver and sender.
pub(crate) fn ports(to: u16, from: u16) -> [u8; PORTS_BYTES] {
    let ([a, b], [c, d]) = (to.to_be_bytes(), from.to_be_bytes());
    [a, b, c, d]
}

/// Returns the sender's port in a frame's payload; `None` if the payload is too short.
pub(crate) fn sender(payload: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes([*payload.get(2)?, *payload.get(3)?]))
}

/// The program that keeps no frame.
const KEEPS_NONE: libc::sock_filter =
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };

/// Returns the BPF program that keeps the frames for a port that were sent to this card's own
/// address, without a VLAN tag. The filter drops all other frames, and frames that are too short to
/// name a port.
fn filter(port: u16) -> [libc::sock_filter; 8] {
    let step = |code: u32, k: u32, (jt, jf)| libc::sock_filter { code: code as u16, jt, jf, k };
    let fact = |which: i32| {
        let at = (libc::SKF_AD_OFF + which) as u32;
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, (0, 0))
    };
    let equals = |k: u32, to| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, to);
    [
        fact(libc::SKF_AD_PKTTYPE),
        equals(PACKET_HOST, (0, 5)),
        fact(libc::SKF_AD_VLAN_TAG_PRESENT),
        equals(0, (0, 3)),
        step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, (0, 0)),
        equals(port.into(), (0, 1)),
        step(libc::BPF_RET | libc::BPF_K, u32::MAX, (0, 0)),
        step(libc::BPF_RET | libc::BPF_K, 0, (0, 0)),
    ]
}

/// Gives the kernel a BPF program for a socket, by the option `name`.
fn attach(
    socket: impl AsFd,
    level: i32,
    name: i32,
    program: &mut [libc::sock_filter],
) -> std::io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads the program and its instructions, which outlive the call.
    let result = unsafe {
        let (fd, bytes) = (socket.as_fd().as_raw_fd(), size_of_val(&program) as libc::socklen_t);
        libc::setsockopt(fd, level, name, (&raw const program).cast(), bytes)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn set_option(socket: impl AsFd, name: i32, value: u32) -> std::io::Result<()> {
    // SAFETY: the kernel reads the four bytes of `value`, which outlives the call.
    let result = unsafe {
        let (fd, bytes) = (socket.as_fd().as_raw_fd(), size_of_val(&value) as libc::socklen_t);
        libc::setsockopt(fd, libc::SOL_PACKET, name, (&raw const value).cast(), bytes)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn option(socket: impl AsFd, name: i32) -> std::io::Result<u32> {
    let mut value = 0u32;
    let mut bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, which outlives the call.
    let result = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, libc::SOL_PACKET, name, (&raw mut value).cast(), &raw mut bytes)
    };
    if result == 0 { Ok(value) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_card_is_named() {
        let listen = |text: &str| EtherPort::listen(&text.parse().unwrap(), EtherAddress::PORT);
        let error = listen("nosuchcard").unwrap_err().to_string();
        assert!(error.contains("nosuchcard") && error.contains("No such device"), "{error}");
        let error = listen("lo").unwrap_err().to_string();
        assert!(error.contains("lo is not a card of Ethernet"), "{error}");
    }

    #[test]
    fn ports_lie_before_a_packet_in_network_order() {
        assert_eq!(ports(0x1cfc, 0x8001), [0x1c, 0xfc, 0x80, 0x01]);
        assert_eq!(sender(&ports(1, 7)), Some(7));
        assert_eq!(sender(&[0; 3]), None);
    }
}
