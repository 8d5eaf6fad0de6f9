//! The line of connections that wait for receive buffers.

use super::Sockets;
use super::conn::Receiving;

impl Sockets {
    /// Waits for receive buffers; the next [`kick`](contract::Streams::kick) that finds some ends this.
    pub(super) fn starve(&mut self, index: u32) {
        self.provided.ran_dry();
        let conn = &mut self.conns[index as usize];
        if !std::mem::replace(&mut conn.is_starved, true) {
            self.starved.push_back(index);
        }
    }

    /// Lets those who have waited longest receive: as many as there are buffers, as the others would
    /// only run dry again, each time at the price of a receive. Who is paused or closed by now leaves
    /// the line and takes nobody's place.
    pub(super) fn receive_starved(&mut self) {
        let mut receives = self.provided.available();
        while receives > 0 {
            let Some(index) = self.starved.pop_front() else { break };
            let conn = &mut self.conns[index as usize];
            conn.is_starved = false;
            let was_idle = conn.receiving == Receiving::Idle;
            self.receive_or_free(index);
            let receives_now = self.conns[index as usize].receiving != Receiving::Idle;
            receives -= usize::from(was_idle && receives_now);
        }
    }
}
