//! The setup of one queue: its commands, one after the other, and the meaning of their completions.

use alloc::boxed::Box;
use alloc::vec::Vec;

use wire::nvme::{
    AdminOpcode, AuthCommand, CONNECT_CNTLID_DYNAMIC, CONNECT_DISABLE_FLOW_CONTROL, Completion,
    ConnectCommand, ConnectData, FabricsKind, Feature, IdentifyCns, IdentifyController,
    IdentifyNamespace, NQN_BYTES, Property, PropertyCommand, SglDescriptor, Status, Submission,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::words::{Found, HostOptions, Refusal};
use crate::nvme::auth::{Credentials, Hash, HostAuthentication, HostReaction, PROOF_CHANCE_BYTES};
use crate::nvme_tcp::{CAPSULE_DATA_BYTES_MAX, TransferSizes};

/// The size in bytes of the data that Identify returns.
const IDENTIFY_BYTES: u32 = 4096;

/// The largest authentication message in bytes.
const AUTH_BYTES_MAX: u32 = 4096;

/// The number of entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;

/// Controller Configuration: enable, with entries of 64 and 16 bytes, pages of 4 KiB, and the NVM
/// command set.
const ENABLE: u64 = 0x0046_0001;

/// Controller Status bits: ready, and fatal (CSTS.RDY, CSTS.CFS).
const READY: u64 = 1;
const BROKEN: u64 = 2;

/// The bits of a Connect's result that require authentication.
const MUST_AUTHENTICATE: u64 = 3 << 16;

/// The bit in the result of a refused Connect for an invalid byte that lies in the data.
const IN_DATA: u64 = 1 << 16;

/// The most I/O queues that can be asked for (Base 5.27.1.5).
const QUEUES_MAX: usize = 0xffff;

/// The most namespaces that are listed if the wanted one does not exist.
const NAMED_MAX: usize = 16;

/// A command of the setup, ready to be sent.
#[derive(Debug)]
pub(super) struct SetupCommand {
    pub(super) entry: Submission,
    pub(super) carried: TransferSizes,
    /// The data that travels in the command's capsule; empty for none.
    pub(super) data: Vec<u8>,
}

/// The step that follows a completion.
#[derive(Debug)]
pub(super) enum SetupStep {
    /// A further command is to be sent.
    Ask(Box<SetupCommand>),
    /// The queue is set up.
    Up,
}

/// The command that was sent; its completion ends the stage.
#[derive(Debug)]
enum SetupStage {
    Connect,
    /// An Authentication Send was sent.
    Sent,
    /// An Authentication Receive was sent.
    Received,
    /// The last Authentication Send was sent.
    Verdict,
    Capabilities,
    Enable,
    State,
    Controller,
    Namespace,
    /// The list of namespaces was requested, because the wanted namespace does not exist.
    Namespaces,
    Queues,
}

/// The setup of one queue of a host: its commands, up to the first request.
#[derive(Debug)]
pub(super) struct Setup {
    /// The queue's identifier; zero for the admin queue.
    queue: u16,
    stage: SetupStage,
    proof: Option<HostAuthentication>,
}

impl Setup {
    /// Begins the setup of the admin queue, or of an I/O queue of the controller in `found`.
    /// Returns the setup and its first command.
    pub(super) fn begin(queue: u16, options: &HostOptions, found: &Found) -> (Setup, SetupCommand) {
        let mut data = ConnectData::new_zeroed();
        data.host_id = options.host_id;
        data.cntlid = if queue == 0 { CONNECT_CNTLID_DYNAMIC } else { found.cntlid }.into();
        data.subsystem_nqn = name(&options.subsystem);
        data.host_nqn = name(&options.host);
        let millis = options.keep_alive.as_millis() as u32;
        let entries = if queue == 0 { ADMIN_ENTRIES } else { options.queue_depth + 1 };
        let entry = ConnectCommand {
            attributes: CONNECT_DISABLE_FLOW_CONTROL,
            keep_alive_ms: if queue == 0 { millis } else { 0 }.into(),
            ..ConnectCommand::new(queue, entries)
        };
        let data = data.as_bytes().to_vec();
        let ask = SetupCommand { entry: *entry.entry(), carried: TransferSizes::default(), data };
        (Setup { queue, stage: SetupStage::Connect, proof: None }, ask)
    }

    /// Processes a completion with the data received for it, and stores the server's properties in
    /// `found`. Returns the next step.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the queue cannot be set up.
    pub(super) fn take(
        &mut self,
        completion: &Completion,
        data: &[u8],
        options: &HostOptions,
        found: &mut Found,
    ) -> Result<SetupStep, Refusal> {
        let status = completion.status();
        let result = completion.result.get();
        if !status.is_ok() {
            return self.refused(status, result, options);
        }
        match self.stage {
            SetupStage::Connect => {
                if self.queue == 0 {
                    found.cntlid = result as u16;
                }
                self.connected(result & MUST_AUTHENTICATE != 0, options, found.attempt)
            }
            SetupStage::Sent => Ok(self.ask(SetupStage::Received, receive())),
            SetupStage::Received => self.heard(data),
            SetupStage::Verdict => Ok(self.proven()),
            SetupStage::Capabilities => {
                found.queue_depth_max = result as u16;
                if options.queue_depth > found.queue_depth_max {
                    let (wanted, most) = (options.queue_depth, found.queue_depth_max);
                    return Err(Refusal::Depth { wanted, most });
                }
                Ok(self.ask(SetupStage::Enable, set(Property::CONFIGURATION, ENABLE)))
            }
            SetupStage::State if result & BROKEN != 0 => {
                Err(Refusal::Step("enable the controller", Status::INTERNAL))
            }
            SetupStage::State if result & READY != 0 => {
                Ok(self.ask(SetupStage::Controller, identify(IdentifyCns::CONTROLLER, 0)))
            }
            SetupStage::Enable | SetupStage::State => {
                Ok(self.ask(SetupStage::State, get(Property::STATE, 4)))
            }
            SetupStage::Controller => {
                read_controller(data, found);
                Ok(self.ask(SetupStage::Namespace, identify(IdentifyCns::NAMESPACE, options.nsid)))
            }
            SetupStage::Namespace => {
                let (namespace, _) = IdentifyNamespace::read_from_prefix(data).expect("its size");
                if namespace.size.get() == 0 {
                    let list = identify(IdentifyCns::ACTIVE_NAMESPACES, 0);
                    return Ok(self.ask(SetupStage::Namespaces, list));
                }
                read_namespace(&namespace, found);
                Ok(self.ask(SetupStage::Queues, queues(options.queues)))
            }
            SetupStage::Namespaces => {
                let words = data.chunks_exact(4).map(|word| word.try_into().expect("four bytes"));
                let numbers = words.map(u32::from_le_bytes).take_while(|number| *number != 0);
                Err(Refusal::NoNamespace(numbers.take(NAMED_MAX).collect()))
            }
            SetupStage::Queues => {
                found.queues = (result as u16).saturating_add(1);
                if options.queues > usize::from(found.queues) {
                    let (wanted, granted) = (options.queues, found.queues);
                    return Err(Refusal::Queues { wanted, granted });
                }
                Ok(SetupStep::Up)
            }
        }
    }

    fn ask(&mut self, stage: SetupStage, ask: SetupCommand) -> SetupStep {
        self.stage = stage;
        SetupStep::Ask(Box::new(ask))
    }

    /// Returns the step that follows a failed command, or the reason why the queue cannot be set
    /// up.
    fn refused(
        &mut self,
        status: Status,
        result: u64,
        options: &HostOptions,
    ) -> Result<SetupStep, Refusal> {
        let names_subsystem = IN_DATA | core::mem::offset_of!(ConnectData, subsystem_nqn) as u64;
        Err(match (&self.stage, status.plain()) {
            (SetupStage::Connect, Status::CONNECT_INVALID) if result == names_subsystem => {
                Refusal::NoSubsystem
            }
            (SetupStage::Connect, Status::CONNECT_INVALID_HOST) => Refusal::NotAllowed,
            (_, Status::AUTHENTICATION_REQUIRED) => Refusal::KeyNeeded,
            (SetupStage::Namespace, Status::INVALID_NAMESPACE) => {
                let list = identify(IdentifyCns::ACTIVE_NAMESPACES, 0);
                return Ok(self.ask(SetupStage::Namespaces, list));
            }
            // A server without a limit need not know the feature.
            (SetupStage::Queues, Status::INVALID_FIELD) if options.queues == 0 => {
                return Ok(SetupStep::Up);
            }
            (stage, _) => Refusal::Step(stage.name(), status),
        })
    }

    /// Continues after the Connect, with authentication if the server requires it.
    fn connected(
        &mut self,
        must: bool,
        options: &HostOptions,
        attempt: u64,
    ) -> Result<SetupStep, Refusal> {
        let key = match (must, &options.key, &options.controller_key) {
            (false, _, Some(_)) => return Err(Refusal::NotAuthenticated),
            (false, ..) => return Ok(self.proven()),
            (true, None, _) => return Err(Refusal::KeyNeeded),
            (true, Some(key), _) => key.clone(),
        };
        let credentials = Credentials {
            host: options.host.clone(),
            subsystem: options.subsystem.clone(),
            key,
            controller_key: options.controller_key.clone(),
        };
        let proof =
            HostAuthentication::new(credentials, chance(&options.chance, attempt, self.queue));
        let message = proof.negotiation();
        self.proof = Some(proof);
        Ok(self.ask(SetupStage::Sent, send(message)))
    }

    fn heard(&mut self, message: &[u8]) -> Result<SetupStep, Refusal> {
        let proof = self.proof.as_mut().expect("an authentication is under way");
        Ok(match proof.take(message).map_err(Refusal::NotProven)? {
            HostReaction::Reply(reply) => self.ask(SetupStage::Sent, send(reply)),
            HostReaction::Last(message) => self.ask(SetupStage::Verdict, send(message)),
            HostReaction::Done => self.proven(),
        })
    }

    fn proven(&mut self) -> SetupStep {
        self.proof = None;
        match self.queue {
            0 => self.ask(SetupStage::Capabilities, get(Property::CAPABILITIES, 8)),
            _ => SetupStep::Up,
        }
    }
}

impl SetupStage {
    /// Returns the description of the refused command, for a message that begins with "refused to".
    fn name(&self) -> &'static str {
        match self {
            SetupStage::Connect => "connect",
            SetupStage::Sent | SetupStage::Received | SetupStage::Verdict => "authenticate",
            SetupStage::Capabilities | SetupStage::State => "tell its properties",
            SetupStage::Enable => "enable the controller",
            SetupStage::Controller | SetupStage::Namespace | SetupStage::Namespaces => {
                "identify what it has"
            }
            SetupStage::Queues => "grant queues",
        }
    }
}

