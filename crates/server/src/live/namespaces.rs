//! Namespaces: created and removed while hosts use them, and described to operators.

use std::collections::HashMap;

use contract::{BLOCK_BYTES, NamespaceId};
use control::admin::{self, Code, NewNamespace, Problem, RemoveNamespace};
use worker::Namespace;

use super::growth::RequiredBlocks;
use super::reconciler::Reconciler;
use super::world::ServerSnapshot;
use super::{Changes, LiveState};
use crate::config::ServerNamespace;
use crate::listen::Protocol;

/// New namespaces begin at a multiple of this number of blocks (1 MiB).
const START_BLOCKS: u64 = 2048;

/// The number of removed namespaces' numbers above which the number that was freed first is used
/// again. Up to it, numbers that were never used come first.
const REST: usize = 64;

/// Creates, removes and describes the namespaces of a server.
pub(super) struct Namespaces<'a>(pub(super) &'a Reconciler);

impl Namespaces<'_> {
    pub(super) fn told(&self) -> admin::Namespaces {
        let world = &self.0.seen().world;
        let exported = exported(world);
        let told = |space: &ServerNamespace| {
            told(&exported, space, self.0.ground.places.name(space.place.device))
        };
        admin::Namespaces { namespaces: world.spaces.iter().map(told).collect() }
    }

    /// Returns the description of one namespace, by name or number.
    pub(super) fn told_one(&self, name: &str) -> Result<admin::NamespaceStatus, Problem> {
        let world = &self.0.seen().world;
        let space = find(world, name)?;
        Ok(told(&exported(world), space, self.0.ground.places.name(space.place.device)))
    }

    pub(super) fn add(
        &self,
        inner: &mut LiveState,
        wanted: &NewNamespace,
    ) -> Result<admin::NamespaceStatus, Problem> {
        let blocks = whole_blocks(wanted.bytes)?;
        spec::check_name(&wanted.name).map_err(invalid)?;
        self.0.change(inner, |inner, changes| {
            let world = &inner.world;
            check_free(world, &wanted.name)?;
            let device = self.device_place(world, wanted.device.as_deref())?;
            let number = vacant(inner)?;
            let first = self.find_room((world, &inner.freeing), device, blocks)?;
            let place = Namespace { device, first, blocks, read_only: wanted.read_only };
            let uuid = match &wanted.uuid {
                Some(text) => free_uuid(world, text)?,
                None => io::random_uuid(),
            };
            let (name, uuid) = (wanted.name.clone(), Some(uuid));
            self.set(world, changes, &ServerNamespace { number, name, uuid, file: None, place });
            if let Some(nqns) = &wanted.subsystems {
                export(world, changes, number, nqns)?;
            }
            Ok(vec![RequiredBlocks { device, first, blocks }])
        })?;
        tracing::info!(namespace = wanted.name, bytes = wanted.bytes, "namespace made");
        self.told_one(&wanted.name)
    }

    /// Removes a namespace. Returns its place if its space is to be given back: to
    /// [`give_back`](Self::give_back), without the lock, after which the place is to be removed
    /// from [`LiveState::freeing`].
    pub(super) fn remove(
        &self,
        inner: &mut LiveState,
        name: &str,
        how: RemoveNamespace,
    ) -> Result<Option<Namespace>, Problem> {
        let mut freed = None;
        self.0.change(inner, |inner, changes| {
            let world = &inner.world;
            let space = find(world, name)?;
            if how.discard {
                if inner.store.is_none() {
                    let message = "the server keeps no state: after a restart a namespace of its \
                                   configuration may have these blocks again, without its data; \
                                   start it with --state";
                    return Err(invalid(message.to_owned()));
                }
                self.check_lone(world, space)?;
                freed = Some(space.place);
            }
            let leads = inner.open.iter().map(|open| &open.at).find(|at| {
                at.protocol != Protocol::NvmeTcp && at.namespace == space.number
            });
            if let (Some(at), false) = (leads, how.force) {
                let message = format!(
                    "the listener {} leads clients that name no namespace to {:?}; with `--force` it \
                     goes all the same",
                    at.endpoint, space.name
                );
                return Err(Problem::new(Code::InUse, message));
            }
            check_scratch(world, space)?;
            self.set(world, changes, space);
            changes.namespaces.insert(space.number.0, None);
            for subsystem in world.config.subsystem.iter().filter(|one| one.namespaces.is_some()) {
                let mut listed = exports(world, subsystem);
                let before = listed.len();
                listed.retain(|(_, number)| *number != space.number.0);
                if listed.len() != before {
                    list(changes, subsystem, listed);
                }
            }
            Ok(Vec::new())
        })?;
        tracing::info!(namespace = name, "namespace removed");
        inner.freeing.extend(freed);
        Ok(freed)
    }

    /// Checks that the space of a namespace can be given back: no other namespace has a block of
    /// it, it is no file of a file system, and its device has space to give back.
    fn check_lone(&self, world: &ServerSnapshot, space: &ServerNamespace) -> Result<(), Problem> {
        if space.file.is_some() {
            let message =
                "it is a file of a file system, which has the space: remove the file there";
            return Err(invalid(message.to_owned()));
        }
        let place = &space.place;
        let shares = |other: &&ServerNamespace| {
            other.number != space.number
                && other.place.device == place.device
                && other.place.first < space.end()
                && place.first < other.end()
        };
        if let Some(other) = world.spaces.iter().find(shares) {
            let message = format!("namespace {:?} has blocks of it, too; they stay", other.name);
            return Err(Problem::new(Code::InUse, message));
        }
        let volume = self.0.ground.places.get(place.device).expect("a namespace is on it");
        volume.check_gives_back().map_err(invalid)
    }

    /// Gives the space of a removed namespace back, for as long as the device takes. The removal is
    /// stored, and no request of the namespace may be at the device any more.
    pub(super) fn give_back(&self, name: &str, place: &Namespace) -> Result<(), Problem> {
        let failed = |code, why: &str| {
            Problem::new(code, format!("{name} is removed, and its blocks stay as they are: {why}"))
        };
        if !self.0.settle() {
            return Err(failed(Code::TimeOut, "requests of it are still at the device"));
        }
        let volume = self.0.ground.places.get(place.device).expect("a namespace was on it");
        let given = volume.give_back(place.first, place.blocks);
        given.map_err(|why| failed(Code::Internal, &why))?;
        tracing::info!(namespace = name, blocks = place.blocks, "its space was given back");
        Ok(())
    }

    /// Returns the index of a device; without a name, of the first device.
    fn device_place(&self, world: &ServerSnapshot, name: Option<&str>) -> Result<usize, Problem> {
        let names = world.config.device_names();
        let name = name.map_or_else(|| names[0].clone(), str::to_owned);
        match self.0.ground.places.find(&name) {
            Some(disk) => Ok(disk.place),
            None => Err(Problem::unknown(Code::NoDevice, "device", &name, names)),
        }
    }

    /// Writes the settings of a namespace into the changes, with the sizes of all others on its
    /// device: a namespace without a configured size would otherwise change with the device. The
    /// size of a file does not, and its path stays the configuration's to say.
    pub(super) fn set(
        &self,
        world: &ServerSnapshot,
        changes: &mut Changes,
        space: &ServerNamespace,
    ) {
        let device = self.0.ground.places.name(space.place.device);
        let is_other =
            |other: &&ServerNamespace| other.number != space.number && other.file.is_none();
        let others = world.spaces.iter().filter(|other| other.place.device == space.place.device);
        for one in others.filter(is_other).chain([space]) {
            changes.namespaces.insert(one.number.0, Some(one.spec(&device)));
        }
    }

    /// Returns the first block of a range of this size that belongs to no namespace, and to no
    /// place of `freeing`. The range may extend beyond the end of a device that can grow.
    fn find_room(
        &self,
        (world, freeing): (&ServerSnapshot, &[Namespace]),
        device: usize,
        blocks: u64,
    ) -> Result<u64, Problem> {
        let volume = self.0.ground.places.get(device).expect("it was just found");
        let places = world.spaces.iter().map(|space| &space.place).chain(freeing);
        let mut taken: Vec<(u64, u64)> = places
            .filter(|place| place.device == device)
            .map(|place| (place.first, place.first + place.blocks))
            .collect();
        taken.sort_unstable();
        let mut from = 0;
        for (first, end) in taken {
            if first >= from && first - from >= blocks {
                return Ok(from);
            }
            from = from.max(end.next_multiple_of(START_BLOCKS));
        }
        if volume.can_grow() || volume.blocks().saturating_sub(from) >= blocks {
            return Ok(from);
        }
        let name = self.0.ground.places.name(device);
        let message = format!(
            "device {name:?} has no {blocks} blocks of {BLOCK_BYTES} bytes in a row that belong to no \
             namespace"
        );
        Err(Problem::new(Code::NoRoom, message))
    }
}

