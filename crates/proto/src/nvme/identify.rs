//! The Identify command (Base 5.17, NVM 4.1.5).

use alloc::vec::Vec;

use contract::{BLOCK_BYTES, REQUEST_BYTES_MAX};
use wire::nvme::{
    CommandSetIdentifier, DISCARD_RANGES_MAX, DescriptorHead, DescriptorKind, IdentifyCns,
    IdentifyController, IdentifyNamespace, IdentifyNamespaceCommon, IdentifyNvmController,
    LbaFormat, Status, Submission, VERSION_2_0,
};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromZeros, IntoBytes};

use super::call::{ControllerCommand, ControllerOutcome};
use super::config::{ANA_GROUPS_MAX, Namespace};
use super::controller::{Controller, KEEP_ALIVE_UNIT};
use super::data;
use super::errors::ERROR_ENTRIES;
use super::events::EVENT_REQUESTS_MAX;
use super::features::{IO_EVENTS, TEMPERATURE_WARNED};
use super::inventory::AttachedNamespace;
use super::record::ControllerKind;
use super::state::State;

/// The size in bytes of every Identify structure.
const STRUCTURE_BYTES: usize = 4096;

/// The size in bytes of the smallest memory page, the unit of transfer sizes.
const PAGE_BYTES: usize = 4096;

/// Reservation capabilities: all six types, persistence, and Ignore Existing Key as of revision
/// 1.3.
const RESERVATIONS: u8 = 0xff;

/// Optional commands that are supported (Identify Controller, ONCS): Compare, Dataset Management,
/// Write Zeroes, reservations, Timestamp, Verify. Bit 4 says that Get Features can select values.
const OPTIONAL_COMMANDS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;

/// The number of namespace identifiers in a 4 KiB list.
const LIST_ENTRIES: usize = STRUCTURE_BYTES / size_of::<u32>();

pub(super) fn identify(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    data::expect(call.entry, STRUCTURE_BYTES)?;
    let controller = state.controllers.get(cntlid)?;
    let cns = IdentifyCns(call.entry.dword10.get() as u8);
    if controller.association.kind == ControllerKind::Discovery {
        return match cns {
            IdentifyCns::CONTROLLER => {
                fill(call.out, &[controller_data(state, controller).as_bytes()])
            }
            _ => Err(Status::INVALID_FIELD.dnr()),
        };
    }
    let nsid = call.entry.nsid.get();
    let of_set = matches!(
        cns,
        IdentifyCns::NAMESPACE_OF_SET
            | IdentifyCns::CONTROLLER_OF_SET
            | IdentifyCns::ACTIVE_NAMESPACES_OF_SET
            | IdentifyCns::ALLOCATED_NAMESPACES_OF_SET
            | IdentifyCns::ALLOCATED_NAMESPACE_OF_SET
    );
    let set = CommandSetIdentifier((call.entry.dword11.get() >> 24) as u8);
    if of_set && set != CommandSetIdentifier::NVM {
        return Err(Status::INVALID_FIELD.dnr());
    }
    match cns {
        IdentifyCns::CONTROLLER => fill(call.out, &[controller_data(state, controller).as_bytes()]),
        IdentifyCns::CONTROLLER_OF_SET => fill(call.out, &[nvm_controller().as_bytes()]),
        IdentifyCns::COMMAND_SETS => {
            // The first combination is the NVM command set alone.
            fill(call.out, &[&1u64.to_le_bytes()])
        }
        IdentifyCns::ACTIVE_NAMESPACES
        | IdentifyCns::ACTIVE_NAMESPACES_OF_SET
        | IdentifyCns::ALLOCATED_NAMESPACES
        | IdentifyCns::ALLOCATED_NAMESPACES_OF_SET => {
            list_namespaces(state, controller, nsid, call.out)
        }
        IdentifyCns::SUBSYSTEM_CONTROLLERS => {
            list_controllers(state, controller, call.entry, call.out)
        }
        _ => {
            let done = identify_namespace(state, controller, cns, call)?;
            let tells = cns != IdentifyCns::NAMESPACE_CONTROLLERS;
            if tells && state.inventory.namespace_of(&controller.association, nsid).is_some() {
                state.controllers.get_mut(cntlid)?.identified(nsid);
            }
            Ok(done)
        }
    }
}

