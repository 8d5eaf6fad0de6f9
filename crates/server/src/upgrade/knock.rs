//! The check of a process that asks to take over, and the answer that refuses an unsuitable one.

use std::os::unix::net::UnixStream;

use io::ProcessLink;

use super::step::STEP_MAX;
use super::talk::HandOverChannel;

/// Refuses a process that asks to take over, with the reason.
pub(super) fn refuse(stream: UnixStream, why: &str) {
    if let Ok(talk) = let_in(stream) {
        talk.stop(why);
    }
}

/// Begins a conversation with a process that asks to take over.
///
/// # Errors
/// Fails if the process may not take over. A process that may hear the reason is told.
pub(super) fn let_in(stream: UnixStream) -> Result<HandOverChannel, String> {
    let link = ProcessLink::new(stream);
    let (peer, own) = (link.peer_uid(), rustix::process::geteuid().as_raw());
    let talk = HandOverChannel::new(link, STEP_MAX)?;
    if std::process::id() == 1 {
        let why = "it is the first process of its container, which would end with it: restart \
                   the container instead";
        talk.stop(why);
        return Err(why.to_owned());
    }
    let peer = peer.map_err(|error| format!("cannot tell which user asks: {error}"))?;
    if peer == own {
        return Ok(talk);
    }
    let why = format!(
        "it is of user {own} and this one of user {peer}, whose files it could not open again: \
         start it as that user, or have the service manager do it (systemctl reload)"
    );
    if peer == 0 {
        talk.stop(&why);
    }
    Err(format!("user {peer} may not take over a server of user {own}"))
}
