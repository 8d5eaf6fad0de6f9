//! The sessions of all protocols that a server supports, behind one type, and the creation of a
//! session for each connection.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use contract::{
    CompletedPrelude, ConnId, Fence, Instant, ListenerId, MigratableSession, Peer, Protocol,
    ProtocolError, RestorableSession, RevocablePermissions, Session, SessionEvent,
    UnsolicitedOutput,
};
use proto::nbd;
use proto::nvme::{Fabric, LockBusy, PortId};
use proto::nvme_tcp::{ControllerSession, WorkerFabric};
use proto::reflex::ServerSession;
use worker::{SessionFactory, SharedState, UnpackError};

/// A session of any supported protocol.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "its connection is boxed")]
pub enum AnySession {
    /// A session of protocol `reflex`, in both of its versions.
    Reflex(ServerSession),
    /// A queue of an NVMe/TCP controller.
    NvmeTcp(ControllerSession),
    /// A session of NBD.
    Nbd(nbd::NbdSession),
}

/// Creates sessions by the protocol of their listener.
pub(crate) struct ListenerSessionFactory {
    /// The NVMe fabric, created once a listener speaks NVMe.
    pub(crate) fabric: Arc<OnceLock<Arc<Fabric>>>,
    /// The worker's access to the NVMe fabric, once a fabric exists.
    pub(crate) desk: Option<Rc<WorkerFabric>>,
    /// The number of the worker that the sessions belong to.
    pub(crate) worker: u16,
    /// The protocols of listeners, and the access rules, which say from which addresses NVMe hosts
    /// may connect.
    pub(crate) shared: Arc<SharedState>,
}

impl ListenerSessionFactory {
    /// Returns true if an access rule admits the peer without credentials. NVMe hosts never present
    /// the credentials of access rules.
    fn lets_in(&self, listener: ListenerId, peer: &Peer) -> bool {
        let own = self.shared.listeners.stands(listener);
        self.shared.access.open(peer, b"", "", own).is_ok()
    }

    /// Returns this worker's access to the NVMe fabric, which a new listener may just have created;
    /// `None` while there is no fabric.
    fn desk(&mut self) -> Option<&Rc<WorkerFabric>> {
        if self.desk.is_none() {
            let fabric = self.fabric.get()?;
            self.desk = Some(Rc::new(WorkerFabric::new(fabric.clone(), self.worker)));
        }
        self.desk.as_ref()
    }
}

impl SessionFactory<AnySession> for ListenerSessionFactory {
    fn open(
        &mut self,
        conn: ConnId,
        listener: Option<ListenerId>,
        peer: &Peer,
        opening: Option<&CompletedPrelude>,
    ) -> AnySession {
        let listener = listener.unwrap_or(ListenerId(0));
        let lead = self.shared.listeners.find(listener);
        let protocol = lead.map_or(Protocol::Reflex, |lead| lead.protocol);
        let lets_in = self.lets_in(listener, peer);
        match (protocol, self.desk()) {
            (Protocol::NvmeTcp, Some(desk)) => {
                let port = PortId(listener.place());
                let session = match lets_in {
                    true => ControllerSession::new(desk.clone(), port, conn),
                    false => ControllerSession::refusing(desk.clone(), port, conn),
                };
                let session = match peer.address() {
                    Some(address) => session.from_address(address.ip()),
                    None => session,
                };
                AnySession::NvmeTcp(match opening {
                    Some(opening) => session.after(opening),
                    None => session,
                })
            }
            (Protocol::Nbd, _) => {
                let session = opening.map_or_else(nbd::NbdSession::new, nbd::NbdSession::after);
                AnySession::Nbd(session)
            }
            _ => AnySession::Reflex(ServerSession::new()),
        }
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<AnySession, UnpackError> {
        let nvme = self.desk().and_then(|desk| ControllerSession::unpack_at(desk.clone(), packed));
        if let Some(mut session) = nvme {
            session.claim_queue().map_err(|LockBusy| UnpackError::Later)?;
            return Ok(AnySession::NvmeTcp(session));
        }
        AnySession::unpack(packed).ok_or(UnpackError::Unknown)
    }

    fn lost(&mut self, packed: &[u8]) {
        if let Some(desk) = self.desk() {
            ControllerSession::lose(desk, packed);
        }
    }

    fn news(&mut self, now: Instant) -> Option<ConnId> {
        self.desk()?.news(now)
    }

    fn wake_at(&self) -> Option<Instant> {
        self.desk.as_ref()?.wake_at()
    }
}

contract::variants!(each, AnySession: Reflex, NvmeTcp, Nbd);

impl Session for AnySession {
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        each!(self, session => session.next_event(input))
    }

    contract::session_by!(Session, each);

    fn protocol(&self) -> Protocol {
        each!(self, session => session.protocol())
    }
}

impl RevocablePermissions for AnySession {
    contract::session_by!(RevocablePermissions, each);
}

impl UnsolicitedOutput for AnySession {
    contract::session_by!(UnsolicitedOutput, each);
}

impl MigratableSession for AnySession {
    contract::session_by!(MigratableSession, each);

    fn landed(&mut self, conn: ConnId) -> Option<Arc<Fence>> {
        each!(self, session => session.landed(conn))
    }
}

/// Unpacks sessions of `reflex` and NBD. An NVMe session moves to another process only with its
/// controller.
impl RestorableSession for AnySession {
    fn unpack(packed: &[u8]) -> Option<Self> {
        let reflex = ServerSession::unpack(packed).map(AnySession::Reflex);
        reflex.or_else(|| nbd::NbdSession::unpack(packed).map(AnySession::Nbd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::ExpectedPayload;
    use wire::reflex_v1::{MAGIC, MessageHead, Opcode};
    use zerocopy::IntoBytes;

    /// Tests that the wrapper of sessions passes on a method that has a default. Without it, large
    /// payloads would be copied.
    #[test]
    fn what_a_session_expects_is_passed_on() {
        let mut session = AnySession::Reflex(ServerSession::new());
        assert_eq!(session.expects(), None);
        let head = MessageHead {
            magic: MAGIC.into(),
            opcode: Opcode::SET,
            handle: 7.into(),
            lba: 8.into(),
            lba_count: 128.into(),
        };
        let mut input = head.as_bytes();
        assert!(matches!(session.next_event(&mut input), Ok(Some(SessionEvent::Request(_)))));
        assert_eq!(session.expects(), Some(ExpectedPayload { place: None, bytes: 64 << 10 }));
    }
}
