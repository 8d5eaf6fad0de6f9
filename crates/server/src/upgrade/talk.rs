//! Messages between predecessor and successor: the heads of `proto::takeover` over
//! `io::ProcessLink`.

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::time::Duration;

use io::ProcessLink;
use proto::takeover::{TakeoverHead, TakeoverKind};

use super::event::Event;
use super::step::STEP_MAX;

/// The time limit for sending the last message of a conversation.
const FAREWELL_MAX: Duration = Duration::from_millis(500);

/// A message from the other process of a hand-over, with its body and its descriptors.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: TakeoverKind,
    /// The ticket of the connection that the message is about. In a message with connections, the
    /// time at which it was sent, in nanoseconds of the machine's clock.
    pub(super) ticket: u64,
    pub(super) body: Vec<u8>,
    /// The files that came with the message. The process's limit of open files may have dropped
    /// some.
    pub(super) files: Vec<OwnedFd>,
    is_short: bool,
}

/// The reason why the conversation of the old and the new process ended.
#[derive(Debug)]
pub(super) enum ChannelEnd {
    /// The connection between the processes was closed. The other process may still live.
    Ended,
    /// The other process gave up the hand-over, for this reason.
    Stopped(String),
    /// A message could not be understood, or did not come in time.
    Nonsense(String),
}

impl fmt::Display for ChannelEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelEnd::Ended => f.write_str("the other process is gone"),
            ChannelEnd::Stopped(why) => f.write_str(why),
            ChannelEnd::Nonsense(what) => f.write_str(what),
        }
    }
}

impl From<ChannelEnd> for String {
    fn from(over: ChannelEnd) -> String {
        over.to_string()
    }
}

/// The connection of one process to the other one during a hand-over from predecessor to successor.
#[derive(Debug)]
pub(super) struct HandOverChannel {
    link: ProcessLink,
}

impl HandOverChannel {
    /// Returns a talk over a link. After this time of silence the other process counts as stuck.
    pub(super) fn new(link: ProcessLink, patience: Duration) -> Result<HandOverChannel, String> {
        let set = link.set_patience(Some(patience), Some(patience));
        set.map_err(|error| format!("cannot talk to the other process: {error}"))?;
        Ok(HandOverChannel { link })
    }

    /// Sets the longest silence after which the other process counts as stuck.
    pub(super) fn set_patience(&self, patience: Duration) -> Result<(), String> {
        let set = self.link.set_patience(Some(patience), Some(STEP_MAX));
        set.map_err(|error| error.to_string())
    }

    /// Sends a message about the server as a whole.
    pub(super) fn say(&self, kind: TakeoverKind, body: &[u8]) -> Result<(), ChannelEnd> {
        self.send(kind, 0, body, &[])
    }