/// Derives the unpredictable bytes for each queue's authentication in each attempt.
fn chance(secret: &[u8; 32], attempt: u64, queue: u16) -> [u8; PROOF_CHANCE_BYTES] {
    let mut chance = [0; PROOF_CHANCE_BYTES];
    for (n, piece) in (0_u8..).zip(chance.chunks_mut(Hash::Sha512.bytes())) {
        let drawn =
            Hash::Sha512.keyed(secret, &[&attempt.to_le_bytes(), &queue.to_le_bytes(), &[n]]);
        piece.copy_from_slice(&drawn[..piece.len()]);
    }
    chance
}

fn name(text: &str) -> [u8; NQN_BYTES] {
    let mut field = [0; NQN_BYTES];
    let bytes = &text.as_bytes()[..text.len().min(NQN_BYTES - 1)];
    field[..bytes.len()].copy_from_slice(bytes);
    field
}

fn plain(entry: Submission) -> SetupCommand {
    SetupCommand { entry, carried: TransferSizes::default(), data: Vec::new() }
}

fn get(property: Property, bytes: u8) -> SetupCommand {
    plain(*PropertyCommand::get(property, bytes).entry())
}

fn set(property: Property, value: u64) -> SetupCommand {
    plain(*PropertyCommand::set(property, value).entry())
}

