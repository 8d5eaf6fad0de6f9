//! The effective configuration: every default filled in, and no secret.

use serde::Serialize;
use spec::{AccessRule, Device, Listener, Secret};

use super::Config;
use crate::listen::DEFAULT_URL;
use crate::worker_count::WorkerCountRange;

/// The text that replaces a secret.
pub(crate) const HIDDEN: &str = "(hidden)";

/// A configuration with every default filled in, and with keys and tokens hidden.
#[derive(Debug, Serialize)]
pub struct Effective(Config);

impl Effective {
    /// Returns the effective configuration as TOML.
    ///
    /// # Errors
    /// Fails if it cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(self).map_err(|error| error.to_string())
    }

    /// Fills in the defaults of a configuration, and replaces its keys and tokens with `(hidden)`.
    ///
    /// # Errors
    /// Fails with all limits that are invalid.
    pub fn of(config: &Config) -> Result<Effective, String> {
        let mut all = config.clone();
        let count = config.pinned().map_or(1, Vec::len);
        all.workers.get_or_insert(WorkerCountRange::fixed(count)?);
        all.cpus.get_or_insert_default();
        all.admin.listen.get_or_insert_with(crate::admin::default_place);
        all.device = all.all_devices();
        for device in &mut all.device {
            let seconds = Device::IDLE_AFTER.as_secs() as u32;
            device.recalibrate_idle_seconds.get_or_insert(seconds);
        }
        if all.listen.is_empty() && !all.is_settled {
            all.listen.push(Listener::from_argument(DEFAULT_URL));
        }
        let first = all.device.first().map(|device| device.name.as_str());
        all.tenant = all.tenant.into_iter().map(|tenant| tenant.on(first)).collect();
        if all.access.is_empty() {
            all.access.push(AccessRule::of_all());
        }
        for rule in &mut all.access {
            rule.token = rule.token.as_ref().map(|_| Secret(HIDDEN.to_owned()));
        }
        all.host = all.host.into_iter().map(|host| host.hidden(HIDDEN)).collect();
        all.authentication.say_defaults();
        let limits = config.limits()?;
        let own = &mut all.limits;
        own.in_flight = Some(limits.in_flight);
        own.tenants = Some(limits.tenants);
        own.in_flight_of_connection = Some(limits.in_flight_of_connection);
        own.unsent_of_connection = Some(in_binary_units(limits.unsent_of_connection));
        own.carried = Some(in_binary_units(limits.carried));
        own.connections = Some(config.connections_max());
        own.stuck_seconds = Some(limits.stuck.as_secs() as usize);
        own.drain_seconds = Some(limits.drain.as_secs() as usize);
        Ok(Effective(all))
    }
}

/// Formats a number of bytes as configuration files do: `8MiB` if it is a multiple of 1 MiB, else
/// `1000B`.
fn in_binary_units(bytes: usize) -> String {
    match bytes % (1 << 20) {
        0 => format!("{}MiB", bytes >> 20),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Changes;

    const TEXT: &str = r#"
        [[device]]
        name = "d"
        spec = "null:1MiB"
        [[tenant]]
        name = "gold"
        latency_us = 500
        iops = 7
        [[access]]
        token = "secret"
        rights = "read"
        [[host]]
        nqn = "nqn.2014-08.org.example:a"
        key = "DHHC-1:00:secret:"
    "#;

    #[test]
    fn what_is_shown_has_every_default_and_no_secret() {
        let config = Changes::default().made_to(&Config::parse(TEXT).unwrap());
        let shown = Effective::of(&config).unwrap().to_toml().unwrap();
        assert!(!shown.contains("secret"), "{shown}");
        for said in [
            "percentile = 95",
            "offset = \"0\"",
            "in_flight = ",
            "name = \"ns1\"",
            "url = \"reflex://127.0.0.1:7420\"",
            "workers = 1",
            "cpus = []",
            "hashes = [\"sha256\", \"sha384\", \"sha512\"]",
            "\"none\"]",
            "register = false",
            "carried = \"64MiB\"",
        ] {
            assert!(shown.contains(said), "no {said} in {shown}");
        }
        Config::parse(&shown).unwrap();
        let nothing = Changes::default().made_to(&Config::default());
        let nothing = Effective::of(&nothing).unwrap().to_toml().unwrap();
        let everybody =
            "from = \"anyone\"\ntenant = \"\"\nrights = \"read-write\"\nregister = true";
        assert!(nothing.contains(everybody), "{nothing}");
    }
}
