//! The path of the state file: from the command line, from the configuration, or beside the latter.

use std::path::{Path, PathBuf};

use crate::admin::AdminAddresses;
use crate::config::Config;
use crate::live::{Changes, Store};
use crate::log;

/// The path of the configuration file of the system's service.
pub const SERVICE_CONFIG: &str = "/etc/nearflash/nearflash.toml";

/// The directory for the service's state that the service manager provides.
const SERVICE_DIRECTORY: &str = "/var/lib/nearflash";

/// Returns the path of the state file: the path that the command line (`told`) or the configuration
/// names, else the default for the configuration `file`. Returns `None` for no state file.
pub(crate) fn path(told: Option<&str>, file: Option<&Path>, config: &Config) -> Option<PathBuf> {
    match (told.or(config.state.as_deref()), file) {
        (Some("none"), _) | (None, None) => None,
        (Some(path), _) => Some(PathBuf::from(path)),
        (None, Some(config)) => Some(of_config(config)),
    }
}

/// Returns the path of the state file for a command that inspects a server's configuration. The
/// command lacks the environment of the system's service, so the service's directory is tried too.
///
/// # Errors
/// The user may not look whether the file exists.
pub fn path_of_others(
    told: Option<&str>,
    file: &Path,
    config: &Config,
) -> Result<Option<PathBuf>, String> {
    if told.is_none() && config.state.is_none() && given().is_none() {
        let service = of_service(file, Path::new(SERVICE_CONFIG), Path::new(SERVICE_DIRECTORY))?;
        if service.is_some() {
            return Ok(service);
        }
    }
    Ok(path(told, Some(file), config))
}

/// Opens the state file and returns the changes that it holds. `previous` restores the changes
/// before the last ones instead.
///
/// # Errors
/// The file cannot be opened; see [`Store::open`].
pub fn open(path: Option<&Path>, previous: bool) -> Result<(Option<Store>, Changes), String> {
    match path {
        Some(path) => {
            let (store, changes) = Store::open(path, previous)?;
            Ok((Some(store), changes))
        }
        None if previous => Err("there is no state file: name it with --state".to_owned()),
        None => Ok((None, Changes::default())),
    }
}

/// Warns that live changes are not kept, unless the admin API is off or the operator chose to run
/// without a state file.
pub(super) fn warn_of_none(told: Option<&str>, config: &Config) {
    let is_said = told.is_some() || config.state.is_some();
    if !is_said && config.admin.listen != Some(AdminAddresses::Nowhere) {
        log::say(
            "warning: changes made while this server runs (tenants, namespaces, ...) are lost when it \
             ends; keep them with `--state FILE`, or silence this warning with `--state none`",
        );
    }
}

/// Returns the state file's path for a configuration file: in the service manager's state
/// directory, or else beside the file.
fn of_config(config: &Path) -> PathBuf {
    let beside = config.with_extension("state");
    match (given(), beside.file_name()) {
        (Some(given), Some(name)) => given.join(name),
        _ => beside,
    }
}

/// Returns the state directory that a service manager gave this process; `None` without one.
fn given() -> Option<PathBuf> {
    std::env::var_os("STATE_DIRECTORY").filter(|given| !given.is_empty()).map(PathBuf::from)
}

/// Returns the service's state file in `directory` if `file` is the configuration `service` and the
/// service has kept changes; else `None`.
fn of_service(file: &Path, service: &Path, directory: &Path) -> Result<Option<PathBuf>, String> {
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    if whole(file).is_none() || whole(file) != whole(service) {
        return Ok(None);
    }
    let beside = service.with_extension("state");
    let Some(name) = beside.file_name() else { return Ok(None) };
    let state = directory.join(name);
    let is_there = state.try_exists().map_err(|error| {
        let shown = state.display();
        format!("{shown}: {error}; the service's user and root may look at it, or say --state none")
    })?;
    Ok(is_there.then_some(state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_state_is_found_by_its_configuration_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (etc, lib) = (folder.path().join("etc"), folder.path().join("lib"));
        std::fs::create_dir_all(&etc).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        let (service, other) = (etc.join("nearflash.toml"), etc.join("other.toml"));
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&service, &link).unwrap();
        for file in [&service, &other] {
            std::fs::write(file, "").unwrap();
        }
        let found = |file: &Path| of_service(file, &service, &lib).unwrap();
        assert_eq!(found(&service), None, "nothing is kept");
        let state = lib.join("nearflash.state");
        std::fs::write(&state, "").unwrap();
        assert_eq!(found(&service), Some(state.clone()));
        assert_eq!(found(&link), Some(state));
        assert_eq!((found(&other), found(&etc.join("none.toml"))), (None, None));
    }

    #[test]
    fn what_is_told_goes_before_what_is_configured() {
        let config = Config::parse("state = \"/configured\"").unwrap();
        let (file, nothing) = (Path::new("/x/a.toml"), Config::default());
        assert_eq!(path(Some("/told"), Some(file), &config), Some("/told".into()));
        assert_eq!(path(None, Some(file), &config), Some("/configured".into()));
        assert_eq!(path(Some("none"), Some(file), &config), None);
        assert_eq!((path(None, None, &nothing), of_config(file)), (None, "/x/a.state".into()));
        let found = path_of_others(Some("none"), file, &config);
        assert_eq!(found, Ok(None));
    }
}