    pub(super) fn send(
        &self,
        kind: TakeoverKind,
        ticket: u64,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelEnd> {
        let head =
            TakeoverHead { kind, ticket, body_bytes: body.len(), descriptors: files.len() as u16 };
        let head = head.to_bytes().map_err(|error| ChannelEnd::Nonsense(error.to_string()))?;
        let bytes = [&head[..], body].concat();
        self.link.send(&bytes, files).map_err(|error| silent(&error))
    }

    /// Waits for the next message. The end of the talk is an error.
    pub(super) fn hear(&self) -> Result<Message, ChannelEnd> {
        let (mut head, mut files) = ([0; TakeoverHead::BYTES], Vec::new());
        self.link.receive(&mut head, &mut files).map_err(|error| silent(&error))?;
        let TakeoverHead { kind, ticket, body_bytes, descriptors } =
            TakeoverHead::parse(&head).map_err(|unfit| ChannelEnd::Nonsense(unfit.to_string()))?;
        let mut body = vec![0; body_bytes];
        self.link.receive_plain(&mut body).map_err(|error| silent(&error))?;
        let is_short = files.len() < usize::from(descriptors);
        match kind {
            TakeoverKind::Stop => {
                Err(ChannelEnd::Stopped(String::from_utf8_lossy(&body).into_owned()))
            }
            _ => Ok(Message { kind, ticket, body, files, is_short }),
        }
    }

    /// Waits for the next message, which must be of this kind and complete.
    pub(super) fn expect(&self, kind: TakeoverKind) -> Result<Message, ChannelEnd> {
        let message = self.hear()?;
        if message.kind != kind {
            return Err(unexpected(&message));
        }
        match message.is_short {
            true => Err(ChannelEnd::Nonsense(
                "this process may not have as many descriptors as it is passed (ulimit -n)"
                    .to_owned(),
            )),
            false => Ok(message),
        }
    }

    /// Reports each message from now on as an event of conversation `n`, and the end as the last
    /// event.
    pub(super) fn report_to(&self, events: Sender<Event>, n: u64) -> Result<(), String> {
        let link = self.link.try_clone();
        let link = link.map_err(|error| format!("cannot listen to the other process: {error}"))?;
        // Silence is nothing bad any more: whoever waits for something looks at the clock.
        let own = HandOverChannel { link };
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

    /// Stops receiving: earlier messages are still read, and the other process can send no more.
    pub(super) fn hear_no_more(&self) {
        self.link.shut_receiving();
    }

    /// Tells the other process why this one gives up the hand-over, if the other one still
    /// receives.
    pub(super) fn stop(&self, why: &str) {
        // It may not read any more.
        let _ = self.link.set_patience(None, Some(FAREWELL_MAX));
        let _ = self.say(TakeoverKind::Stop, why.as_bytes()); // it may be gone
        self.link.shut();
    }
}

fn silent(error: &std::io::Error) -> ChannelEnd {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            ChannelEnd::Nonsense("the other process does not answer".to_owned())
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            ChannelEnd::Ended
        }
        _ => ChannelEnd::Nonsense(format!("cannot talk to the other process: {error}")),
    }
}

pub(super) fn unexpected(message: &Message) -> ChannelEnd {
    ChannelEnd::Nonsense(format!("the other process says {:?} out of turn", message.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn pair() -> (HandOverChannel, HandOverChannel) {
        let (one, other) = UnixStream::pair().unwrap();
        let talk = |stream| {
            HandOverChannel::new(ProcessLink::new(stream), Duration::from_millis(20)).unwrap()
        };
        (talk(one), talk(other))
    }

    #[test]
    fn silence_and_nonsense_are_no_end() {
        let (one, other) = pair();
        assert!(matches!(one.hear(), Err(ChannelEnd::Nonsense(_))), "silence");
        other.link.send(&[b'x'; TakeoverHead::BYTES], &[]).unwrap();
        assert!(matches!(one.hear(), Err(ChannelEnd::Nonsense(_))), "a foreign head");
        other.stop("why");
        assert!(matches!(one.hear(), Err(ChannelEnd::Stopped(why)) if why == "why"));
        assert!(matches!(one.hear(), Err(ChannelEnd::Ended)));
        assert!(matches!(one.say(TakeoverKind::Ready, &[]), Err(ChannelEnd::Ended)));
    }

    #[test]
    fn who_hears_no_more_has_heard_all_that_was_said() {
        let (one, other) = pair();
        other.say(TakeoverKind::Committed, b"in time").unwrap();
        one.hear_no_more();
        assert!(matches!(other.say(TakeoverKind::Committed, b"too late"), Err(ChannelEnd::Ended)));
        let heard = one.hear().unwrap();
        assert_eq!((heard.kind, &heard.body[..]), (TakeoverKind::Committed, &b"in time"[..]));
        assert!(matches!(one.hear(), Err(ChannelEnd::Ended)));
        one.say(TakeoverKind::Stop, b"why").unwrap();
        assert!(matches!(other.hear(), Err(ChannelEnd::Stopped(why)) if why == "why"));
    }

    #[test]
    fn descriptors_that_did_not_come_are_missed() {
        let (one, other) = pair();
        let head =
            TakeoverHead { kind: TakeoverKind::Files, ticket: 0, body_bytes: 0, descriptors: 2 };
        let head = head.to_bytes().unwrap();
        other.link.send(&head, &[std::io::stdin().as_fd()]).unwrap();
        let error = one.expect(TakeoverKind::Files).unwrap_err().to_string();
        assert!(error.contains("ulimit"), "{error}");
    }
}
