//! Endpoints over a simulated network, in virtual time.

mod bottleneck;
mod chance;
mod hostile;
mod paths;
mod perfect;
mod talk;
mod weather;
mod world;
