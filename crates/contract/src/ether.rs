//! Ethernet addresses: of network cards, and of endpoints that listen at cards.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::PacketReading;

/// The address of a network card in its segment (IEEE 802, EUI-48).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns `true` if no single card has the address: its group bit is set, or it is zero.
    pub fn is_of_many(&self) -> bool {
        self.0[0] & 1 != 0 || self.0 == [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = EtherError;

    fn from_str(text: &str) -> Result<Mac, EtherError> {
        let (mut bytes, mut parts) = ([0; 6], text.split(':'));
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(EtherError::Mac)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| EtherError::Mac)?;
        }
        let mac = Mac(bytes);
        if parts.next().is_some() || mac.is_of_many() { Err(EtherError::Mac) } else { Ok(mac) }
    }
}

/// A network interface of this machine, and the server's card that is reached by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtherCard {
    interface: String,
    /// The MAC address of the server's card. At a server, `None` stands for the interface's own
    /// card; at a client, for every card that the server announces.
    pub mac: Option<Mac>,
}

impl EtherCard {
    /// Maximum bytes of an interface's name: the kernel takes 16 with the final zero
    /// (`netdevice(7)`).
    pub const INTERFACE_BYTES_MAX: usize = 15;

    /// Returns the name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

impl FromStr for EtherCard {
    type Err = EtherError;

    /// Parses `INTERFACE` or `INTERFACE/MAC`, which a slash may follow.
    fn from_str(text: &str) -> Result<EtherCard, EtherError> {
        let (interface, rest) = text.split_once('/').unwrap_or((text, ""));
        let is_name = |c: char| c.is_ascii_graphic() && !matches!(c, ':' | '?' | '&');
        let is_long = interface.len() > EtherCard::INTERFACE_BYTES_MAX;
        if interface.is_empty() || is_long || !interface.chars().all(is_name) {
            return Err(EtherError::Interface);
        }
        let mac = rest.strip_suffix('/').unwrap_or(rest);
        let mac = if mac.is_empty() { None } else { Some(mac.parse()?) };
        Ok(EtherCard { interface: interface.to_owned(), mac })
    }
}

impl fmt::Display for EtherCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.interface)?;
        self.mac.map_or(Ok(()), |mac| write!(f, "/{mac}"))
    }
}

/// An endpoint that is reached by, or listens to, Ethernet frames: one local card for each of its
/// lanes, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtherAddress {
    cards: Vec<EtherCard>,
    /// The server's port, which distinguishes servers at one card.
    pub port: u16,
    /// The way of frames through the kernel; `None` for the best one that is allowed.
    pub via: Option<EtherVia>,
    /// Packets in flight by each path, whatever the delay; `None` for a window that follows the delay.
    pub window: Option<u16>,
}

/// The kind of socket through which frames of Ethernet pass the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EtherVia {
    /// By an AF_XDP socket, behind the card's driver.
    Xdp,
    /// By an AF_XDP socket, in the card's driver.
    Native,
    /// By a packet socket (`packet(7)`), which needs no support of the card.
    Packet,
}

impl EtherVia {
    /// All kinds of sockets, each with the value of `via` that selects it in a URL.
    const NAMES: [(&'static str, EtherVia); 3] =
        [("xdp", EtherVia::Xdp), ("native", EtherVia::Native), ("packet", EtherVia::Packet)];

    fn name(self) -> &'static str {
        let found = EtherVia::NAMES.into_iter().find(|(_, via)| *via == self);
        found.map_or("", |(name, _)| name)
    }
}

/// The reason that a text is no place in a segment of Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtherError {
    /// The name of the interface is missing or invalid.
    Interface,
    /// The address of the card is not six bytes, or not of a single card.
    Mac,
}

impl fmt::Display for EtherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EtherError::Interface => "the name of a network interface is missing, as in eth1",
            EtherError::Mac => "expected the address of a card, such as 02:00:00:00:00:02",
        })
    }
}

impl core::error::Error for EtherError {}

impl EtherAddress {
    /// The port at which servers listen by default.
    pub const PORT: u16 = 7420;

    /// Returns the cards, the first of which is dialled first.
    pub fn cards(&self) -> &[EtherCard] {
        &self.cards
    }

    /// Returns the first card.
    pub fn first(&self) -> &EtherCard {
        &self.cards[0]
    }

    /// Returns the endpoint with this card as its only one.
    pub fn only(&self, card: EtherCard) -> EtherAddress {
        EtherAddress { cards: alloc::vec![card], ..self.clone() }
    }

