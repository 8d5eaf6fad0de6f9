//! The real session, and one that breaks the order of barriers on purpose.

use contract::{Event, Fatal, FrameHead, Reply, Session};
use proto::reflex::ServerSession;

/// A connection's session.
#[derive(Debug)]
pub(crate) struct Spoken {
    inner: ServerSession,
    /// Spread requests over streams, whatever they asked.
    scatters: bool,
    requests: u8,
}

impl Spoken {
    /// The real one.
    pub(crate) fn faithful() -> Self {
        Spoken { inner: ServerSession::new(), scatters: false, requests: 0 }
    }

    /// One whose barriers order nothing.
    pub(crate) fn scattering() -> Self {
        Spoken { scatters: true, ..Spoken::faithful() }
    }
}

impl Session for Spoken {
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

    fn reply(&mut self, reply: &Reply, body: &[u8]) -> Result<FrameHead, Fatal> {
        self.inner.reply(reply, body)
    }

    fn pack(&self) -> Option<Vec<u8>> {
        let mut bytes = self.inner.pack()?;
        bytes.push(u8::from(self.scatters));
        Some(bytes)
    }

    fn unpack(packed: &[u8]) -> Option<Self> {
        let (scatters, inner) = packed.split_last()?;
        let inner = ServerSession::unpack(inner)?;
        Some(Spoken { inner, scatters: *scatters != 0, requests: 0 })
    }

    fn is_mid_message(&self) -> bool {
        self.inner.is_mid_message()
    }

    fn takes_notices(&self) -> bool {
        self.inner.takes_notices()
    }
}
