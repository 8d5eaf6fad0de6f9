//! Devices that are enlarged for a change, without side effects on others.
//!
//! A namespace without a size has the rest of its device, and a device that is a file is as large
//! as the file. So before a file grows, the sizes of such namespaces are fixed at their present
//! values, except in a reload, which states them or is refused. If the change fails, the file is
//! cut back.

use std::sync::Arc;

use control::admin::{Code, Problem};
use dataplane::{DeviceTable, Volume};

use super::world::ServerSnapshot;
use super::{Changes, LiveState};
use crate::config::{Config, ServerNamespace};

/// The blocks of a device that a change needs: an unused range that reads as zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequiredBlocks {
    pub(super) device: usize,
    pub(super) first: u64,
    pub(super) blocks: u64,
}

/// The namespace sizes and stored changes to restore if a change fails after it has enlarged
/// devices.
#[derive(Default)]
pub(super) struct GrowthRollback {
    /// The enlarged devices, with their former sizes in blocks.
    devices: Vec<(Arc<Volume>, u64)>,
    /// The previously stored changes, if sizes were fixed since.
    before: Option<Changes>,
}

/// Stores the present sizes of namespaces that extend to the end of a device which a change
/// enlarges, so that they do not grow with it.
///
/// # Errors
/// The sizes cannot be stored; then no device may grow.
pub(super) fn write_sizes_down(
    places: &DeviceTable,
    inner: &mut LiveState,
    needs: &[RequiredBlocks],
) -> Result<GrowthRollback, Problem> {
    let (mut growth, mut changes) = (GrowthRollback::default(), inner.changes.clone());
    let config = inner.changes.made_to(&inner.base);
    for need in needs {
        let volume = places.get(need.device).expect("it was just found");
        let blocks = volume.blocks();
        if need.first + need.blocks <= blocks {
            continue;
        }
        growth.devices.push((volume, blocks));
        let device = places.name(need.device);
        for space in with_the_rest(&config, &inner.world.spaces, need.device) {
            let said = space.spec(&device);
            changes.namespaces.insert(space.number.0, Some(said));
        }
    }
    if changes != inner.changes {
        let before = inner.changes.clone();
        inner.keep(changes)?;
        growth.before = Some(before);
    }
    Ok(growth)
}

/// Fails if a configuration enlarges a device on which a namespace without a configured size
/// extends to the end.
pub(super) fn check_rests(places: &DeviceTable, world: &ServerSnapshot) -> Result<(), Problem> {
    for space in &world.spaces {
        let device = space.place.device;
        let volume = places.get(device).expect("it was just found");
        if space.end() <= volume.blocks() {
            continue;
        }
        if let Some(other) = with_the_rest(&world.config, &world.spaces, device).next() {
            let message = format!(
                "device {:?} has to be larger for namespace {:?}, and namespace {:?} has the rest of \
                     it: write that one's size down",
                places.name(device),
                space.name,
                other.name
            );
            return Err(Problem::new(Code::Invalid, message));
        }
    }
    Ok(())
}

/// Returns the namespaces without a configured size, which extend to the end of their device.
fn with_the_rest<'a>(
    config: &'a Config,
    spaces: &'a [ServerNamespace],
    device: usize,
) -> impl Iterator<Item = &'a ServerNamespace> {
    let said =
        move |number: u16| config.namespace.iter().find(move |one| one.number == Some(number));
    let is_rest = |one: &spec::Namespace| one.size.is_none() && one.file.is_none();
    let has_rest = move |space: &&ServerNamespace| said(space.number.0).is_some_and(is_rest);
    spaces.iter().filter(move |space| space.place.device == device).filter(has_rest)
}

impl GrowthRollback {
    /// Enlarges a device that has fewer blocks than needed.
    ///
    /// # Errors
    /// The device cannot grow. Devices that have grown before are to be [taken
    /// back](GrowthRollback::take_back).
    pub(super) fn grow(&mut self, volume: Arc<Volume>, blocks: u64) -> Result<(), String> {
        let before = volume.blocks();
        volume.grow(blocks)?;
        if volume.blocks() > before {
            self.devices.push((volume, before));
        }
        Ok(())
    }

    /// Shrinks the devices to their former sizes, because the change failed.
    pub(super) fn take_back(self, inner: &mut LiveState) {
        if self.devices.is_empty() {
            return;
        }
        if let Err(why) = self.try_take_back(inner) {
            tracing::warn!(why, "a device stays larger than it has to be");
        }
    }

    fn try_take_back(self, inner: &mut LiveState) -> Result<(), String> {
        if inner.is_in_doubt() {
            // A restart may find the change that failed, and would need the room.
            let kept = inner.changes.clone();
            inner.keep(kept).map_err(|problem| problem.message)?;
        }
        for (volume, blocks) in self.devices.into_iter().rev() {
            volume.cut(blocks)?;
        }
        // What has the rest is as large as it was by now.
        self.before.map_or(Ok(()), |before| inner.keep(before)).map_err(|problem| problem.message)
    }
}
