//! Connections that we make.

// UNSAFETY: an entry points to an address that its connection keeps until the completion.

use contract::{CloseReason, ConnId, Dial, Instant, NetEvent};
use io_uring::{opcode, types};

use super::Sockets;
use super::conn::{self, Operation, Phase};
use crate::Owner;

impl Dial for Sockets {
    fn dial(&mut self, _now: Instant) -> ConnId {
        let server = self.server.as_ref().expect("dial_to() was called before");
        let (family, address) = (server.family(), server.internet());
        let target = Box::new(conn::SocketAddress::from(server));
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let placed = rustix::net::socket_with(family, rustix::net::SocketType::STREAM, flags, None)
            .map_err(|e| e.raw_os_error())
            .and_then(|socket| {
                self.config.tcp.apply(&socket, address);
                let placed = self.place(socket, Phase::Dialling);
                placed.map_err(|_refused| libc::EMFILE)
            });
        let index = match placed {
            Ok(index) => index,
            Err(errno) => return self.unreachable(errno),
        };
        let (pointer, length) = target.as_raw();
        let conn = &mut self.conns[index as usize];
        conn.dialling = Some(target);
        conn.dialled = true;
        let entry = opcode::Connect::new(types::Fixed(index), pointer, length).build();
        let data = Operation::Connect.data(index, conn.generation);
        // SAFETY: the address is boxed and kept in `dialling` until the connect's completion.
        unsafe { self.ring.push(Owner::Sockets, data, entry) };
        self.id(index)
    }
}

impl Sockets {
    /// A dial that failed before the kernel was asked to connect.
    fn unreachable(&mut self, errno: i32) -> ConnId {
        self.failed_dials = self.failed_dials.wrapping_add(1);
        let conn = ConnId { index: u32::MAX, generation: self.failed_dials };
        let reason = CloseReason::Unreachable(errno);
        self.events.push_back(NetEvent::Closed { conn, reason });
        conn
    }
}
