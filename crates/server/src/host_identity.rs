//! The machine's identity as an NVMe host: a qualified name and an identifier that never change.

use std::fs;

use crate::fabric::uuid_of;
use crate::machine::machine_id;

/// The file in which nvme-cli keeps the machine's NQN as an NVMe host.
const NQN_FILE: &str = "/etc/nvme/hostnqn";
const ID_FILE: &str = "/etc/nvme/hostid";

/// The machine's identity as an NVMe host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// The NVMe Qualified Name (NQN).
    pub nqn: String,
    /// The 128-bit host identifier.
    pub id: [u8; 16],
}

impl HostIdentity {
    /// Returns the identity for this name. Without a name, returns nvme-cli's identity, or else one
    /// derived from the machine's identifier.
    pub fn of(name: Option<&str>) -> HostIdentity {
        let read = |path| fs::read_to_string(path).ok();
        HostIdentity::from(name, read(NQN_FILE), read(ID_FILE))
    }

    fn from(name: Option<&str>, nqn: Option<String>, id: Option<String>) -> HostIdentity {
        let own = || {
            let uuid = uuid_of(&[machine_id(), "nearflash host"]);
            format!("nqn.2014-08.org.nvmexpress:uuid:{}", spec::Namespace::uuid_text(&uuid))
        };
        let configured = nqn.as_deref().map(str::trim).filter(|nqn| nqn.starts_with("nqn."));
        let configured_id = id.as_deref().and_then(parse);
        match (name, configured, configured_id) {
            (None, Some(nqn), Some(id)) => HostIdentity { nqn: nqn.to_owned(), id },
            (name, configured, _) => {
                let nqn = name.or(configured).map_or_else(own, str::to_owned);
                let id = nqn.rsplit_once(":uuid:").and_then(|(_, uuid)| parse(uuid));
                let id = id.unwrap_or_else(|| uuid_of(&[machine_id(), &nqn]));
                HostIdentity { nqn, id }
            }
        }
    }
}

fn parse(uuid: &str) -> Option<[u8; 16]> {
    let digits: String = uuid.trim().chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "6f2b1a4e-0c6d-4c58-9a51-1d6f8f1f0c11";

    #[test]
    fn names_and_identifiers_belong_together() {
        let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}");
        let id = parse(UUID).unwrap();
        assert_eq!(spec::Namespace::uuid_text(&id), UUID);
        let configured =
            HostIdentity::from(None, Some(format!("{nqn}\n")), Some(format!("{UUID}\n")));
        assert_eq!(configured, HostIdentity { nqn: nqn.clone(), id });
        assert_eq!(HostIdentity::from(Some(&nqn), None, None).id, id, "a name may hold its uuid");
        let other = HostIdentity::from(Some("nqn.x:b"), Some(nqn), Some(UUID.to_owned()));
        assert_eq!(other.nqn, "nqn.x:b");
        assert_ne!(other.id, id, "another host has another identifier");
        let own = HostIdentity::from(None, None, None);
        assert_eq!(own, HostIdentity::from(None, None, None));
        assert!(own.nqn.ends_with(&spec::Namespace::uuid_text(&own.id)));
    }
}
