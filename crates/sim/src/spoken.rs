//! The real sessions, and sessions that break a promise on purpose: the order of barriers, or the
//! fences of controllers.

use std::rc::Rc;
use std::sync::Arc;

use contract::{
    CompletedPrelude, ConnId, Fence, Instant, ListenerId, MigratableSession, Peer, ProtocolError,
    RestorableSession, RevocablePermissions, Session, SessionEvent, UnsolicitedOutput,
};
use proto::nbd::NbdSession;
use proto::nvme::LockBusy;
use proto::nvme_tcp::{ControllerSession, WorkerFabric};
use proto::reflex::ServerSession;
use worker::{SessionFactory, UnpackError};

use crate::marks::{Mark, Marks};
use crate::{nbd, nvme};

/// The session of a simulated connection, in one of the protocols.
#[derive(Debug)]
pub(crate) enum SimulatedSession {
    Reflex(Reflex),
    Nvme(Nvme),
    Nbd(Nbd),
}

/// A session of protocol `reflex`.
#[derive(Debug)]
pub(crate) struct Reflex {
    inner: ServerSession,
    /// `true` to spread requests over streams, against their own choice.
    scatters: bool,
    requests: u8,
}

/// A session of NVMe over TCP.
#[derive(Debug)]
pub(crate) struct Nvme {
    inner: Box<ControllerSession>,
    /// `true` to hide fences from the worker.
    unfences: bool,
    marks: Marks,
}

/// A session of NBD.
#[derive(Debug)]
pub(crate) struct Nbd {
    inner: Box<NbdSession>,
    marks: Marks,
}

/// The source of a worker's sessions.
#[derive(Debug)]
pub(crate) struct SimulatedSessions {
    pub(crate) desk: Rc<WorkerFabric>,
    /// `true` if the sessions' barriers have no effect.
    pub(crate) scatter: bool,
    /// `true` if the sessions' controllers have no fences.
    pub(crate) unfence: bool,
    pub(crate) marks: Marks,
}

impl SimulatedSessions {
    fn nvme(&self, inner: ControllerSession) -> SimulatedSession {
        let (inner, marks) = (Box::new(inner), self.marks.clone());
        SimulatedSession::Nvme(Nvme { inner, unfences: self.unfence, marks })
    }

    fn nbd(&self, inner: NbdSession) -> SimulatedSession {
        SimulatedSession::Nbd(Nbd { inner: Box::new(inner), marks: self.marks.clone() })
    }
}

impl SessionFactory<SimulatedSession> for SimulatedSessions {
    fn open(
        &mut self,
        conn: ConnId,
        listener: Option<ListenerId>,
        _: &Peer,
        _: Option<&CompletedPrelude>,
    ) -> SimulatedSession {
        match listener {
            Some(nvme::LISTENER) => {
                self.nvme(ControllerSession::new(self.desk.clone(), nvme::PORT, conn))
            }
            Some(nbd::LISTENER) => self.nbd(NbdSession::new()),
            _ => SimulatedSession::Reflex(Reflex {
                inner: ServerSession::new(),
                scatters: self.scatter,
                requests: 0,
            }),
        }
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<SimulatedSession, UnpackError> {
        if let Some(mut inner) = ControllerSession::unpack_at(self.desk.clone(), packed) {
            inner.claim_queue().map_err(|LockBusy| UnpackError::Later)?;
            return Ok(self.nvme(inner));
        }
        if let Some(inner) = NbdSession::unpack(packed) {
            return Ok(self.nbd(inner));
        }
        let inner = ServerSession::unpack(packed).ok_or(UnpackError::Unknown)?;
        Ok(SimulatedSession::Reflex(Reflex { inner, scatters: self.scatter, requests: 0 }))
    }

    fn lost(&mut self, packed: &[u8]) {
        ControllerSession::lose(&self.desk, packed);
    }

    fn news(&mut self, now: Instant) -> Option<ConnId> {
        self.desk.news(now)
    }

    fn wake_at(&self) -> Option<Instant> {
        self.desk.wake_at()
    }
}

impl Reflex {
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        let event = self.inner.next_event(input);
        match event {
            Ok(Some(SessionEvent::Request(mut request))) if self.scatters => {
                self.requests = self.requests.wrapping_add(1);
                request.stream = self.requests % 8;
                Ok(Some(SessionEvent::Request(request)))
            }
            event => event,
        }
    }
}

impl Nvme {
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        match self.inner.next_event(input) {
            Ok(Some(SessionEvent::Fenced(_))) if self.unfences => self.inner.next_event(input),
            event => event,
        }
    }
}

impl Nvme {
    fn landed(&mut self, conn: ConnId) -> Option<Arc<Fence>> {
        let fence = self.inner.landed(conn);
        self.marks.hit(match &fence {
            None => Mark::MovedAdmin,
            Some(_) => Mark::MovedQueue,
        });
        fence.filter(|_| !self.unfences)
    }
}

impl Nbd {
    fn landed(&mut self, conn: ConnId) -> Option<Arc<Fence>> {
        self.marks.hit(Mark::MovedNbd);
        self.inner.landed(conn)
    }
}

/// Evaluates an expression for each kind of session.
macro_rules! each {
    ($spoken:expr, $one:ident => $body:expr) => {
        match $spoken {
            SimulatedSession::Reflex(Reflex { inner: $one, .. }) => $body,
            SimulatedSession::Nvme(Nvme { inner: $one, .. }) => $body,
            SimulatedSession::Nbd(Nbd { inner: $one, .. }) => $body,
        }
    };
}

impl Session for SimulatedSession {
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        match self {
            SimulatedSession::Reflex(reflex) => reflex.next_event(input),
            SimulatedSession::Nvme(nvme) => nvme.next_event(input),
            SimulatedSession::Nbd(nbd) => nbd.inner.next_event(input),
        }
    }

    contract::session_by!(Session, each);
}

impl RevocablePermissions for SimulatedSession {
    contract::session_by!(RevocablePermissions, each);
}

impl UnsolicitedOutput for SimulatedSession {
    contract::session_by!(UnsolicitedOutput, each);
}

impl MigratableSession for SimulatedSession {
    contract::session_by!(MigratableSession, each);

    fn landed(&mut self, conn: ConnId) -> Option<Arc<Fence>> {
        match self {
            SimulatedSession::Reflex(reflex) => reflex.inner.landed(conn),
            SimulatedSession::Nvme(nvme) => nvme.landed(conn),
            SimulatedSession::Nbd(nbd) => nbd.landed(conn),
        }
    }
}
