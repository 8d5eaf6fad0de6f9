//! What chores and trials have in common: running programs, and installing those that are missing.

#![allow(clippy::disallowed_methods, reason = "chores measure how long they take")]

pub mod needs;
pub mod shell;
