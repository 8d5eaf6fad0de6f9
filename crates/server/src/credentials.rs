//! The files of an admin API that is reachable over the network: its certificate and key, and the
//! tokens of operators.

use std::path::{Path, PathBuf};

use control::admin::{AdminAddress, Credentials, Tokens};
use zeroize::Zeroizing;

use crate::admin::{AdminAddresses, needs};
use crate::config::AdminConfig;

/// The files with which a server authenticates itself to remote operators and checks them.
pub(crate) struct CredentialFiles {
    certificate: PathBuf,
    key: PathBuf,
    tokens: PathBuf,
}

impl CredentialFiles {
    /// Returns the files if the configuration names all three. Returns `None` if it does not and
    /// has no `https://` address, and an error if it has one.
    pub(crate) fn of(config: &AdminConfig) -> Result<Option<CredentialFiles>, String> {
        let files = (&config.certificate, &config.key, &config.tokens);
        let (Some(certificate), Some(key), Some(tokens)) = files else {
            let Some(AdminAddresses::At(each)) = &config.listen else { return Ok(None) };
            let elsewhere = each.iter().find(|at| matches!(at, AdminAddress::Tls { .. }));
            return elsewhere.map_or(Ok(None), |address| Err(needs(address)));
        };
        let (certificate, key, tokens) = (certificate.clone(), key.clone(), tokens.clone());
        Ok(Some(CredentialFiles { certificate, key, tokens }))
    }

    fn contents(&self) -> Result<(String, Zeroizing<String>, Tokens), String> {
        let tokens = Tokens::parse(&read_secret(&self.tokens)?)
            .map_err(|error| format!("{}: {error}", self.tokens.display()))?;
        Ok((read_text(&self.certificate)?, read_secret(&self.key)?, tokens))
    }

    pub(crate) fn read(&self) -> Result<Credentials, String> {
        let (certificate, key, tokens) = self.contents()?;
        Credentials::new(certificate.as_bytes(), key.as_bytes(), tokens)
            .map_err(|error| self.say(&error))
    }

    pub(crate) fn renew(&self, credentials: &Credentials) -> Result<(), String> {
        let (certificate, key, tokens) = self.contents()?;
        credentials
            .replace(certificate.as_bytes(), key.as_bytes(), tokens)
            .map_err(|error| self.say(&error))
    }

    fn say(&self, error: &str) -> String {
        format!("{} and {}: {error}", self.certificate.display(), self.key.display())
    }
}

/// Reads a text file; the error names the path.
pub fn read_text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Reads a key, without blanks around it, from a file or, by the name `-`, from standard input.
/// Fails if others than its owner may read the file. The text that was read is wiped from memory.
pub fn read_key(path: &Path) -> Result<String, String> {
    let text = match path.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin())
            .map_err(|error| format!("cannot read standard input: {error}"))?
            .into(),
        false => read_secret(path)?,
    };
    Ok(text.trim().to_owned())
}

/// Reads a text file with a secret, which is wiped from memory when it is dropped. Fails if others
/// than its owner may read the file.
pub fn read_secret(path: &Path) -> Result<Zeroizing<String>, String> {
    io::read_secret(path).map_err(|error| error.to_string())
}
