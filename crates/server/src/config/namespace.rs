//! `[[namespace]]`: ranges of devices, with their numbers and names.

use std::collections::HashMap;

use contract::{BLOCK_BYTES, NamespaceId};
use spec::{Device, Mistake};
use worker::{Namespace, Namespaces};

use super::{Config, Mistakes};

/// The room that a device has for namespaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The index of the device in the server's table of devices.
    pub(crate) place: usize,
    /// The size of the device in blocks.
    pub(crate) blocks: u64,
    /// `true` if the device grows when a namespace needs that.
    pub(crate) grows: bool,
}

/// A namespace of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) number: NamespaceId,
    pub(crate) name: String,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) place: Namespace,
}

impl Space {
    /// Returns the device's block after the namespace's last block.
    pub(crate) fn end(&self) -> u64 {
        self.place.first + self.place.blocks
    }

    /// Returns the specification of the namespace on `device`, with every key present.
    pub(crate) fn spec(&self, device: &str) -> spec::Namespace {
        let Namespace { first, blocks, read_only, .. } = self.place;
        let bytes = |blocks: u64| format!("{}B", blocks * BLOCK_BYTES as u64);
        let whole = spec::Namespace::whole(device.to_owned());
        spec::Namespace {
            name: Some(self.name.clone()),
            number: Some(self.number.0),
            offset: if first == 0 { whole.offset.clone() } else { bytes(first) },
            size: Some(bytes(blocks)),
            read_only,
            uuid: self.uuid.as_ref().map(spec::Namespace::uuid_text),
            ..whole
        }
    }

    /// Returns `true` if both namespaces have a block in common.
    pub(crate) fn meets(&self, other: &Space) -> bool {
        self.place.device == other.place.device
            && self.place.first < other.end()
            && other.place.first < self.end()
    }
}

/// Returns the table in which workers look up the namespaces of requests.
pub(crate) fn table(spaces: &[Space]) -> Namespaces {
    spaces.iter().map(|space| (space.number, space.name.as_str().into(), space.place)).collect()
}

/// Returns the namespaces of a subsystem, as pairs: the identifier by which NVMe hosts know the
/// namespace, and the server's number of it.
///
/// # Errors
/// Fails if the subsystem lists a namespace that does not exist.
pub(crate) fn exports(
    subsystem: &spec::Subsystem,
    spaces: &[Space],
) -> Result<Vec<(u32, u16)>, String> {
    let named = spaces.iter().map(|space| (space.number.0, space.name.as_str()));
    subsystem.exports(&named.collect::<Vec<_>>())
}

impl Config {
    /// Returns the devices' names, in their order.
    pub(crate) fn device_names(&self) -> Vec<String> {
        match self.device.is_empty() {
            true => vec![Device::from_argument((0, &String::new())).name],
            false => self.device.iter().map(|device| device.name.clone()).collect(),
        }
    }

    /// Returns the namespaces with their numbers and names, or one for each device if none is
    /// configured.
    pub(crate) fn numbered_namespaces(&self) -> Vec<spec::Namespace> {
        let mut all = match self.namespace.is_empty() && !self.is_settled {
            true => self.device_names().into_iter().map(spec::Namespace::whole).collect(),
            false => self.namespace.clone(),
        };
        for (config, position) in all.iter_mut().zip(1..) {
            let number = *config.number.get_or_insert(position);
            config.name.get_or_insert_with(|| format!("ns{number}"));
        }
        all
    }

    /// Returns the namespaces, sorted by number. `rooms` has an entry for each device, in the order
    /// of the configuration.
    ///
    /// # Errors
    /// Fails with all mistakes of the namespaces.
    pub(crate) fn spaces(&self, rooms: &[Room]) -> Result<Vec<Space>, Mistakes> {
        Mistakes::collect(|mistakes| self.spaces_or(rooms, mistakes))
    }

