//! Many connections, or their tickets, in the body of one message; little-endian.

use alloc::vec::Vec;

use super::Unfit;
use super::bytes::Reader;

/// Bytes before each parcel.
pub(super) const PREFIX_BYTES: usize = 8 + 4;

/// Appends a connection to a body: its ticket (8 bytes), the bytes of its parcel (4), the parcel as
/// [`encode`](super::encode) made it.
pub fn put_parcel(body: &mut Vec<u8>, ticket: u64, parcel: &[u8]) {
    body.extend(ticket.to_le_bytes());
    body.extend((parcel.len() as u32).to_le_bytes());
    body.extend_from_slice(parcel);
}

/// The connections of a body, with their tickets.
///
/// # Errors
/// [`Unfit::Length`] when it is cut.
pub fn parcels(body: &[u8]) -> Result<Vec<(u64, &[u8])>, Unfit> {
    let (mut input, mut found) = (Reader(body), Vec::new());
    while !input.0.is_empty() {
        found.push((input.u64()?, input.string()?));
    }
    Ok(found)
}

/// Tickets as a body: 8 bytes each.
pub fn put_tickets(tickets: &[u64]) -> Vec<u8> {
    tickets.iter().flat_map(|ticket| ticket.to_le_bytes()).collect()
}

/// The tickets of a body.
///
/// # Errors
/// [`Unfit::Length`] when it is cut.
pub fn tickets(body: &[u8]) -> Result<Vec<u64>, Unfit> {
    let (mut input, mut found) = (Reader(body), Vec::new());
    while !input.0.is_empty() {
        found.push(input.u64()?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_what_was_put_or_cut() {
        let mut body = Vec::new();
        put_parcel(&mut body, 7, b"one");
        put_parcel(&mut body, u64::MAX, b"");
        assert_eq!(parcels(&body).unwrap(), [(7, &b"one"[..]), (u64::MAX, &b""[..])]);
        for cut in 1..body.len() {
            let is_whole = cut == PREFIX_BYTES + 3;
            assert_eq!(parcels(&body[..cut]).is_ok(), is_whole, "{cut}");
        }
        let body = put_tickets(&[1, u64::MAX]);
        assert_eq!(tickets(&body).unwrap(), [1, u64::MAX]);
        assert_eq!(tickets(&body[..15]), Err(Unfit::Length));
    }
}
