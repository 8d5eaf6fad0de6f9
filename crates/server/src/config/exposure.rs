//! A check whether all users of the machine may read a configuration file with secrets.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Config;

/// The bit of a file's mode that lets all users read the file. Its group is the owner's choice.
const READ_BY_ALL: u32 = 0o004;

/// Returns a description of the configuration's secrets, or of the paths of its secret files;
/// `None` if it has neither.
fn secrets(config: &Config) -> Option<&'static str> {
    let has_token = config.access.iter().any(|rule| rule.token.is_some());
    let has_key = config.host.iter().any(|host| host.secrets().into_iter().any(Option::is_some));
    let names_files = config.admin.key.is_some() || config.admin.tokens.is_some();
    [
        (has_key, "the keys of hosts"),
        (has_token, "the tokens of clients"),
        (names_files, "where the keys and tokens of operators are"),
    ]
    .into_iter()
    .find_map(|(is_there, what)| is_there.then_some(what))
}

/// Returns a warning for each NQN of a host or subsystem that is obviously wrong: with an invalid
/// UUID, with blanks, or with the dots of an example. A server starts in spite of it.
pub fn doubtful_names(config: &Config) -> Vec<String> {
    let of_hosts = config.host.iter().map(|host| &host.nqn);
    let of_subsystems =
        config.subsystem.iter().flat_map(|one| one.nqn.iter().chain(one.hosts.iter().flatten()));
    of_subsystems.chain(of_hosts).filter_map(|nqn| spec::check_nqn(nqn).err()).collect()
}

/// Returns a warning, with a remedy, if `config` has secrets and all users of the machine may read
/// `file`, from which it was read.
pub fn exposed(config: &Config, file: &Path) -> Option<String> {
    let what = secrets(config)?;
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    (mode & READ_BY_ALL != 0).then(|| {
        format!(
            "{} has the permissions {:03o}, so all users of this machine may read {what} in it: \
             `chmod o-r {0}`",
            file.display(),
            mode & 0o777
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_secrets_that_everybody_may_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nearflash.toml");
        std::fs::write(&file, "").unwrap();
        let said = |text: &str, mode| {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            exposed(&Config::parse(text).unwrap(), &file)
        };
        for (text, what) in [
            ("[[access]]\ntoken = \"t\"\nrights = \"read\"\n", "tokens of clients"),
            ("[[host]]\nnqn = \"nqn.2014-08.org.example:a\"\nkey = \"k\"\n", "keys of hosts"),
            ("[admin]\ntokens = \"/x\"\n", "of operators"),
        ] {
            let told = said(text, 0o644).expect("everybody may read it");
            let shown = file.display().to_string();
            assert!(told.contains(what) && told.contains("644"), "{told}");
            assert!(told.ends_with(&format!("`chmod o-r {shown}`")), "{told}");
            for mode in [0o600, 0o640] {
                assert_eq!(said(text, mode), None);
            }
        }
        assert_eq!(said("[[access]]\nfrom = \"anyone\"\nrights = \"read\"\n", 0o644), None);
    }
}
