//! A queue pair: one connection's end of a controller.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use contract::{Command, ConnId, Fence, Instant, Range};
use wire::nvme::{
    AdminOpcode, AuthCommand, Completion, FABRICS_OPCODE, FabricsCommand, FabricsKind, Feature,
    NvmOpcode, Status, Submission,
};

use super::binding::{
    CommandResult, DeviceRequest, ExecutionOutcome, FusedPart, QueueAddress, SubmissionStep,
};
use super::call::{ControllerCommand, ControllerOutcome, PAYLOAD_BYTES_MAX};
use super::data;
use super::entrance::LockBusy;
use super::fabric::Fabric;
use super::features;
use super::io;
use super::link::VisibleNamespaces;
use super::migration::DetachedQueue;
use super::record::{ControllerKind, QueueParameters};

/// A queue pair of a controller. The worker that has its connection owns it. Dropping the queue
/// notifies the controller that the connection is gone.
#[derive(Debug)]
pub struct Queue {
    fabric: Arc<Fabric>,
    made: QueueParameters,
    /// The worker that has the connection.
    worker: u16,
    /// The place by which the controller knows the queue: that of its connection, or the place of a
    /// moving queue until the queue is settled.
    place: QueueAddress,
    view: VisibleNamespaces,
    /// The head of the submission queue, as reported to the host; advances with each completion.
    head: u16,
    /// A fused compare that waits for its write.
    first: Option<DeviceRequest>,
    /// The answer to the first half of a fused compare and write whose second half did not come,
    /// until the answer is sent; `None` otherwise.
    orphan: Option<CommandResult>,
    ranges: Vec<Range>,
    /// `true` once the queue is moving: dropping it then ends nothing.
    is_detached: bool,
}

impl Queue {
    pub(super) fn new(fabric: Arc<Fabric>, made: QueueParameters, place: QueueAddress) -> Queue {
        Queue {
            fabric,
            made,
            worker: place.worker,
            place,
            view: VisibleNamespaces::default(),
            head: 0,
            first: None,
            orphan: None,
            ranges: Vec::new(),
            is_detached: false,
        }
    }

    /// Rebuilds a queue that moves to a connection of `worker`.
    pub(super) fn claimed(
        fabric: Arc<Fabric>,
        queue: DetachedQueue,
        view: VisibleNamespaces,
        place: QueueAddress,
        worker: u16,
    ) -> Queue {
        let DetachedQueue { made, head, first, .. } = queue;
        let mut queue = Queue::new(fabric, made, place);
        (queue.head, queue.first, queue.view, queue.worker) = (head, first, view, worker);
        queue
    }

    /// Tells the controller the connection of a queue that was [claimed](Fabric::claim). Until then
    /// the queue's actions are kept.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric. Nothing has happened then.
    pub fn settle(&mut self, conn: ConnId) -> Result<(), LockBusy> {
        let to = QueueAddress { worker: self.worker, conn, address: self.place.address };
        let Queue { made, place, .. } = self;
        self.fabric.try_with(self.worker, |state| state.relocate(made, *place, to))?;
        self.place = to;
        Ok(())
    }

    /// Detaches the queue from this worker without ending it, because the queue's connection moves
    /// to another worker. Returns the number by which it is [claimed](Fabric::claim) there. The
    /// queue must be dropped then, which ends nothing.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric. Nothing has happened then.
    pub fn detach(&mut self) -> Result<u64, LockBusy> {
        let Queue { head, first, place, .. } = *self;
        let queue = DetachedQueue { made: self.made.clone(), head, first, address: place.address };
        let number = self.fabric.try_with(self.worker, |state| state.detach(place, queue))?;
        self.is_detached = true;
        Ok(number)
    }

    /// Returns the queue's identifier; zero for the admin queue.
    pub fn id(&self) -> u16 {
        self.made.id
    }

    /// Returns the controller's identifier.
    pub fn cntlid(&self) -> u16 {
        self.made.link.cntlid
    }

    /// Returns `true` if the queue may move to another process, with all queues of its controller.
    pub fn is_exporting(&self) -> bool {
        self.made.link.is_exporting()
    }

