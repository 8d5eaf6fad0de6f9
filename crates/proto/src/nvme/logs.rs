//! The Get Log Page command (Base 5.16).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use wire::nvme::{
    AdminOpcode, AnaGroup, AnaHeader, AnaState, EffectsLog, ErrorEntry, Feature, FirmwareLog,
    LogPage, NvmOpcode, ReservationNotice, ReservationNoticeKind, SmartLog, Status, effect,
};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromZeros, IntoBytes};

use super::call::{ControllerCommand, ControllerOutcome};
use super::config::ANA_GROUPS_MAX;
use super::controller::Controller;
use super::data;
use super::errors::ERROR_ENTRIES;
use super::identify::padded;
use super::record::ControllerKind;
use super::state::State;
use super::{discovery, features};

/// The most bytes that one Get Log Page transfers, as any command.
const LOG_BYTES_MAX: u64 = contract::REQUEST_BYTES_MAX as u64;

/// The bit "Retain Asynchronous Event" in dword 10: reading the page does not unmask its event.
const RETAIN: u32 = 1 << 15;

/// The most namespaces that the Changed Namespace List can name.
const TOO_MANY: usize = 1024;

/// The temperature in the health log, in kelvin. There is no thermometer.
pub(super) const TEMPERATURE: u16 = 298;

/// The critical warning that the temperature is beyond a threshold.
const TEMPERATURE_WARNING: u8 = 1 << 1;

pub(super) fn get_log_page(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let dword10 = call.entry.dword10.get();
    let page = LogPage(dword10 as u8);
    let dwords = u64::from(dword10 >> 16) | u64::from(call.entry.dword11.get() & 0xffff) << 16;
    let bytes = (dwords + 1) * 4;
    let offset = u64::from(call.entry.dword12.get()) | u64::from(call.entry.dword13.get()) << 32;
    // Bit 23 of dword 14 would make the offset an index.
    if bytes > LOG_BYTES_MAX || offset % 4 != 0 || call.entry.dword14.get() >> 23 & 1 != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    data::expect(call.entry, bytes as usize)?;
    let controller = state.controllers.get(cntlid)?;
    if !is_served(controller.association.kind, page) {
        return Err(Status::INVALID_LOG_PAGE.dnr());
    }
    // Bits 31:24 of dword 14 choose the command set of the page; only NVM is served.
    if page == LogPage::EFFECTS && call.entry.dword14.get() >> 24 != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    if page == LogPage::DISCOVERY {
        state.generations.keep(&controller.association.host);
    }
    let specific = (dword10 >> 8) as u8 & 0x7f;
    let retain = dword10 & RETAIN != 0;
    let whole = log(state, controller, page, specific, call)?;
    if offset > whole.len() as u64 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let from = offset as usize;
    let to = whole.len().min(from + bytes as usize);
    call.out.extend_from_slice(&whole[from..to]);
    // Bytes after the page's end are undefined; zeroes reveal nothing.
    call.out.resize(bytes as usize, 0);
    if !retain {
        page_was_read(state, cntlid, page);
    }
    Ok(ControllerOutcome::Result(0))
}

/// Returns all bytes of a log page, from which the host's part is cut.
fn log(
    state: &State,
    controller: &Controller,
    page: LogPage,
    specific: u8,
    call: &ControllerCommand,
) -> Result<Vec<u8>, Status> {
    Ok(match page {
        LogPage::SUPPORTED => supported(controller.association.kind),
        LogPage::ERROR => {
            let errors = controller.link.errors.to_log();
            let entries = errors.newest().flat_map(|entry| entry.as_bytes().iter().copied());
            let mut log: Vec<u8> = entries.collect();
            log.resize(ERROR_ENTRIES * size_of::<ErrorEntry>(), 0);
            log
        }
        LogPage::SMART => smart(state, controller, call)?.as_bytes().to_vec(),
        LogPage::FIRMWARE => firmware_slots(state).as_bytes().to_vec(),
        LogPage::CHANGED_NAMESPACES => changed(controller),
        LogPage::EFFECTS => effects().as_bytes().to_vec(),
        LogPage::ANA => ana_log(state, controller, specific & 1 != 0),
        LogPage::FEATURES => served_features(controller.association.kind),
        LogPage::DISCOVERY => discovery::discovery_log(state, controller),
        LogPage::RESERVATION => reservation_notice(controller).as_bytes().to_vec(),
        _ => return Err(Status::INVALID_LOG_PAGE.dnr()),
    })
}

