//! The negotiation before the first request: greeting, the client's flags, and options until an
//! export is chosen (the specification's "Newstyle negotiation").
//!
//! Deliberately not here: the existing namespaces and the rights to them, which the worker knows.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use contract::{
    BLOCK_BYTES, CompletedPrelude, ControlRequest, Instant, NamespaceId, NamespaceInfo,
    ProtocolError, REQUEST_BYTES_MAX, Status,
};
use wire::nbd::{
    BASE_ALLOCATION, BlockSizeInfo, EXPORT_NAME_ZEROES, ExportInfo, ExportNameReply,
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_MAGIC, Greeting, InfoKind, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, OptionHead, OptionKind, OptionReply, OptionReplyHead, export_flag,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::limits::{ALLOCATION, HANDSHAKE_TIME, NAME_BYTES_MAX, OPTIONS_BYTES_MAX};

/// The state of the negotiation on one connection, at the server.
#[derive(Debug)]
pub(super) struct Handshake {
    stage: HandshakeStage,
    /// The first bytes of the client's next message, while it has not come whole.
    gathered: Vec<u8>,
    /// The number of bytes of options so far, heads included.
    taken: usize,
    /// The bytes of messages to the client that have not been sent.
    outbox: Vec<u8>,
    /// `true` if there are messages of which the session's worker has no notice yet.
    has_news: bool,
    /// The time of the first call of [`Handshake::attend`], from which the time limit counts.
    since: Option<Instant>,
    /// The use of TLS on the connection.
    tls: Tls,
    /// `true` if the client wants no zeroes after the reply to `NBD_OPT_EXPORT_NAME`.
    no_zeroes: bool,
    /// `true` if the client asked for structured replies.
    pub(super) structured: bool,
    /// The export of which the client chose the meta context `base:allocation`.
    mapped: Option<NamespaceId>,
}

/// The use of TLS on a connection that has a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    /// The listener has no TLS.
    None,
    /// The client has begun without TLS, though the listener has it.
    Passed,
    /// The connection is over TLS.
    Begun,
}

/// The next step of the negotiation, or the event that the negotiation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeStage {
    /// The client's flags come next.
    Flags,
    /// An option comes next.
    Options,
    /// The worker has to answer the question of this option.
    Asked(OptionKind),
    /// The worker has to find the export whose meta contexts this option names.
    Contexts {
        option: OptionKind,
        /// `true` if `base:allocation` is among the names.
        named: bool,
    },
    /// An export was chosen. Requests may come once all messages were sent.
    Chosen,
    /// The client ends the connection.
    Aborted,
}

/// The export that the client has chosen, and how its replies look.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportChoice {
    pub(super) info: NamespaceInfo,
    pub(super) structured: bool,
    /// `true` if the client chose the meta context `base:allocation` of this export.
    pub(super) mapped: bool,
}

impl Handshake {
    /// Creates a negotiation that begins with the greeting.
    pub(super) fn new() -> Self {
        Handshake {
            stage: HandshakeStage::Flags,
            gathered: Vec::new(),
            taken: 0,
            outbox: greeting().as_bytes().to_vec(),
            tls: Tls::None,
            has_news: true,
            since: None,
            no_zeroes: false,
            structured: false,
            mapped: None,
        }
    }

    /// Creates a negotiation that continues after the greeting, the client's flags and the first
    /// bytes of the client's options, all of which `opening` has.
    pub(super) fn after(opening: &CompletedPrelude) -> Self {
        let (flags, options) = opening.heard.split_at(opening.heard.len().min(FLAGS_BYTES));
        Handshake {
            stage: HandshakeStage::Options,
            gathered: options.to_vec(),
            outbox: Vec::new(),
            tls: if opening.is_secured { Tls::Begun } else { Tls::Passed },
            no_zeroes: flags_of_client(flags).is_some_and(has_no_zeroes),
            ..Handshake::new()
        }
    }

    /// Returns `true` if messages are to be sent, or a whole option can be processed, without
    /// further bytes of the client.
    pub(super) fn has_more(&self) -> bool {
        self.has_news || self.holds_option()
    }

    /// Returns `true` if the gathered bytes contain a whole option that can be processed now.
    fn holds_option(&self) -> bool {
        let head = OptionHead::read_from_prefix(&self.gathered);
        self.stage == HandshakeStage::Options
            && self.outbox.is_empty()
            && head.is_ok_and(|(head, data)| data.len() >= head.bytes.get() as usize)
    }

    /// Returns `true` if there are messages to send of which the worker has no notice yet.
    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Returns `true` if an export was chosen and all messages were sent.
    pub(super) fn is_over(&self) -> bool {
        self.stage == HandshakeStage::Chosen && self.outbox.is_empty()
    }