/// Replies with the Identify structure `cns` about one namespace.
fn identify_namespace(
    state: &State,
    controller: &Controller,
    cns: IdentifyCns,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let nsid = call.entry.nsid.get();
    let zero_when_inactive = match cns {
        IdentifyCns::NAMESPACE
        | IdentifyCns::NAMESPACE_OF_SET
        | IdentifyCns::NAMESPACE_COMMON
        | IdentifyCns::ALLOCATED_NAMESPACE
        | IdentifyCns::ALLOCATED_NAMESPACE_OF_SET => true,
        IdentifyCns::NAMESPACE_DESCRIPTORS | IdentifyCns::NAMESPACE_CONTROLLERS => false,
        _ => return Err(Status::INVALID_FIELD.dnr()),
    };
    // An identifier that no namespace can have is an error. One that no namespace has gets an
    // empty structure.
    if nsid == 0 || nsid > state.inventory.limits().namespaces_max {
        return Err(Status::INVALID_NAMESPACE.dnr());
    }
    let Some(attached) = state.inventory.namespace_of(&controller.association, nsid) else {
        return match zero_when_inactive {
            true => fill(call.out, &[]),
            false => Err(Status::INVALID_NAMESPACE.dnr()),
        };
    };
    match cns {
        IdentifyCns::NAMESPACE | IdentifyCns::ALLOCATED_NAMESPACE => {
            fill(call.out, &[namespace_data(attached).as_bytes()])
        }
        IdentifyCns::NAMESPACE_COMMON => fill(call.out, &[common_data(attached).as_bytes()]),
        IdentifyCns::NAMESPACE_DESCRIPTORS => describe(attached, call.out),
        IdentifyCns::NAMESPACE_CONTROLLERS => {
            list_controllers(state, controller, call.entry, call.out)
        }
        // No part of the NVM command set's own structure is in use: no metadata, no protection.
        _ => fill(call.out, &[]),
    }
}

/// Replies with the host's namespaces whose identifiers are greater than `after`.
fn list_namespaces(
    state: &State,
    controller: &Controller,
    after: u32,
    out: &mut Vec<u8>,
) -> Result<ControllerOutcome, Status> {
    if after >= u32::MAX - 1 {
        return Err(Status::INVALID_NAMESPACE.dnr());
    }
    let numbers = state.inventory.namespaces_of(&controller.association).map(|(nsid, _)| nsid);
    for nsid in numbers.filter(|nsid| *nsid > after).take(LIST_ENTRIES) {
        out.extend_from_slice(&nsid.to_le_bytes());
    }
    fill(out, &[])
}

/// Replies with the identifiers of the host's controllers in the subsystem, from the identifier in
/// dword 10 on. Controllers of other hosts are hidden.
fn list_controllers(
    state: &State,
    controller: &Controller,
    entry: &Submission,
    out: &mut Vec<u8>,
) -> Result<ControllerOutcome, Status> {
    const MOST: usize = STRUCTURE_BYTES / size_of::<u16>() - 1;
    let from = (entry.dword10.get() >> 16) as u16;
    let own = state.controllers.of_subsystem(&controller.association.subsystem);
    let own = own.filter(|other| other.association.host == controller.association.host);
    let ids: Vec<u16> =
        own.map(|own| own.link.cntlid).filter(|id| *id >= from).take(MOST).collect();
    out.extend_from_slice(&(ids.len() as u16).to_le_bytes());
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
    fill(out, &[])
}

