//! Messages between the two processes: `proto::takeover`'s heads over `io::Link`.

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::time::Duration;

use io::Link;
use proto::takeover::{Head, Kind};

use super::STEP_MAX;
use super::courier::Event;

/// A message that has come.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The connection that it is about.
    pub(super) ticket: u64,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<OwnedFd>,
}

/// Why the talk is over.
#[derive(Debug)]
pub(super) enum Over {
    /// The other process is gone.
    Gone,
    /// It gives up; why.
    Stopped(String),
    /// It says nothing, or something that makes no sense.
    Nonsense(String),
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Over::Gone => f.write_str("the other process is gone"),
            Over::Stopped(why) => f.write_str(why),
            Over::Nonsense(what) => f.write_str(what),
        }
    }
}

impl From<Over> for String {
    fn from(over: Over) -> String {
        over.to_string()
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct Talk {
    link: Link,
}

impl Talk {
    /// Over a link on which the other may be silent for so long at most.
    pub(super) fn new(link: Link, patience: Duration) -> Result<Talk, String> {
        let set = link.set_patience(Some(patience), Some(patience));
        set.map_err(|error| format!("cannot talk to the other process: {error}"))?;
        Ok(Talk { link })
    }

    /// The other may be silent for so long from now on.
    pub(super) fn set_patience(&self, patience: Duration) -> Result<(), String> {
        let set = self.link.set_patience(Some(patience), Some(STEP_MAX));
        set.map_err(|error| error.to_string())
    }

    /// Says something about the server.
    pub(super) fn say(&self, kind: Kind, body: &[u8]) -> Result<(), Over> {
        self.send(kind, 0, body, &[])
    }

    /// Says something about a connection.
    pub(super) fn say_of(&self, kind: Kind, ticket: u64) -> Result<(), Over> {
        self.send(kind, ticket, &[], &[])
    }

    pub(super) fn send(
        &self,
        kind: Kind,
        ticket: u64,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<(), Over> {
        let head = Head { kind, ticket, body_bytes: body.len(), descriptors: files.len() as u16 };
        let head = head.to_bytes().map_err(|error| Over::Nonsense(error.to_string()))?;
        let bytes = [&head[..], body].concat();
        self.link.send(&bytes, files).map_err(|error| silent(&error))
    }

    /// The next message; what ends the talk is an error.
    pub(super) fn hear(&self) -> Result<Message, Over> {
        let (mut head, mut files) = ([0; Head::BYTES], Vec::new());
        self.link.receive(&mut head, &mut files).map_err(|error| silent(&error))?;
        let Head { kind, ticket, body_bytes, descriptors } =
            Head::parse(&head).map_err(|unfit| Over::Nonsense(unfit.to_string()))?;
        let mut body = vec![0; body_bytes];
        self.link.receive_plain(&mut body).map_err(|error| silent(&error))?;
        if files.len() != usize::from(descriptors) {
            let (came, said) = (files.len(), descriptors);
            return Err(Over::Nonsense(format!("{came} descriptors came of {said}")));
        }
        match kind {
            Kind::Stop => Err(Over::Stopped(String::from_utf8_lossy(&body).into_owned())),
            _ => Ok(Message { kind, ticket, body, files }),
        }
    }

    /// The next message, which has to be this.
    pub(super) fn expect(&self, kind: Kind) -> Result<Message, Over> {
        let message = self.hear()?;
        match message.kind == kind {
            true => Ok(message),
            false => Err(unexpected(&message)),
        }
    }

    /// Has every message reported as an event of talk number `n` from now on, and the end as the last.
    pub(super) fn report_to(&self, events: Sender<Event>, n: u64) -> Result<(), String> {
        let link = self.link.try_clone();
        let link = link.map_err(|error| format!("cannot listen to the other process: {error}"))?;
        // Silence is nothing bad any more: whoever waits for something looks at the clock.
        let own = Talk { link };
        own.link.set_patience(None, Some(STEP_MAX)).map_err(|error| error.to_string())?;
        let body = move || {
            loop {
                let heard = own.hear();
                let is_over = heard.is_err();
                if events.send(Event::Heard(n, heard)).is_err() || is_over {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("upgrade-talk".to_owned()).spawn(body);
        started.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
    }

    /// Tells the other why it goes no further, if it still listens.
    pub(super) fn stop(&self, why: &str) {
        let _ = self.say(Kind::Stop, why.as_bytes()); // it may be gone
        self.link.shut();
    }
}

fn silent(error: &std::io::Error) -> Over {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Over::Nonsense("the other process does not answer".to_owned())
        }
        _ => Over::Gone,
    }
}

pub(super) fn unexpected(message: &Message) -> Over {
    Over::Nonsense(format!("the other process says {:?} out of turn", message.kind))
}
