//! Internet ports that are in use: by a process, or by the kernel alone, which frees the sockets of
//! a killed server with its ring, a moment after its end. On a busy machine that takes seconds.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Maximum number of attempts to bind a port that is in use, `PAUSE` apart: about four seconds.
const TRIES: u32 = 200;

/// Number of failed attempts to bind a port after which the system is searched for a process that
/// has the port. If there is one, binding fails.
const TRIES_IF_HELD: u32 = 50;

const PAUSE: Duration = Duration::from_millis(20);

/// A kind of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortProtocol {
    Tcp,
    Udp,
}

impl PortProtocol {
    /// Makes an attempt to bind `address`, and makes it again while its port is in use: for about a
    /// second if a process has it, else longer, as the kernel may still free what a killed server
    /// had. A process of the same user whose descriptors cannot be read is not detected.
    ///
    /// # Errors
    /// Fails with the error of the last attempt.
    pub(crate) fn bind<T>(
        self,
        address: SocketAddr,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        for n in 1..TRIES {
            match attempt() {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                    if n == 1 {
                        tracing::info!(%address, "the port is in use; waits for it");
                    }
                    if n.is_multiple_of(TRIES_IF_HELD) && self.is_held(address) {
                        return Err(e);
                    }
                }
                result => return result,
            }
            std::thread::sleep(PAUSE);
        }
        attempt()
    }

    /// Returns `true` if a process has a socket that keeps others from the address. A socket of
    /// another user counts, as a killed server was of this one.
    fn is_held(self, address: SocketAddr) -> bool {
        let tables = self.files().into_iter().filter_map(|path| fs::read_to_string(path).ok());
        let sockets: Vec<Socket> = tables.flat_map(|table| self.sockets(&table, address)).collect();
        let own = rustix::process::geteuid().as_raw();
        if sockets.iter().any(|socket| socket.uid != own) {
            return true;
        }
        let names: Vec<String> =
            sockets.iter().map(|socket| format!("socket:[{}]", socket.inode)).collect();
        !names.is_empty() && has_any(&names)
    }

    /// Returns the kernel's tables of sockets in the network namespace of this thread.
    fn files(self) -> [&'static str; 2] {
        match self {
            PortProtocol::Tcp => ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"],
            PortProtocol::Udp => ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"],
        }
    }

    /// Returns the sockets in a table of the kernel that receive at this address. Those that have
    /// no file any more are about to be freed.
    fn sockets(self, table: &str, address: SocketAddr) -> Vec<Socket> {
        const LISTENS: &str = "0A";
        let of = |line: &str| {
            let mut words = line.split_whitespace();
            let local = local_address(words.nth(1)?)?;
            let (state, uid) = (words.nth(1)?, words.nth(3)?.parse().ok()?);
            let inode = words.nth(1)?.parse().ok()?;
            let receives = self == PortProtocol::Udp || state == LISTENS;
            (receives && inode != 0 && meet(local, address)).then_some(Socket { uid, inode })
        };
        table.lines().skip(1).filter_map(of).collect()
    }
}

/// A socket in the kernel's socket tables (`/proc/net`): its owner and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    uid: u32,
    inode: u64,
}

/// Returns the likely reason for which the system refuses an address, in brackets; empty if none is
/// likely.
pub(crate) fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (is another server running there?)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 need a privilege)",
        io::ErrorKind::AddrNotAvailable => " (no interface has this address)",
        _ => "",
    }
}