    /// Returns `true` if the command changes, or may change, who may access a namespace.
    pub fn changes_reservation(&self, entry: &Submission) -> bool {
        match self.made.id {
            _ if entry.opcode == FABRICS_OPCODE => false,
            0 => {
                AdminOpcode(entry.opcode) == AdminOpcode::SET_FEATURES
                    && Feature(entry.dword10.get() as u8) == Feature::RESERVATION_PERSISTENCE
            }
            _ => matches!(
                NvmOpcode(entry.opcode),
                NvmOpcode::RESERVATION_REGISTER
                    | NvmOpcode::RESERVATION_ACQUIRE
                    | NvmOpcode::RESERVATION_RELEASE
            ),
        }
    }

    /// Returns the tenant that the queue's view has for requests to a namespace; `None` means the
    /// connection's tenant, or an unknown namespace.
    pub(crate) fn tenant_of(&self, nsid: u32) -> Option<contract::TenantId> {
        self.view.find(nsid).and_then(|seen| seen.tenant)
    }

    /// Makes a fused compare that has moved along with its connection wait for its write.
    pub(crate) fn expect_partner(&mut self, first: DeviceRequest) {
        self.first = Some(first);
    }

    /// Returns the fence that counts the queue's requests that may change data, and decides which
    /// of them may start.
    pub fn fence(&self) -> &Arc<Fence> {
        &self.made.fence
    }

    /// Stops data-changing requests of the queue from starting. Returns `true` if none is at a
    /// device.
    pub fn quiesce(&mut self) -> bool {
        self.made.fence.supersede();
        !self.made.fence.is_running()
    }

    /// Ends the queue because its connection ends: no data-changing request of it starts any more.
    /// An admin queue takes its controller with it. Dropping the queue has the same effect, later.
    /// If another thread changes the fabric, that thread ends the queue's record.
    pub fn leave(&self) {
        if self.is_detached {
            return;
        }
        self.made.fence.supersede();
        let QueueParameters { link, id, has_left, .. } = &self.made;
        self.fabric.leave(link.cntlid, *id, self.place, has_left);
    }

    /// Returns the most commands that may be in flight.
    pub fn size(&self) -> u16 {
        self.made.size
    }

    /// Returns the generation of the queue's view. A changed generation means that reachable
    /// namespaces or charged tenants may have changed.
    pub fn generation(&self) -> u64 {
        self.view.generation
    }

    /// Parses a submission, and returns the next step for it. After [`SubmissionStep::Busy`] the
    /// submission has to be repeated.
    #[inline]
    pub fn begin(&mut self, entry: &Submission) -> SubmissionStep {
        self.made.link.hear();
        if self.made.id != 0 && self.refresh().is_err() {
            return SubmissionStep::Busy;
        }
        let step = match (self.made.id, entry.opcode) {
            (_, FABRICS_OPCODE) => self.begin_fabrics(entry),
            (0, _) => self.begin_admin(entry),
            _ => self.begin_io(entry),
        };
        match self.pair(entry, step) {
            Ok(step) => step,
            Err(status) => SubmissionStep::Refused(self.refuse(entry, status)),
        }
    }

    /// Takes the answer of a fused compare whose write did not come. To be called after each
    /// [`Queue::begin`]; the answer is sent before the result of that call.
    pub fn orphan(&mut self) -> Option<CommandResult> {
        self.orphan.take()
    }

