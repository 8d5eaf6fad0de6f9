//! `[[namespace]]`: ranges of devices, with their numbers and names.

use std::collections::HashMap;

use contract::{BLOCK_BYTES, NamespaceId};
use dataplane::DeviceFiles;
use spec::{Device, Mistake};
use worker::{Namespace, Namespaces};

use super::{Config, Mistakes};

/// The room that a device has for namespaces.
#[derive(Clone, Debug)]
pub(crate) struct DeviceCapacity {
    /// The index of the device in the server's table of devices.
    pub(crate) place: usize,
    /// The size of the device in blocks.
    pub(crate) blocks: u64,
    /// `true` if the device grows when a namespace needs that.
    pub(crate) grows: bool,
    /// The files on the device.
    pub(crate) files: DeviceFiles,
}

impl DeviceCapacity {
    /// Returns the room of the first device, which has so many blocks and does not grow. Its files
    /// are not seen yet.
    pub(crate) fn of_blocks(blocks: u64) -> DeviceCapacity {
        DeviceCapacity { place: 0, blocks, grows: false, files: DeviceFiles::Unseen }
    }
}

/// A namespace of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerNamespace {
    pub(crate) number: NamespaceId,
    pub(crate) name: String,
    pub(crate) uuid: Option<[u8; 16]>,
    /// The path of the file that the namespace is; `None` for another range of its device.
    pub(crate) file: Option<String>,
    pub(crate) place: Namespace,
}

impl ServerNamespace {
    /// Returns the device's block after the namespace's last block.
    pub(crate) fn end(&self) -> u64 {
        self.place.first + self.place.blocks
    }

    /// Returns the specification of the namespace on `device`, with every key present. A file says
    /// where it lies each time that its device is opened.
    pub(crate) fn spec(&self, device: &str) -> spec::Namespace {
        let is_file = self.file.is_some();
        let Namespace { first, blocks, read_only, .. } = self.place;
        let bytes = |blocks: u64| format!("{}B", blocks * BLOCK_BYTES as u64);
        let whole = spec::Namespace::whole(device.to_owned());
        spec::Namespace {
            name: Some(self.name.clone()),
            number: Some(self.number.0),
            offset: if first == 0 || is_file { whole.offset.clone() } else { bytes(first) },
            size: (!is_file).then(|| bytes(blocks)),
            file: self.file.clone(),
            read_only,
            uuid: self.uuid.as_ref().map(spec::Namespace::uuid_text),
            ..whole
        }
    }

    /// Returns `true` if both namespaces have a block in common.
    pub(crate) fn meets(&self, other: &ServerNamespace) -> bool {
        self.place.device == other.place.device
            && self.place.first < other.end()
            && other.place.first < self.end()
    }
}

/// Returns the table in which workers look up the namespaces of requests.
pub(crate) fn table(spaces: &[ServerNamespace]) -> Namespaces {
    spaces.iter().map(|space| (space.number, space.name.as_str().into(), space.place)).collect()
}

/// Returns the namespaces of a subsystem, as pairs: the identifier by which NVMe hosts know the
/// namespace, and the server's number of it.
///
/// # Errors
/// Fails if the subsystem lists a namespace that does not exist.
pub(crate) fn exports(
    subsystem: &spec::Subsystem,
    spaces: &[ServerNamespace],
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
    pub(crate) fn spaces(
        &self,
        rooms: &[DeviceCapacity],
    ) -> Result<Vec<ServerNamespace>, Mistakes> {
        Mistakes::collect(|mistakes| self.spaces_or(rooms, mistakes))
    }

    /// Returns the namespaces, sorted by number. Invalid settings add to `mistakes`; a namespace
    /// whose range is invalid gets a stand-in range.
    pub(crate) fn spaces_or(
        &self,
        rooms: &[DeviceCapacity],
        mistakes: &mut Mistakes,
    ) -> Vec<ServerNamespace> {
        let names = self.device_names();
        let mut spaces: Vec<ServerNamespace> = Vec::new();
        let (mut numbers, mut named) = (HashMap::new(), HashMap::new());
        let exported: Vec<bool> = names.iter().map(|name| self.exports_files_of(name)).collect();
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
            if let Err((key, error)) = check_beside_files(config, &names, rooms, &exported) {
                mistaken(key, error);
            }
            numbers.insert(number, spaces.len());
            named.entry(name.clone()).or_insert(number);
            let file = config.file.clone();
            spaces.push(ServerNamespace { number: NamespaceId(number), name, uuid, file, place });
        }
        spaces.sort_by_key(|space| space.number);
        spaces
    }

    /// Returns `true` if a namespace is a file of the device of this name.
    pub(crate) fn exports_files_of(&self, device: &str) -> bool {
        self.namespace.iter().any(|one| one.file.is_some() && one.device == device)
    }
}

