//! `[[access]]`: the rules that say what clients may do.

use std::net::IpAddr;

use contract::Rights;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Mistake, Secret, TablePosition};

/// A rule that says what some clients may do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// Clients at these addresses: `ADDRESS/PREFIX`, or `anyone`.
    /// Each rule has exactly one of `from`, `token` and `uid`; required if the other two are
    /// absent.
    pub from: Option<String>,
    /// Clients that present this token; required if `from` and `uid` are absent.
    pub token: Option<Secret>,
    /// Clients of this user of the server's machine; required if `from` and `token` are absent.
    pub uid: Option<u32>,
    /// Name of the tenant that the clients belong to. An empty name means the listener's tenant, or
    /// `default` if the listener has none.
    #[serde(default)]
    pub tenant: String,
    /// Numbers of the namespaces that the rule holds for. By default all.
    pub namespaces: Option<Vec<u16>>,
    /// Rights that the rule grants: `read`, `write` or `read-write`.
    pub rights: String,
    /// Allows the clients to register tenants of their own, and to change these.
    #[serde(default)]
    pub register: bool,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub nth: TablePosition,
}

/// The clients that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients<'a> {
    /// All clients.
    Anyone,
    /// Clients whose address begins with so many bits of this one.
    Network(IpAddr, u8),
    /// Clients that present this token.
    Token(&'a str),
    /// Clients of the user of the server's machine that has this number (UID).
    User(u32),
}

impl AccessRule {
    /// Returns the rule that applies if none is configured: everybody may do everything.
    pub fn of_all() -> AccessRule {
        AccessRule {
            from: Some("anyone".to_owned()),
            token: None,
            uid: None,
            tenant: String::new(),
            namespaces: None,
            rights: "read-write".to_owned(),
            register: true,
            nth: TablePosition::default(),
        }
    }

    /// Returns the name of the clients' tenant; `None` for the listener's or the default tenant.
    pub fn tenant_name(&self) -> Option<&str> {
        Some(self.tenant.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the clients that the rule is about.
    ///
    /// # Errors
    /// Fails if the rule does not have exactly one of the keys, or the key's value is invalid.
    pub fn clients(&self) -> Result<Clients<'_>, Mistake> {
        match (&self.from, &self.token, self.uid) {
            (Some(from), None, None) => network(from).map_err(|error| ("from", error)),
            (None, Some(token), None) if (1..=64).contains(&token.0.len()) => {
                Ok(Clients::Token(&token.0))
            }
            (None, Some(_), None) => Err(("token", "its token; expected 1 to 64 bytes".to_owned())),
            (None, None, Some(uid)) => Ok(Clients::User(uid)),
            _ => Err(("", "expected exactly one of `from`, `token` and `uid`".to_owned())),
        }
    }

    /// Returns the rights that the rule grants.
    ///
    /// # Errors
    /// Fails if `rights` is not `read`, `write` or `read-write`.
    pub fn granted(&self) -> Result<Rights, Mistake> {
        match self.rights.as_str() {
            "read" => Ok(Rights { read: true, write: false }),
            "write" => Ok(Rights { read: false, write: true }),
            "read-write" => Ok(Rights::ALL),
            other => {
                let error = format!("rights {other:?}; expected read, write or read-write");
                Err(("rights", error))
            }
        }
    }
}

fn network(text: &str) -> Result<Clients<'_>, String> {
    const FORM: &str = "expected `anyone`, an address, or ADDRESS/PREFIX such as 10.0.0.0/8";
    if text == "anyone" {
        return Ok(Clients::Anyone);
    }
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| format!("from = {text:?}: {FORM}"))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Some(bits), |p| p.parse().ok().filter(|p| *p <= bits));
    let prefix = prefix.ok_or_else(|| format!("from = {text:?}: {FORM}"))?;
    Ok(Clients::Network(address, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_about_clients_of_one_kind() {
        let all = AccessRule::of_all();
        assert_eq!((all.clients(), all.granted()), (Ok(Clients::Anyone), Ok(Rights::ALL)));
        let from = |text: &str| AccessRule { from: Some(text.to_owned()), ..AccessRule::of_all() };
        let net = Clients::Network("10.0.0.0".parse().unwrap(), 8);
        assert_eq!(from("10.0.0.0/8").clients(), Ok(net));
        for bad in ["10.0.0.0/40", "ten", "::1/129"] {
            assert_eq!(from(bad).clients().unwrap_err().0, "from", "{bad}");
        }
        let both = AccessRule { uid: Some(1), ..AccessRule::of_all() };
        assert_eq!(both.clients().unwrap_err().0, "");
        let none =
            AccessRule { from: None, token: Some(Secret(String::new())), ..AccessRule::of_all() };
        assert_eq!(none.clients().unwrap_err().0, "token");
        let token = AccessRule { from: None, token: Some(Secret("hunter2".into())), ..none };
        assert_eq!(token.clients(), Ok(Clients::Token("hunter2")));
        assert!(!format!("{token:?}").contains("hunter2"), "no log shows a token");
        let odd = AccessRule { rights: "all".to_owned(), ..AccessRule::of_all() };
        assert_eq!(odd.granted().unwrap_err().0, "rights");
    }
}
