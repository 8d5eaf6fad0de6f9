//! Reservations (Base 7.2 to 7.5, 8.19).

use zerocopy::little_endian::{U16, U32, U64};

open_enum! {
    /// What a reservation keeps from whom (Base 8.19, figure "Type Of Reservation").
    pub struct ReservationKind {
        /// Only the holder writes.
        WRITE_EXCLUSIVE = 1,
        /// Only the holder reads and writes.
        EXCLUSIVE_ACCESS = 2,
        /// Only registrants write.
        WRITE_EXCLUSIVE_REGISTRANTS = 3,
        /// Only registrants read and write.
        EXCLUSIVE_ACCESS_REGISTRANTS = 4,
        /// Only registrants write; all of them hold it.
        WRITE_EXCLUSIVE_ALL = 5,
        /// Only registrants read and write; all of them hold it.
        EXCLUSIVE_ACCESS_ALL = 6,
    }
}

layout! {
    /// The data of Reservation Register (Base 7.3).
    pub struct ReservationRegister: 16 {
        /// The key that is registered now.
        [0] current_key: U64,
        /// The key to register.
        [8] new_key: U64,
    }
}

layout! {
    /// The data of Reservation Acquire (Base 7.2).
    pub struct ReservationAcquire: 16 {
        /// The key that is registered.
        [0] current_key: U64,
        /// The key to preempt.
        [8] preempt_key: U64,
    }
}

layout! {
    /// The data of Reservation Release (Base 7.4).
    pub struct ReservationRelease: 8 {
        /// The key that is registered.
        [0] current_key: U64,
    }
}

layout! {
    /// The beginning of the extended Reservation Status (Base 7.5).
    pub struct ReservationHead: 64 {
        /// Counts changes of registrants and of the holder.
        [0] generation: U32,
        /// The reservation, or zero for none.
        [4] kind: ReservationKind,
        /// Registrants that follow.
        [5] registrants: U16,
        /// Zero.
        [7] reserved_7: [u8; 2],
        /// Whether it persists through power loss.
        [9] persists: u8,
        /// Zero.
        [10] reserved_10: [u8; 54],
    }
}

layout! {
    /// A registrant of the extended Reservation Status.
    pub struct RegistrantExtended: 64 {
        /// Its controller, or ffffh for a host that has none now.
        [0] cntlid: U16,
        /// Bit 0 holds the reservation.
        [2] state: u8,
        /// Zero.
        [3] reserved_3: [u8; 5],
        /// Its key.
        [8] key: U64,
        /// The host.
        [16] host_id: [u8; 16],
        /// Zero.
        [32] reserved_32: [u8; 32],
    }
}

open_enum! {
    /// What happened to a reservation (Base 5.16.1.24).
    pub struct ReservationNoticeKind {
        /// Nothing.
        EMPTY = 0,
        /// A registration was preempted.
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
        /// Counts notices; zero when there is none.
        [0] count: U64,
        /// What happened.
        [8] kind: ReservationNoticeKind,
        /// Notices that wait, 255 for more.
        [9] waiting: u8,
        /// Zero.
        [10] reserved_10: [u8; 2],
        /// The namespace.
        [12] nsid: U32,
        /// Zero.
        [16] reserved_16: [u8; 48],
    }
}
