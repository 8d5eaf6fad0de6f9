//! Bodies of take-over messages that hold many connections, many tickets, or an NVMe controller
//! with its connections; little-endian.

use alloc::vec::Vec;

use super::TakeoverRefusal;
use super::bytes::Reader;

/// The size in bytes of the ticket and the length before each parcel.
pub(super) const PREFIX_BYTES: usize = 8 + 4;

/// The connections of a body: the ticket and the parcel of each.
pub type Parcels<'a> = Vec<(u64, &'a [u8])>;

/// Appends a connection to a body: its ticket (8 bytes), the length of its parcel (4), and the
/// parcel from [`encode`](super::encode).
pub fn put_parcel(body: &mut Vec<u8>, ticket: u64, parcel: &[u8]) {
    body.extend(ticket.to_le_bytes());
    body.extend((parcel.len() as u32).to_le_bytes());
    body.extend_from_slice(parcel);
}

/// Appends a connection to a body like [`put_parcel`], unless the body would exceed `most` bytes.
///
/// # Errors
/// Returns [`TakeoverRefusal::TooLarge`] if it would; the body is unchanged.
pub fn put_parcel_within(
    body: &mut Vec<u8>,
    ticket: u64,
    parcel: &[u8],
    most: usize,
) -> Result<(), TakeoverRefusal> {
    let bytes = body.len().saturating_add(PREFIX_BYTES).saturating_add(parcel.len());
    if bytes > most {
        return Err(TakeoverRefusal::TooLarge);
    }
    put_parcel(body, ticket, parcel);
    Ok(())
}

/// Returns the connections of a body, with their tickets.
///
/// # Errors
/// Returns [`TakeoverRefusal::Length`] if the body is truncated.
pub fn parcels(body: &[u8]) -> Result<Parcels<'_>, TakeoverRefusal> {
    let (mut input, mut found) = (Reader(body), Vec::new());
    while !input.0.is_empty() {
        found.push((input.u64()?, input.string()?));
    }
    Ok(found)
}

/// Begins a body with an NVMe controller: its length (4 bytes), then its bytes. Its connections
/// follow by [`put_parcel`], that of the admin queue first.
pub fn put_controller(controller: &[u8]) -> Vec<u8> {
    let mut body = (controller.len() as u32).to_le_bytes().to_vec();
    body.extend_from_slice(controller);
    body
}

/// Returns a body's controller, and its connections with their tickets.
///
/// # Errors
/// Returns [`TakeoverRefusal::Length`] if the body is truncated.
pub fn controller(body: &[u8]) -> Result<(&[u8], Parcels<'_>), TakeoverRefusal> {
    let mut input = Reader(body);
    let controller = input.string()?;
    Ok((controller, parcels(input.0)?))
}

/// Encodes tickets as a body: 8 bytes each.
pub fn put_tickets(tickets: &[u64]) -> Vec<u8> {
    tickets.iter().flat_map(|ticket| ticket.to_le_bytes()).collect()
}

/// Returns the tickets of a body.
///
/// # Errors
/// Returns [`TakeoverRefusal::Length`] if the body is truncated.
pub fn tickets(body: &[u8]) -> Result<Vec<u64>, TakeoverRefusal> {
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
        let mut body = put_controller(b"own");
        put_parcel(&mut body, 1, b"its");
        assert_eq!(controller(&body).unwrap(), (&b"own"[..], Vec::from([(1, &b"its"[..])])));
        assert!(controller(&body[..6]).is_err() && controller(&body[..8]).is_err());
        let (whole, most) = (body.clone(), body.len() + PREFIX_BYTES + 4);
        for (parcel, fits) in [(&b"large"[..], false), (b"fits", true), (b"", false)] {
            let put = put_parcel_within(&mut body, 2, parcel, most);
            assert_eq!(put, if fits { Ok(()) } else { Err(TakeoverRefusal::TooLarge) });
        }
        assert_eq!((body.len(), &body[..whole.len()]), (most, &whole[..]));
        assert_eq!(controller(&body).unwrap().1[1], (2, &b"fits"[..]));
        let body = put_tickets(&[1, u64::MAX]);
        assert_eq!(tickets(&body).unwrap(), [1, u64::MAX]);
        assert_eq!(tickets(&body[..15]), Err(TakeoverRefusal::Length));
    }
}
