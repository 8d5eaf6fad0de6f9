//! Translation between statuses of requests and error numbers of NBD (the specification's "Error
//! values").

use contract::{IoKind, Status};
use wire::nbd::errno;

/// Returns the NBD error number of a status, for the reply to a request of this kind; zero for
/// success.
pub(super) fn of(status: Status, kind: IoKind) -> u32 {
    match status {
        Status::Ok => 0,
        Status::Denied | Status::ReadOnly => errno::EPERM,
        Status::OutOfRange if kind == IoKind::Write => errno::ENOSPC,
        // Also of a flush, whose device finds a place for the data only then.
        Status::NoSpace if kind != IoKind::Read => errno::ENOSPC,
        // The session itself refuses reads that are too long for one piece.
        Status::BadLength if kind == IoKind::Read => errno::EOVERFLOW,
        Status::Unsupported => errno::ENOTSUP,
        Status::NoResources | Status::NoTenant => errno::ENOMEM,
        // NBD has no word for "try again". The namespace is gone, or the server will be.
        Status::Retry | Status::NoNamespace => errno::ESHUTDOWN,
        Status::MediaError
        | Status::NoSpace
        | Status::Internal
        | Status::ConnectionLost
        | Status::WritesLost => errno::EIO,
        _ => errno::EINVAL,
    }
}

/// Returns the status that a server means by an error number.
pub(super) fn meaning(error: u32) -> Status {
    match error {
        0 => Status::Ok,
        errno::EPERM => Status::Denied,
        errno::ENOSPC => Status::NoSpace,
        errno::EINVAL => Status::Invalid,
        errno::EOVERFLOW => Status::BadLength,
        errno::ENOTSUP => Status::Unsupported,
        errno::ENOMEM => Status::NoResources,
        errno::ESHUTDOWN => Status::Retry,
        _ => Status::MediaError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_stay_failures() {
        for status in Status::ALL {
            for kind in [IoKind::Read, IoKind::Write, IoKind::Other] {
                assert_eq!(of(status, kind) == 0, status.is_ok(), "{status:?}");
                assert_eq!(meaning(of(status, kind)).is_ok(), status.is_ok(), "{status:?}");
            }
        }
        assert_eq!(of(Status::OutOfRange, IoKind::Write), errno::ENOSPC);
        assert_eq!(of(Status::OutOfRange, IoKind::Read), errno::EINVAL);
        assert_eq!(of(Status::BadLength, IoKind::Write), errno::EINVAL);
        assert_eq!(of(Status::NoSpace, IoKind::Other), errno::ENOSPC, "of a flush");
        assert_eq!(of(Status::NoSpace, IoKind::Read), errno::EIO, "a fault of the device");
    }
}