fn identify(cns: IdentifyCns, nsid: u32) -> SetupCommand {
    let mut entry = Submission::new(AdminOpcode::IDENTIFY.0, 0, nsid);
    entry.dword10 = u32::from(cns.0).into();
    entry.data = SglDescriptor::transport(IDENTIFY_BYTES);
    let carried = TransferSizes { receives: IDENTIFY_BYTES as usize, ..TransferSizes::default() };
    SetupCommand { entry, carried, data: Vec::new() }
}

/// Asks for `count` I/O queues; zero stands for as many as possible.
fn queues(count: usize) -> SetupCommand {
    let mut entry = Submission::new(AdminOpcode::SET_FEATURES.0, 0, 0);
    entry.dword10 = u32::from(Feature::QUEUES.0).into();
    let count = if count == 0 { QUEUES_MAX } else { count.min(QUEUES_MAX) };
    let last = count as u32 - 1;
    entry.dword11 = (last | last << 16).into();
    plain(entry)
}

fn send(message: Vec<u8>) -> SetupCommand {
    let length = message.len() as u32;
    let data = SglDescriptor::in_capsule(0, length);
    let command = AuthCommand::new(FabricsKind::AUTHENTICATION_SEND, length, data);
    SetupCommand { entry: *command.entry(), carried: TransferSizes::default(), data: message }
}

fn receive() -> SetupCommand {
    let data = SglDescriptor::transport(AUTH_BYTES_MAX);
    let command = AuthCommand::new(FabricsKind::AUTHENTICATION_RECEIVE, AUTH_BYTES_MAX, data);
    let carried = TransferSizes {
        receives: AUTH_BYTES_MAX as usize,
        may_be_fewer: true,
        ..TransferSizes::default()
    };
    SetupCommand { entry: *command.entry(), carried, data: Vec::new() }
}

fn read_controller(data: &[u8], found: &mut Found) {
    let (controller, _) = IdentifyController::read_from_prefix(data).expect("its size");
    let most = contract::REQUEST_BYTES_MAX;
    found.request_bytes_max = match controller.transfer_max_shift {
        0 => most,
        shift => most.min(4096_usize.checked_shl(u32::from(shift)).unwrap_or(most)),
    };
    let capsule = (controller.command_capsule.get() as usize * 16).saturating_sub(64);
    let is_adjacent = controller.capsule_data_offset.get() == 0;
    let most = CAPSULE_DATA_BYTES_MAX as usize;
    found.capsule_bytes = if is_adjacent { capsule.min(most) } else { 0 };
}

fn read_namespace(namespace: &IdentifyNamespace, found: &mut Found) {
    let format = usize::from(namespace.format & 0xf);
    let shift = u32::from(namespace.lba_formats[format].data_shift).clamp(9, 20);
    found.block_bytes = 1 << shift;
    found.blocks = namespace.size.get() << (shift - 9);
}
