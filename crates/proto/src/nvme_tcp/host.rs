//! The host's end of a connection: frames the controller's PDUs, and encodes commands and their
//! data.

use alloc::boxed::Box;
use alloc::vec::Vec;

use contract::{FrameHead, HEAD_BYTES_MAX, ProtocolError, Status};
use wire::nvme::{CommandId, Completion, Submission};
use wire::nvme_tcp::{
    ALIGNMENT_MAX, CommandHead, CommonHeader, DATA_BYTES_LEAST, DataHead, FatalStatus, InitRequest,
    InitResponse, PDU_FORMAT_1_0, PduType, ReadyHead, ResponseHead, TERM_DATA_BYTES_MAX, Terminate,
    flags,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::CAPSULE_DATA_BYTES_MAX;
use super::encode::{FrameHeadBuilder, Outbox, PduFormat};
use super::framer::{
    Digests, Framer, HEADER_BYTES_MAX, OffendingHeader, PduHeader, PduKind, PduPart, PduViolation,
};

/// The most bytes of data in one accepted C2HData: the largest request.
const FROM_CONTROLLER_BYTES_MAX: u32 = contract::REQUEST_BYTES_MAX as u32;

/// The PDUs that a controller may send, with the sizes of their headers and the most data of each.
const FROM_CONTROLLERS: &[PduKind] = &[
    PduKind::with_data(PduType::CONTROLLER_DATA, 24, FROM_CONTROLLER_BYTES_MAX),
    PduKind::with_data(PduType::RESPONSE, 24, 0),
    PduKind::with_data(PduType::READY, 24, 0),
    PduKind::plain(PduType::INIT_RESPONSE, 128, 0),
    PduKind::plain(PduType::CONTROLLER_TERMINATES, 24, TERM_DATA_BYTES_MAX),
];

/// An event that the controller's bytes cause at the host.
#[derive(Debug, PartialEq, Eq)]
pub enum HostEvent<'a> {
    /// The controller has accepted the connection; commands may be sent from here on.
    Open,
    /// Data of a command, in order. The command's end says whether the data may be used.
    Data {
        /// The command's identifier.
        cid: CommandId,
        /// The offset of the bytes in the command's data.
        offset: usize,
        /// The bytes, lent for this call; not empty.
        bytes: &'a [u8],
    },
    /// The controller requests data of a command: answer with [`HostSession::data`] until all is
    /// sent.
    Ready(ReadyToTransfer),
    /// A command has ended.
    Ended {
        /// The completion. Its submission-queue head is not set if the data carried the SUCCESS
        /// flag and no completion came.
        completion: Completion,
        /// `Ok` if the command's data came whole and undamaged.
        data: Status,
    },
}

/// A controller's request for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToTransfer {
    /// The command's identifier.
    pub cid: CommandId,
    /// The controller's tag of this request.
    pub tag: u16,
    /// The offset of the first requested byte in the command's data.
    pub offset: usize,
    /// The number of requested bytes.
    pub bytes: usize,
}

/// The sizes of the data that a command receives and sends, besides its capsule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferSizes {
    /// The number of bytes that the controller returns on success.
    pub receives: usize,
    /// `true` if the controller may return fewer bytes, as for authentication messages.
    pub may_be_fewer: bool,
    /// The number of bytes that the controller may request.
    pub sends: usize,
}

/// The host's end of NVMe over TCP on one connection.
#[derive(Debug)]
pub struct HostSession {
    phase: Phase,
    wanted: Digests,
    framer: Framer,
    style: PduFormat,
    /// The most bytes of data in one H2CData (MAXH2CDATA).
    data_bytes_max: usize,
    /// Commands in progress, by identifier.
    commands: Box<[Option<CommandInProgress>]>,
    /// The command whose data is coming, and `true` if that data reports the command's success.
    receiving: Option<(CommandId, bool)>,
    /// A command whose data has reported its success. The next call of
    /// [`next_event`](HostSession::next_event) returns its end.
    implied: Option<CommandId>,
    outbox: Outbox,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The controller has not answered yet; its ICResp ends this phase.
    Initial,
    /// Commands may be sent, to the end of the connection.
    Open,
    /// The connection has ended.
    Over,
}

/// A command that was sent and has not ended.
#[derive(Clone, Copy, Debug)]
struct CommandInProgress {
    carried: TransferSizes,
    /// The number of bytes received: `received ≤ carried.receives`.
    received: usize,
    /// The number of bytes that the controller has requested: `asked ≤ carried.sends`.
    asked: usize,
    /// The number of bytes sent: `sent ≤ asked`.
    sent: usize,
    data: Status,
}

