//! Serialization of numbers and byte strings, little-endian.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use contract::Instant;

use super::{TakeoverRefusal, VERSION};

/// The size in bytes of the magic, version and length before [sealed](Writer::sealed) content.
const PREFIX_BYTES: usize = 8 + 2 + 4;

/// Encodes the time from `then` to `now` in nanoseconds; zero if `then` is later.
pub(crate) fn age(now: Instant, then: Instant) -> [u8; 8] {
    now.as_nanos().saturating_sub(then.as_nanos()).to_le_bytes()
}

/// Returns the instant `age` nanoseconds before `now`, or the clock's zero if that is later.
pub(crate) fn earlier(now: Instant, age: u64) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(age))
}

/// A reader that takes values off the front of a slice of bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// Opens content that was [sealed](Writer::sealed) with this magic.
    ///
    /// # Errors
    /// Returns a [`TakeoverRefusal`] if the magic, the version or the length differs.
    pub(crate) fn open(bytes: &'a [u8], magic: [u8; 8]) -> Result<Reader<'a>, TakeoverRefusal> {
        let mut input = Reader(bytes);
        if input.array().map_err(|_| TakeoverRefusal::Foreign)? != magic {
            return Err(TakeoverRefusal::Foreign);
        }
        let version = input.u16()?;
        if version != VERSION {
            return Err(TakeoverRefusal::Version(version));
        }
        match input.u32()? as usize == input.0.len() {
            true => Ok(input),
            false => Err(TakeoverRefusal::Length),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], TakeoverRefusal> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(TakeoverRefusal::Length)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, TakeoverRefusal> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, TakeoverRefusal> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, TakeoverRefusal> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, TakeoverRefusal> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, TakeoverRefusal> {
        self.array().map(u128::from_le_bytes)
    }

    /// Takes a flag, a byte of 0 or 1. `what` names the flag in the error.
    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, TakeoverRefusal> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(TakeoverRefusal::Value(what)),
        }
    }

    /// Takes an optional IP address, in the form in which [`Writer::address`] appends it.
    pub(crate) fn address(&mut self) -> Result<Option<IpAddr>, TakeoverRefusal> {
        let (is_there, is_v4) = (self.flag("address")?, self.flag("address")?);
        let address = Ipv6Addr::from(self.array::<16>()?);
        let short = address.to_ipv4_mapped().filter(|_| is_v4);
        Ok(is_there.then_some(short.map_or(IpAddr::V6(address), IpAddr::V4)))
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], TakeoverRefusal> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(TakeoverRefusal::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes bytes preceded by their number (4 bytes).
    pub(crate) fn string(&mut self) -> Result<&'a [u8], TakeoverRefusal> {
        let count = self.u32()? as usize;
        self.bytes(count)
    }

    /// Takes the number of items that follow (4 bytes). Each item has at least `bytes_min` bytes,
    /// so a number is refused if the remaining bytes cannot hold so many items.
    pub(crate) fn count(&mut self, bytes_min: usize) -> Result<usize, TakeoverRefusal> {
        let count = self.u32()? as usize;
        match count.checked_mul(bytes_min) {
            Some(bytes) if bytes <= self.0.len() => Ok(count),
            _ => Err(TakeoverRefusal::Length),
        }
    }
}

/// A writer that appends values to a vector of bytes.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// Begins content that is to be [sealed](Writer::sealed), with this magic.
    pub(crate) fn begin(magic: [u8; 8]) -> Writer {
        let mut to = Writer::default();
        to.put(magic);
        to.put(VERSION.to_le_bytes());
        to.put([0; 4]);
        to
    }

    /// Ends the content by storing its length.
    ///
    /// # Errors
    /// Returns [`TakeoverRefusal::TooLarge`] if the content has more than `bytes_max` bytes.
    pub(crate) fn sealed(mut self, bytes_max: usize) -> Result<Vec<u8>, TakeoverRefusal> {
        if self.0.len() > bytes_max {
            return Err(TakeoverRefusal::TooLarge);
        }
        let length =
            u32::try_from(self.0.len() - PREFIX_BYTES).map_err(|_| TakeoverRefusal::TooLarge)?;
        self.0[PREFIX_BYTES - 4..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
        Ok(self.0)
    }

    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend(bytes);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    /// Appends an optional IP address: a flag for its existence, a flag for IP version 4, and its
    /// 16 bytes in the form of version 6.
    pub(crate) fn address(&mut self, address: Option<IpAddr>) {
        self.flag(address.is_some());
        self.flag(address.is_some_and(|address| address.is_ipv4()));
        self.put(match address {
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
            Some(IpAddr::V6(address)) => address.octets(),
            None => [0; 16],
        });
    }

    /// Appends the number of items, or of bytes, that follow (4 bytes).
    pub(crate) fn count(&mut self, count: usize) -> Result<(), TakeoverRefusal> {
        let count = u32::try_from(count).map_err(|_| TakeoverRefusal::TooLarge)?;
        self.put(count.to_le_bytes());
        Ok(())
    }

    pub(crate) fn string(&mut self, bytes: &[u8]) -> Result<(), TakeoverRefusal> {
        self.count(bytes.len())?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}