/// Notes that the host has read a log page, which unmasks the page's events.
fn page_was_read(state: &mut State, cntlid: u16, page: LogPage) {
    let State { controllers, mail, .. } = state;
    let Some(controller) = controllers.find_mut(cntlid) else { return };
    match page {
        LogPage::CHANGED_NAMESPACES => controller.changed.listed.clear(),
        LogPage::RESERVATION => {
            controller.notices.waiting.pop_front();
        }
        _ => {}
    }
    controller.events.read(page);
    if page == LogPage::RESERVATION && !controller.notices.waiting.is_empty() {
        controller.events.raise(wire::nvme::Event::RESERVATION);
    }
    controller.send_events(mail);
}

/// Returns the health log (Base 5.16.1.3) of the subsystem, limited to this host's own counts.
fn smart(
    state: &State,
    controller: &Controller,
    call: &ControllerCommand,
) -> Result<SmartLog, Status> {
    if !matches!(call.entry.nsid.get(), 0 | u32::MAX) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    // Counts this host's commands only, so that no host measures another.
    let sum = state.sum_of(&controller.association);
    // In thousands of blocks, rounded up.
    let units = |blocks: u64| U128::new(u128::from(blocks.div_ceil(1000)));
    let hours = call.now.since(state.started).as_secs() / 3600;
    let is_warned = controller.features.is_beyond_a_threshold(TEMPERATURE);
    Ok(SmartLog {
        warning: if is_warned { TEMPERATURE_WARNING } else { 0 },
        temperature: U16::new(TEMPERATURE),
        spare: 100,
        spare_threshold: 10,
        units_read: units(sum.blocks_read),
        units_written: units(sum.blocks_written),
        reads: U128::new(u128::from(sum.reads)),
        writes: U128::new(u128::from(sum.writes)),
        power_on_hours: U128::new(u128::from(hours)),
        media_errors: U128::new(u128::from(sum.media_errors)),
        error_entries: U128::new(u128::from(controller.link.errors.count())),
        ..SmartLog::new_zeroed()
    })
}

fn firmware_slots(state: &State) -> FirmwareLog {
    let mut log = FirmwareLog { active: 1, ..FirmwareLog::new_zeroed() };
    log.revisions[0] = padded(state.inventory.firmware());
    log
}

/// Returns the Asymmetric Namespace Access log (Base 5.16.1.13) with the groups of the host's
/// namespaces. It always has its greatest length, because nvme-cli reads that much in pieces.
fn ana_log(state: &State, controller: &Controller, groups_only: bool) -> Vec<u8> {
    let Some(subsystem) = state.inventory.subsystem(&controller.association.subsystem) else {
        return Vec::new();
    };
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (nsid, attached) in state.inventory.namespaces_of(&controller.association) {
        groups.entry(attached.config.ana_group).or_default().push(nsid);
    }
    let changes =
        groups.keys().map(|group| subsystem.access(controller.association.port, *group).1).sum();
    let head = AnaHeader {
        changes: U64::new(changes),
        groups: U16::new(groups.len() as u16),
        reserved: [0; 6],
    };
    let mut log = head.as_bytes().to_vec();
    for (group, mut namespaces) in groups {
        if groups_only {
            namespaces.clear();
        }
        let (state, changes): (AnaState, u64) =
            subsystem.access(controller.association.port, group);
        let entry = AnaGroup {
            group: U32::new(group),
            namespaces: U32::new(namespaces.len() as u32),
            changes: U64::new(changes),
            state,
            reserved: [0; 15],
        };
        log.extend_from_slice(entry.as_bytes());
        namespaces.iter().for_each(|nsid| log.extend_from_slice(&nsid.to_le_bytes()));
    }
    let namespaces_max = state.inventory.limits().namespaces_max as usize;
    let most = size_of::<AnaHeader>()
        + ANA_GROUPS_MAX as usize * size_of::<AnaGroup>()
        + namespaces_max * size_of::<u32>();
    log.resize(most, 0);
    log
}