    /// Carries out a command for which [`Queue::begin`] returned [`SubmissionStep::Controller`].
    /// Replaces the contents of `out` by the data for the host.
    pub fn execute(
        &mut self,
        entry: &Submission,
        payload: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
    ) -> ExecutionOutcome {
        out.clear();
        let cid = entry.cid.get();
        if self.made.id != 0 && entry.opcode == NvmOpcode::DATASET_MANAGEMENT.0 {
            // Not put off: its requests would begin amid the payload of a later command.
            if self.refresh().is_err() {
                return ExecutionOutcome::Done(CommandResult::error(cid, Status::INTERRUPTED));
            }
            return match self.discard(entry, payload) {
                Ok(io) if self.ranges.is_empty() => {
                    ExecutionOutcome::Done(CommandResult::ok(io.cid))
                }
                Ok(io) => ExecutionOutcome::Discard(io),
                Err(status) => ExecutionOutcome::Done(self.refuse(entry, status)),
            };
        }
        let queue = self.made.id;
        let chance = self.fabric.chance(entry);
        let call = ControllerCommand { entry, queue, payload, now, out, chance };
        match self.fabric.carry_out(self.made.link.cntlid, self.worker, call) {
            Err(LockBusy) => ExecutionOutcome::Busy,
            Ok(Ok(ControllerOutcome::Result(result))) => {
                ExecutionOutcome::Done(CommandResult::with_result(cid, result))
            }
            Ok(Ok(ControllerOutcome::Parked)) => ExecutionOutcome::Parked,
            Ok(Ok(ControllerOutcome::Closing)) => ExecutionOutcome::Closing(CommandResult::ok(cid)),
            Ok(Err(status)) => {
                out.clear();
                ExecutionOutcome::Done(self.refuse(entry, status))
            }
        }
    }

    /// Returns the ranges of the last [`ExecutionOutcome::Discard`], in blocks of 512 bytes.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Returns the answer to a command that has ended at a device with `status`.
    #[inline]
    pub fn complete(&mut self, io: &DeviceRequest, status: contract::Status) -> CommandResult {
        let status = self.status(io, status);
        match status.is_ok() {
            true => self.count(io),
            false => self.note_error(io, status),
        }
        CommandResult::error(io.cid, status)
    }

    /// Counts a command that has failed, and adds it to the error log.
    #[cold]
    fn note_error(&mut self, io: &DeviceRequest, status: Status) {
        if matches!(status.plain(), Status::READ_ERROR | Status::WRITE_FAULT) {
            self.made.counts.add_media_error();
        }
        let shift = self.view.find(io.nsid).map_or(0, |seen| seen.shift);
        let lba = io.command.range().map_or(0, |range| range.lba >> shift);
        let mut entry = Submission::new(io::opcode(io), io.cid, io.nsid);
        entry.dword10.set(lba as u32);
        entry.dword11.set((lba >> 32) as u32);
        self.made.link.errors.add(self.made.id, &entry, status);
    }

    /// Returns the answers to both halves of a fused operation, the compare's first (Base 3.4.2).
    pub fn complete_fused(
        &mut self,
        io: &DeviceRequest,
        status: contract::Status,
    ) -> [CommandResult; 2] {
        let FusedPart::Second { first } = io.fused else {
            panic!("{io:?} is not the second of two");
        };
        let answer = self.complete(io, status);
        let (compare, write) = match answer.status.plain() {
            Status::SUCCESS => (Status::SUCCESS, Status::SUCCESS),
            _ => (answer.status, Status::FAILED_FUSED),
        };
        [CommandResult::error(first, compare), CommandResult::error(io.cid, write)]
    }

    /// Returns the completion entry of an answer. To be called once for each command, when its
    /// completion is sent.
    pub fn seal(&mut self, answer: CommandResult) -> Completion {
        if !self.made.flow_control {
            return answer.completion(0);
        }
        self.head = if self.head + 1 == self.made.size { 0 } else { self.head + 1 };
        answer.completion(self.head)
    }

    /// Returns the completion entry of the Connect that created the queue.
    pub(super) fn seal_connect(&mut self, answer: CommandResult) -> Completion {
        match self.made.flow_control {
            true => self.seal(answer),
            // Agrees to work without flow control (Base 6.3).
            false => answer.completion(u16::MAX),
        }
    }

    fn count(&self, io: &DeviceRequest) {
        match io.command {
            Command::Read(range) if io.reply_bytes > 0 => self.made.counts.add_read(range.blocks),
            Command::Write { range, .. } | Command::CompareAndWrite(range) => {
                self.made.counts.add_write(range.blocks);
            }
            _ => {}
        }
    }

    #[cold]
    fn refuse(&self, entry: &Submission, status: Status) -> CommandResult {
        let errors = &self.made.link.errors;
        match entry.opcode {
            FABRICS_OPCODE => errors.add_fabrics(self.made.id, entry, status),
            _ => errors.add(self.made.id, entry, status),
        }
        CommandResult::error(entry.cid.get(), status)
    }