    /// Checks the time limit of the negotiation.
    ///
    /// # Errors
    /// Returns an error if the connection is to end, because the client ended it or took too long.
    pub(super) fn attend(&mut self, now: Instant) -> Result<(), ProtocolError> {
        self.has_news = false;
        if self.stage == HandshakeStage::Aborted {
            return Err(ProtocolError::Ended(0));
        }
        let since = *self.since.get_or_insert(now);
        match self.stage != HandshakeStage::Chosen && now - since > HANDSHAKE_TIME {
            true => Err(ProtocolError::Ended(1)),
            false => Ok(()),
        }
    }

    /// Returns the number of bytes of messages that are still to be sent.
    pub(super) fn unsaid(&self) -> usize {
        self.outbox.len()
    }

    /// Moves bytes to be sent to the front of `to`, and returns their number.
    pub(super) fn speak(&mut self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.outbox.len());
        to[..count].copy_from_slice(&self.outbox[..count]);
        self.outbox.drain(..count);
        count
    }

    /// Processes bytes of the client. Returns the question for the worker, if an option needs one.
    /// Takes no bytes while messages are to be sent or an answer is awaited.
    ///
    /// # Errors
    /// Returns an error if the client broke the protocol or a limit.
    pub(super) fn take(
        &mut self,
        input: &mut &[u8],
    ) -> Result<Option<ControlRequest>, ProtocolError> {
        while self.outbox.is_empty() {
            match self.stage {
                HandshakeStage::Flags => {
                    let gathered = gather(&mut self.gathered, input, FLAGS_BYTES);
                    let Some(bytes) = gathered else { break };
                    let flags = flags_of_client(bytes).ok_or(ProtocolError::BadField(0))?;
                    self.no_zeroes = has_no_zeroes(flags);
                    self.gathered.clear();
                    self.stage = HandshakeStage::Options;
                }
                HandshakeStage::Options => match self.take_option(input)? {
                    Some(question) => return Ok(Some(question)),
                    None if self.gathered.is_empty() && !input.is_empty() => {}
                    None => break,
                },
                HandshakeStage::Asked(_)
                | HandshakeStage::Contexts { .. }
                | HandshakeStage::Chosen
                | HandshakeStage::Aborted => break,
            }
        }
        Ok(None)
    }

    /// Processes an option once it is complete. Returns the option's question for the worker, if it
    /// has one.
    fn take_option(&mut self, input: &mut &[u8]) -> Result<Option<ControlRequest>, ProtocolError> {
        const HEAD: usize = size_of::<OptionHead>();
        let Some(bytes) = gather(&mut self.gathered, input, HEAD) else { return Ok(None) };
        let head = OptionHead::read_from_bytes(bytes).expect("gathered to its size");
        if head.magic.get() != OPTION_MAGIC {
            return Err(ProtocolError::BadMagic(head.magic.get() as u16));
        }
        let data = head.bytes.get() as usize;
        if data > OPTIONS_BYTES_MAX - self.taken.min(OPTIONS_BYTES_MAX) {
            return Err(ProtocolError::TooMuch);
        }
        if gather(&mut self.gathered, input, HEAD + data).is_none() {
            return Ok(None);
        }
        self.taken += HEAD + data;
        let message = core::mem::take(&mut self.gathered);
        Ok(self.begin(OptionKind(head.option.get()), &message[HEAD..]))
    }

    /// Answers an option, or returns its question for the worker.
    fn begin(&mut self, option: OptionKind, data: &[u8]) -> Option<ControlRequest> {
        let question = match option {
            OptionKind::EXPORT_NAME => Some(find(data)),
            OptionKind::GO | OptionKind::INFO => {
                let Some(name) = info_name(data) else {
                    self.answer(option, OptionReply::INVALID, &());
                    return None;
                };
                Some(find(name))
            }
            OptionKind::LIST_META_CONTEXT | OptionKind::SET_META_CONTEXT => {
                // A choice replaces the one before, even if it fails.
                if option == OptionKind::SET_META_CONTEXT {
                    self.mapped = None;
                }
                let Some((name, named)) = meta_queries(option, data).filter(|_| self.structured)
                else {
                    self.answer(option, OptionReply::INVALID, &());
                    return None;
                };
                self.stage = HandshakeStage::Contexts { option, named };
                return Some(find(name));
            }
            OptionKind::LIST if data.is_empty() => Some(ControlRequest::List { tag: 0 }),
            OptionKind::LIST => {
                self.answer(option, OptionReply::INVALID, &());
                None
            }
            OptionKind::ABORT => {
                self.answer(option, OptionReply::ACK, &());
                self.stage = HandshakeStage::Aborted;
                return None;
            }
            OptionKind::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.answer(option, OptionReply::ACK, &());
                None
            }
            OptionKind::STRUCTURED_REPLY => {
                self.answer(option, OptionReply::INVALID, &());
                None
            }
            OptionKind::STARTTLS => {
                let reply = match self.tls {
                    Tls::None => OptionReply::UNSUPPORTED,
                    Tls::Passed => OptionReply::POLICY,
                    Tls::Begun => OptionReply::INVALID,
                };
                self.answer(option, reply, &());
                None
            }
            _ => {
                self.answer(option, OptionReply::UNSUPPORTED, &());
                None
            }
        };
        if question.is_some() {
            self.stage = HandshakeStage::Asked(option);
        }
        question
    }

    /// Processes the worker's answer about an export. Returns the export if the option chooses it.
    ///
    /// # Errors
    /// Returns an error if the option has no other answer than the end of the connection.
    pub(super) fn answer_info(
        &mut self,
        answer: Result<NamespaceInfo, Status>,
    ) -> Result<Option<ExportChoice>, ProtocolError> {
        let (option, named) = match self.stage {
            HandshakeStage::Asked(option) => (option, false),
            HandshakeStage::Contexts { option, named } => (option, named),
            _ => return Err(ProtocolError::OutOfOrder),
        };
        self.stage = HandshakeStage::Options;
        let info = match answer {
            Ok(info) => info,
            Err(status) if option == OptionKind::EXPORT_NAME => {
                return Err(ProtocolError::Unanswerable(status));
            }
            Err(status) => {
                let reply = match status {
                    Status::Denied => OptionReply::POLICY,
                    Status::NoNamespace => OptionReply::UNKNOWN,
                    _ => OptionReply::SHUTDOWN,
                };
                self.answer(option, reply, &());
                return Ok(None);
            }
        };
        if let OptionKind::LIST_META_CONTEXT | OptionKind::SET_META_CONTEXT = option {
            self.answer_contexts(option, named, info.namespace);
            return Ok(None);
        }
        let (size, flags) = (info.blocks * BLOCK_BYTES as u64, self.flags_of(&info));
        if option == OptionKind::EXPORT_NAME {
            let reply = ExportNameReply { size: size.into(), flags: flags.into() };
            self.has_news = true;
            self.outbox.extend_from_slice(reply.as_bytes());
            if !self.no_zeroes {
                self.outbox.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
            }
        } else {
            let export = ExportInfo {
                info: InfoKind::EXPORT.0.into(),
                size: size.into(),
                flags: flags.into(),
            };
            self.answer(option, OptionReply::INFO, &export);
            let granule = info.physical_block_bytes;
            let sizes = BlockSizeInfo {
                info: InfoKind::BLOCK_SIZE.0.into(),
                minimum: (BLOCK_BYTES as u32).into(),
                preferred: granule.clamp(BLOCK_BYTES as u32, REQUEST_BYTES_MAX as u32).into(),
                maximum: (REQUEST_BYTES_MAX as u32).into(),
            };
            self.answer(option, OptionReply::INFO, &sizes);
            self.answer(option, OptionReply::ACK, &());
        }
        if option == OptionKind::INFO {
            return Ok(None);
        }
        self.stage = HandshakeStage::Chosen;
        let mapped = self.mapped == Some(info.namespace);
        Ok(Some(ExportChoice { info, structured: self.structured, mapped }))
    }

    /// Answers an option about the meta contexts of an export, with `base:allocation` if the option
    /// names it (`named`), and notes the choice.
    fn answer_contexts(&mut self, option: OptionKind, named: bool, export: NamespaceId) {
        let is_choice = option == OptionKind::SET_META_CONTEXT;
        if named {
            self.head(option, OptionReply::META_CONTEXT, size_of::<u32>() + BASE_ALLOCATION.len());
            // A list has no numbers.
            let number = if is_choice { ALLOCATION } else { 0 };
            self.outbox.extend_from_slice(&number.to_be_bytes());
            self.outbox.extend_from_slice(BASE_ALLOCATION.as_bytes());
        }
        self.answer(option, OptionReply::ACK, &());
        if is_choice {
            self.mapped = named.then_some(export);
        }
    }

    /// Answers `NBD_OPT_LIST` with the names of the exports that the client may see.
    ///
    /// # Errors
    /// Returns an error if the client has not asked for a list.
    pub(super) fn answer_list(
        &mut self,
        names: &Result<Vec<Arc<str>>, Status>,
    ) -> Result<(), ProtocolError> {
        if self.stage != HandshakeStage::Asked(OptionKind::LIST) {
            return Err(ProtocolError::OutOfOrder);
        }
        self.stage = HandshakeStage::Options;
        let Ok(names) = names else {
            self.answer(OptionKind::LIST, OptionReply::POLICY, &());
            return Ok(());
        };
        for name in names {
            let bytes = size_of::<u32>() + name.len();
            self.head(OptionKind::LIST, OptionReply::SERVER, bytes);
            self.outbox.extend_from_slice(&(name.len() as u32).to_be_bytes());
            self.outbox.extend_from_slice(name.as_bytes());
        }
        self.answer(OptionKind::LIST, OptionReply::ACK, &());
        Ok(())
    }

    /// Appends a reply to an option, with this data.
    fn answer(
        &mut self,
        option: OptionKind,
        reply: OptionReply,
        data: &(impl IntoBytes + Immutable),
    ) {
        self.head(option, reply, data.as_bytes().len());
        self.outbox.extend_from_slice(data.as_bytes());
    }

    fn head(&mut self, option: OptionKind, reply: OptionReply, bytes: usize) {
        self.has_news = true;
        self.outbox.extend_from_slice(reply_head(option, reply, bytes).as_bytes());
    }

    /// Returns the transmission flags of an export, as bits of `export_flag`.
    fn flags_of(&self, info: &NamespaceInfo) -> u16 {
        let always = export_flag::HAS_FLAGS
            | export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::CAN_MULTI_CONN
            | export_flag::SEND_CACHE;
        let in_pieces = if self.structured { export_flag::SEND_DF } else { 0 };
        let access = match info.rights.write {
            true => {
                export_flag::SEND_TRIM
                    | export_flag::SEND_WRITE_ZEROES
                    | export_flag::SEND_FAST_ZERO
            }
            false => export_flag::READ_ONLY,
        };
        always | in_pieces | access
    }
}

