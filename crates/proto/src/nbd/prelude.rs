//! The negotiation up to TLS (the specification's "TLS support"): greeting, the client's flags, and
//! options until `NBD_OPT_STARTTLS`.
//!
//! Of what a client says in the clear, only its flags hold over TLS. No byte after
//! `NBD_OPT_STARTTLS` is taken, since the TLS handshake follows, or the end of the connection.

use alloc::vec::Vec;

use contract::{CompletedPrelude, Prelude, PreludeOutcome, TlsFailure};
use wire::nbd::{
    FLAG_FIXED_NEWSTYLE, Greeting, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHead, OptionKind,
    OptionReply, OptionReplyHead,
};
use zerocopy::{FromBytes, IntoBytes};

use super::client::{flags_for, option_head};
use super::handshake::{FLAGS_BYTES, flags_of_client, greeting, reply_head};
use super::limits::OPTIONS_BYTES_MAX;

/// The most bytes to receive at a time of an option's data, which is skipped.
const PIECE_BYTES_MAX: usize = 512;

/// The size in bytes of an option's head.
const HEAD: usize = size_of::<OptionHead>();

/// The server's end of a connection before TLS.
///
/// Where TLS is required, options are refused with `NBD_REP_ERR_TLS_REQD` (the specification's
/// FORCEDTLS), except `NBD_OPT_STARTTLS`, and `NBD_OPT_ABORT` and `NBD_OPT_EXPORT_NAME`, which end
/// the connection. Where TLS is allowed, the first option says whether the client begins with it
/// (SELECTIVETLS, with no export that needs it).
#[derive(Debug)]
pub struct ServerPrelude {
    is_required: bool,
    /// `true` if the client speaks the fixed newstyle, without which there is no TLS.
    is_fixed: bool,
    stage: ServerStage,
    /// The beginning of a message that has not come whole.
    gathered: Vec<u8>,
    flags: [u8; FLAGS_BYTES],
    /// The number of bytes of options so far, heads included.
    taken: usize,
}

/// The client's message that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerStage {
    /// No message of the client, because the server's greeting must be sent first.
    Greeting,
    /// The client's flags.
    Flags,
    /// The head of an option.
    Option,
    /// The data of an option, to be skipped; the second value is the number of bytes left.
    Data(OptionKind, usize),
}

impl ServerPrelude {
    /// Creates the prelude of a connection through a listener that requires TLS (`is_required`), or
    /// lets clients choose.
    pub fn new(is_required: bool) -> Self {
        let (gathered, flags) = (Vec::new(), [0; FLAGS_BYTES]);
        let (is_fixed, stage) = (false, ServerStage::Greeting);
        ServerPrelude { is_required, is_fixed, stage, gathered, flags, taken: 0 }
    }

    /// Processes the head of an option. Returns how the connection continues; `None` if further
    /// options decide that.
    fn option(&mut self, answers: &mut Vec<u8>) -> Result<Option<PreludeOutcome>, TlsFailure> {
        let head = OptionHead::read_from_bytes(&self.gathered).expect("gathered to its size");
        let (kind, bytes) = (OptionKind(head.option.get()), head.bytes.get() as usize);
        if head.magic.get() != OPTION_MAGIC {
            return Err(TlsFailure::Misbehaved);
        }
        if !self.is_required && (kind != OptionKind::STARTTLS || !self.is_fixed) {
            let heard = [&self.flags[..], &self.gathered].concat().into();
            return Ok(Some(PreludeOutcome::Plain(CompletedPrelude {
                heard,
                ..CompletedPrelude::default()
            })));
        }
        self.taken = self.taken.saturating_add(HEAD).saturating_add(bytes);
        if self.taken > OPTIONS_BYTES_MAX {
            return Err(TlsFailure::Misbehaved);
        }
        self.gathered.clear();
        match bytes {
            0 => self.answer(kind, true, answers),
            _ => {
                self.stage = ServerStage::Data(kind, bytes);
                Ok(None)
            }
        }
    }