/// Checks that a namespace cannot write beside the files of a device: to the metadata of its file
/// system, or to files that nobody exports. `names`, `rooms` and `exported` are the devices;
/// `exported` says which of them have files that are namespaces.
fn check_beside_files(
    config: &spec::Namespace,
    names: &[String],
    rooms: &[DeviceCapacity],
    exported: &[bool],
) -> Result<(), Mistake> {
    if config.file.is_some() || config.read_only {
        return Ok(());
    }
    let device = &config.device;
    let at = names.iter().position(|name| name == device);
    let error = if at.is_some_and(|at| exported[at]) {
        format!(
            "device {device:?} serves files, and this namespace could overwrite their file system; \
             name a `file`, or make it `read_only`"
        )
    } else if at.is_some_and(|at| rooms[at].files.are_there()) {
        format!(
            "device {device:?} has a file system, which this namespace could overwrite; name a \
             `file`, or make it `read_only`; if nobody needs the files any more, give the device's \
             `spec` the option `ftl.files=ignore`"
        )
    } else {
        return Ok(());
    };
    Err(("read_only", error))
}

/// Returns the range of blocks that a namespace takes of its device. `names` and `rooms` are the
/// devices. An error names the key that is invalid.
fn range(
    config: &spec::Namespace,
    names: &[String],
    rooms: &[DeviceCapacity],
) -> Result<Namespace, Mistake> {
    let device = names.iter().position(|name| *name == config.device).ok_or_else(|| {
        let known = names.join(", ");
        ("device", format!("there is no device {:?}; there are: {known}", config.device))
    })?;
    let read_only = config.read_only;
    if let Some(file) = &config.file {
        let DeviceCapacity { place: device, blocks: all, files, .. } = &rooms[device];
        let found = files.blocks(file).map_err(|error| ("file", format!("file {file:?}: {error}")));
        // Before the device is open, no size is known.
        let (first, blocks) = found?.unwrap_or((0, *all));
        return Ok(Namespace { device: *device, first, blocks, read_only });
    }
    let first = config.first_block()?;
    let &DeviceCapacity { place: device, blocks, grows, .. } = &rooms[device];
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
    Ok(Namespace { device, first, blocks: size, read_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u64 = 131_072;

    fn spaces(text: &str) -> Result<Vec<ServerNamespace>, Mistakes> {
        let device = "[[device]]\nname = \"d\"\nspec = \"mem:64MiB\"\n";
        Config::parse(&format!("{device}{text}"))
            .unwrap()
            .spaces(&[DeviceCapacity::of_blocks(BLOCKS)])
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
    fn beside_files_nobody_writes() {
        let file = "[[namespace]]\ndevice = \"d\"\nfile = \"/disk\"\n";
        let beside = |more: &str| spaces(&format!("{file}[[namespace]]\ndevice = \"d\"\n{more}"));
        let said = beside("").unwrap_err().to_string();
        assert!(
            said.contains("overwrite their file system") && said.contains("namespace 2"),
            "{said}"
        );
        let found = beside("read_only = true\n").unwrap();
        assert_eq!(found[0].file.as_deref(), Some("/disk"));
        let again = found[0].spec("d");
        assert_eq!((again.file.as_deref(), again.size, &*again.offset), (Some("/disk"), None, "0"));
        let why = DeviceFiles::Absent("no files are here".to_owned());
        let config = format!("[[device]]\nname = \"d\"\nspec = \"mem:64MiB\"\n{file}");
        let refused = Config::parse(&config)
            .unwrap()
            .spaces(&[DeviceCapacity { files: why, ..DeviceCapacity::of_blocks(BLOCKS) }]);
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("\"/disk\": no files are here"), "{said}");
    }

    /// The last `file` taken out of a configuration leaves a namespace of the whole device, or one
    /// that names a range, in the place of the file.
    #[test]
    fn a_file_system_is_not_served_for_writing_unless_that_is_said() {
        let said = |files: DeviceFiles, more: &str| {
            let config = format!("[[device]]\nname = \"d\"\nspec = \"ftl:file:./d\"\n{more}");
            let room = DeviceCapacity { files, ..DeviceCapacity::of_blocks(BLOCKS) };
            let found = Config::parse(&config).unwrap().spaces(&[room]);
            found.map(|spaces| spaces.len()).map_err(|mistakes| mistakes.to_string())
        };
        let range = "[[namespace]]\ndevice = \"d\"\nsize = \"1MiB\"\n";
        for more in ["", range] {
            let refused = said(DeviceFiles::Unread("not read".to_owned()), more).unwrap_err();
            assert!(refused.contains("device \"d\" has a file system"), "{refused}");
            assert!(refused.contains("ftl.files=ignore"), "{refused}");
            assert_eq!(said(DeviceFiles::Absent("none".to_owned()), more), Ok(1));
            assert_eq!(said(DeviceFiles::Unseen, more), Ok(1));
        }
        let read_only = format!("{range}read_only = true\n");
        assert_eq!(said(DeviceFiles::Unread("not read".to_owned()), &read_only), Ok(1));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let uuid = Some(*b"0123456789abcdef");
        let place = Namespace { device: 0, first: 8, blocks: 24, read_only: true };
        let (number, name) = (NamespaceId(3), "x".to_owned());
        let one = ServerNamespace { number, name, uuid, file: None, place };
        let config = one.spec("d");
        assert_eq!(
            range(&config, &["d".to_owned()], &[DeviceCapacity::of_blocks(BLOCKS)]),
            Ok(one.place)
        );
        assert_eq!(config.uuid_bytes(), Ok(one.uuid));
    }
}