/// Returns `true` if a kind of controller has this log page.
fn is_served(kind: ControllerKind, page: LogPage) -> bool {
    match page {
        LogPage::SUPPORTED | LogPage::ERROR | LogPage::FEATURES => true,
        LogPage::DISCOVERY => kind == ControllerKind::Discovery,
        LogPage::SMART
        | LogPage::FIRMWARE
        | LogPage::CHANGED_NAMESPACES
        | LogPage::EFFECTS
        | LogPage::ANA
        | LogPage::RESERVATION => kind == ControllerKind::Io,
        _ => false,
    }
}

/// Returns the log page Supported Log Pages (Base 5.16.1.1).
fn supported(kind: ControllerKind) -> Vec<u8> {
    by_number(|number| is_served(kind, LogPage(number)))
}

/// Returns the log page Feature Identifiers Supported and Effects (Base 5.16.1.18), with the
/// supported bits only.
fn served_features(kind: ControllerKind) -> Vec<u8> {
    by_number(|number| features::is_served(kind, Feature(number)))
}

/// Returns a 32-bit word for each number, whose bit 0 says whether it is supported.
fn by_number(is_served: impl Fn(u8) -> bool) -> Vec<u8> {
    (0..=u8::MAX).flat_map(|number| u32::from(is_served(number)).to_le_bytes()).collect()
}

/// Returns the log page Changed Namespace List (Base 5.16.1.5).
fn changed(controller: &Controller) -> Vec<u8> {
    let mut log = Vec::with_capacity(TOO_MANY * 4);
    match controller.changed.listed.len() {
        most if most > TOO_MANY => log.extend_from_slice(&u32::MAX.to_le_bytes()),
        _ => controller
            .changed
            .listed
            .iter()
            .for_each(|nsid| log.extend_from_slice(&nsid.to_le_bytes())),
    }
    log.resize(TOO_MANY * 4, 0);
    log
}

/// Returns the log page Commands Supported and Effects (Base 5.16.1.6).
fn effects() -> EffectsLog {
    let mut log = EffectsLog::new_zeroed();
    for opcode in [
        AdminOpcode::GET_LOG_PAGE,
        AdminOpcode::IDENTIFY,
        AdminOpcode::ABORT,
        AdminOpcode::SET_FEATURES,
        AdminOpcode::GET_FEATURES,
        AdminOpcode::ASYNC_EVENT_REQUEST,
        AdminOpcode::KEEP_ALIVE,
    ] {
        log.admin[usize::from(opcode.0)] = U32::new(effect::SERVED);
    }
    for (opcode, writes) in [
        (NvmOpcode::FLUSH, false),
        (NvmOpcode::WRITE, true),
        (NvmOpcode::READ, false),
        (NvmOpcode::COMPARE, false),
        (NvmOpcode::WRITE_ZEROES, true),
        (NvmOpcode::DATASET_MANAGEMENT, true),
        (NvmOpcode::VERIFY, false),
        (NvmOpcode::RESERVATION_REGISTER, false),
        (NvmOpcode::RESERVATION_REPORT, false),
        (NvmOpcode::RESERVATION_ACQUIRE, false),
        (NvmOpcode::RESERVATION_RELEASE, false),
    ] {
        let changes = if writes { effect::CHANGES_BLOCKS } else { 0 };
        log.io[usize::from(opcode.0)] = U32::new(effect::SERVED | changes);
    }
    log
}

/// Returns the oldest reservation notice that the host has not read, or an empty one (Base
/// 5.16.1.24).
fn reservation_notice(controller: &Controller) -> ReservationNotice {
    let notices = &controller.notices;
    let Some((count, kind, nsid)) = notices.waiting.front() else {
        let kind = ReservationNoticeKind::EMPTY;
        return ReservationNotice { kind, ..ReservationNotice::new_zeroed() };
    };
    ReservationNotice {
        count: U64::new(*count),
        kind: *kind,
        waiting: (notices.waiting.len() - 1).min(255) as u8,
        nsid: U32::new(*nsid),
        ..ReservationNotice::new_zeroed()
    }
}
