//! The sockets on network cards that a process keeps open while it restarts itself, since it no
//! longer has the rights to open them.

use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;

use io::{Endpoint, Listener};
use serde::{Deserialize, Serialize};

use super::hand_over_parts::HandOverParts;
use super::inventory::{SocketRecord, place};
use super::socket::{Role, adopt, wanted};
use crate::listen::ListenAt;

/// The environment variable that passes the sockets' numbers to the restarted program.
const RETAINED: &str = "NEARFLASH_RETAINED_SOCKETS";

/// The value of the variable, in JSON.
#[derive(Serialize, Deserialize)]
struct RetainedVariable {
    /// The process that has the sockets. Its children inherit the variable only.
    pid: u32,
    /// Each socket with its number.
    sockets: Vec<(SocketRecord, i32)>,
}

/// The sockets of a process that may start anew.
pub(super) struct RetainedSockets(Vec<(SocketRecord, Arc<OwnedFd>)>);

impl RetainedSockets {
    /// Returns the sockets of a server at network cards. They stay open as long as the value.
    pub(super) fn of(grounds: &HandOverParts) -> RetainedSockets {
        let at_cards = grounds.all_sockets().into_iter();
        let at_cards = at_cards.filter(|s| matches!(s.kept.endpoint(), Endpoint::Ethernet(_)));
        let each = at_cards.flat_map(|socket| {
            let is_at = place(socket.kept.endpoint());
            let at = SocketRecord { role: socket.role, wanted: socket.wanted.clone(), is_at };
            let open = socket.kept.sockets().unwrap_or_default();
            open.into_iter().map(move |open| (at.clone(), open)).collect::<Vec<_>>()
        });
        RetainedSockets(each.collect())
    }

    /// Passes the retained sockets to the program that replaces this one when `command` is
    /// executed.
    pub(super) fn pass_on(&self, command: &mut Command) -> Result<(), String> {
        command.env_remove(RETAINED);
        if self.0.is_empty() {
            return Ok(());
        }
        let numbered = self.0.iter().map(|(at, open)| Ok((at.clone(), io::pass_on(open)?)));
        let sockets = numbered.collect::<std::io::Result<_>>().map_err(|e| e.to_string())?;
        let passed = RetainedVariable { pid: std::process::id(), sockets };
        command.env(RETAINED, serde_json::to_string(&passed).map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Keeps the sockets for this program, which was not replaced.
    pub(super) fn keep(&self) {
        self.0.iter().for_each(|(_, open)| io::pass_on_no_more(open));
    }
}

/// The sockets that this process retained when it replaced itself by a new program.
pub(crate) struct InheritedSockets(Vec<(SocketRecord, Option<OwnedFd>)>);

impl InheritedSockets {
    /// Takes the sockets, if this process has started anew.
    ///
    /// # Errors
    /// Fails if the variable names what was not passed on.
    pub(crate) fn take() -> Result<InheritedSockets, String> {
        let Ok(text) = std::env::var(RETAINED) else { return Ok(InheritedSockets(Vec::new())) };
        let passed: RetainedVariable = serde_json::from_str(&text)
            .map_err(|error| format!("{RETAINED} is for restarts of the server alone: {error}"))?;
        if passed.pid != std::process::id() {
            return Ok(InheritedSockets(Vec::new()));
        }
        let take = |(at, number)| Ok((at, Some(io::take_passed(number)?)));
        let taken = passed.sockets.into_iter().map(take).collect::<std::io::Result<_>>();
        taken.map(InheritedSockets).map_err(|error| format!("{RETAINED}: {error}"))
    }

    /// Takes the listener at this address; `None` if there is none.
    ///
    /// # Errors
    /// Fails if its interface is gone.
    pub(crate) fn listener(&mut self, at: &ListenAt) -> Result<Option<Listener>, String> {
        let wanted = wanted(at);
        adopt(&mut self.0, |one| matches!(one.role, Role::Listener(_)) && one.wanted == wanted)
    }
}
