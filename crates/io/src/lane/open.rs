//! The choice of the way by which frames pass the kernel.

use contract::EtherVia;

use super::xdp::card::CardSocket;
use super::xdp::mode::XdpMode;
use crate::Error;
use crate::ether::EtherPort;

/// Opens the AF_XDP socket for frames to a port of a card (`ether_port`). Returns `None` if they go
/// through packet sockets: because `via` asks for that, or because AF_XDP is refused and `via` asks
/// for nothing.
///
/// # Errors
/// Fails if AF_XDP is refused to a `via` that asks for it.
pub(crate) fn open_card(
    ether_port: &EtherPort,
    (interface, via): (&str, Option<EtherVia>),
    workers: usize,
) -> Result<Option<CardSocket>, Error> {
    let mode = match via {
        Some(EtherVia::Packet) => return Ok(None),
        Some(EtherVia::Native) => XdpMode::Native,
        Some(EtherVia::Xdp) | None => XdpMode::Generic,
    };
    let opened = match workers {
        1 => CardSocket::open(ether_port, mode),
        _ => Err(Error::new(format!(
            "AF_XDP gives all frames to one worker, and there are {workers}"
        ))),
    };
    match (opened, via) {
        (Ok(card), _) => {
            tracing::info!(interface, way = card.way(), "frames pass the network stack by");
            Ok(Some(card))
        }
        (Err(error), None) => {
            tracing::warn!(interface, %error, "frames go through a packet socket, which costs more");
            Ok(None)
        }
        (Err(error), Some(_)) => Err(Error::new(format!("cannot use {interface}: {error}"))),
    }
}
