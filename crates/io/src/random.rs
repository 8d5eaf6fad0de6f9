//! Random bytes of the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills a buffer with random bytes that cannot be guessed.
///
/// # Panics
/// Panics if the kernel has none: it always has some, once it has started.
pub fn random(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(got) => bytes = &mut bytes[got..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel has no random bytes: {error}"),
        }
    }
}

/// Returns a secret of random bytes.
pub(crate) fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    random(&mut bytes);
    bytes
}

/// Returns a random UUID (RFC 9562, version 4).
pub fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    random(&mut uuid);
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
