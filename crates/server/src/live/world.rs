//! The state of a server at one moment, derived from its configuration, and the difference of two
//! states.

use std::sync::Arc;

use contract::{Geometry, NamespaceId};
use dataplane::OpenDevice;
use proto::nvme::{self, Fabric};
use spec::diff;
use worker::Namespace;

use super::fixed_parts::FixedParts;
use super::open::OpenListener;
use crate::config::{Config, DeviceCapacity, ServerNamespace};
use crate::fabric;

/// The state of a server at one moment.
#[derive(Debug)]
pub(super) struct ServerSnapshot {
    /// The configuration. Its tenants may be out of date; the registry has the current ones.
    pub(super) config: Config,
    /// The namespaces, sorted by number.
    pub(super) spaces: Vec<ServerNamespace>,
    /// The configuration of the NVMe fabric, if a listener ever spoke NVMe.
    pub(super) nvme: Option<nvme::Config>,
}

/// A change of a namespace to tell workers: its number, its new state or `None` if it is removed,
/// and its name.
pub(super) type NamespaceChange = (NamespaceId, Option<Namespace>, Arc<str>);

impl ServerSnapshot {
    /// Derives the state from a configuration. With `grow`, namespaces may extend beyond the end of
    /// devices that can grow.
    ///
    /// # Errors
    /// The mistakes of the configuration.
    pub(super) fn of(
        config: Config,
        ground: &FixedParts,
        open: &[OpenListener],
        grow: bool,
    ) -> Result<ServerSnapshot, String> {
        let room = |name: &String| {
            let OpenDevice { place, volume, .. } =
                ground.places.find(name).ok_or_else(|| format!("there is no device {name:?}"))?;
            let (blocks, grows) = (volume.blocks(), grow && volume.can_grow());
            Ok(DeviceCapacity { place, blocks, grows, files: volume.files_on_it().clone() })
        };
        let names = config.device_names();
        let rooms = names.iter().map(room).collect::<Result<Vec<DeviceCapacity>, String>>()?;
        let mut world = ServerSnapshot { spaces: config.spaces(&rooms)?, config, nvme: None };
        let find = |name: &str| ground.tenants.find(name);
        world.nvme = world.plan(ground, open, &ground.places.geometries()).config(find)?;
        Ok(world)
    }

    /// Returns the subsystem or host that refers to a tenant, in words; `None` if there is none.
    pub(super) fn namer_of(&self, tenant: &str) -> Option<String> {
        let named = |name: &Option<String>| name.as_deref() == Some(tenant);
        let subsystem = self.config.subsystem.iter().find(|one| named(&one.tenant));
        let host = self.config.host.iter().find(|one| named(&one.tenant));
        subsystem
            .map(|one| format!("subsystem {}", one.nqn.as_deref().unwrap_or_default()))
            .or_else(|| host.map(|one| format!("host {}", one.nqn)))
    }

    /// Returns the UUID of a subsystem's namespace; `None` if there is no such namespace.
    pub(super) fn uuid_of(&self, subsystem: &str, nsid: u32) -> Option<[u8; 16]> {
        let mut subsystems = self.nvme.as_ref()?.subsystems.iter();
        let subsystem = subsystems.find(|one| one.nqn.as_str() == subsystem)?;
        let namespace = subsystem.namespaces.iter().find(|one| one.nsid == nsid)?;
        Some(namespace.identifiers.uuid)
    }

    /// Returns `true` if a namespace has this UUID, as its own or as one that follows from a
    /// subsystem.
    pub(super) fn has_uuid(&self, uuid: [u8; 16]) -> bool {
        let subsystems = self.nvme.iter().flat_map(|nvme| &nvme.subsystems);
        let mut derived = subsystems.flat_map(|one| &one.namespaces);
        self.spaces.iter().any(|space| space.uuid == Some(uuid))
            || derived.any(|one| one.identifiers.uuid == uuid)
    }

    /// Creates the NVMe fabric of this state, which must have an NVMe listener.
    pub(super) fn fabric(&self, ground: &FixedParts) -> Result<Arc<Fabric>, String> {
        let nvme = self.nvme.as_ref().expect("a listener speaks it");
        let fabric = Fabric::new(nvme, ground.clock.now(), Box::new(ground.wakers.clone()));
        fabric.map_err(|error| error.to_string())
    }

