//! A server with tenants, whose configuration is in a temporary file.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use crate::child::Server;

/// A tenant in the configuration of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfiguredTenant<'a> {
    pub(crate) name: &'a str,
    pub(crate) read_percent: u8,
    /// The bound of the 95th percentile of read latency, and the promised requests a second; `None`
    /// for best effort.
    pub(crate) slo: Option<(Duration, f64)>,
}

/// The configuration of a server to be started: a device and tenants, in a temporary file.
pub(crate) struct TemporaryConfig {
    file: tempfile::NamedTempFile,
}

impl TemporaryConfig {
    /// Creates the configuration of a server of the device `spec` on loopback. A client belongs to
    /// the tenant that its hello names.
    pub(crate) fn new(
        spec: &str,
        promises: &[ConfiguredTenant<'_>],
    ) -> Result<TemporaryConfig, String> {
        let failed = |e: std::io::Error| format!("cannot write a temporary file: {e}");
        let file = tempfile::NamedTempFile::new().map_err(failed)?;
        std::fs::write(file.path(), text(spec, promises)).map_err(failed)?;
        Ok(TemporaryConfig { file })
    }

    /// Starts the server, with the additional arguments `words`.
    pub(crate) fn serve(&self, words: &[&str]) -> Result<Server, String> {
        Server::start(&self.words(words))
    }

    /// Starts the server with the admin API on loopback. Returns the server and the URL of its
    /// dashboard.
    pub(crate) fn serve_with_dashboard(&self) -> Result<(Server, String), String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(|e| format!("no free port for the dashboard: {e}"))?;
        let admin = format!("http://{address}");
        let server = Server::start_with_admin(&admin, &self.words(&[]))?;
        Ok((server, format!("{admin}/ui/")))
    }

    fn words(&self, more: &[&str]) -> Vec<String> {
        let path = self.file.path().display().to_string();
        let words = ["--config", &path, "--state", "none"];
        words.iter().chain(more).map(|&word| word.to_owned()).collect()
    }
}

fn text(spec: &str, promises: &[ConfiguredTenant<'_>]) -> String {
    let mut text = format!(
        "[[device]]\nname = \"drive\"\nspec = \"{spec}\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n"
    );
    for ConfiguredTenant { name, read_percent, slo } in promises {
        let _ = write!(
            text,
            "[[access]]\nfrom = \"anyone\"\ntenant = \"{name}\"\nrights = \"read-write\"\n\
             [[tenant]]\nname = \"{name}\"\n"
        );
        if let Some((p95, iops)) = slo {
            let (latency_us, iops) = (p95.as_micros(), iops.round());
            let _ = write!(
                text,
                "latency_us = {latency_us}\niops = {iops}\nread_percent = {read_percent}\n"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::config::Config;

    #[test]
    fn the_server_understands_it() {
        let slo = Some((Duration::from_micros(500), 120e3));
        let promises = [
            ConfiguredTenant { name: "A", read_percent: 100, slo },
            ConfiguredTenant { name: "C", read_percent: 95, slo: None },
        ];
        let config = Config::parse(&text("sim:a?size=64MiB&slow=4", &promises)).unwrap();
        assert_eq!(config.tenant.len(), 2);
        assert_eq!(config.tenant[0].promise.slo().map(|slo| slo.iops), Some(120_000));
        assert_eq!(config.tenant[1].promise.slo(), None);
        assert_eq!(config.specs().unwrap().len(), 1);
    }
}
