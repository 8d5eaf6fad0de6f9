//! The devices of a server by place: the index by which workers, schedulers and counters know a
//! device.
//!
//! Devices come and go while the server runs. A place is reused for another device when all workers
//! have closed the earlier one, so that the two are never confused. Workers have queues of their
//! own and do not use this table.

use std::sync::{Arc, RwLock, RwLockReadGuard};

use contract::Geometry;
use flash::Null;

use crate::volumes::Volume;

/// The devices of a server, by the index by which workers, schedulers and counters know a device.
#[derive(Debug, Default)]
pub struct DeviceTable(RwLock<Vec<DeviceRow>>);

#[derive(Debug)]
struct DeviceRow {
    name: String,
    /// The open device; `None` after its removal.
    volume: Option<Arc<Volume>>,
    /// `true` if no worker has the removed device open any more.
    is_vacant: bool,
}

/// An open device, with its index.
#[derive(Clone, Debug)]
pub struct OpenDevice {
    /// The index of the device.
    pub place: usize,
    /// The name of the device in the configuration.
    pub name: String,
    /// The open device, shared with all workers.
    pub volume: Arc<Volume>,
}

impl DeviceTable {
    /// Maximum number of devices that a server has at one time.
    pub const MAX: usize = io::Owner::DEVICES_MAX;

    /// Returns a table of these devices with their names. The index of a device is its position in
    /// `named`.
    pub fn of(named: Vec<(String, Volume)>) -> DeviceTable {
        let place = |(name, volume): (String, Volume)| DeviceRow::of(&name, Arc::new(volume));
        DeviceTable(RwLock::new(named.into_iter().map(place).collect()))
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<DeviceRow>> {
        self.0.read().expect("no holder of this lock panics")
    }

    /// Returns the index for a further device: a new index, or a vacated one once all indices were
    /// used; `None` if every index has a device.
    pub fn vacant(&self) -> Option<usize> {
        let all = self.read();
        match all.len() {
            count if count < DeviceTable::MAX => Some(count),
            _ => all.iter().position(|place| place.is_vacant),
        }
    }

    /// Returns the device at an index; `None` if it was removed or never existed.
    pub fn get(&self, place: usize) -> Option<Arc<Volume>> {
        self.read().get(place)?.volume.clone()
    }

    /// Returns the name of the device with this index, or the name of the last device that had the
    /// index if that device was removed.
    pub fn name(&self, place: usize) -> String {
        self.read()[place].name.clone()
    }

    /// Returns the device of this name; `None` if there is none.
    pub fn find(&self, name: &str) -> Option<OpenDevice> {
        self.all().into_iter().find(|disk| disk.name == name)
    }

    /// Returns the present devices, in the order of their indices.
    pub fn all(&self) -> Vec<OpenDevice> {
        let there = |(place, at): (usize, &DeviceRow)| {
            Some(OpenDevice { place, name: at.name.clone(), volume: at.volume.clone()? })
        };
        self.read().iter().enumerate().filter_map(there).collect()
    }

    /// Returns the geometries of all devices, by index. A removed device has no blocks.
    pub fn geometries(&self) -> Vec<Geometry> {
        let geometry = |place: &DeviceRow| match &place.volume {
            Some(volume) => volume.geometry(),
            None => contract::Device::geometry(&Null::new(0)),
        };
        self.read().iter().map(geometry).collect()
    }

    /// Adds a device at a [vacant](DeviceTable::vacant) index.
    pub fn put(&self, place: usize, name: &str, volume: Arc<Volume>) {
        let mut all = self.0.write().expect("no holder of this lock panics");
        let added = DeviceRow::of(name, volume);
        match all.get_mut(place) {
            Some(before) => {
                assert!(before.is_vacant, "who adds one has looked");
                *before = added;
            }
            None => all.push(added),
        }
    }

    /// Removes the device at an index. The device is closed when its last queue is. `is_left` means
    /// that no worker has it open, so that the index can be reused.
    pub fn remove(&self, place: usize, is_left: bool) {
        let mut all = self.0.write().expect("no holder of this lock panics");
        (all[place].volume, all[place].is_vacant) = (None, is_left);
    }
}

impl DeviceRow {
    fn of(name: &str, volume: Arc<Volume>) -> DeviceRow {
        DeviceRow { name: name.to_owned(), volume: Some(volume), is_vacant: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: &str) -> Volume {
        Volume::open(&spec.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_place_is_given_again_when_no_worker_has_its_device() {
        let named = |name: &str| (name.to_owned(), volume("null:1MiB"));
        let places = DeviceTable::of(vec![named("a"), named("b")]);
        places.remove(0, true);
        assert!(places.find("a").is_none() && places.get(0).is_none());
        assert_eq!((places.vacant(), places.name(0).as_str()), (Some(2), "a"));
        places.put(2, "a", Arc::new(volume("null:2MiB")));
        let found = places.find("a").unwrap();
        assert_eq!((found.place, found.volume.blocks()), (2, 4096));
        let there: Vec<usize> = places.all().iter().map(|disk| disk.place).collect();
        assert_eq!(there, [1, 2]);
        let blocks: Vec<u64> = places.geometries().iter().map(|one| one.blocks).collect();
        assert_eq!(blocks, [0, 2048, 4096]);
        for place in 3..DeviceTable::MAX {
            assert_eq!(places.vacant(), Some(place));
            places.put(place, &format!("d{place}"), Arc::new(volume("null:1MiB")));
        }
        assert_eq!(places.vacant(), Some(0));
        places.put(0, "again", Arc::new(volume("null:1MiB")));
        assert_eq!((places.vacant(), places.find("again").unwrap().place), (None, 0));
        places.remove(7, false);
        assert_eq!(places.vacant(), None, "a worker has it still");
    }
}