    fn plan<'a>(
        &'a self,
        ground: &'a FixedParts,
        open: &'a [OpenListener],
        geometries: &'a [Geometry],
    ) -> fabric::FabricInputs<'a> {
        fabric::FabricInputs {
            config: &self.config,
            listeners: open.iter().map(OpenListener::entrance).collect(),
            is_made: ground.fabric.get().is_some(),
            spaces: &self.spaces,
            geometries,
            workers: ground.workers,
        }
    }
}

/// Returns the changes of namespaces to tell workers, in two lists: first additions (new, larger,
/// renamed or newly writable ones), then removals (removed, smaller or newly read-only ones). A
/// namespace with both is in both lists.
pub(super) fn moves(
    before: &[ServerNamespace],
    after: &[ServerNamespace],
) -> (Vec<NamespaceChange>, Vec<NamespaceChange>) {
    fn of(list: &[ServerNamespace], number: NamespaceId) -> Option<&ServerNamespace> {
        let found = list.binary_search_by_key(&number, |space| space.number);
        found.ok().map(|at| &list[at])
    }
    let (mut more, mut less) = (Vec::new(), Vec::new());
    for number in diff(before, after, |space| space.number).into_keys() {
        let (was, is) = (of(before, number), of(after, number));
        let name: Arc<str> = is.or(was).map_or("", |space| space.name.as_str()).into();
        let is_renamed = was.map(|space| &space.name) != is.map(|space| &space.name);
        match (was.map(|space| space.place), is.map(|space| space.place)) {
            (Some(was), Some(is)) if was == is && is_renamed => more.push((number, Some(is), name)),
            (was, is) if was == is => {}
            (Some(was), Some(is)) if (was.device, was.first) == (is.device, is.first) => {
                let most = Namespace {
                    blocks: was.blocks.max(is.blocks),
                    read_only: was.read_only && is.read_only,
                    ..is
                };
                let is_told = most != was || is_renamed;
                more.extend(is_told.then(|| (number, Some(most), Arc::clone(&name))));
                less.extend((most != is).then_some((number, Some(is), name)));
            }
            (_, None) => less.push((number, None, name)),
            (_, is) => more.push((number, is, name)),
        }
    }
    (more, less)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(number: u16, first: u64, blocks: u64) -> ServerNamespace {
        let place = Namespace { device: 0, first, blocks, read_only: false };
        let name = format!("ns{number}");
        ServerNamespace { number: NamespaceId(number), name, uuid: None, file: None, place }
    }

    #[test]
    fn who_is_told_first_depends_on_which_way_it_goes() {
        let before = [space(1, 0, 10), space(2, 10, 10), space(3, 20, 10), space(4, 30, 1)];
        let after = [space(1, 0, 10), space(2, 10, 5), space(3, 20, 20), space(5, 40, 1)];
        let numbers =
            |moves: Vec<NamespaceChange>| moves.iter().map(|(n, ..)| n.0).collect::<Vec<_>>();
        let (more, less) = moves(&before, &after);
        assert_eq!((numbers(more), numbers(less)), (vec![3, 5], vec![2, 4]));
    }

    #[test]
    fn who_may_not_write_is_told_last_and_who_may_first() {
        let one = |blocks, read_only| {
            let plain = space(1, 0, blocks);
            [ServerNamespace { place: Namespace { read_only, ..plain.place }, ..plain }]
        };
        let told = |before: [ServerNamespace; 1], after: [ServerNamespace; 1]| {
            let (more, less) = moves(&before, &after);
            let said = |all: Vec<NamespaceChange>| {
                let each = all.into_iter().map(|(_, is, _)| is.map(|is| (is.blocks, is.read_only)));
                each.map(Option::unwrap).collect::<Vec<_>>()
            };
            (said(more), said(less))
        };
        assert_eq!(told(one(10, false), one(10, true)), (vec![], vec![(10, true)]));
        assert_eq!(told(one(10, true), one(10, false)), (vec![(10, false)], vec![]));
        let both = (vec![(20, false)], vec![(20, true)]);
        assert_eq!(told(one(10, false), one(20, true)), both, "it grows, and is closed");
        let both = (vec![(20, false)], vec![(10, false)]);
        assert_eq!(told(one(20, true), one(10, false)), both, "it shrinks, and is opened");
        assert_eq!(told(one(20, true), one(10, true)), (vec![], vec![(10, true)]));
    }
}