/// Returns the Identify Controller structure (Base 5.17.2.1).
fn controller_data(state: &State, controller: &Controller) -> IdentifyController {
    let limits = state.inventory.limits();
    let base = IdentifyController {
        model: padded(state.inventory.model()),
        firmware: padded(state.inventory.firmware()),
        transfer_max_shift: (REQUEST_BYTES_MAX / PAGE_BYTES).trailing_zeros() as u8,
        cntlid: U16::new(controller.link.cntlid),
        version: U32::new(VERSION_2_0),
        event_requests_max: EVENT_REQUESTS_MAX as u8 - 1,
        error_entries_max: ERROR_ENTRIES as u8 - 1,
        // Offsets into log pages are supported, and the page that lists the pages.
        log_pages: 1 << 2 | 1 << 5,
        keep_alive_granularity: U16::new((KEEP_ALIVE_UNIT.as_millis() / 100) as u16),
        commands_max: U16::new(limits.queue_entries_max),
        // Offsets in capsules and transport data blocks, as NVMe over Fabrics has them.
        sgl: U32::new(1 | 1 << 20 | 1 << 21),
        subsystem_nqn: controller.association.subsystem.to_field(),
        command_capsule: U32::new((64 + limits.in_capsule_bytes) / 16),
        response_capsule: U32::new(1),
        sgl_blocks_max: 1,
        submission_shift: 0x66,
        completion_shift: 0x44,
        ..IdentifyController::new_zeroed()
    };
    match controller.association.kind {
        ControllerKind::Discovery => IdentifyController {
            kind: 2,
            discovery_kind: 1,
            serial: [b' '; 20],
            events: U32::new(wire::nvme::notice::DISCOVERY),
            attributes: U32::new(1 | 1 << 6),
            command_capsule: U32::new(4),
            ..base
        },
        ControllerKind::Io => io_controller_data(state, controller, base),
    }
}

fn io_controller_data(
    state: &State,
    controller: &Controller,
    base: IdentifyController,
) -> IdentifyController {
    let namespaces_max = state.inventory.limits().namespaces_max;
    let capacity: u128 = state
        .inventory
        .namespaces_of(&controller.association)
        .map(|(_, attached)| u128::from(attached.config.geometry.blocks) * BLOCK_BYTES as u128)
        .sum();
    let cached = state
        .inventory
        .namespaces_of(&controller.association)
        .any(|(_, a)| a.config.geometry.volatile_cache);
    let serial = state
        .inventory
        .subsystem(&controller.association.subsystem)
        .map_or("", |subsystem| &subsystem.serial);
    IdentifyController {
        kind: 1,
        serial: padded(serial),
        // Several ports, several controllers, asymmetric access.
        multi_path: 1 | 1 << 1 | 1 << 3,
        events: U32::new(IO_EVENTS),
        // Host identifiers of 128 bits; commands on any queue keep the controller alive.
        attributes: U32::new(1 | 1 << 6),
        aborts_max: 3,
        // One slot, read-only.
        firmware_updates: 1 | 1 << 1,
        log_pages: base.log_pages | 1 << 1,
        temperature_warning: U16::new(TEMPERATURE_WARNED),
        temperature_critical: U16::new(0x0175),
        capacity_total: U128::new(capacity),
        ana_transition_seconds: 10,
        // All states are reported; a namespace's group can change.
        ana: 0x1f,
        ana_group_max: U32::new(ANA_GROUPS_MAX),
        ana_groups: U32::new(ANA_GROUPS_MAX),
        namespaces: U32::new(namespaces_max),
        namespaces_max: U32::new(namespaces_max),
        commands: U16::new(OPTIONAL_COMMANDS),
        // Compare and write.
        fused: U16::new(1),
        // A flush is for one namespace. Whether there is a cache to flush differs by namespace.
        write_cache: u8::from(cached) | 2 << 1,
        fabrics_commands: U16::new(1),
        atomic_compare_blocks: U16::ZERO,
        ..base
    }
}

/// Returns the Identify Controller structure of the NVM command set. Write Zeroes is limited by its
/// number of blocks only; Verify has the limit of all transfers.
fn nvm_controller() -> IdentifyNvmController {
    IdentifyNvmController {
        verify_max_shift: (REQUEST_BYTES_MAX / PAGE_BYTES).trailing_zeros() as u8,
        // Zero stands for the 256 ranges that the command can have.
        discard_ranges_max: (DISCARD_RANGES_MAX % 256) as u8,
        ..IdentifyNvmController::new_zeroed()
    }
}