    fn begin_fabrics(&mut self, entry: &Submission) -> Result<SubmissionStep, Status> {
        let kind = FabricsCommand::of(entry).kind;
        let proves =
            matches!(kind, FabricsKind::AUTHENTICATION_SEND | FabricsKind::AUTHENTICATION_RECEIVE);
        if !proves {
            self.check_proven()?;
        }
        let payload_bytes = match kind {
            FabricsKind::CONNECT => return Err(Status::SEQUENCE_ERROR.dnr()),
            FabricsKind::PROPERTY_GET | FabricsKind::PROPERTY_SET if self.made.id == 0 => 0,
            FabricsKind::DISCONNECT if self.made.id != 0 => 0,
            FabricsKind::DISCONNECT => return Err(Status::INVALID_QUEUE_TYPE.dnr()),
            FabricsKind::AUTHENTICATION_SEND => AuthCommand::of(entry).length.get() as usize,
            FabricsKind::AUTHENTICATION_RECEIVE => 0,
            _ => return Err(Status::INVALID_OPCODE.dnr()),
        };
        controllers_own(entry, payload_bytes)
    }

    fn begin_admin(&mut self, entry: &Submission) -> Result<SubmissionStep, Status> {
        self.check_proven()?;
        self.made.link.ready()?;
        let payload_bytes = match AdminOpcode(entry.opcode) {
            AdminOpcode::IDENTIFY
            | AdminOpcode::GET_LOG_PAGE
            | AdminOpcode::GET_FEATURES
            | AdminOpcode::ASYNC_EVENT_REQUEST
            | AdminOpcode::KEEP_ALIVE => 0,
            AdminOpcode::ABORT if self.made.kind == ControllerKind::Io => 0,
            AdminOpcode::SET_FEATURES => match Feature(entry.dword10.get() as u8) {
                // Over fabrics it is part of Connect, whatever size the host says it has.
                Feature::HOST_IDENTIFIER => return Err(Status::SEQUENCE_ERROR.dnr()),
                feature => features::payload_bytes(feature),
            },
            _ => return Err(Status::INVALID_OPCODE.dnr()),
        };
        controllers_own(entry, payload_bytes)
    }

    #[inline(always)]
    fn begin_io(&mut self, entry: &Submission) -> Result<SubmissionStep, Status> {
        self.check_proven()?;
        self.made.link.ready()?;
        match io::payload_of_controllers(entry) {
            Some(payload_bytes) => controllers_own(entry, payload_bytes),
            None => {
                let through = self.made.link.writes_through();
                Ok(SubmissionStep::Device(io::parse(&self.view, entry, through)?))
            }
        }
    }

    /// Fetches the queue's view of the namespaces anew if the controller's has changed.
    #[inline]
    fn refresh(&mut self) -> Result<(), LockBusy> {
        match self.made.link.generation() == self.view.generation {
            true => Ok(()),
            false => self.fetch_view(),
        }
    }

    #[cold]
    fn fetch_view(&mut self) -> Result<(), LockBusy> {
        self.view = self.fabric.view(self.made.link.cntlid, self.worker)?;
        Ok(())
    }

    /// Checks whether a command that was admitted earlier would be admitted now.
    ///
    /// # Errors
    /// Returns the status of the command if it would not be, or if another thread changes the
    /// fabric at this instant: the host sends it again then.
    pub fn permits(&mut self, io: &DeviceRequest) -> Result<(), Status> {
        self.made.link.ready()?;
        self.refresh().map_err(|LockBusy| Status::INTERRUPTED)?;
        self.sees(io)
    }

    /// Checks whether the queue's present view of the namespaces admits a command of this kind.
    fn sees(&self, io: &DeviceRequest) -> Result<(), Status> {
        let seen = self.view.find(io.nsid).filter(|seen| seen.namespace == io.namespace);
        let seen = seen.ok_or(Status::INVALID_NAMESPACE.dnr())?;
        match io.command.kind() {
            contract::IoKind::Write => io::permit(seen.writes),
            _ => io::permit(seen.reads),
        }
    }

