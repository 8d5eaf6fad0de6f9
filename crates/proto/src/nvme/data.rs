//! The data pointer of a submission: over fabrics, one SGL descriptor, of the capsule or of the
//! transport (Base 4.1.2, 3.3.2).

use wire::nvme::{SglKind, Status, Submission};

/// Returns the number of bytes that the data pointer describes.
///
/// # Errors
/// Returns a status if the form of the data pointer is not supported.
pub(super) fn described(entry: &Submission) -> Result<usize, Status> {
    if entry.data_form() != 1 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    match entry.data.kind {
        SglKind::TRANSPORT | SglKind::DATA_OFFSET => Ok(entry.data.length.get() as usize),
        _ => Err(Status::SGL_KIND.dnr()),
    }
}

/// Checks that the data pointer describes exactly `bytes` bytes. Descriptors that are longer than
/// the data are not supported, as Identify Controller says. For no data, any descriptor of length
/// zero will do.
pub(super) fn expect(entry: &Submission, bytes: usize) -> Result<(), Status> {
    if bytes == 0 && entry.data.length.get() == 0 {
        return Ok(());
    }
    match described(entry)? {
        length if length == bytes => Ok(()),
        _ => Err(Status::DATA_SGL_LENGTH.dnr()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::nvme::SglDescriptor;

    #[test]
    fn only_capsules_and_transports_carry_data() {
        let mut entry = Submission::new(2, 0, 1);
        entry.data = SglDescriptor::transport(512);
        assert_eq!(expect(&entry, 512), Ok(()));
        assert_eq!(expect(&entry, 511), Err(Status::DATA_SGL_LENGTH.dnr()));
        entry.data.kind = SglKind::DATA_ADDRESS;
        assert_eq!(expect(&entry, 512), Err(Status::SGL_KIND.dnr()));
        entry.flags = 0;
        assert_eq!(expect(&entry, 512), Err(Status::INVALID_FIELD.dnr()));
    }
}
