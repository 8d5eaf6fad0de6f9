//! The places in the kernel where a program at a card may run.

/// The place where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XdpMode {
    /// In the kernel, once a driver has made a packet of a frame: with every card.
    Generic,
    /// In the driver, which may hand its own memory over: with cards whose drivers support it.
    Native,
}