/// Returns the Identify Namespace structure (NVM 4.1.5.1).
fn namespace_data(attached: &AttachedNamespace) -> IdentifyNamespace {
    let config = &attached.config;
    let blocks = U64::new(attached.blocks());
    // A compare and write is atomic up to the largest request.
    let compare_blocks = (REQUEST_BYTES_MAX / config.block_bytes as usize - 1) as u16;
    let physical = config.geometry.physical_block_bytes.max(config.block_bytes);
    let granularity = U16::new((physical / config.block_bytes - 1) as u16);
    let mut lba_formats = [LbaFormat::new_zeroed(); 64];
    lba_formats[0].data_shift = config.block_bytes.trailing_zeros() as u8;
    IdentifyNamespace {
        size: blocks,
        capacity: blocks,
        utilization: blocks,
        // Own atomic units, identifiers that are never reused, preferred granularities.
        features: 1 << 1 | 1 << 3 | 1 << 4,
        sharing: 1,
        reservations: RESERVATIONS,
        // Deallocated blocks read as zeroes, and Write Zeroes can deallocate.
        deallocate: 1 | 1 << 3,
        atomic_blocks: U16::new(whole_blocks(config)),
        atomic_blocks_power_fail: U16::new(whole_blocks(config)),
        atomic_compare_blocks: U16::new(compare_blocks),
        capacity_bytes: U128::new(u128::from(config.geometry.blocks) * BLOCK_BYTES as u128),
        write_granularity: granularity,
        write_alignment: granularity,
        deallocate_granularity: granularity,
        deallocate_alignment: granularity,
        ana_group: U32::new(config.ana_group),
        attributes: u8::from(config.geometry.read_only),
        nguid: config.identifiers.nguid,
        eui64: config.identifiers.eui64,
        lba_formats,
        ..IdentifyNamespace::new_zeroed()
    }
}

/// Returns the most blocks of a plain write that the device leaves whole wherever it begins,
/// zero-based (NAWUN and NAWUPF, NVM 2.1.4). The worst place is the last block of a physical block.
/// Other devices give one block.
fn whole_blocks(config: &Namespace) -> u16 {
    let geometry = &config.geometry;
    let physical = geometry.physical_block_bytes.max(BLOCK_BYTES as u32) / BLOCK_BYTES as u32;
    let whole = geometry.atomic_blocks_max / physical;
    if !geometry.writes_whole || whole == 0 {
        return 0;
    }
    let bytes = ((whole - 1) * physical + 1) * BLOCK_BYTES as u32;
    let bytes = bytes.min(REQUEST_BYTES_MAX as u32);
    (bytes / config.block_bytes).saturating_sub(1).min(u16::MAX.into()) as u16
}

/// Returns the Identify Namespace structure for all command sets (Base 5.17.2.8).
fn common_data(attached: &AttachedNamespace) -> IdentifyNamespaceCommon {
    IdentifyNamespaceCommon {
        features: 1 << 3,
        sharing: 1,
        reservations: RESERVATIONS,
        ana_group: U32::new(attached.config.ana_group),
        attributes: u8::from(attached.config.geometry.read_only),
        state: 1,
        ..IdentifyNamespaceCommon::new_zeroed()
    }
}

/// Replies with the namespace identification descriptors (Base 5.17.2.3): the nonzero identifiers,
/// and the command set.
fn describe(attached: &AttachedNamespace, out: &mut Vec<u8>) -> Result<ControllerOutcome, Status> {
    let identifiers = &attached.config.identifiers;
    let all: [(DescriptorKind, &[u8]); 3] = [
        (DescriptorKind::UUID, &identifiers.uuid),
        (DescriptorKind::NGUID, &identifiers.nguid),
        (DescriptorKind::EUI64, &identifiers.eui64),
    ];
    for (kind, bytes) in all {
        if bytes.iter().any(|byte| *byte != 0) {
            let head = DescriptorHead { kind, bytes: bytes.len() as u8, reserved: U16::ZERO };
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(bytes);
        }
    }
    let head = DescriptorHead { kind: DescriptorKind::COMMAND_SET, bytes: 1, reserved: U16::ZERO };
    fill(out, &[head.as_bytes(), &[CommandSetIdentifier::NVM.0]])
}

/// Appends the parts to `out`, then zeroes up to the size of an Identify structure.
fn fill(out: &mut Vec<u8>, parts: &[&[u8]]) -> Result<ControllerOutcome, Status> {
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.resize(STRUCTURE_BYTES, 0);
    Ok(ControllerOutcome::Result(0))
}

/// Returns ASCII text as a field of `BYTES` bytes, padded with spaces or cut.
pub(super) fn padded<const BYTES: usize>(text: &str) -> [u8; BYTES] {
    let mut field = [b' '; BYTES];
    let len = text.len().min(BYTES);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}
