//! Options by which commands reach the admin API of a server.

use std::path::PathBuf;

use control::admin::{AdminAddress, Client, ClientCredentials, ClientError};

use crate::admin::where_to_look;
use crate::credentials::{read_secret, read_text};

/// The options by which a command reaches the admin API of a server.
#[derive(clap::Args, Clone, Debug)]
pub struct AdminOptions {
    /// Address of the server's admin API: path of its socket, http://127.0.0.1:PORT or
    /// https://HOST:PORT [default: the socket of this user's server, or
    /// /run/nearflash/nearflash.sock]
    #[arg(long, value_name = "WHERE", env = "NEARFLASH_ADMIN", global = true)]
    admin: Option<AdminAddress>,
    /// For https://: file of the trusted certificates (PEM)
    #[arg(long, value_name = "FILE", env = "NEARFLASH_ADMIN_CA", global = true)]
    admin_ca: Option<PathBuf>,
    /// For https://: file of this operator's token
    #[arg(long, value_name = "FILE", env = "NEARFLASH_ADMIN_TOKEN", global = true)]
    admin_token: Option<PathBuf>,
}

impl AdminOptions {
    /// Returns the address of the server's admin API.
    pub fn address(&self) -> AdminAddress {
        self.admin.clone().unwrap_or_else(where_to_look)
    }

    /// Returns a client of the admin API.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or makes no sense.
    pub fn client(&self) -> Result<Client, ClientError> {
        let address = self.address();
        let pass = match (&address, &self.admin_ca, &self.admin_token) {
            (AdminAddress::Tls { .. }, Some(authorities), Some(token)) => {
                let pass = read_text(authorities).and_then(|authorities| {
                    ClientCredentials::new(authorities.as_bytes(), read_secret(token)?.trim())
                });
                Some(pass.map_err(ClientError::Pass)?)
            }
            _ => None,
        };
        Client::with_pass(address, pass)
    }
}