impl HostSession {
    /// Creates a session that asks for these digests, and identifies commands from zero to below
    /// `commands_max`.
    pub fn new(digests: Digests, commands_max: u16) -> Self {
        HostSession {
            phase: Phase::Initial,
            wanted: digests,
            framer: Framer::new(FROM_CONTROLLERS),
            style: PduFormat::PLAIN,
            data_bytes_max: 0,
            commands: (0..commands_max).map(|_| None).collect(),
            receiving: None,
            implied: None,
            outbox: Outbox::default(),
        }
    }

    /// Returns the most bytes of data of one H2CData; known after [`HostEvent::Open`].
    pub fn data_bytes_max(&self) -> usize {
        self.data_bytes_max
    }

    /// Returns the first bytes to send (ICReq). Nothing else may be sent before
    /// [`HostEvent::Open`].
    pub fn greeting(&self) -> [u8; size_of::<InitRequest>()] {
        let header_bytes = size_of::<InitRequest>();
        let mut request = InitRequest::new_zeroed();
        request.common = CommonHeader {
            pdu_type: PduType::INIT_REQUEST,
            flags: 0,
            header_bytes: header_bytes as u8,
            data_offset: 0,
            pdu_bytes: (header_bytes as u32).into(),
        };
        request.format = PDU_FORMAT_1_0.into();
        request.digests = self.wanted.to_bits();
        zerocopy::transmute!(request)
    }

    /// Appends a command's capsule, with the data that travels in it, to `out`.
    ///
    /// # Panics
    /// Panics in the cases in which [`HostSession::capsule`] does.
    pub fn command(
        &mut self,
        entry: &Submission,
        carried: TransferSizes,
        data: &[u8],
        out: &mut Vec<u8>,
    ) {
        let [first, rest] = self.capsule(entry, carried, data);
        for bytes in [first.bytes(), rest.bytes(), data, rest.tail()] {
            out.extend_from_slice(bytes);
        }
    }

    /// Encodes a command's capsule as two heads. The second surrounds `data`, all of which travels
    /// in the capsule.
    ///
    /// # Panics
    /// Panics before the controller has accepted, if the identifier is in use or too large, or if
    /// `data` is larger than any capsule may carry.
    pub fn capsule(
        &mut self,
        entry: &Submission,
        carried: TransferSizes,
        data: &[u8],
    ) -> [FrameHead; 2] {
        assert!(self.phase == Phase::Open, "nothing may be sent yet, or any more");
        assert!(data.len() <= CAPSULE_DATA_BYTES_MAX as usize, "too much for a capsule");
        let place = &mut self.commands[usize::from(entry.cid.get())];
        assert!(place.is_none(), "the name {} is in use", entry.cid);
        *place =
            Some(CommandInProgress { carried, received: 0, asked: 0, sent: 0, data: Status::Ok });
        let header_bytes = size_of::<CommandHead>();
        let common = self.style.common(PduType::COMMAND, header_bytes, data.len());
        let header = CommandHead { common, entry: zerocopy::transmute!(*entry) };
        let (first, last) = header.as_bytes().split_at(HEAD_BYTES_MAX);
        let mut rest = FrameHeadBuilder::new();
        rest.end_of_header(last, header.as_bytes(), &self.style);
        let mut head_bytes = rest.len();
        if !data.is_empty() {
            rest.pad(header_bytes, &self.style);
            head_bytes = rest.len();
            rest.data_digest(data, &self.style);
        }
        [FrameHead::new(first), rest.cut(head_bytes)]
    }

    /// Encodes the header of the next piece of requested data. `rest` is all data that is left of
    /// the request. Returns the header, and how many bytes of `rest` follow it.
    ///
    /// # Panics
    /// Panics if the controller did not request that data.
    pub fn data(&mut self, ready: &ReadyToTransfer, rest: &[u8]) -> (FrameHead, usize) {
        let command = self.commands[usize::from(ready.cid)].as_mut().expect("it is in progress");
        let offset = ready.offset + ready.bytes - rest.len();
        assert!(command.sent == offset && offset < command.asked, "data out of its order");
        let bytes = rest.len().min(self.data_bytes_max);
        command.sent += bytes;
        let (cid, tag) = (ready.cid, ready.tag);
        let mut data = self.style.data(PduType::HOST_DATA, cid, tag, offset, bytes);
        if bytes == rest.len() {
            data.common.flags |= flags::LAST_PDU;
        }
        let mut line = FrameHeadBuilder::new();
        line.header(&data, &self.style);
        line.pad(size_of::<DataHead>(), &self.style);
        let head_bytes = line.len();
        line.data_digest(&rest[..bytes], &self.style);
        (line.cut(head_bytes), bytes)
    }