    /// Sets the option `port`, `window` or `via` from a URL, or adds the card of `also`. Returns
    /// `false`, without a change, if the key is unknown, the value invalid or named before, or there
    /// are [`PacketReading::LANES_MAX`] cards.
    pub fn take(&mut self, key: &str, value: &str) -> bool {
        if key == "also" {
            let card = value.parse().ok().filter(|card| !self.cards.contains(card));
            let card = card.filter(|_| self.cards.len() < PacketReading::LANES_MAX);
            return card.map(|card| self.cards.push(card)).is_some();
        }
        let named = EtherVia::NAMES.into_iter().find(|(name, _)| *name == value);
        match (key, value.parse::<u16>(), named) {
            ("port", Ok(port), _) if port > 0 => self.port = port,
            ("window", Ok(packets), _) if packets > 0 => self.window = Some(packets),
            ("via", _, Some((_, via))) => self.via = Some(via),
            _ => return false,
        }
        true
    }

    /// Returns the endpoint with these addresses of its cards, in their order.
    pub fn at_cards(&self, macs: impl IntoIterator<Item = Mac>) -> EtherAddress {
        let mut at = self.clone();
        at.cards.iter_mut().zip(macs).for_each(|(card, mac)| card.mac = Some(mac));
        at
    }

    /// Returns the cards behind the first and the options that differ from their defaults, as keys
    /// and values of a URL.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        let port = (self.port != EtherAddress::PORT).then(|| ("port", self.port.to_string()));
        let via = self.via.map(|via| ("via", via.name().to_owned()));
        let window = self.window.map(|packets| ("window", packets.to_string()));
        let also = self.cards[1..].iter().map(|card| ("also", card.to_string()));
        also.chain(port).chain(via).chain(window)
    }
}

impl From<EtherCard> for EtherAddress {
    fn from(card: EtherCard) -> EtherAddress {
        let cards = alloc::vec![card];
        EtherAddress { cards, port: EtherAddress::PORT, via: None, window: None }
    }
}

impl FromStr for EtherAddress {
    type Err = EtherError;

    /// Parses the first card: `INTERFACE` or `INTERFACE/MAC`, which a slash may follow.
    fn from_str(text: &str) -> Result<EtherAddress, EtherError> {
        text.parse().map(|card: EtherCard| card.into())
    }
}

impl fmt::Display for EtherAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first())?;
        for (n, (key, value)) in self.options().enumerate() {
            write!(f, "{}{key}={value}", if n == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_and_write_the_same() {
        for text in ["eth1", "br0.7", "eth1/02:00:00:00:00:0a", "enp1s0f0np0/fe:ff:ff:ff:ff:ff"] {
            assert_eq!(text.parse::<EtherAddress>().unwrap().to_string(), text);
        }
        let mut place: EtherAddress = "eth1/02:00:00:00:00:02/".parse().unwrap();
        assert!(place.take("port", "7421"));
        assert_eq!(place.to_string(), "eth1/02:00:00:00:00:02?port=7421");
        assert!(place.take("via", "native"));
        assert_eq!(place.to_string(), "eth1/02:00:00:00:00:02?port=7421&via=native");
        assert!(place.take("via", "packet") && place.via == Some(EtherVia::Packet));
        assert!(place.take("window", "64"));
        assert!(place.to_string().ends_with("?port=7421&via=packet&window=64"), "{place}");
        assert!(place.take("also", "eth2") && place.take("also", "eth3/02:00:00:00:00:0a"));
        let also = "eth1/02:00:00:00:00:02?also=eth2&also=eth3/02:00:00:00:00:0a&port=7421";
        assert!(place.to_string().starts_with(also), "{place}");
        assert_eq!(place.only(place.cards()[1].clone()).cards().len(), 1);
        assert!(place.take("also", "eth2/02:00:00:00:00:0b"));
        for (key, value) in [
            ("also", "eth5"),
            ("via", "udp"),
            ("window", "0"),
            ("port", "0"),
            ("port", "65536"),
            ("port", ""),
            ("key", "1"),
        ] {
            assert!(!place.take(key, value), "{key}={value}");
        }
    }

    #[test]
    fn no_card_is_named_twice_and_none_is_invalid() {
        let mut place: EtherAddress = "eth1/02:00:00:00:00:02".parse().unwrap();
        for bad in ["", "eth1/02:00:00:00:00:02", "eth2/ff:ff:ff:ff:ff:ff", "an interface"] {
            assert!(!place.take("also", bad), "{bad}");
        }
        assert!(place.take("also", "eth1/02:00:00:00:00:03"), "one card may reach several");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<EtherAddress>().unwrap_err();
        for text in ["", "/02:00:00:00:00:02", "an interface", "0123456789abcdef", "eth1:7420"] {
            assert_eq!(error(text), EtherError::Interface, "{text}");
        }
        for mac in ["02:00:00:00:00", "02:00:00:00:00:02:03", "2:0:0:0:0:2", "02:00:00:00:00:0g"] {
            assert_eq!(error(&alloc::format!("eth1/{mac}")), EtherError::Mac, "{mac}");
        }
        for many in ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
            assert_eq!(error(&alloc::format!("eth1/{many}")), EtherError::Mac, "{many}");
        }
    }
}
