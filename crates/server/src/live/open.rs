//! An open listener.

use std::sync::Arc;

use control::admin::{Code, Problem};
use io::{Endpoint, Listener, ServerTls};

use crate::fabric::FabricListener;
use crate::listen::ListenAt;
use crate::upgrade::{Role, Socket, wanted};

/// A listener that is open.
#[derive(Clone, Debug)]
pub(crate) struct OpenListener {
    /// The listener as the configuration describes it.
    pub(crate) at: ListenAt,
    /// The socket that is passed to a successor.
    pub(crate) socket: Arc<Socket>,
    /// The TLS settings of the listener's connections; `None` without TLS.
    tls: Option<Arc<ServerTls>>,
}

impl OpenListener {
    pub(crate) fn of(listener: &Listener, at: ListenAt) -> OpenListener {
        let socket = Socket::of(listener, Role::Listener(at.id.place()), wanted(&at));
        OpenListener { at, socket: Arc::new(socket), tls: listener.tls().cloned() }
    }

    /// Returns the address that the listener is bound to.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.socket.kept.endpoint()
    }

    /// Returns the listener with its address, from which the NVMe fabric derives a port.
    pub(super) fn entrance(&self) -> FabricListener<'_> {
        FabricListener { at: &self.at, endpoint: self.endpoint() }
    }

    /// Returns the URL at which clients reach the listener.
    pub(super) fn url(&self) -> String {
        self.at.url_at(self.endpoint())
    }

    /// Reads certificate and key of the listener again, if it has any.
    ///
    /// # Errors
    /// Fails if the files make no sense; then the old certificate stays.
    pub(super) fn renew(&self) -> Result<(), String> {
        match (&self.at.tls, &self.tls) {
            (Some(files), Some(tls)) => files.renew(tls),
            _ => Ok(()),
        }
    }
}

/// Finds a listener by its number, URL or address.
pub(super) fn find<'a>(all: &'a [OpenListener], name: &str) -> Result<&'a OpenListener, Problem> {
    let number = name.parse::<u16>().ok();
    let found = all.iter().find(|open| match number {
        Some(number) => open.at.number == number,
        None => {
            let url = open.url();
            url == name || url.split_once("://").is_some_and(|(_, address)| address == name)
        }
    });
    found.ok_or_else(|| {
        let known = all.iter().map(OpenListener::url).collect();
        Problem::unknown(Code::NoListener, "listener", name, known)
    })
}
