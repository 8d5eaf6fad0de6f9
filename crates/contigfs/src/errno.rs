//! Errors of operations, by their numbers in Linux.

use core::fmt;

/// The reason for which an operation was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident $number:literal $text:literal)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($number);)*
        }

        impl fmt::Debug for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str(stringify!($name)),)*
                    other => write!(f, "errno {other}"),
                }
            }
        }

        impl fmt::Display for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str($text),)*
                    other => write!(f, "errno {other}"),
                }
            }
        }
    };
}

errnos! {
    PERM 1 "operation not permitted"
    NOENT 2 "no such file or directory"
    IO 5 "input or output error"
    NXIO 6 "no data or hole at or after the offset"
    EXIST 17 "file exists"
    NOTDIR 20 "not a directory"
    ISDIR 21 "is a directory"
    INVAL 22 "invalid argument"
    FBIG 27 "file too large"
    NOSPC 28 "no space left"
    ROFS 30 "read-only file system"
    MLINK 31 "too many links"
    RANGE 34 "result too large"
    NAMETOOLONG 36 "file name too long"
    NOTEMPTY 39 "directory not empty"
    NODATA 61 "no such attribute"
    OPNOTSUPP 95 "operation not supported"
    STALE 116 "no such inode any more"
}
