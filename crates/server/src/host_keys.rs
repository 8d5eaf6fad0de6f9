//! The keys that NVMe hosts prove in handshakes of TLS.

use std::sync::{Arc, OnceLock};

use contract::{Psk, PskBook};
use proto::nvme::{self, Fabric};

/// The pre-shared keys of the hosts that the fabric knows: none before there is a fabric.
#[derive(Clone, Default)]
pub(crate) struct HostKeys(pub(crate) Arc<OnceLock<Arc<Fabric>>>);

impl PskBook for HostKeys {
    fn find(&self, identities: &[&[u8]]) -> Option<(usize, Vec<Psk>)> {
        nvme::psks(self.0.get()?, identities)
    }
}
