//! Endpoints over a simulated network, in virtual time.

mod bottleneck;
mod chance;
mod hostile;
mod impairments;
mod moved;
mod paths;
mod perfect;
mod sealed;
mod segments;
mod talk;
mod world;
