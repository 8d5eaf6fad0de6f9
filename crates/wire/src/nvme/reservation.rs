//! Reservations (Base 7.2 to 7.5, 8.19).

use zerocopy::little_endian::{U16, U32, U64};

open_enum! {
    /// The type of a reservation (Base 8.19, figure "Type Of Reservation").
    pub struct ReservationKind {
        /// Only the holder may write.
        WRITE_EXCLUSIVE = 1,
        /// Only the holder may read and write.
        EXCLUSIVE_ACCESS = 2,
        /// Only registrants may write.
        WRITE_EXCLUSIVE_REGISTRANTS = 3,
        /// Only registrants may read and write.
        EXCLUSIVE_ACCESS_REGISTRANTS = 4,
        /// Only registrants may write; every registrant is a holder.
        WRITE_EXCLUSIVE_ALL = 5,
        /// Only registrants may read and write; every registrant is a holder.
        EXCLUSIVE_ACCESS_ALL = 6,
    }
}

layout! {
    /// The data of Reservation Register (Base 7.3).
    pub struct ReservationRegister: 16 {
        /// The key that is currently registered.
        [0] current_key: U64,
        /// The key to register.
        [8] new_key: U64,
    }
}

layout! {
    /// The data of Reservation Acquire (Base 7.2).
    pub struct ReservationAcquire: 16 {
        /// The key with which the host is registered.
        [0] current_key: U64,
        /// The key of the registrants that are preempted.
        [8] preempt_key: U64,
    }
}

layout! {
    /// The data of Reservation Release (Base 7.4).
    pub struct ReservationRelease: 8 {
        /// The key with which the host is registered.
        [0] current_key: U64,
    }
}

layout! {
    /// The beginning of the extended Reservation Status (Base 7.5).
    pub struct ReservationHead: 64 {
        /// PR generation: the number of registrations, of their replacements and removals, and of
        /// preemptions.
        [0] generation: U32,
        /// The type of the reservation; zero for none.
        [4] kind: ReservationKind,
        /// Number of registrants that follow.
        [5] registrants: U16,
        /// Reserved bytes, which are zero.
        [7] reserved_7: [u8; 2],
        /// 1 if the reservation persists through power loss, else 0.
        [9] persists: u8,
        /// Reserved bytes, which are zero.
        [10] reserved_10: [u8; 54],
    }
}

layout! {
    /// A registrant of the extended Reservation Status.
    pub struct RegistrantExtended: 64 {
        /// Identifier of the registrant's controller; ffffh for a host without a controller.
        [0] cntlid: U16,
        /// Bit 0: the registrant holds the reservation.
        [2] state: u8,
        /// Reserved bytes, which are zero.
        [3] reserved_3: [u8; 5],
        /// The registrant's key.
        [8] key: U64,
        /// Identifier of the host.
        [16] host_id: [u8; 16],
        /// Reserved bytes, which are zero.
        [32] reserved_32: [u8; 32],
    }
}

open_enum! {
    /// The type of a reservation notice (Base 5.16.1.24).
    pub struct ReservationNoticeKind {
        /// The log page contains no notification.
        EMPTY = 0,
        /// The host's registration was preempted.
        REGISTRATION_PREEMPTED = 1,
        /// The reservation was released.
        RELEASED = 2,
        /// The reservation was preempted.
        PREEMPTED = 3,
    }
}

layout! {
    /// The reservation notification log (Base 5.16.1.24): one notice.
    pub struct ReservationNotice: 64 {
        /// Number of the notice, counted from 1; zero if there is none.
        [0] count: U64,
        /// The type of the notice.
        [8] kind: ReservationNoticeKind,
        /// Number of further notices, limited to 255.
        [9] waiting: u8,
        /// Reserved bytes, which are zero.
        [10] reserved_10: [u8; 2],
        /// Identifier of the namespace.
        [12] nsid: U32,
        /// Reserved bytes, which are zero.
        [16] reserved_16: [u8; 48],
    }
}