    /// Takes the next event off the front of `input`. Returns `None` when all of `input` was taken
    /// and more bytes are needed.
    ///
    /// # Errors
    /// Returns an error if the controller broke the protocol or ended the connection. The session
    /// must not be used again, except for its [`last words`](HostSession::last_words).
    pub fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<HostEvent<'a>>, ProtocolError> {
        if let Some(event) = self.implied.take().and_then(|cid| self.imply(cid)) {
            return Ok(Some(event));
        }
        loop {
            let mut room = [0; HEADER_BYTES_MAX];
            let (broken, offending) = match self.framer.next(input, &mut room) {
                Ok(None) => return Ok(None),
                Ok(Some(PduPart::Data { bytes, end })) => match self.receive(bytes, end) {
                    None => continue,
                    event => return Ok(event),
                },
                Ok(Some(PduPart::Head(head))) => match self.begin(&head) {
                    Ok(None) => continue,
                    Ok(event) => return Ok(event),
                    Err(SessionEnd::Broken(broken)) => (broken, OffendingHeader::new(head.bytes)),
                    Err(SessionEnd::Said(fatal)) => {
                        self.phase = Phase::Over;
                        return Err(fatal);
                    }
                },
                Err(blame) => *blame,
            };
            self.phase = Phase::Over;
            let kind = PduType::HOST_TERMINATES;
            self.outbox.terminate(kind, broken, offending.bytes());
            return Err(broken.fatal());
        }
    }

    /// Returns the command whose data comes next, the data's offset in the command's data, and its
    /// length in bytes; `None` if something else comes next. A caller may receive the bytes in
    /// place and pass that slice to [`next_event`](HostSession::next_event).
    pub fn expects(&self) -> Option<(CommandId, usize, usize)> {
        let bytes = self.framer.data_left();
        let (cid, _) = self.receiving.filter(|_| bytes > 0 && self.implied.is_none())?;
        let command = self.commands[usize::from(cid)].as_ref()?;
        Some((cid, command.received, bytes))
    }

    /// Returns the bytes to send before the connection is closed because the controller broke the
    /// protocol.
    pub fn last_words(&mut self) -> Vec<u8> {
        let mut words = alloc::vec![0; self.outbox.len()];
        let bytes = self.outbox.take(&mut words);
        words.truncate(bytes);
        words
    }

    /// Returns `true` if a command of this identifier is in progress.
    pub fn is_in_progress(&self, cid: CommandId) -> bool {
        self.commands.get(usize::from(cid)).is_some_and(Option::is_some)
    }

    fn begin<'a>(&mut self, head: &PduHeader<'_>) -> Result<Option<HostEvent<'a>>, SessionEnd> {
        let kind = head.common().pdu_type;
        match (self.phase, kind) {
            (_, PduType::CONTROLLER_TERMINATES) => {
                let (head, _) = Terminate::read_from_prefix(head.bytes).expect("its size");
                Err(SessionEnd::Said(ProtocolError::Ended(u32::from(head.status.0.get()))))
            }
            (Phase::Initial, PduType::INIT_RESPONSE) => {
                self.initialize(head)?;
                Ok(Some(HostEvent::Open))
            }
            (Phase::Open, PduType::CONTROLLER_DATA) => self.announce(head).map(|()| None),
            (Phase::Open, PduType::READY) => self.invited(head).map(Some),
            (Phase::Open, PduType::RESPONSE) => {
                let (head, _) = ResponseHead::read_from_prefix(head.bytes).expect("its size");
                let completion = zerocopy::transmute!(head.completion);
                self.end(completion).map(Some)
            }
            _ => Err(PduViolation::plain(FatalStatus::SEQUENCE).into()),
        }
    }

    /// Processes ICResp (section 3.6.2.3).
    fn initialize(&mut self, head: &PduHeader<'_>) -> Result<(), PduViolation> {
        let (response, _) = InitResponse::read_from_prefix(head.bytes).expect("its size");
        if response.format.get() != PDU_FORMAT_1_0 {
            return Err(PduViolation::field(8));
        }
        let agreed = Digests::from_bits(response.digests);
        let uninvited = agreed.header && !self.wanted.header || agreed.data && !self.wanted.data;
        let style =
            PduFormat { digests: agreed, alignment: (usize::from(response.alignment) + 1) * 4 };
        if response.alignment > ALIGNMENT_MAX
            || style.data_offset(size_of::<DataHead>()) > super::DATA_OFFSET_SERVED_MAX
        {
            return Err(PduViolation::field(10));
        }
        if uninvited {
            return Err(PduViolation::field(11));
        }
        let most = response.data_bytes_max.get();
        if most < DATA_BYTES_LEAST || !most.is_multiple_of(4) {
            return Err(PduViolation::field(12));
        }
        self.data_bytes_max = most as usize;
        self.style = style;
        self.framer.digests = agreed;
        self.phase = Phase::Open;
        Ok(())
    }

    fn in_progress(&mut self, cid: CommandId) -> Result<&mut CommandInProgress, PduViolation> {
        let place = self.commands.get_mut(usize::from(cid)).and_then(Option::as_mut);
        place.ok_or(PduViolation::field(8))
    }

    /// Processes the header of C2HData (section 3.6.2.9): data of a command, in order.
    fn announce(&mut self, head: &PduHeader<'_>) -> Result<(), SessionEnd> {
        let (data, _) = DataHead::read_from_prefix(head.bytes).expect("its size");
        let cid = data.command.get();
        let command = self.in_progress(cid)?;
        let (offset, bytes) = (data.offset.get() as usize, data.bytes.get() as usize);
        if bytes == 0 || bytes != head.data_bytes as usize {
            return Err(PduViolation::field(16).into());
        }
        let left = command.carried.receives - command.received;
        if offset != command.received || bytes > left {
            return Err(PduViolation::plain(FatalStatus::OUT_OF_RANGE).into());
        }
        let is_last = data.common.flags & flags::LAST_PDU != 0;
        let says_success = data.common.flags & flags::SUCCESS != 0;
        let ends_early = is_last && command.carried.may_be_fewer;
        if is_last != (bytes == left) && !ends_early || says_success && !is_last {
            return Err(PduViolation::field(1).into());
        }
        self.receiving = Some((cid, says_success));
        Ok(())
    }

    /// Processes a piece of a command's data, or the end of the data. Returns its event, if it has
    /// one.
    fn receive<'a>(&mut self, bytes: &'a [u8], end: Option<Status>) -> Option<HostEvent<'a>> {
        let (cid, says_success) = self.receiving?;
        let place = &mut self.commands[usize::from(cid)];
        let command = place.as_mut().expect("its data was announced");
        let offset = command.received;
        command.received += bytes.len();
        if let Some(status) = end
            && !status.is_ok()
        {
            command.data = status;
        }
        if end.is_some() {
            self.receiving = None;
        }
        if !bytes.is_empty() {
            // If the data reports the command's end, the next call does so too.
            self.implied = (end.is_some() && says_success).then_some(cid);
            return Some(HostEvent::Data { cid, offset, bytes });
        }
        if end.is_some() && says_success { self.imply(cid) } else { None }
    }

    /// Removes a command whose data reported success, and returns its end.
    fn imply<'a>(&mut self, cid: CommandId) -> Option<HostEvent<'a>> {
        let command = self.commands[usize::from(cid)].take()?;
        let completion = Completion { cid: cid.into(), ..Completion::new_zeroed() };
        Some(HostEvent::Ended { completion, data: command.data })
    }

    /// Processes R2T (section 3.6.2.10). Requests for data come one at a time, each from where the
    /// previous one ended.
    fn invited<'a>(&mut self, head: &PduHeader<'_>) -> Result<HostEvent<'a>, SessionEnd> {
        let (ready, _) = ReadyHead::read_from_prefix(head.bytes).expect("its size");
        let cid = ready.command.get();
        let command = self.in_progress(cid)?;
        if command.sent < command.asked {
            return Err(PduViolation::plain(FatalStatus::LIMIT_EXCEEDED).into());
        }
        let (offset, bytes) = (ready.offset.get() as usize, ready.bytes.get() as usize);
        if bytes == 0 || offset != command.asked || bytes > command.carried.sends - offset {
            return Err(PduViolation::plain(FatalStatus::OUT_OF_RANGE).into());
        }
        command.asked += bytes;
        Ok(HostEvent::Ready(ReadyToTransfer { cid, tag: ready.tag.get(), offset, bytes }))
    }

    /// Processes CapsuleResp (section 3.6.2.7).
    fn end<'a>(&mut self, completion: Completion) -> Result<HostEvent<'a>, SessionEnd> {
        let cid = completion.cid.get();
        let place = self.commands.get_mut(usize::from(cid));
        let command =
            place.and_then(Option::take).ok_or(SessionEnd::from(PduViolation::field(20)))?;
        let is_short = completion.status().is_ok()
            && command.received < command.carried.receives
            && !command.carried.may_be_fewer;
        let data = if is_short { Status::BadLength } else { command.data };
        Ok(HostEvent::Ended { completion, data })
    }
}

/// The reason why a connection ends.
enum SessionEnd {
    /// The controller broke the protocol.
    Broken(PduViolation),
    /// The controller ended the connection.
    Said(ProtocolError),
}

impl From<PduViolation> for SessionEnd {
    fn from(broken: PduViolation) -> SessionEnd {
        SessionEnd::Broken(broken)
    }
}