    /// Checks whether a read that has ended may be answered: its host may have lost the right.
    /// Other changes do not concern it.
    fn permits_answer(&mut self, io: &DeviceRequest) -> Result<(), Status> {
        match self.made.link.losses() == self.view.losses {
            true => self.sees(io),
            false => self.permits(io),
        }
    }

    /// Returns the NVMe status of a command that has ended. A read is refused if its host has lost
    /// the right meanwhile. A command that was refused on its way to a device gets the reason.
    #[inline]
    fn status(&mut self, io: &DeviceRequest, status: contract::Status) -> Status {
        let told = match status {
            contract::Status::Ok if io.reply_bytes > 0 => self.permits_answer(io),
            contract::Status::Retry => self.permits(io),
            _ => Ok(()),
        };
        match told {
            Ok(()) if status.is_ok() => Status::SUCCESS,
            told => withheld(told).unwrap_or_else(|| io::status(io, status)),
        }
    }

    /// Checks that the host has authenticated or need not.
    #[inline]
    fn check_proven(&self) -> Result<(), Status> {
        match self.made.proven.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(Status::AUTHENTICATION_REQUIRED.dnr()),
        }
    }

    /// Joins the halves of fused operations: adapts the step of a submission to a compare that
    /// waits for its write.
    #[inline(always)]
    fn pair(
        &mut self,
        entry: &Submission,
        step: Result<SubmissionStep, Status>,
    ) -> Result<SubmissionStep, Status> {
        match step {
            // Most commands are neither half of one.
            step if self.first.is_some() => self.pair_second(entry, step),
            Ok(SubmissionStep::Device(io)) if io.fused != FusedPart::None => match io.fused {
                FusedPart::First => {
                    self.first = Some(io);
                    Ok(SubmissionStep::Device(io))
                }
                _ => Err(Status::MISSING_FUSED.dnr()),
            },
            step => step,
        }
    }

    /// Adapts the step of a submission behind a compare that waits for its write.
    #[cold]
    fn pair_second(
        &mut self,
        entry: &Submission,
        step: Result<SubmissionStep, Status>,
    ) -> Result<SubmissionStep, Status> {
        let first = self.first.take().expect("the caller looked");
        match step {
            Ok(SubmissionStep::Device(io))
                if io::is_second(entry) && io.nsid == first.nsid && io.command == first.command =>
            {
                Ok(SubmissionStep::Device(DeviceRequest {
                    fused: FusedPart::Second { first: first.cid },
                    ..io
                }))
            }
            step => {
                let status = match io::is_second(entry) {
                    true => Status::FAILED_FUSED,
                    false => Status::MISSING_FUSED,
                };
                self.orphan = Some(CommandResult::error(first.cid, status.dnr()));
                match step {
                    Ok(_) if io::is_second(entry) => Err(Status::INVALID_FIELD.dnr()),
                    Ok(SubmissionStep::Device(io)) if io.fused == FusedPart::First => {
                        self.first = Some(io);
                        Ok(SubmissionStep::Device(io))
                    }
                    step => step,
                }
            }
        }
    }

    fn discard(&mut self, entry: &Submission, payload: &[u8]) -> Result<DeviceRequest, Status> {
        self.ranges.clear();
        io::discard(&self.view, entry, payload, &mut self.ranges)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the status of a check if it withholds the answer to a command that has ended.
#[cold]
fn withheld(told: Result<(), Status>) -> Option<Status> {
    let [conflict, invalid] =
        [Status::RESERVATION_CONFLICT, Status::INVALID_NAMESPACE].map(Status::dnr);
    let withheld = [conflict, invalid, Status::INTERRUPTED];
    told.err().filter(|told| withheld.contains(told))
}

/// Admits a command of the controller itself, if its data pointer describes `payload_bytes`.
fn controllers_own(entry: &Submission, payload_bytes: usize) -> Result<SubmissionStep, Status> {
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(Status::INVALID_FIELD.dnr());
    }
    if payload_bytes > 0 || entry.sends_data() {
        data::expect(entry, payload_bytes)?;
    }
    Ok(SubmissionStep::Controller { payload_bytes })
}