/// Checks that no namespace has this name.
///
/// # Errors
/// A namespace has this name.
pub(super) fn check_free(world: &ServerSnapshot, name: &str) -> Result<(), Problem> {
    match world.spaces.iter().any(|space| space.name == name) {
        false => Ok(()),
        true => {
            let message = format!("there is a namespace {name:?} already");
            Err(Problem::new(Code::Taken, message))
        }
    }
}

/// Returns the UUID of a text, which no namespace has, neither as its own nor in a subsystem.
///
/// # Errors
/// The text is no UUID, or a namespace has it.
fn free_uuid(world: &ServerSnapshot, text: &str) -> Result<[u8; 16], Problem> {
    let uuid = spec::Namespace::parse_uuid(text).map_err(|(_, error)| invalid(error))?;
    if !world.has_uuid(uuid) {
        return Ok(uuid);
    }
    let text = spec::Namespace::uuid_text(&uuid);
    Err(Problem::new(Code::Taken, format!("uuid {text} is that of another namespace")))
}

pub(super) fn invalid(error: String) -> Problem {
    Problem::new(Code::Invalid, error)
}

/// Returns a free number: no namespace has it, also not in the configuration, and no access rule or
/// listener names it. The number was never used, or, if many namespaces were removed, has been free
/// for the longest time. A client that meant the earlier namespace is refused (`contract::Sight`).
fn vacant(inner: &LiveState) -> Result<NamespaceId, Problem> {
    let most = spec::Namespace::NUMBER_MAX;
    let configured = inner.base.numbered_namespaces();
    let mut is_taken = vec![false; usize::from(most) + 1];
    let configured = configured.iter().filter_map(|one| one.number);
    let served = inner.world.spaces.iter().map(|space| space.number.0);
    let led = inner.open.iter().map(|open| open.at.namespace.0);
    let named = inner.base.ruled_namespaces().chain(led);
    configured.chain(served).chain(named).for_each(|number| {
        if let Some(taken) = is_taken.get_mut(usize::from(number)) {
            *taken = true;
        }
    });
    let free = (1..=most).filter(|number| !is_taken[usize::from(*number)]).map(NamespaceId);
    let removed = |number: &NamespaceId| inner.removals.last_of(*number);
    let (used, new): (Vec<_>, Vec<_>) = free.partition(|number| removed(number) > 0);
    let oldest = used.iter().copied().min_by_key(removed);
    let oldest = oldest.filter(|_| used.len() > REST || new.is_empty());
    oldest.or(new.first().copied()).ok_or_else(|| {
        Problem::new(Code::TableFull, format!("all {most} numbers of namespaces are taken"))
    })
}

