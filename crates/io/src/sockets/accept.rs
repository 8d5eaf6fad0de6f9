//! Whether connections are accepted, and from which listeners.

use contract::ListenerId;

use super::Sockets;

impl Sockets {
    /// Accepts nothing for now, or again.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        match is_held {
            true => (0..self.listeners.len()).for_each(|n| self.cancel_accept(n as u32)),
            false => self.arm_accepts(),
        }
    }

    /// Turns away whoever comes by a listener from now on, or lets them in again.
    pub fn refuse(&mut self, id: ListenerId, refuses: bool) {
        let own = self.listeners.iter_mut().filter(|listening| listening.id == id);
        own.for_each(|listening| listening.refuses = refuses);
    }

    /// Closes a listener. Connections that came by it stay.
    pub fn unlisten(&mut self, id: ListenerId) {
        for n in 0..self.listeners.len() {
            let listening = &mut self.listeners[n];
            if listening.id == id && listening.listener.take().is_some() && listening.armed {
                self.cancel_accept(n as u32);
            }
        }
    }

    /// Whether an accept may still bring a connection.
    pub fn accepts(&self) -> bool {
        self.listeners.iter().any(|listening| listening.armed)
    }
}
