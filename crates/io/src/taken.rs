//! Internet ports that are in use: by a process, or by the kernel alone, which frees the sockets of
//! a killed server with its ring, a moment after its end. On a busy machine that takes seconds.

use std::fs;
use std::io;
use std::time::Duration;

/// Maximum number of attempts to bind a port that is in use, `PAUSE` apart: about four seconds.
const TRIES: u32 = 200;

/// Number of attempts after which a port is given up if a process has it.
const TRIES_IF_HELD: u32 = 50;

const PAUSE: Duration = Duration::from_millis(20);

/// A kind of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    Tcp,
    Udp,
}

impl Ports {
    /// Makes an attempt to bind `port`, and makes it again while the port is in use: for about a
    /// second if a process has it, else longer, as the kernel may still free what a killed server
    /// had. A process that this one may not look into is not seen.
    ///
    /// # Errors
    /// Fails with the error of the last attempt.
    pub(crate) fn bind<T>(
        self,
        port: u16,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        for n in 1..TRIES {
            match attempt() {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                    if n == TRIES_IF_HELD && self.is_held(port) {
                        return Err(e);
                    }
                }
                result => return result,
            }
            std::thread::sleep(PAUSE);
        }
        attempt()
    }

    /// Returns `true` if a process has a socket at the port.
    fn is_held(self, port: u16) -> bool {
        let sockets: Vec<String> = self
            .files()
            .into_iter()
            .filter_map(|path| fs::read_to_string(path).ok())
            .flat_map(|table| self.inodes(&table, port))
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        !sockets.is_empty() && has_any(&sockets)
    }

    /// Returns the kernel's tables of sockets in the network namespace of this thread.
    fn files(self) -> [&'static str; 2] {
        match self {
            Ports::Tcp => ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"],
            Ports::Udp => ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"],
        }
    }

    /// Returns the inodes of the sockets in a table of the kernel that receive at this port.
    fn inodes(self, table: &str, port: u16) -> Vec<u64> {
        const LISTENS: &str = "0A";
        let of = |line: &str| {
            let mut words = line.split_whitespace();
            let (_, local_port) = words.nth(1)?.rsplit_once(':')?;
            let (state, inode) = (words.nth(1)?, words.nth(5)?.parse().ok()?);
            let is_there = u16::from_str_radix(local_port, 16) == Ok(port);
            (is_there && (self == Ports::Udp || state == LISTENS)).then_some(inode)
        };
        table.lines().skip(1).filter_map(of).collect()
    }
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
        let ports = [tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port()];
        let left = [leave(&tcp), leave(&udp)];
        let kinds = [Ports::Tcp, Ports::Udp];
        let are_held = || [0, 1].map(|n| kinds[n].is_held(ports[n]));
        assert_eq!(are_held(), [true; 2]);
        drop((tcp, udp));
        // A child that another test starts has them until it runs its program.
        while are_held() != [false; 2] {
            std::thread::sleep(PAUSE);
        }
        for (kind, file, port) in [(Ports::Tcp, 1, ports[0]), (Ports::Udp, 0, ports[1])] {
            let table = fs::read_to_string(kind.files()[file]).unwrap();
            assert!(!kind.inodes(&table, port).is_empty(), "the kernel has it");
        }
        drop(left);
    }

    #[test]
    fn a_port_that_no_process_has_is_waited_for_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at: SocketAddr = listener.local_addr().unwrap();
        let mut tries = 0;
        let taken = Ports::Tcp.bind(at.port(), || {
            tries += 1;
            TcpListener::bind(at)
        });
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(tries, TRIES_IF_HELD);
        let mut left = Some(leave(&listener));
        drop(listener);
        while Ports::Tcp.is_held(at.port()) {
            std::thread::sleep(PAUSE);
        }
        tries = 0;
        let free = Ports::Tcp.bind(at.port(), || {
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
