//! The wiping of request bodies from memory, since some of them have keys of hosts.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use zeroize::Zeroize;

/// Bytes of a request's body. They are wiped when they are dropped, if nobody else has them.
pub(super) struct WipedBytes(pub(super) Bytes);

impl Drop for WipedBytes {
    fn drop(&mut self) {
        drop(wipe([std::mem::take(&mut self.0)]));
    }
}

/// The parts of the bodies that a connection has received. The server's buffer of the connection
/// shares their memory, and so they are wiped when the connection has ended.
#[derive(Clone, Default)]
pub(super) struct ReceivedParts(Arc<Mutex<Parts>>);

#[derive(Default)]
struct Parts(Vec<Bytes>);

/// Maximum number of bytes that wait for the end of their connection when a request begins.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Maximum number of parts that do: each may hold a whole buffer of the connection.
const KEPT_PARTS_MAX: usize = 8;

impl ReceivedParts {
    /// Returns a body whose parts are wiped after their use.
    pub(super) fn follow<B: Body<Data = Bytes>>(
        &self,
        body: B,
    ) -> impl Body<Data = Bytes, Error = B::Error> + use<B> {
        {
            let Parts(kept) = &mut *self.0.lock().expect("no holder panics");
            let bytes = kept.iter().map(Bytes::len).sum::<usize>();
            if bytes > KEPT_BYTES_MAX || kept.len() > KEPT_PARTS_MAX {
                drop(wipe(std::mem::take(kept)));
            }
        }
        let parts = self.0.clone();
        body.map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                parts.lock().expect("no holder panics").0.push(data.clone());
            }
            frame
        })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        drop(wipe(std::mem::take(&mut self.0)));
    }
}

/// Wipes the parts that nobody else has. Parts that share a buffer follow each other, at rising
/// addresses; the last of them stands for all of them. Returns what was wiped.
fn wipe(parts: impl IntoIterator<Item = Bytes>) -> Vec<impl std::ops::Deref<Target = [u8]>> {
    let (mut wiped, mut front) = (Vec::new(), None);
    for part in parts {
        let from = *front.get_or_insert(part.as_ptr() as usize);
        if let Ok(mut own) = part.try_into_mut() {
            front = None;
            let whole = own.capacity() + (own.as_ptr() as usize).saturating_sub(from);
            own.clear();
            let _is_whole = own.try_reclaim(whole);
            own.resize(own.capacity(), 0);
            own.zeroize();
            wiped.push(own);
        }
    }
    wiped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the address of the last part, and parts of one buffer of 16 bytes.
    fn parts() -> (usize, [Bytes; 2]) {
        let whole = Bytes::from(b"head key-of-host".to_vec());
        (whole.as_ptr() as usize + 5, [whole.slice(5..9), whole.slice(9..16)])
    }

    #[test]
    fn parts_of_one_buffer_are_wiped_together() {
        let (at, parts) = parts();
        let wiped = wipe(parts);
        let [own] = &wiped[..] else { panic!("{} buffers", wiped.len()) };
        let from = own.as_ptr() as usize;
        assert!(from <= at && from + own.len() >= at + 11, "not all of the key");
        assert!(own.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_others_have_stays() {
        let (_, parts) = parts();
        let used = parts[0].clone();
        assert!(wipe(parts).is_empty());
        assert_eq!(&used[..], b"key-");
    }
}
