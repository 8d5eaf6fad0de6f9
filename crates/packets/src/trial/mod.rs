//! Endpoints over a simulated network, in virtual time.

mod chance;
mod perfect;
mod talk;
mod weather;
mod world;
