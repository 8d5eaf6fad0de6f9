//! The real sessions, and sessions that break a promise on purpose: the order of barriers, or the
//! fences of controllers.

use std::rc::Rc;
use std::sync::Arc;

use contract::{
    ConnId, Event, Expected, Fatal, Fence, Fenced, FrameHead, Instant, ListenerId, Movable, Peer,
    Reply, Session, Slot, Speaks, Status, Tag, Unpack,
};
use proto::nvme::Busy;
use proto::nvme_tcp::{ControllerSession, WorkerFabric};
use proto::reflex::ServerSession;
use worker::{NotUnpacked, Sessions};

use crate::marks::{Mark, Marks};
use crate::nvme;

/// A connection's session.
#[derive(Debug)]
pub(crate) enum Spoken {
    Reflex(Reflex),
    Nvme(Nvme),
}

/// A session of protocol `reflex`.
#[derive(Debug)]
pub(crate) struct Reflex {
    inner: ServerSession,
    /// `true` to spread requests over streams, whatever they asked for.
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

/// The source of a worker's sessions.
#[derive(Debug)]
pub(crate) struct Speakers {
    pub(crate) desk: Rc<WorkerFabric>,
    /// `true` if barriers of the sessions order nothing.
    pub(crate) scatter: bool,
    /// `true` if controllers of the sessions have no fences.
    pub(crate) unfence: bool,
    pub(crate) marks: Marks,
}

impl Speakers {
    fn nvme(&self, inner: ControllerSession) -> Spoken {
        let (inner, marks) = (Box::new(inner), self.marks.clone());
        Spoken::Nvme(Nvme { inner, unfences: self.unfence, marks })
    }
}

impl Sessions<Spoken> for Speakers {
    fn open(&mut self, conn: ConnId, listener: Option<ListenerId>, _: &Peer) -> Spoken {
        match listener {
            Some(nvme::LISTENER) => {
                self.nvme(ControllerSession::new(self.desk.clone(), nvme::PORT, conn))
            }
            _ => Spoken::Reflex(Reflex {
                inner: ServerSession::new(),
                scatters: self.scatter,
                requests: 0,
            }),
        }
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<Spoken, NotUnpacked> {
        if let Some(mut inner) = ControllerSession::unpack_at(self.desk.clone(), packed) {
            inner.claim_queue().map_err(|Busy| NotUnpacked::Later)?;
            return Ok(self.nvme(inner));
        }
        let inner = ServerSession::unpack(packed).ok_or(NotUnpacked::Unknown)?;
        Ok(Spoken::Reflex(Reflex { inner, scatters: self.scatter, requests: 0 }))
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
    fn next_event<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fatal> {
        let event = self.inner.next_event(input);
        match event {
            Ok(Some(Event::Request(mut request))) if self.scatters => {
                self.requests = self.requests.wrapping_add(1);
                request.stream = self.requests % 8;
                Ok(Some(Event::Request(request)))
            }
            event => event,
        }
    }
}

impl Nvme {
    fn next_event<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fatal> {
        match self.inner.next_event(input) {
            Ok(Some(Event::Fenced(_))) if self.unfences => self.inner.next_event(input),
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

/// Evaluates an expression for either kind of session.
macro_rules! either {
    ($spoken:expr, $one:ident => $body:expr) => {
        match $spoken {
            Spoken::Reflex(Reflex { inner: $one, .. }) => $body,
            Spoken::Nvme(Nvme { inner: $one, .. }) => $body,
        }
    };
}

impl Session for Spoken {
    fn next_event<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fatal> {
        match self {
            Spoken::Reflex(reflex) => reflex.next_event(input),
            Spoken::Nvme(nvme) => nvme.next_event(input),
        }
    }

    fn has_more(&self) -> bool {
        either!(self, one => one.has_more())
    }

    fn expects(&self) -> Option<Expected> {
        either!(self, one => one.expects())
    }

    fn reply(&mut self, reply: &Reply, body: &[u8]) -> Result<FrameHead, Fatal> {
        either!(self, one => one.reply(reply, body))
    }

    fn invite(&mut self, tag: Tag, slot: Slot, room: &mut [u8]) -> FrameHead {
        either!(self, one => one.invite(tag, slot, room))
    }

    fn is_mid_message(&self) -> bool {
        either!(self, one => one.is_mid_message())
    }

    fn takes_notices(&self) -> bool {
        either!(self, one => one.takes_notices())
    }
}

impl Fenced for Spoken {
    fn allowed_as_of(&self, tag: Tag) -> u32 {
        either!(self, one => one.allowed_as_of(tag))
    }

    fn allow_again(&mut self, tag: Tag) -> Result<u32, Status> {
        either!(self, one => one.allow_again(tag))
    }
}

impl Speaks for Spoken {
    fn attend(&mut self, now: Instant) -> Result<(), Fatal> {
        either!(self, one => one.attend(now))
    }

    fn unsaid(&self) -> usize {
        either!(self, one => one.unsaid())
    }

    fn speak(&mut self, to: &mut [u8]) -> usize {
        either!(self, one => one.speak(to))
    }

    fn leave(&mut self) {
        either!(self, one => one.leave())
    }
}

impl Movable for Spoken {
    fn moves_to(&self, worker: u16) -> bool {
        either!(self, one => one.moves_to(worker))
    }

    fn is_settled(&self) -> bool {
        either!(self, one => one.is_settled())
    }

    fn pack(&mut self) -> Option<Vec<u8>> {
        either!(self, one => one.pack())
    }

    fn landed(&mut self, conn: ConnId) -> Option<Arc<Fence>> {
        match self {
            Spoken::Reflex(reflex) => reflex.inner.landed(conn),
            Spoken::Nvme(nvme) => nvme.landed(conn),
        }
    }
}