/// The size in bytes of a client's flags.
pub(super) const FLAGS_BYTES: usize = size_of::<u32>();

/// Returns the first message of a server.
pub(super) fn greeting() -> Greeting {
    Greeting {
        magic: GREETING_MAGIC.into(),
        option_magic: OPTION_MAGIC.into(),
        flags: (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).into(),
    }
}

/// Returns the head of a reply to an option with `bytes` bytes of data.
pub(super) fn reply_head(option: OptionKind, reply: OptionReply, bytes: usize) -> OptionReplyHead {
    OptionReplyHead {
        magic: OPTION_REPLY_MAGIC.into(),
        option: option.0.into(),
        reply: reply.0.into(),
        bytes: (bytes as u32).into(),
    }
}

/// Returns a client's flags, parsed from their four bytes; `None` if an unknown flag is set.
pub(super) fn flags_of_client(bytes: &[u8]) -> Option<u16> {
    let flags = u16::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok()?;
    (flags & !(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) == 0).then_some(flags)
}

fn has_no_zeroes(flags: u16) -> bool {
    flags & FLAG_NO_ZEROES != 0
}

/// Takes bytes off the front of `input` until `gathered` has `need` bytes. Returns these bytes once
/// they have all come, and `None` before.
fn gather<'a>(gathered: &'a mut Vec<u8>, input: &mut &[u8], need: usize) -> Option<&'a [u8]> {
    let taken = need.saturating_sub(gathered.len()).min(input.len());
    let (piece, rest) = input.split_at(taken);
    gathered.extend_from_slice(piece);
    *input = rest;
    gathered.get(..need)
}

