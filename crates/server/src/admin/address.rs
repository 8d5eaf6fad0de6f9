//! The addresses of the admin API: as configured, by default, and where commands look for it.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use control::admin::{AddressError, AdminAddress};
use serde::{Deserialize, Serialize};

/// The file name of the admin API's default Unix socket.
const SOCKET: &str = "nearflash.sock";

/// The directory of the admin API's default socket for a server of root, unless the service manager
/// names another.
const SYSTEM_DIRECTORY: &str = "/run/nearflash";

/// The configured addresses of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum AdminAddresses {
    /// No admin API.
    Nowhere,
    /// An admin API at these addresses.
    At(Vec<AdminAddress>),
}

impl FromStr for AdminAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(AdminAddresses::Nowhere),
            _ => {
                // A path may have commas of its own.
                let text = text.replace(",https://", "\0https://");
                let each = text.split('\0').map(str::parse).collect::<Result<Vec<_>, _>>();
                each.map(AdminAddresses::At).map_err(|e: AddressError| format!("{e}, or none"))
            }
        }
    }
}

impl From<AdminAddresses> for String {
    fn from(wanted: AdminAddresses) -> String {
        match wanted {
            AdminAddresses::Nowhere => "none".to_owned(),
            AdminAddresses::At(each) => {
                let each: Vec<String> = each.iter().map(AdminAddress::to_string).collect();
                each.join(",")
            }
        }
    }
}

impl TryFrom<String> for AdminAddresses {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

pub(crate) fn needs(address: &AdminAddress) -> String {
    format!(
        "the admin API at {address} needs `certificate`, `key` and `tokens` in [admin]: others can \
         reach it"
    )
}

/// Returns the socket address at which the admin API listens for `https://`. Fails if the host is
/// not an IP address, since the address of a name may change.
pub(crate) fn tls_place(address: &AdminAddress) -> Result<SocketAddr, String> {
    let AdminAddress::Tls { host, port } = address else { unreachable!("it is by TLS") };
    let ip = host.parse().map_err(|_| {
        format!("{address}: a server listens at an address, such as https://10.0.0.1:{port}")
    })?;
    Ok(SocketAddr::new(ip, *port))
}

/// Returns the directory for the admin API's socket: the one that the service manager or the user's
/// session names in the environment, else root's default; `None` if there is none.
fn own_directory() -> Option<PathBuf> {
    let given = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    match rustix::process::geteuid().is_root() {
        true => Some(given("RUNTIME_DIRECTORY").unwrap_or_else(|| SYSTEM_DIRECTORY.into())),
        false => given("RUNTIME_DIRECTORY").or_else(|| given("XDG_RUNTIME_DIR")),
    }
}

/// Returns the default path of the admin API's socket; `None` if there is no directory for it.
pub(super) fn default_socket() -> Option<PathBuf> {
    own_directory().map(|directory| directory.join(SOCKET))
}

/// Returns the default address of the admin API: a Unix socket, or [`AdminAddresses::Nowhere`] if
/// there is no directory for it.
pub(crate) fn default_place() -> AdminAddresses {
    default_socket()
        .map_or(AdminAddresses::Nowhere, |path| AdminAddresses::At(vec![AdminAddress::Unix(path)]))
}

/// Returns the address where commands look for a server by default: the admin socket of the user's
/// own server if it exists, else that of the system's.
pub fn where_to_look() -> AdminAddress {
    let own = default_socket().filter(|path| path.exists());
    AdminAddress::Unix(own.unwrap_or_else(|| PathBuf::from(SYSTEM_DIRECTORY).join(SOCKET)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_a_place_as_well() {
        assert_eq!("none".parse(), Ok(AdminAddresses::Nowhere));
        let at: AdminAddresses = "/run/x.sock".parse().unwrap();
        assert_eq!(at, AdminAddresses::At(vec![AdminAddress::Unix("/run/x.sock".into())]));
        let both: AdminAddresses = "/run/a,b.sock,https://10.0.0.1:7443".parse().unwrap();
        let tls = AdminAddress::Tls { host: "10.0.0.1".to_owned(), port: 7443 };
        let unix = AdminAddress::Unix("/run/a,b.sock".into());
        assert_eq!(both, AdminAddresses::At(vec![unix, tls]));
        assert_eq!(String::from(both), "/run/a,b.sock,https://10.0.0.1:7443");
        let error = "http://0.0.0.0:80".parse::<AdminAddresses>().unwrap_err();
        assert!(error.contains("loopback") && error.ends_with("or none"), "{error}");
    }
}
