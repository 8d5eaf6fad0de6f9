//! The macros that define layouts: structs with asserted sizes and offsets, and open numbers, which
//! may have any value and have names for some.

/// Defines a structure, and asserts its size and the offset of each field. Where this crate is used,
/// `zerocopy` must be, too.
#[macro_export]
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: $size:literal {
            $( $(#[$field_meta:meta])* [$offset:literal] $field:ident: $ty:ty ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes,
            zerocopy::KnownLayout, zerocopy::Immutable, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $ty ),+
        }

        const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            $( assert!(core::mem::offset_of!($name, $field) == $offset); )+
        };
    };
}

/// Defines a number that a peer sets: any value may arrive, and some values have names.
macro_rules! open_number {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($inner:ty) {
            $( $(#[$value_meta:meta])* $value:ident = $number:expr ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl $name {
            $( $(#[$value_meta])* pub const $value: $name = $name($number); )+
        }
    };
}

/// Defines an open number that can be a field of a `layout!`. It has one byte, unless another type
/// is given.
macro_rules! open_enum {
    ($(#[$meta:meta])* pub struct $name:ident { $($values:tt)* }) => {
        open_enum! { $(#[$meta])* pub struct $name(u8) { $($values)* } }
    };
    ($(#[$meta:meta])* pub struct $name:ident($inner:ty) { $($values:tt)* }) => {
        open_number! {
            $(#[$meta])*
            #[derive(
                zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout,
                zerocopy::Immutable, zerocopy::Unaligned,
            )]
            #[repr(transparent)]
            pub struct $name($inner) { $($values)* }
        }
    };
}
