//! The reload of a running server's configuration: checked as at a start, then applied as far as
//! possible, and reported.

use contract::ServerEvent;

use super::args::{Args, located, merge};
use super::draft::{CommandLineSettings, StartupPlan};
use crate::admin::AdminState;
use crate::config::Config;
use crate::live::{LiveConfig, ReloadReport};
use crate::log;

/// Reads the configuration again, and logs the result.
pub(super) fn reload(args: &Args, live: &LiveConfig, admin: &AdminState) {
    let reload = || read(args, live).and_then(|config| live.reload(config).map_err(|p| p.message));
    let reloaded = admin.reload(&args.about(), reload);
    if reloaded.is_ok() {
        ServerEvent::ReloadDone.count();
    }
    match reloaded {
        Err(error) => {
            ServerEvent::ReloadRefused.count();
            log::tell(format!("the configuration is not reloaded, nothing has changed: {error}"));
        }
        Ok(reloaded) => log::tell(told(&reloaded)),
    }
}

/// Describes the result of a reload.
fn told(ReloadReport { later, overruled, unread }: &ReloadReport) -> String {
    let mut told = "the configuration is reloaded".to_owned();
    for (what, list) in [
        ("these need an upgrade or a restart", later),
        ("these were changed while the server ran, and stay so whatever the file says", overruled),
        (
            "these listeners keep their old certificates until a reload can read the new ones",
            unread,
        ),
    ] {
        if !list.is_empty() {
            told.push_str(&format!("; {what}: {}", list.join(", ")));
        }
    }
    told
}

/// Reads the configuration, and checks that a server would start with it and the live changes.
fn read(args: &Args, live: &LiveConfig) -> Result<Config, String> {
    let base = merge(args)?;
    let changes = live.changes().map_err(|problem| problem.message)?;
    let beside = CommandLineSettings { grows: true, ..args.beside() };
    let draft = StartupPlan::of(&base, &changes.made_to(&base), beside);
    draft.map_err(|mistakes| located(args, &mistakes))?;
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_cannot_be_read_needs_no_restart() {
        let unread = vec!["no private key in PEM".to_owned()];
        let told = told(&ReloadReport { unread, ..ReloadReport::default() });
        assert!(told.contains("keep their old certificates") && told.contains("no private key"));
        assert!(!told.contains("restart"), "{told}");
    }
}
