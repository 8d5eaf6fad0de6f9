//! The lanes of an endpoint of packets over UDP: one address, or several of different network cards.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use packets::LANES_MAX;

use crate::Error;

/// The IP addresses and ports of one endpoint, one for each of its lanes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UdpLanes {
    all: Vec<SocketAddr>,
    /// Packets in flight by each path, whatever the delay; `None` for a window that follows the delay.
    pub window: Option<u16>,
}

impl UdpLanes {
    /// Looks up the lanes of a server by their `HOST:PORT`, of which there is one at least.
    ///
    /// # Errors
    /// Names the host that is not found, or that cannot be a lane beside the others.
    pub fn find(hosts: &[String], window: Option<u16>) -> Result<UdpLanes, Error> {
        let mut lanes = UdpLanes { window, ..UdpLanes::from(look_up(&hosts[0])?) };
        for host in &hosts[1..] {
            lanes.add(look_up(host)?)?;
        }
        Ok(lanes)
    }

    /// Adds the address of a further lane.
    ///
    /// # Errors
    /// Fails if there are [`LANES_MAX`] lanes, another lane has the address, one of the addresses is
    /// unspecified, since that is each address of the machine, or they are IPv4 and IPv6.
    pub fn add(&mut self, address: SocketAddr) -> Result<(), Error> {
        let is_taken = address.port() != 0 && self.all.contains(&address);
        let any = self.all.iter().chain([&address]).find(|one| one.ip().is_unspecified());
        match any {
            _ if self.all.len() == LANES_MAX => {
                Err(Error::new(format!("also={address} is too much; at most {LANES_MAX} lanes")))
            }
            _ if address.is_ipv4() != self.first().is_ipv4() => Err(Error::new(format!(
                "also={address} is of another family than {}; lanes are all IPv4 or all IPv6",
                self.first()
            ))),
            _ if is_taken => Err(Error::new(format!("also={address} is another lane, too"))),
            Some(any) => Err(Error::new(format!(
                "{any} is every card of the machine; several lanes need an address of one card each"
            ))),
            None => {
                self.all.push(address);
                Ok(())
            }
        }
    }

    /// Returns the address of the first lane, at which clients dial.
    pub fn first(&self) -> SocketAddr {
        self.all[0]
    }

    /// Returns the addresses of all lanes.
    pub fn all(&self) -> &[SocketAddr] {
        &self.all
    }
}

impl From<SocketAddr> for UdpLanes {
    fn from(address: SocketAddr) -> UdpLanes {
        UdpLanes { all: vec![address], window: None }
    }
}

impl fmt::Display for UdpLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first())?;
        let also = self.all[1..].iter().map(|also| ("also", also.to_string()));
        let window = self.window.map(|packets| ("window", packets.to_string()));
        for (n, (key, value)) in also.chain(window).enumerate() {
            write!(f, "{}{key}={value}", if n == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// Looks up the IP address of a server by its `HOST:PORT`.
///
/// # Errors
/// Says why the host is not found.
pub fn look_up(host: &str) -> Result<SocketAddr, Error> {
    let unknown = |why: String| Error::new(format!("cannot find `{host}`: {why}"));
    let mut found = host.to_socket_addrs().map_err(|e| unknown(e.to_string()))?;
    found.next().ok_or_else(|| unknown("it has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_looked_up_by_their_hosts() {
        let hosts = ["127.0.0.1:7", "127.0.0.2:7"].map(str::to_owned);
        let lanes = UdpLanes::find(&hosts, Some(64)).unwrap();
        assert_eq!(lanes.to_string(), "127.0.0.1:7?also=127.0.0.2:7&window=64");
        let error = UdpLanes::find(&["nowhere".to_owned()], None).unwrap_err().to_string();
        assert!(error.contains("cannot find `nowhere`"), "{error}");
    }

    #[test]
    fn lanes_have_addresses_of_their_own() {
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let mut lanes = UdpLanes::from(at("10.0.0.1:7"));
        assert_eq!(lanes.to_string(), "10.0.0.1:7");
        lanes.add(at("10.0.1.1:7")).unwrap();
        for (bad, word) in [("10.0.0.1:7", "another lane"), ("0.0.0.0:7", "every card")] {
            let error = lanes.add(at(bad)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(lanes.add(at("[2001:db8::1]:7")).unwrap_err().to_string().contains("family"));
        lanes.add(at("10.0.4.1:7")).unwrap();
        lanes.add(at("10.0.2.1:7")).unwrap();
        assert!(lanes.add(at("10.0.3.1:7")).unwrap_err().to_string().contains("at most 4"));
        assert_eq!(lanes.to_string(), "10.0.0.1:7?also=10.0.1.1:7&also=10.0.4.1:7&also=10.0.2.1:7");
        lanes.window = Some(64);
        assert!(lanes.to_string().ends_with("&window=64"));
        let mut any = UdpLanes::from(at("[::]:7"));
        assert!(any.add(at("[2001:db8::1]:8")).is_err());
    }
}
