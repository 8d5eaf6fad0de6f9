//! Access rules (paper §4.1, "Security model"): checked when a connection opens and, as a look-up
//! in a small table, for each request.

use std::net::IpAddr;
use std::sync::Arc;

use contract::{MigratingGrant, NamespaceId, Peer, Rights, Status, TenantId};
use subtle::ConstantTimeEq;

/// The peers that a rule is about.
#[derive(Clone, PartialEq, Eq)]
pub enum PeerPattern {
    /// Any peer that can connect.
    Anyone,
    /// Hosts of a network.
    Network {
        /// Any address of the network.
        address: IpAddr,
        /// The number of leading bits of the address that are compared.
        prefix: u8,
    },
    /// Peers that present this token in their hello.
    Token(Vec<u8>),
    /// A user of this machine, through a Unix socket.
    User(u32),
}

impl std::fmt::Debug for PeerPattern {
    /// Writes the kind of peers without a token's bytes, since tokens are secret in logs, too.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeerPattern::Anyone => f.write_str("Anyone"),
            PeerPattern::Network { address, prefix } => write!(f, "Network({address}/{prefix})"),
            PeerPattern::Token(_) => f.write_str("Token(…)"),
            PeerPattern::User(uid) => write!(f, "User({uid})"),
        }
    }
}

impl PeerPattern {
    fn matches(&self, peer: &Peer, token: &[u8]) -> bool {
        match (self, peer) {
            (PeerPattern::Anyone, _) => true,
            (
                PeerPattern::Network { address, prefix },
                Peer::Internet(from) | Peer::Packets(from),
            ) => in_network(from.ip().to_canonical(), address.to_canonical(), *prefix),
            (PeerPattern::Token(expected), _) => bool::from(expected.as_slice().ct_eq(token)),
            (PeerPattern::User(uid), Peer::Local { uid: from }) => uid == from,
            _ => false,
        }
    }
}

fn in_network(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let (a, n, bits) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u128::from(a.to_bits()), u128::from(n.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits(), n.to_bits(), 128),
        _ => return false,
    };
    let ignored = bits - u32::from(prefix).min(bits);
    a.checked_shr(ignored).unwrap_or(0) == n.checked_shr(ignored).unwrap_or(0)
}

/// The namespaces that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessScope {
    /// Rights to every namespace.
    All(Rights),
    /// Rights to these namespaces only.
    Only(Vec<(NamespaceId, Rights)>),
}

/// A rule that lets peers in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRule {
    /// The peers that the rule lets in.
    pub who: PeerPattern,
    /// The tenant that the requests of the admitted peers are charged to.
    pub tenant: TenantId,
    /// The tenant's name; the rule refuses a hello that names another tenant. Empty for the
    /// listener's tenant or the default one.
    pub tenant_name: String,
    /// `true` if the peers may register tenants of their own, and change them.
    pub register: bool,
    /// The rights of the peers.
    pub scope: AccessScope,
}

/// The tenant of a listener's clients that get no other tenant from an access rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultTenant {
    /// The tenant's number.
    pub tenant: TenantId,
    /// The tenant's name.
    pub name: String,
}

/// The rights of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The tenant to which the connection's requests are charged.
    pub tenant: TenantId,
    /// `true` if the connection may register tenants of its own, and change its own.
    pub register: bool,
    /// Rights to every namespace, including later ones.
    all: Rights,
    /// Additional rights to single namespaces; number `n` is at index `n − 1`.
    single: Vec<Rights>,
}

impl Grant {
    /// Returns a grant with equal rights for another tenant.
    pub(crate) fn of(&self, tenant: TenantId) -> Grant {
        Grant { tenant, ..self.clone() }
    }

    /// Returns the grant as plain data, for another worker.
    pub(crate) fn to_parcel(&self) -> MigratingGrant {
        let Grant { tenant, register, all, single } = self.clone();
        MigratingGrant { tenant, register, all, single }
    }

    /// Returns the grant from the plain data of [`to_parcel`](Grant::to_parcel).
    pub(crate) fn from_parcel(grant: MigratingGrant) -> Grant {
        let MigratingGrant { tenant, register, all, single } = grant;
        Grant { tenant, register, all, single }
    }

    /// Returns the connection's rights to a namespace: those to every namespace, and those to this
    /// one.
    pub fn rights(&self, namespace: NamespaceId) -> Rights {
        let index = usize::from(namespace.0).wrapping_sub(1);
        let single = self.single.get(index).copied().unwrap_or(Rights::NONE);
        Rights { read: self.all.read || single.read, write: self.all.write || single.write }
    }
}

/// The access rules of a server.
#[derive(Clone, Debug)]
pub struct AccessRules {
    rules: Vec<PeerRule>,
}

impl AccessRules {
    /// Creates access rules from a list of rules.
    pub fn new(rules: Vec<PeerRule>) -> Self {
        AccessRules { rules }
    }

    /// Creates rules that allow everything to everybody: for loopback, and where the operator
    /// insists.
    pub fn open_to_all() -> Self {
        let rule = PeerRule {
            who: PeerPattern::Anyone,
            tenant: TenantId::DEFAULT,
            tenant_name: String::new(),
            register: true,
            scope: AccessScope::All(Rights::ALL),
        };
        AccessRules::new(vec![rule])
    }