    /// Returns the namespaces, sorted by number. Invalid settings add to `mistakes`; a namespace whose
    /// range is invalid gets a stand-in range.
    pub(crate) fn spaces_or(&self, rooms: &[Room], mistakes: &mut Mistakes) -> Vec<Space> {
        let names = self.device_names();
        let mut spaces: Vec<Space> = Vec::new();
        let (mut numbers, mut named) = (HashMap::new(), HashMap::new());
        for (config, position) in self.numbered_namespaces().iter().zip(1..) {
            let mut mistaken = |key, error: String| {
                mistakes.add(
                    config.nth.key("namespace", key),
                    format!("namespace {position}: {error}"),
                );
            };
            let number = config.number.expect("it was numbered");
            let name = config.name.clone().expect("it was named");
            let found = config.validate();
            let is_numbered = found.iter().all(|(key, _)| *key != "number");
            found.into_iter().for_each(|(key, error)| mistaken(key, error));
            if !is_numbered {
                continue;
            }
            let one_of_both = "expected one that no other namespace has";
            if let Some(other) = numbers.get(&number).map(|n: &usize| &spaces[*n].name) {
                mistaken("number", format!("number {number} is that of {other:?}; {one_of_both}"));
                continue;
            }
            if let Some(other) = named.get(&name) {
                mistaken("name", format!("name {name:?} is that of number {other}; {one_of_both}"));
            }
            let uuid = config.uuid_bytes().unwrap_or_default();
            let place = range(config, &names, rooms).unwrap_or_else(|(key, error)| {
                mistaken(key, error);
                Namespace { device: 0, first: 0, blocks: 8, read_only: config.read_only }
            });
            numbers.insert(number, spaces.len());
            named.entry(name.clone()).or_insert(number);
            spaces.push(Space { number: NamespaceId(number), name, uuid, place });
        }
        spaces.sort_by_key(|space| space.number);
        spaces
    }
}

/// Returns the range of blocks that a namespace takes of its device. `names` and `rooms` are the
/// devices. An error names the key that is invalid.
fn range(config: &spec::Namespace, names: &[String], rooms: &[Room]) -> Result<Namespace, Mistake> {
    let device = names.iter().position(|name| *name == config.device).ok_or_else(|| {
        let known = names.join(", ");
        ("device", format!("there is no device {:?}; there are: {known}", config.device))
    })?;
    let first = config.first_block()?;
    let Room { place: device, blocks, grows } = rooms[device];
    let rest = blocks.saturating_sub(first);
    let size = config.blocks()?.unwrap_or(rest);
    if size == 0 || size > rest && !grows {
        let key = if config.size.is_some() { "size" } else { "offset" };
        let error = format!(
            "its {size} blocks of {BLOCK_BYTES} bytes from block {first} do not fit device {:?}, \
             which has {blocks}",
            config.device
        );
        return Err((key, error));
    }
    Ok(Namespace { device, first, blocks: size, read_only: config.read_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { place: 0, blocks: 131_072, grows: false };

    fn spaces(text: &str) -> Result<Vec<Space>, Mistakes> {
        let device = "[[device]]\nname = \"d\"\nspec = \"mem:64MiB\"\n";
        Config::parse(&format!("{device}{text}")).unwrap().spaces(&[ROOM])
    }

    #[test]
    fn numbers_and_names_are_given_or_made() {
        let found = spaces(
            "[[namespace]]\nnumber = 7\nname = \"logs\"\ndevice = \"d\"\nsize = \"1MiB\"\n\
             [[namespace]]\ndevice = \"d\"\noffset = \"1MiB\"\n",
        )
        .unwrap();
        let names: Vec<_> = found.iter().map(|s| (s.number.0, s.name.as_str())).collect();
        assert_eq!(names, [(2, "ns2"), (7, "logs")]);
        assert_eq!((found[0].place.first, found[0].place.blocks), (2048, 129_024));
        assert_eq!(spaces("").unwrap()[0].place.blocks, 131_072);
    }

    #[test]
    fn two_of_a_number_or_name_are_refused() {
        let two = |more: &str| {
            let first = "[[namespace]]\nname = \"a\"\ndevice = \"d\"\nsize = \"1MiB\"\n";
            let text = format!("{first}[[namespace]]\ndevice = \"d\"\n{more}\n");
            spaces(&text).unwrap_err().to_string()
        };
        assert!(two("number = 1").contains("namespace 2"), "{}", two("number = 1"));
        assert!(two("name = \"a\"").contains("name \"a\""));
        assert!(two("name = \"12\"").contains("digits alone"));
        assert!(two("number = 0").contains("1 to 65000"));
        assert!(two("size = \"1GiB\"").contains("do not fit"));
        assert!(two("uuid = \"12\"").contains("32 hexadecimal"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let uuid = Some(*b"0123456789abcdef");
        let place = Namespace { device: 0, first: 8, blocks: 24, read_only: true };
        let one = Space { number: NamespaceId(3), name: "x".to_owned(), uuid, place };
        let config = one.spec("d");
        assert_eq!(range(&config, &["d".to_owned()], &[ROOM]), Ok(one.place));
        assert_eq!(config.uuid_bytes(), Ok(one.uuid));
    }
}