/// Returns the address that a table of the kernel has in this form: words of memory and the port,
/// all in hexadecimal digits.
fn local_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |n: usize| {
        let digits = ip.get(8 * n..8 * (n + 1))?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            Ipv6Addr::from(std::array::from_fn(|n| words[n / 4][n % 4])).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Returns `true` if sockets bound to these two addresses may conflict. The unspecified address of
/// IPv6 may include all addresses of IPv4.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    let covers =
        |wide: IpAddr, of: IpAddr| wide.is_unspecified() && (wide.is_ipv6() || of.is_ipv4());
    one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

/// Returns `true` if a process has a descriptor of one of these sockets, by their names in `/proc`.
fn has_any(sockets: &[String]) -> bool {
    let is_one = |open: io::Result<fs::DirEntry>| {
        let link = open.and_then(|open| fs::read_link(open.path())).ok();
        link.is_some_and(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
    };
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let is_process = process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        is_process && fs::read_dir(process.path().join("fd")).is_ok_and(|mut all| all.any(is_one))
    })
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::net::{SocketAddr, TcpListener, UdpSocket};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    /// Leaves a socket to the kernel alone until the returned stream is closed.
    fn leave(socket: impl AsFd) -> UnixStream {
        let (from, to) = UnixStream::pair().unwrap();
        let files = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut more = SendAncillaryBuffer::new(&mut space);
        assert!(more.push(SendAncillaryMessage::ScmRights(&files)));
        let bytes = [io::IoSlice::new(b"x")];
        rustix::net::sendmsg(&from, &bytes, &mut more, SendFlags::empty()).unwrap();
        to
    }

    #[test]
    fn sockets_of_processes_are_told_from_those_that_the_kernel_alone_has() {
        let tcp = TcpListener::bind("[::1]:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let places = [tcp.local_addr().unwrap(), udp.local_addr().unwrap()];
        let left = [leave(&tcp), leave(&udp)];
        let kinds = [PortProtocol::Tcp, PortProtocol::Udp];
        let are_held = || [0, 1].map(|n| kinds[n].is_held(places[n]));
        assert_eq!(are_held(), [true; 2]);
        drop((tcp, udp));
        // A child that another test starts has them until it runs its program.
        while are_held() != [false; 2] {
            std::thread::sleep(PAUSE);
        }
        for (kind, file, place) in
            [(PortProtocol::Tcp, 1, places[0]), (PortProtocol::Udp, 0, places[1])]
        {
            let table = fs::read_to_string(kind.files()[file]).unwrap();
            assert!(!kind.sockets(&table, place).is_empty(), "the kernel has it");
        }
        drop(left);
    }

    #[test]
    fn a_server_at_another_address_does_not_have_the_port() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = held.local_addr().unwrap().port();
        let at = |ip: &str| format!("{ip}:{port}").parse::<SocketAddr>().unwrap();
        let (table, kind) =
            (fs::read_to_string(PortProtocol::Tcp.files()[0]).unwrap(), PortProtocol::Tcp);
        let own = rustix::process::geteuid().as_raw();
        for (ip, is_there) in [
            ("127.0.0.1", true),
            ("0.0.0.0", true),
            ("[::]", true),
            ("[::ffff:127.0.0.1]", true),
            ("127.0.0.2", false),
            ("[::1]", false),
        ] {
            let found = kind.sockets(&table, at(ip));
            assert_eq!(!found.is_empty(), is_there, "{ip}");
            assert!(found.iter().all(|socket| socket.uid == own), "{found:?}");
        }
        assert!(kind.is_held(at("127.0.0.1")));
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                     uid  timeout inode\n\
                     0: 00000000:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                     990 0 4711 1 0 100 0 0 10 0\n\
                     1: 00000000:1CFC 00000000:0000 01 00000000:00000000 00:00000000 00000000 \
                     990 0 4712 1 0 100 0 0 10 0\n\
                     2: 00000000:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                     0 0 0 1 0 100 0 0 10 0\n";
        let at: SocketAddr = "192.0.2.1:7420".parse().unwrap();
        assert_eq!(PortProtocol::Tcp.sockets(table, at), [Socket { uid: 990, inode: 4711 }]);
        let nobodys: SocketAddr = "192.0.2.1:7421".parse().unwrap();
        assert_eq!(PortProtocol::Tcp.sockets(table, nobodys), []);
    }

    #[test]
    fn a_port_that_no_process_has_is_waited_for_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at: SocketAddr = listener.local_addr().unwrap();
        let mut tries = 0;
        let taken = PortProtocol::Tcp.bind(at, || {
            tries += 1;
            TcpListener::bind(at)
        });
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(tries, TRIES_IF_HELD);
        let mut left = Some(leave(&listener));
        drop(listener);
        while PortProtocol::Tcp.is_held(at) {
            std::thread::sleep(PAUSE);
        }
        tries = 0;
        let free = PortProtocol::Tcp.bind(at, || {
            tries += 1;
            if tries == TRIES_IF_HELD + 10 {
                left = None;
            }
            TcpListener::bind(at)
        });
        assert_eq!(free.unwrap().local_addr().unwrap(), at);
        assert!(tries >= TRIES_IF_HELD + 10, "{tries}");
    }
}
