//! The take-over: a new process replaces the running one, with its connections
//! (docs/adr/0009-upgrade.md).
//!
//! Every server with an upgrade socket has a thread for the [hand-over](hand_over). In the older
//! process the thread acts as the [predecessor]; in the newer one it begins as the [successor].
//! They exchange the messages of `proto::takeover`. This module deliberately leaves out how a
//! connection leaves its worker and lands at another, which works as between two workers.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "a server outlives who reads that")]

mod anew;
mod command;
mod departures;
mod event;
mod hand_over;
mod hand_over_parts;
mod inventory;
mod knock;
mod notify;
mod path;
mod predecessor;
mod retained;
mod socket;
mod step;
mod successor;
mod take_over;
mod talk;
mod thread;

pub(crate) use anew::tell_why as tell_why_anew;
pub use command::{Args, run};
pub(crate) use hand_over::HandOver;
pub(crate) use hand_over_parts::HandOverParts;
pub(crate) use notify::{
    drains as ask_for_time, interval as watchdog_interval, lives as show_life,
    ready as tell_service_manager,
};
pub(crate) use path::{open_socket, socket_path};
pub(crate) use retained::InheritedSockets;
pub(crate) use socket::{Role, Socket, wanted};
pub(crate) use successor::Successor;
pub(crate) use thread::start as start_hand_over;
