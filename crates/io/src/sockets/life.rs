//! The life of a connection over any kernel interface: its beginning, its end, and the return of
//! its buffers.

use std::os::fd::OwnedFd;

use contract::{CloseReason, NetEvent};
use rustix::net::{SendFlags, Shutdown};

use super::kernel::{Kernel, Receive};
use super::table::{ConnState, ConnTable, ConnectionPhase};
use crate::listen::reached_itself;
use crate::tls::ClientHandshakes;

/// The table of connections over the kernel interface `K`.
type KernelConnTable<K> = ConnTable<<K as Receive>::ConnState>;

/// The steps of a connection's life.
pub(crate) trait ConnectionLifecycle: Kernel {
    /// Puts a socket into a free place of the table and registers it with the kernel. Returns the
    /// place's index, or the socket if there is no place or the kernel refuses.
    fn place(
        &mut self,
        table: &mut KernelConnTable<Self>,
        socket: OwnedFd,
        phase: ConnectionPhase,
    ) -> Result<u32, OwnedFd> {
        let Some(index) = table.reserve() else { return Err(socket) };
        if let Err(error) = self.register(table, index, &socket) {
            tracing::warn!(%error, "cannot make the kernel know a connection");
            table.give_back(index);
            return Err(socket);
        }
        table.occupy(index, socket, phase);
        Ok(index)
    }

    /// Completes a dial with the system's result or error number. Returns whether the connection is
    /// open now: a TLS handshake comes before.
    fn connected(
        &mut self,
        table: &mut KernelConnTable<Self>,
        index: u32,
        result: Result<(), i32>,
    ) -> bool {
        let id = table.id(index);
        let server = table.server.as_ref().expect("a dial had an address");
        let socket = table[index].socket();
        let mut result = match result {
            Ok(()) if reached_itself(socket, server) => Err(libc::ECONNREFUSED),
            result => result,
        };
        if result.is_ok()
            && let Some(greeter) = &table.greeter
        {
            match socket.try_clone() {
                Ok(second) => {
                    greeter.greet(id, second);
                    table[index].phase = ConnectionPhase::Greeting;
                    return false;
                }
                Err(_) => result = Err(libc::EMFILE),
            }
        }
        match result {
            Ok(()) => {
                let peer = server.peer(socket);
                table[index].phase = ConnectionPhase::Open;
                table.events.push(NetEvent::opened(id, peer, None));
            }
            Err(errno) => {
                table[index].phase = ConnectionPhase::Closing(CloseReason::Unreachable(errno));
                self.leave(table, index);
            }
        }
        result.is_ok()
    }

    /// Completes the handshakes of dialled connections that another thread has finished.
    fn end_greetings(&mut self, table: &mut KernelConnTable<Self>) {
        while let Some((id, outcome)) = table.greeter.as_ref().and_then(ClientHandshakes::next) {
            let found = table.find_mut(id).filter(|found| found.phase == ConnectionPhase::Greeting);
            let Some(found) = found else { continue };
            match outcome {
                Ok(secured) => {
                    (found.secured, found.phase) = (Some(secured), ConnectionPhase::Open);
                    let server = table.server.as_ref().expect("a dial had an address");
                    let peer = server.peer(table[id.index].socket());
                    table.events.push(NetEvent::opened(id, peer, None));
                    self.start(table, id.index);
                }
                Err(why) => self.end(table, id.index, CloseReason::Insecure(why)),
            }
        }
    }

    /// Ends the connection for `reason`; `Closed` follows when the kernel has no operation of it in
    /// flight.
    fn end(&mut self, table: &mut KernelConnTable<Self>, index: u32, reason: CloseReason) {
        if matches!(table[index].phase, ConnectionPhase::Closing(_)) {
            return;
        }
        self.cancel(table, index);
        table[index].phase = ConnectionPhase::Closing(reason);
        let _ = rustix::net::shutdown(table[index].socket(), Shutdown::Both); // ends what is in flight
        table.drop_frames(index);
        self.leave(table, index);
    }

    /// Frees the place of an ending connection, once no operation of it is in flight.
    fn leave(&mut self, table: &mut KernelConnTable<Self>, index: u32) {
        let ConnectionPhase::Closing(reason) = table[index].phase else { return };
        if table[index].kernel.is_busy() {
            return;
        }
        let id = table.id(index);
        let Some(socket) = table[index].socket.take() else { return };
        self.unregister(index, &socket);
        drop(socket);
        let accepted = !table[index].is_dialled;
        table.vacate(index);
        table.events.push(NetEvent::Closed { conn: id, reason });
        if accepted {
            table.uncount();
        }
    }

    /// Continues after a send: sends again if frames are queued, else shuts the sending side of a
    /// finished connection.
    fn after_send(&mut self, table: &mut KernelConnTable<Self>, index: u32) {
        let conn = &table[index];
        match (conn.queue.is_empty(), conn.phase) {
            (false, _) => table.mark_ready(index),
            (true, ConnectionPhase::Finishing) => {
                say_farewell(table, index);
                shut_sending(table, index);
            }
            (true, _) => {}
        }
    }
}

impl<K: Kernel> ConnectionLifecycle for K {}

/// Sends the `close_notify` alert of TLS, if the socket can send without waiting.
fn say_farewell<P: ConnState>(table: &mut ConnTable<P>, index: u32) {
    let farewell = table[index].secured.as_mut().and_then(|secured| secured.farewell());
    if let Some(record) = farewell {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(table[index].socket(), &record, flags);
    }
}

/// Shuts down the sending direction of the socket, so that the peer reads the end of the stream. An
/// error of the peer's host shows in the receive.
pub(crate) fn shut_sending<P: ConnState>(table: &ConnTable<P>, index: u32) {
    let _ = rustix::net::shutdown(table[index].socket(), Shutdown::Write);
}
