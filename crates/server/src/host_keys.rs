//! The keys that NVMe hosts prove in handshakes of TLS.

use std::sync::{Arc, OnceLock};

use contract::{Psk, PskBook};
use proto::nvme::{self, Fabric};

/// The pre-shared keys of the hosts that the fabric knows: none before there is a fabric.
#[derive(Clone, Default)]
pub(crate) struct HostKeys(pub(crate) Arc<OnceLock<Arc<Fabric>>>);

impl PskBook for HostKeys {
    fn find(&self, identity: &[u8]) -> Vec<Psk> {
        self.0.get().map(|fabric| nvme::psks(fabric, identity)).unwrap_or_default()
    }
}