    /// Returns whether some rule is about a token.
    pub fn has_tokens(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.who, PeerPattern::Token(_)))
    }

    /// Returns whether some rule is about this token.
    pub fn knows(&self, token: &[u8]) -> bool {
        // All of them are compared, so that the time does not tell which it is.
        self.rules.iter().fold(false, |known, rule| match &rule.who {
            PeerPattern::Token(expected) => known | bool::from(expected.as_slice().ct_eq(token)),
            _ => known,
        })
    }

    /// Returns the grant of a connection from `peer` that presents `token` and asks for `tenant`
    /// (empty: any): the sum of the rights of the rules that admit it. The tenant is that of the
    /// first such rule, else the listener's (`own`), else the default tenant.
    ///
    /// # Errors
    /// Fails with [`Status::Denied`] if no rule admits the client.
    pub fn open(
        &self,
        peer: &Peer,
        token: &[u8],
        tenant: &str,
        own: Option<&DefaultTenant>,
    ) -> Result<Arc<Grant>, Status> {
        let mut grant: Option<Grant> = None;
        for rule in &self.rules {
            let (number, name) = match (rule.tenant_name.as_str(), own) {
                ("", Some(own)) => (own.tenant, own.name.as_str()),
                (name, _) => (rule.tenant, name),
            };
            let asks_for_it = tenant.is_empty() || tenant == name;
            if !asks_for_it || !rule.who.matches(peer, token) {
                continue;
            }
            let grant = grant.get_or_insert_with(|| Grant {
                tenant: number,
                register: false,
                all: Rights::NONE,
                single: Vec::new(),
            });
            if number == grant.tenant {
                grant.register |= rule.register;
                rule.scope.add_to(grant);
            }
        }
        grant.map(Arc::new).ok_or(Status::Denied)
    }
}

impl AccessScope {
    fn add_to(&self, grant: &mut Grant) {
        let add = |to: &mut Rights, more: Rights| {
            to.read |= more.read;
            to.write |= more.write;
        };
        match self {
            AccessScope::All(rights) => add(&mut grant.all, *rights),
            AccessScope::Only(list) => {
                for (namespace, rights) in list {
                    let Some(index) = usize::from(namespace.0).checked_sub(1) else { continue };
                    if index >= grant.single.len() {
                        grant.single.resize(index + 1, Rights::NONE);
                    }
                    add(&mut grant.single[index], *rights);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Rights = Rights { read: true, write: false };

    fn from(address: &str) -> Peer {
        Peer::Internet(format!("{address}:1000").parse().unwrap())
    }

    fn rule(who: PeerPattern, tenant: u32, scope: AccessScope) -> PeerRule {
        let tenant_name = format!("t{tenant}");
        PeerRule { who, tenant: TenantId(tenant), tenant_name, register: false, scope }
    }

    fn network(text: &str, prefix: u8) -> PeerPattern {
        PeerPattern::Network { address: text.parse().unwrap(), prefix }
    }

    #[test]
    fn networks_match_by_their_prefix() {
        let cases = [
            ("10.1.2.3", "10.1.0.0", 16, true),
            ("10.2.2.3", "10.1.0.0", 16, false),
            ("10.2.2.3", "0.0.0.0", 0, true),
            ("10.2.2.3", "10.2.2.3", 32, true),
            ("10.2.2.3", "10.2.2.2", 32, false),
        ];
        for (peer, net, prefix, expected) in cases {
            assert_eq!(network(net, prefix).matches(&from(peer), b""), expected, "{peer} {net}");
        }
        let mapped = Peer::Internet("[::ffff:10.1.2.3]:5".parse().unwrap());
        assert!(network("10.1.0.0", 16).matches(&mapped, b""));
        let six = Peer::Internet("[fd00::1]:5".parse().unwrap());
        assert!(network("fd00::", 8).matches(&six, b""));
        assert!(!network("0.0.0.0", 0).matches(&six, b""));
    }

    #[test]
    fn rights_add_up_within_a_tenant() {
        let only = |n, rights| AccessScope::Only(vec![(NamespaceId(n), rights)]);
        let access = AccessRules::new(vec![
            rule(network("10.0.0.0", 8), 1, only(1, READ)),
            rule(PeerPattern::Token(b"secret".to_vec()), 1, only(2, Rights::ALL)),
            rule(PeerPattern::Token(b"other".to_vec()), 2, AccessScope::All(Rights::ALL)),
        ]);
        let plain = access.open(&from("10.0.0.1"), b"", "", None).unwrap();
        assert_eq!(
            (plain.rights(NamespaceId(1)), plain.rights(NamespaceId(2))),
            (READ, Rights::NONE)
        );
        let both = access.open(&from("10.0.0.1"), b"secret", "", None).unwrap();
        assert_eq!((both.rights(NamespaceId(1)), both.rights(NamespaceId(2))), (READ, Rights::ALL));
        let second = access.open(&from("10.0.0.1"), b"other", "t2", None).unwrap();
        assert_eq!(second.tenant, TenantId(2));
        assert_eq!(access.open(&from("11.0.0.1"), b"", "", None), Err(Status::Denied));
        assert_eq!(access.open(&from("10.0.0.1"), b"", "t2", None), Err(Status::Denied));
        assert_eq!(plain.rights(NamespaceId(0)), Rights::NONE);
        assert_eq!(plain.rights(NamespaceId(3)), Rights::NONE);
    }

    #[test]
    fn tokens_stay_out_of_logs() {
        assert!(!format!("{:?}", PeerPattern::Token(b"secret".to_vec())).contains("secret"));
    }
}
