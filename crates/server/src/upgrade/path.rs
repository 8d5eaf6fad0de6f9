//! The path of the upgrade socket.

use std::path::{Path, PathBuf};

use control::admin::AdminAddress;
use io::{Listener, UnixPath};

use crate::admin::AdminAddresses;

/// The permissions of the upgrade socket's file: only the server's user, and root, may connect.
const MODE: u32 = 0o600;

/// Returns the path of the upgrade socket: the path `told`, else a path beside the admin API's Unix
/// socket. Returns `None` if `told` is `none`, or there is no such socket.
pub(crate) fn socket_path(told: Option<&str>, admin: Option<&AdminAddresses>) -> Option<PathBuf> {
    match (told, admin) {
        (Some("none"), _) => None,
        (Some(path), _) => Some(PathBuf::from(path)),
        (None, Some(AdminAddresses::Nowhere)) => None,
        (None, Some(AdminAddresses::At(each))) => each.iter().find_map(|address| {
            let AdminAddress::Unix(path) = address else { return None };
            let mut name = path.as_os_str().to_owned();
            name.push(".upgrade");
            Some(PathBuf::from(name))
        }),
        (None, None) => match crate::admin::default_place() {
            AdminAddresses::Nowhere => None,
            default => socket_path(None, Some(&default)),
        },
    }
}

/// Binds the upgrade socket, at which successors ask to take over, and starts to listen.
pub(crate) fn open_socket(path: &Path) -> Result<Listener, String> {
    let path = UnixPath::new(path).map_err(|error| error.to_string())?;
    Listener::bind_unix(&path, MODE).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upgrade_socket_is_beside_the_admin_socket() {
        let admin: AdminAddresses = "/run/x/admin.sock".parse().unwrap();
        let beside = PathBuf::from("/run/x/admin.sock.upgrade");
        assert_eq!(socket_path(None, Some(&admin)), Some(beside));
        assert_eq!(socket_path(Some("none"), Some(&admin)), None);
        assert_eq!(
            socket_path(Some("/u"), Some(&AdminAddresses::Nowhere)),
            Some(PathBuf::from("/u"))
        );
        assert_eq!(socket_path(None, Some(&AdminAddresses::Nowhere)), None);
    }
}
