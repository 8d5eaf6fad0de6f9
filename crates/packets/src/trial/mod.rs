//! Endpoints over a simulated network, in virtual time.

mod bottleneck;
mod hostile;
mod impairments;
mod key_randomness;
mod moved;
mod paths;
mod perfect;
mod sealed;
mod segments;
mod talk;
mod world;
