//! Functions shared by chores and trials: running programs, and installing missing ones.

#![allow(clippy::disallowed_methods, reason = "chores measure how long they take")]

pub mod needs;
pub mod shell;