/// Returns the question for the worker about the export of this name.
fn find(name: &[u8]) -> ControlRequest {
    // Text that is none names nothing.
    let name: Box<str> = String::from_utf8_lossy(name).into();
    ControlRequest::Find { tag: 0, name }
}

/// Returns the export's name in the data of `NBD_OPT_INFO` or `NBD_OPT_GO`; `None` if the data is
/// malformed.
fn info_name(mut data: &[u8]) -> Option<&[u8]> {
    let name = take_string(&mut data)?;
    let (count, kinds) = data.split_first_chunk()?;
    let count = usize::from(u16::from_be_bytes(*count));
    (kinds.len() == count * size_of::<u16>()).then_some(name)
}

/// Returns the export's name in the data of an option about meta contexts, and whether its queries
/// name `base:allocation`; `None` if the data is malformed.
fn meta_queries(option: OptionKind, mut data: &[u8]) -> Option<(&[u8], bool)> {
    let name = take_string(&mut data)?;
    let (count, queries) = data.split_first_chunk()?;
    data = queries;
    let is_list = option == OptionKind::LIST_META_CONTEXT;
    let count = u32::from_be_bytes(*count);
    // A list without queries asks for all contexts, and one with a namespace for all of that.
    let mut named = is_list && count == 0;
    for _ in 0..count {
        let query = take_string(&mut data)?;
        named |= query == BASE_ALLOCATION.as_bytes() || is_list && query == b"base:";
    }
    data.is_empty().then_some((name, named))
}

/// Takes a string and its length off the front of `data`; `None` if it is malformed or too long.
fn take_string<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    let (string, rest) = rest.split_at_checked(length).filter(|_| length <= NAME_BYTES_MAX)?;
    *data = rest;
    Some(string)
}
