//! `[[namespace]]`: ranges of devices, with their numbers and names.

use contract::{BLOCK_BYTES, NamespaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use worker::{Namespace, Namespaces};

use super::{Config, DeviceConfig, Mistakes, Nth, size_in_blocks};

/// The most bytes of a name.
const NAME_BYTES_MAX: usize = 64;

/// A namespace: a range of a device's blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceConfig {
    /// Name of the namespace. By default `ns` and its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Number of the namespace. By default its position among the namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u16>,
    /// Name of the device that has the namespace.
    pub(crate) device: String,
    /// Offset of the namespace from the start of the device, as a size.
    #[serde(default = "nothing")]
    pub(crate) offset: String,
    /// Size of the namespace. By default the rest of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<String>,
    /// Refuses all writes to the namespace.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// UUID by which NVMe hosts recognise the namespace.
    /// By default derived from the machine's identifier and the namespace's numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uuid: Option<String>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

fn nothing() -> String {
    "0".to_owned()
}

/// The room for namespaces on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The place of the device in the server's table of devices.
    pub(crate) place: usize,
    /// The number of blocks of the device.
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

    /// Returns `true` if both namespaces have a block in common.
    pub(crate) fn meets(&self, other: &Space) -> bool {
        self.place.device == other.place.device
            && self.place.first < other.end()
            && other.place.first < self.end()
    }
}

/// Returns the table in which workers look up the namespaces of requests.
pub(crate) fn table(spaces: &[Space]) -> Namespaces {
    spaces.iter().map(|space| (space.number, space.place)).collect()
}

impl NamespaceConfig {
    /// Returns the configuration of a namespace, with every key present.
    pub(crate) fn of(space: &Space, device: &str) -> NamespaceConfig {
        let Namespace { first, blocks, read_only, .. } = space.place;
        let bytes = |blocks: u64| format!("{}B", blocks * BLOCK_BYTES as u64);
        NamespaceConfig {
            name: Some(space.name.clone()),
            number: Some(space.number.0),
            device: device.to_owned(),
            offset: if first == 0 { nothing() } else { bytes(first) },
            size: Some(bytes(blocks)),
            read_only,
            uuid: space.uuid.map(|uuid| uuid_text(&uuid)),
            nth: Nth::default(),
        }
    }
}

impl Config {
    /// Returns the devices' names, in their order.
    pub(crate) fn device_names(&self) -> Vec<String> {
        match self.device.is_empty() {
            true => vec![DeviceConfig::from_argument((0, &String::new())).name],
            false => self.device.iter().map(|device| device.name.clone()).collect(),
        }
    }

    /// Returns the namespaces with their numbers and names, or one for each device if none is
    /// configured.
    pub(crate) fn numbered_namespaces(&self) -> Vec<NamespaceConfig> {
        let whole = |device: String| NamespaceConfig {
            name: None,
            number: None,
            device,
            offset: nothing(),
            size: None,
            read_only: false,
            uuid: None,
            nth: Nth::default(),
        };
        let mut all = match self.namespace.is_empty() && !self.is_settled {
            true => self.device_names().into_iter().map(whole).collect(),
            false => self.namespace.clone(),
        };
        for (config, position) in all.iter_mut().zip(1..) {
            let number = *config.number.get_or_insert(position);
            config.name.get_or_insert_with(|| format!("ns{number}"));
        }
        all
    }

    /// Returns the namespaces, sorted by number. `rooms` are the devices, in their order.
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
        for (config, position) in self.numbered_namespaces().iter().zip(1..) {
            let mut mistaken = |key, error: String| {
                mistakes.add(
                    config.nth.key("namespace", key),
                    format!("namespace {position}: {error}"),
                );
            };
            let number = config.number.expect("it was numbered");
            let name = config.name.clone().expect("it was named");
            if !(1..=Namespaces::NUMBER_MAX).contains(&number) {
                let most = Namespaces::NUMBER_MAX;
                mistaken("number", format!("number {number}; expected a number from 1 to {most}"));
                continue;
            }
            if let Err(error) = check_name(&name) {
                mistaken("name", error);
            }
            let one_of_both = "expected one that no other namespace has";
            if let Some(other) = spaces.iter().find(|other| other.number.0 == number) {
                let other = &other.name;
                mistaken("number", format!("number {number} is that of {other:?}; {one_of_both}"));
                continue;
            }
            if let Some(other) = spaces.iter().find(|other| other.name == name) {
                let other = other.number.0;
                mistaken("name", format!("name {name:?} is that of number {other}; {one_of_both}"));
            }
            let uuid = config.uuid.as_deref().map(parse_uuid).transpose();
            let uuid = uuid.unwrap_or_else(|error| {
                mistaken("uuid", error);
                None
            });
            let place = range(config, &names, rooms).unwrap_or_else(|(key, error)| {
                mistaken(key, error);
                Namespace { device: 0, first: 0, blocks: 8, read_only: config.read_only }
            });
            spaces.push(Space { number: NamespaceId(number), name, uuid, place });
        }
        spaces.sort_by_key(|space| space.number);
        spaces
    }
}

/// Returns the range of a namespace. An error names the key that is invalid.
fn range(
    config: &NamespaceConfig,
    names: &[String],
    rooms: &[Room],
) -> Result<Namespace, (&'static str, String)> {
    let device = names.iter().position(|name| *name == config.device).ok_or_else(|| {
        let known = names.join(", ");
        ("device", format!("there is no device {:?}; there are: {known}", config.device))
    })?;
    let of = |key, text: &str| {
        size_in_blocks(text).map_err(|error: String| (key, format!("{key} {error}")))
    };
    let first = match config.offset.as_str() {
        "0" => 0,
        text => of("offset", text)?,
    };
    let Room { place: device, blocks, grows } = rooms[device];
    let rest = blocks.saturating_sub(first);
    let size = config.size.as_deref().map_or(Ok(rest), |text| of("size", text))?;
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

/// Checks whether a namespace may have this name. A name of digits alone would be taken for a number.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let good = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.bytes().all(|byte| byte.is_ascii_digit());
    if good {
        return Ok(());
    }
    Err(format!(
        "name {name:?}; expected 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`, not \
         digits alone"
    ))
}

/// Returns the usual form of a UUID.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|n| *n != 0 && digits.len() == 32);
    let bytes = number.map(u128::to_be_bytes);
    bytes.ok_or_else(|| format!("uuid {text:?}; expected 32 hexadecimal digits, not all zero"))
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
        assert!(two("number = 0").contains("1 to 1024"));
        assert!(two("size = \"1GiB\"").contains("do not fit"));
        assert!(two("uuid = \"12\"").contains("32 hexadecimal"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let uuid = Some(*b"0123456789abcdef");
        let place = Namespace { device: 0, first: 8, blocks: 24, read_only: true };
        let one = Space { number: NamespaceId(3), name: "x".to_owned(), uuid, place };
        let config = NamespaceConfig::of(&one, "d");
        assert_eq!(range(&config, &["d".to_owned()], &[ROOM]), Ok(one.place));
        assert_eq!(parse_uuid(&config.uuid.unwrap()), Ok(one.uuid.unwrap()));
    }
}