    /// Answers an option of the client. The option's data, if it has any (`is_bare` is `false`),
    /// was skipped. Returns how the connection continues; `None` if further options decide that.
    fn answer(
        &mut self,
        kind: OptionKind,
        is_bare: bool,
        answers: &mut Vec<u8>,
    ) -> Result<Option<PreludeOutcome>, TlsFailure> {
        self.stage = ServerStage::Option;
        let mut reply = |reply| answers.extend(reply_head(kind, reply, 0).as_bytes());
        match kind {
            OptionKind::STARTTLS if is_bare => {
                reply(OptionReply::ACK);
                let heard = self.flags.into();
                let opening = CompletedPrelude { is_secured: true, heard, proven: None };
                return Ok(Some(PreludeOutcome::Secure(opening)));
            }
            OptionKind::STARTTLS => reply(OptionReply::INVALID),
            OptionKind::ABORT => {
                reply(OptionReply::ACK);
                return Err(TlsFailure::Plain);
            }
            // It has no other answer than the end of the connection.
            OptionKind::EXPORT_NAME => return Err(TlsFailure::Plain),
            _ => reply(OptionReply::TLS_REQUIRED),
        }
        Ok(None)
    }
}

impl Prelude for ServerPrelude {
    fn wants(&self) -> usize {
        match self.stage {
            ServerStage::Greeting | ServerStage::Flags => FLAGS_BYTES - self.gathered.len(),
            ServerStage::Option => HEAD - self.gathered.len(),
            ServerStage::Data(_, left) => left.min(PIECE_BYTES_MAX),
        }
    }

    fn take(
        &mut self,
        bytes: &[u8],
        answers: &mut Vec<u8>,
    ) -> Result<Option<PreludeOutcome>, TlsFailure> {
        if self.stage == ServerStage::Greeting {
            answers.extend(greeting().as_bytes());
            self.stage = ServerStage::Flags;
            return Ok(None);
        }
        if let ServerStage::Data(kind, left) = self.stage {
            self.stage = ServerStage::Data(kind, left - bytes.len());
            return match left - bytes.len() {
                0 => self.answer(kind, false, answers),
                _ => Ok(None),
            };
        }
        self.gathered.extend_from_slice(bytes);
        match self.stage {
            ServerStage::Flags if self.gathered.len() == FLAGS_BYTES => {
                let flags = flags_of_client(&self.gathered).ok_or(TlsFailure::Misbehaved)?;
                self.is_fixed = flags & FLAG_FIXED_NEWSTYLE != 0;
                // A client of the plain newstyle has no word for a refused option.
                if self.is_required && !self.is_fixed {
                    return Err(TlsFailure::Plain);
                }
                self.flags.copy_from_slice(&self.gathered);
                self.gathered.clear();
                self.stage = ServerStage::Option;
                Ok(None)
            }
            ServerStage::Option if self.gathered.len() == HEAD => self.option(answers),
            _ => Ok(None),
        }
    }
}

/// The client's end of a connection before TLS. It ends the connection if the server has no TLS.
#[derive(Debug, Default)]
pub struct ClientPrelude {
    /// The beginning of the message that has not come whole.
    gathered: Vec<u8>,
    /// `true` if the greeting has come and the client has asked for TLS.
    has_asked: bool,
}

impl ClientPrelude {
    fn bytes(&self) -> usize {
        if self.has_asked { size_of::<OptionReplyHead>() } else { size_of::<Greeting>() }
    }
}

impl Prelude for ClientPrelude {
    fn wants(&self) -> usize {
        self.bytes() - self.gathered.len()
    }

    fn take(
        &mut self,
        bytes: &[u8],
        answers: &mut Vec<u8>,
    ) -> Result<Option<PreludeOutcome>, TlsFailure> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() < self.bytes() {
            return Ok(None);
        }
        let message = core::mem::take(&mut self.gathered);
        if !self.has_asked {
            let greeting = Greeting::read_from_bytes(&message).expect("gathered to its size");
            answers.extend(flags_for(&greeting).ok_or(TlsFailure::Misbehaved)?);
            answers.extend(option_head(OptionKind::STARTTLS, 0).as_bytes());
            self.has_asked = true;
            return Ok(None);
        }
        let head = OptionReplyHead::read_from_bytes(&message).expect("gathered to its size");
        let (reply, data) = (OptionReply(head.reply.get()), head.bytes.get());
        if head.magic.get() != OPTION_REPLY_MAGIC || head.option.get() != OptionKind::STARTTLS.0 {
            return Err(TlsFailure::Misbehaved);
        }
        match (reply, data) {
            (OptionReply::ACK, 0) => Ok(Some(PreludeOutcome::Secure(CompletedPrelude {
                is_secured: true,
                ..CompletedPrelude::default()
            }))),
            (OptionReply::ACK, _) => Err(TlsFailure::Misbehaved),
            _ => Err(TlsFailure::Plain),
        }
    }
}
