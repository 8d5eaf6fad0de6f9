//! Endpoints over a simulated network, in virtual time.

mod bottleneck;
mod chance;
mod hostile;
mod moved;
mod paths;
mod perfect;
mod sealed;
mod segments;
mod talk;
mod weather;
mod world;