/// Changes the subsystems so that a new namespace is exported by those whose NQNs are in `nqns`,
/// and by no other.
fn export(
    world: &ServerSnapshot,
    changes: &mut Changes,
    number: NamespaceId,
    nqns: &[String],
) -> Result<(), Problem> {
    for nqn in nqns {
        super::subsystems::find(world, nqn)?;
    }
    for subsystem in &world.config.subsystem {
        let is_named = subsystem.nqn.as_ref().is_some_and(|nqn| nqns.contains(nqn));
        let mut listed = exports(world, subsystem);
        match (is_named, &subsystem.namespaces) {
            (true, Some(_)) => {
                listed.push((vacant_nsid(&listed, number.0), number.0));
                list(changes, subsystem, listed);
            }
            // It has all, and this one is not for it.
            (false, None) => list(changes, subsystem, listed),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the namespaces of a subsystem, as pairs of the identifier for NVMe hosts (NSID) and the
/// server's number.
pub(super) fn exports(world: &ServerSnapshot, subsystem: &spec::Subsystem) -> Vec<(u32, u16)> {
    crate::config::exports(subsystem, &world.spaces).expect("what is served was checked")
}

/// Returns an NSID that no namespace of a subsystem has: the server's number of the namespace if
/// possible, else the lowest free one.
pub(super) fn vacant_nsid(listed: &[(u32, u16)], number: u16) -> u32 {
    let is_free = |nsid: &u32| listed.iter().all(|(taken, _)| taken != nsid);
    [u32::from(number)].into_iter().chain(1..).find(is_free).expect("there are enough")
}

/// Records in the changes that a subsystem exports these namespaces, which are pairs of NSID and
/// the server's number.
pub(super) fn list(changes: &mut Changes, subsystem: &spec::Subsystem, listed: Vec<(u32, u16)>) {
    changes.subsystems.insert(subsystem.name(), Some(subsystem.with_namespaces(listed)));
}

/// Checks that no device of the configuration names the namespace as the one that recalibration may
/// overwrite, since a start would miss it.
pub(super) fn check_scratch(
    world: &ServerSnapshot,
    space: &ServerNamespace,
) -> Result<(), Problem> {
    let is_it = |scratch: &str| find(world, scratch).is_ok_and(|one| one.number == space.number);
    no_scratch(world, &space.name, is_it)
}

/// Checks that no device names a namespace of this name as the one that recalibration may
/// overwrite.
///
/// # Errors
/// A device's `recalibrate_scratch` has this name.
pub(super) fn check_named_scratch(world: &ServerSnapshot, name: &str) -> Result<(), Problem> {
    no_scratch(world, name, |scratch| scratch == name)
}

fn no_scratch(
    world: &ServerSnapshot,
    name: &str,
    is_it: impl Fn(&str) -> bool,
) -> Result<(), Problem> {
    let names = |scratch: &Option<String>| scratch.as_deref().is_some_and(&is_it);
    let mut devices = world.config.device.iter();
    match devices.find(|device| names(&device.recalibrate_scratch)) {
        None => Ok(()),
        Some(spec::Device { name: device, .. }) => {
            let message = format!(
                "device {device:?} has {name:?} as its recalibrate_scratch: first take that out of the \
                 configuration and reload it, or `nearflash device set {device} --recalibrate-scratch none`"
            );
            Err(Problem::new(Code::InUse, message))
        }
    }
}

pub(super) fn find<'a>(
    world: &'a ServerSnapshot,
    name: &str,
) -> Result<&'a ServerNamespace, Problem> {
    let number = name.parse::<u16>().ok();
    let found = world.spaces.iter().find(|space| match number {
        Some(number) => space.number.0 == number,
        None => space.name == name,
    });
    found.ok_or_else(|| {
        let known = world.spaces.iter().map(|space| space.name.clone()).collect();
        Problem::unknown(Code::NoNamespace, "namespace", name, known)
    })
}

pub(super) fn whole_blocks(bytes: u64) -> Result<u64, Problem> {
    match (bytes / BLOCK_BYTES as u64, bytes % BLOCK_BYTES as u64) {
        (1.., 0) => Ok(bytes / BLOCK_BYTES as u64),
        _ => Err(invalid(format!("{bytes} bytes; expected a multiple of {BLOCK_BYTES}"))),
    }
}

/// The NQN of each subsystem, with the NSIDs of its namespaces by the server's namespace number.
type ByNumber = Vec<(String, HashMap<u16, u32>)>;

/// Returns the NSIDs of the namespaces that NVMe hosts see in each subsystem; nothing if no
/// listener ever spoke NVMe.
fn exported(world: &ServerSnapshot) -> ByNumber {
    let seen = world.nvme.iter().flat_map(|_| &world.config.subsystem);
    let named = seen.filter_map(|subsystem| {
        // The first, where a subsystem has a namespace twice.
        let listed = exports(world, subsystem).into_iter().rev();
        Some((subsystem.nqn.clone()?, listed.map(|(nsid, number)| (number, nsid)).collect()))
    });
    named.collect()
}

fn told(exported: &ByNumber, space: &ServerNamespace, device: String) -> admin::NamespaceStatus {
    let subsystems = exported.iter().filter_map(|(subsystem, by_number)| {
        let nsid = *by_number.get(&space.number.0)?;
        Some(admin::Exported { subsystem: subsystem.clone(), nsid })
    });
    admin::NamespaceStatus {
        number: space.number.0,
        name: space.name.clone(),
        device,
        offset: space.place.first * BLOCK_BYTES as u64,
        bytes: space.place.blocks * BLOCK_BYTES as u64,
        read_only: space.place.read_only,
        uuid: space.uuid.as_ref().map(spec::Namespace::uuid_text),
        subsystems: subsystems.collect(),
    }
}
