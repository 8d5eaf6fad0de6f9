//! `[[namespace]]`: ranges of devices, with their numbers and names.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::text::offset_in_blocks;
use crate::{Mistake, TablePosition, check_name, size_in_blocks};

/// A namespace: a range of a device's blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// Name of the namespace. By default `ns` and its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of the namespace. By default its position among the namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// Name of the device that has the namespace.
    pub device: String,
    /// Offset of the namespace from the start of the device, as a size.
    #[serde(default = "nothing", deserialize_with = "offset")]
    pub offset: String,
    /// Size of the namespace. By default the rest of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Path of the file that the namespace is, from the root of the device's file system on, in the
    /// place of `offset` and `size`. By default the namespace is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Refuses all writes to the namespace.
    #[serde(default)]
    pub read_only: bool,
    /// UUID by which NVMe hosts recognise the namespace.
    /// By default derived from the machine's identifier and the namespace's numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub nth: TablePosition,
}

fn nothing() -> String {
    "0".to_owned()
}

/// Reads an offset: a text, or the number 0.
fn offset<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    struct Offset;
    impl Visitor<'_> for Offset {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size such as \"1MiB\", or 0")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
            match number {
                0 => Ok(nothing()),
                other => Err(E::invalid_value(Unexpected::Signed(other), &self)),
            }
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
            self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
        }
    }
    from.deserialize_any(Offset)
}

impl Namespace {
    /// The largest number of a namespace.
    pub const NUMBER_MAX: u16 = contract::NAMESPACES_MAX as u16;

    /// Returns a namespace of a whole device, without a name and a number.
    pub fn whole(device: String) -> Namespace {
        Namespace {
            name: None,
            number: None,
            device,
            offset: nothing(),
            size: None,
            file: None,
            read_only: false,
            uuid: None,
            nth: TablePosition::default(),
        }
    }

    /// Returns the number of the namespace's first block on its device.
    ///
    /// # Errors
    /// Fails if the offset is no size.
    pub fn first_block(&self) -> Result<u64, Mistake> {
        offset_in_blocks(&self.offset).map_err(|error| ("offset", format!("offset {error}")))
    }

    /// Returns the size of the namespace in blocks; `None` means the rest of the device.
    ///
    /// # Errors
    /// Fails if the text is no size.
    pub fn blocks(&self) -> Result<Option<u64>, Mistake> {
        let blocks = self.size.as_deref().map(size_in_blocks).transpose();
        blocks.map_err(|error| ("size", format!("size {error}")))
    }

    /// Returns the configured UUID; `None` if the namespace has none.
    ///
    /// # Errors
    /// Fails if the text is no UUID.
    pub fn uuid_bytes(&self) -> Result<Option<[u8; 16]>, Mistake> {
        self.uuid.as_deref().map(Namespace::parse_uuid).transpose()
    }

    /// Reads a UUID: 32 hexadecimal digits, with or without hyphens.
    ///
    /// # Errors
    /// Fails if the text is no UUID.
    pub fn parse_uuid(text: &str) -> Result<[u8; 16], Mistake> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_one = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = is_one.then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
        number.filter(|n| *n != 0).map(u128::to_be_bytes).ok_or_else(|| {
            let expected = "expected 32 hexadecimal digits, not all zero";
            ("uuid", format!("uuid {text:?}; {expected}"))
        })
    }

    /// Returns the usual text of a UUID: 32 hexadecimal digits in five groups.
    pub fn uuid_text(uuid: &[u8; 16]) -> String {
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// Checks the namespace's number, name and UUID. Returns the mistakes in them; none if all are
    /// valid.
    pub fn validate(&self) -> Vec<Mistake> {
        let most = Namespace::NUMBER_MAX;
        let number = self.number.filter(|number| !(1..=most).contains(number));
        let number = number.map(|number| {
            ("number", format!("number {number}; expected a number from 1 to {most}"))
        });
        let name = self.name.as_deref().and_then(|name| check_name(name).err());
        let name = name.map(|error| ("name", error));
        let uuid = self.uuid_bytes().err();
        number.into_iter().chain(name).chain(uuid).chain(self.file_beside_range()).collect()
    }

    /// Returns the mistake of a namespace that is a file and has a range as well.
    fn file_beside_range(&self) -> Option<Mistake> {
        let file = self.file.as_ref()?;
        let key = match (&self.size, self.first_block()) {
            (Some(_), _) => "size",
            (None, Ok(0)) => return None,
            (None, _) => "offset",
        };
        let error = format!("the file {file:?} says where it lies; leave `{key}` out");
        Some((key, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_a_text_or_the_number_zero() {
        let read = |offset: &str| {
            toml::from_str::<Namespace>(&format!("device = \"d\"\noffset = {offset}\n"))
        };
        for zero in ["0", "\"0\"", "\"0B\"", "\"0MiB\""] {
            assert_eq!(read(zero).unwrap().first_block(), Ok(0), "{zero}");
        }
        assert_eq!(read("\"1MiB\"").unwrap().first_block(), Ok(2048));
        let said = read("4096").unwrap_err().to_string();
        assert!(said.contains("such as \"1MiB\", or 0"), "{said}");
    }

    #[test]
    fn a_namespace_has_a_number_a_name_and_a_uuid() {
        let whole = Namespace::whole("d".to_owned());
        assert_eq!(
            (whole.validate(), whole.first_block(), whole.blocks()),
            (vec![], Ok(0), Ok(None))
        );
        let uuid = *b"0123456789abcdef";
        let text = Namespace::uuid_text(&uuid);
        let good = Namespace { uuid: Some(text), size: Some("1MiB".to_owned()), ..whole.clone() };
        assert_eq!((good.uuid_bytes(), good.blocks()), (Ok(Some(uuid)), Ok(Some(2048))));
        let bad = Namespace {
            number: Some(0),
            name: Some("12".to_owned()),
            uuid: Some("12".to_owned()),
            offset: "much".to_owned(),
            ..whole
        };
        let keys: Vec<&str> = bad.validate().iter().map(|mistake| mistake.0).collect();
        assert_eq!(keys, ["number", "name", "uuid"]);
        assert_eq!(bad.first_block().unwrap_err().0, "offset");
    }

    #[test]
    fn a_file_says_where_it_lies() {
        let read = |more: &str| {
            let text = format!("device = \"d\"\nfile = \"/disk\"\n{more}");
            toml::from_str::<Namespace>(&text).unwrap().validate()
        };
        assert_eq!((read(""), read("offset = 0")), (vec![], vec![]));
        for (more, key) in [("size = \"1MiB\"", "size"), ("offset = \"1MiB\"", "offset")] {
            let found = read(more);
            assert!(
                matches!(&found[..], [(at, why)] if *at == key && why.contains("leave")),
                "{key}"
            );
        }
    }
}
