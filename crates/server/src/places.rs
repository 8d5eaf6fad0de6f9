//! The devices of a server by their places: what workers, schedulers and counters know them by.
//!
//! Devices come and go while the server runs. A place is given to one device as long as the process
//! lives, so that nothing of another is taken for its; what is gone leaves its place empty. Workers have
//! queues of their own and do not look here.

use std::sync::{Arc, RwLock, RwLockReadGuard};

use contract::Geometry;
use flash::Null;

use crate::volumes::Volume;

/// The devices of a server by place. A place stays after its device was removed.
#[derive(Debug, Default)]
pub(crate) struct Places(RwLock<Vec<Place>>);

#[derive(Debug)]
struct Place {
    name: String,
    /// `None`: it is gone.
    volume: Option<Arc<Volume>>,
}

/// A device that is there.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) place: usize,
    pub(crate) name: String,
    pub(crate) volume: Arc<Volume>,
}

impl Places {
    /// The largest number of places in a process.
    pub(crate) const MAX: usize = io::Owner::DEVICES_MAX;

    /// Returns the table of these devices, by name.
    pub(crate) fn of(named: Vec<(String, Volume)>) -> Places {
        let place = |(name, volume)| Place { name, volume: Some(Arc::new(volume)) };
        Places(RwLock::new(named.into_iter().map(place).collect()))
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Place>> {
        self.0.read().expect("no holder of this lock panics")
    }

    /// Places that are taken, or were.
    pub(crate) fn count(&self) -> usize {
        self.read().len()
    }

    /// Returns the device in a place.
    pub(crate) fn get(&self, place: usize) -> Option<Arc<Volume>> {
        self.read().get(place)?.volume.clone()
    }

    /// Returns the name of the device in a place, or of the last one.
    pub(crate) fn name(&self, place: usize) -> String {
        self.read()[place].name.clone()
    }

    /// Returns the device of a name.
    pub(crate) fn find(&self, name: &str) -> Option<Disk> {
        self.all().into_iter().find(|disk| disk.name == name)
    }

    /// Returns the present devices, in the order of their places.
    pub(crate) fn all(&self) -> Vec<Disk> {
        let there = |(place, at): (usize, &Place)| {
            Some(Disk { place, name: at.name.clone(), volume: at.volume.clone()? })
        };
        self.read().iter().enumerate().filter_map(there).collect()
    }

    /// Returns the geometries of all devices, by place.
    pub(crate) fn geometries(&self) -> Vec<Geometry> {
        let geometry = |place: &Place| match &place.volume {
            Some(volume) => volume.geometry(),
            None => contract::Device::geometry(&Null::new(0)),
        };
        self.read().iter().map(geometry).collect()
    }

    /// Adds a device and returns its place.
    pub(crate) fn push(&self, name: &str, volume: Arc<Volume>) -> usize {
        let mut all = self.0.write().expect("no holder of this lock panics");
        assert!(all.len() < Places::MAX, "who adds one has looked");
        all.push(Place { name: name.to_owned(), volume: Some(volume) });
        all.len() - 1
    }

    /// Removes the device in a place, which is closed with its last queue.
    pub(crate) fn remove(&self, place: usize) {
        self.0.write().expect("no holder of this lock panics")[place].volume = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: &str) -> Volume {
        Volume::open(&spec.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_place_is_given_once() {
        let named = |name: &str| (name.to_owned(), volume("null:1MiB"));
        let places = Places::of(vec![named("a"), named("b")]);
        places.remove(0);
        assert!(places.find("a").is_none() && places.get(0).is_none());
        assert_eq!((places.count(), places.name(0).as_str()), (2, "a"));
        assert_eq!(places.push("a", Arc::new(volume("null:2MiB"))), 2);
        let found = places.find("a").unwrap();
        assert_eq!((found.place, found.volume.blocks()), (2, 4096));
        let there: Vec<usize> = places.all().iter().map(|disk| disk.place).collect();
        assert_eq!(there, [1, 2]);
        let blocks: Vec<u64> = places.geometries().iter().map(|one| one.blocks).collect();
        assert_eq!(blocks, [0, 2048, 4096]);
    }
}
