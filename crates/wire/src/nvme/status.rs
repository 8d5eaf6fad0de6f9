//! Status values (Base 3.3.3.2.1, figures "Status Code" of each type; NVM 3.1.1).

use core::fmt;

/// Status code type: bits 11:9 of the status field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatusType(pub u8);

impl StatusType {
    /// Generic status, for any command.
    pub const GENERIC: StatusType = StatusType(0);
    /// Status that is specific to the command.
    pub const COMMAND_SPECIFIC: StatusType = StatusType(1);
    /// Media and data integrity errors.
    pub const MEDIA: StatusType = StatusType(2);
    /// Path related status: the path is at fault, not the namespace.
    pub const PATH: StatusType = StatusType(3);
}

/// The status of a completed command: status code in bits 7:0, status code type in bits 10:8,
/// "more" in bit 13, "do not retry" in bit 14. On the wire, the status lies one bit higher, above
/// the phase tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($( $(#[$meta:meta])* $name:ident = $number:literal, $text:literal; )+) => {
        impl Status {
            $( $(#[$meta])* pub const $name: Status = Status($number); )+

            /// Returns the text of the status code and its type; `None` for one without a name
            /// here.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 & 0x7ff {
                    $( $number => Some($text), )+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// The command succeeded.
    SUCCESS = 0x000, "success";
    /// The opcode is not supported.
    INVALID_OPCODE = 0x001, "invalid opcode";
    /// A field of the command is invalid or not supported.
    INVALID_FIELD = 0x002, "invalid field";
    /// A command with this identifier is outstanding.
    COMMAND_ID_CONFLICT = 0x003, "command identifier conflict";
    /// The data could not be transferred.
    DATA_TRANSFER_ERROR = 0x004, "data transfer error";
    /// The controller has an internal error.
    INTERNAL = 0x006, "internal error";
    /// An Abort command ended the command.
    ABORTED = 0x007, "abort requested";
    /// The command ended because its queue was deleted.
    QUEUE_DELETED = 0x008, "aborted: queue deleted";
    /// The other command of the fused pair failed.
    FAILED_FUSED = 0x009, "aborted: failed fused command";
    /// The other command of the fused pair did not arrive.
    MISSING_FUSED = 0x00a, "aborted: missing fused command";
    /// The controller has no such namespace.
    INVALID_NAMESPACE = 0x00b, "invalid namespace";
    /// The command is not expected at this point.
    SEQUENCE_ERROR = 0x00c, "command sequence error";
    /// The data pointer's length differs from the command's length.
    DATA_SGL_LENGTH = 0x00f, "data SGL length invalid";
    /// The data pointer's type is not supported.
    SGL_KIND = 0x011, "SGL descriptor type invalid";
    /// The operation is denied.
    DENIED = 0x015, "operation denied";
    /// The offset within the capsule lies outside its data.
    SGL_OFFSET = 0x016, "SGL offset invalid";
    /// The host mixes identifiers of 64 and of 128 bits.
    HOST_ID_FORMAT = 0x018, "host identifier inconsistent format";
    /// The keep-alive timer expired.
    KEEP_ALIVE_EXPIRED = 0x019, "keep alive timer expired";
    /// The keep-alive timeout is not supported.
    KEEP_ALIVE_INVALID = 0x01a, "keep alive timeout invalid";
    /// A Preempt and Abort ended the command.
    PREEMPTED = 0x01b, "aborted: preempted";
    /// The namespace is write protected.
    WRITE_PROTECTED = 0x020, "namespace is write protected";
    /// The command was not carried out; the host should retry.
    INTERRUPTED = 0x021, "command interrupted";
    /// The transport failed temporarily.
    TRANSIENT_TRANSPORT = 0x022, "transient transport error";
    /// The range does not lie within the namespace.
    LBA_OUT_OF_RANGE = 0x080, "LBA out of range";
    /// The write finds no free capacity.
    CAPACITY_EXCEEDED = 0x081, "capacity exceeded";
    /// The namespace is not ready.
    NAMESPACE_NOT_READY = 0x082, "namespace not ready";
    /// The command conflicts with a reservation of another host.
    RESERVATION_CONFLICT = 0x083, "reservation conflict";
    /// The queue identifier is invalid, or in use.
    INVALID_QUEUE_ID = 0x101, "invalid queue identifier";
    /// The queue size is invalid.
    INVALID_QUEUE_SIZE = 0x102, "invalid queue size";
    /// Too many Abort commands are outstanding.
    ABORT_LIMIT = 0x103, "abort command limit exceeded";
    /// Too many event requests are outstanding.
    EVENT_LIMIT = 0x105, "asynchronous event request limit exceeded";
    /// The log page does not exist.
    INVALID_LOG_PAGE = 0x109, "invalid log page";
    /// The feature cannot be saved.
    FEATURE_NOT_SAVEABLE = 0x10d, "feature identifier not saveable";
    /// The feature cannot be changed.
    FEATURE_NOT_CHANGEABLE = 0x10e, "feature not changeable";
    /// The feature is not specific to a namespace.
    FEATURE_NOT_NAMESPACE = 0x10f, "feature not namespace specific";
    /// Ranges of the command overlap.
    OVERLAPPING_RANGE = 0x114, "overlapping range";
    /// Fields contradict each other (NVM commands); or the format of Connect is not supported.
    CONNECT_FORMAT = 0x180, "conflicting attributes or incompatible format";
    /// The controller has no resources for another host or queue.
    CONNECT_BUSY = 0x181, "controller busy";
    /// A parameter of Connect is invalid; the result identifies the parameter.
    CONNECT_INVALID = 0x182, "connect invalid parameters, or attempted write to read-only range";
    /// The host should repeat discovery; for commands with ranges: too many blocks or ranges.
    CONNECT_RESTART_DISCOVERY = 0x183, "connect restart discovery, or command size limit exceeded";
    /// The host may not connect.
    CONNECT_INVALID_HOST = 0x184, "connect invalid host";
    /// The queue does not accept this type of command.
    INVALID_QUEUE_TYPE = 0x185, "invalid queue type";
    /// The discovery log changed while the host read it, so the read has to start again.
    DISCOVER_RESTART = 0x190, "discover restart";
    /// The queue has not been authenticated.
    AUTHENTICATION_REQUIRED = 0x191, "authentication required";
    /// The device could not write.
    WRITE_FAULT = 0x280, "write fault";
    /// The device could not read.
    READ_ERROR = 0x281, "unrecovered read error";
    /// The stored data differs from the host's data.
    COMPARE_FAILURE = 0x285, "compare failure";
    /// Access is denied.
    ACCESS_DENIED = 0x286, "access denied";
    /// The path has an internal error.
    PATH_INTERNAL = 0x300, "internal path error";
    /// The namespace is permanently inaccessible through this controller.
    ANA_PERSISTENT_LOSS = 0x301, "asymmetric access persistent loss";
    /// The namespace is inaccessible through this controller for the time being.
    ANA_INACCESSIBLE = 0x302, "asymmetric access inaccessible";
    /// The access through this controller is in transition.
    ANA_TRANSITION = 0x303, "asymmetric access transition";
    /// The host aborted the command (set by hosts only).
    HOST_ABORTED = 0x371, "aborted by host";
}

impl Status {
    /// Bit of a status: a retry of the same command fails again.
    pub const DO_NOT_RETRY: u16 = 1 << 14;

    /// Bit of a status: the error log has more information.
    pub const MORE: u16 = 1 << 13;

    /// Too many blocks in a command with ranges (NVM: Command Size Limit Exceeded).
    pub const SIZE_LIMIT: Status = Status::CONNECT_RESTART_DISCOVERY;

    /// Returns the status with the "do not retry" bit set.
    pub const fn dnr(self) -> Status {
        Status(self.0 | Status::DO_NOT_RETRY)
    }

    /// Returns `true` if the "do not retry" bit is set.
    pub const fn is_dnr(self) -> bool {
        self.0 & Status::DO_NOT_RETRY != 0
    }

    /// Returns the status code (bits 7:0).
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// Returns the status code type.
    pub const fn kind(self) -> StatusType {
        StatusType((self.0 >> 8) as u8 & 7)
    }

    /// Returns the status code and its type, without the other bits.
    pub const fn plain(self) -> Status {
        Status(self.0 & 0x7ff)
    }

    /// Returns `true` if the command succeeded.
    pub const fn is_ok(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Returns the status as the status field of a completion queue entry, with a phase tag of
    /// zero.
    pub const fn to_field(self) -> u16 {
        self.0 << 1
    }

    /// Returns the status that the status field of a completion queue entry contains.
    pub const fn from_field(field: u16) -> Status {
        Status(field >> 1)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name)?,
            None => write!(f, "status type {} code {:#04x}", self.kind().0, self.code())?,
        }
        if self.is_dnr() { f.write_str(" (do not retry)") } else { Ok(()) }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:#05x}: {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_above_the_phase_tag() {
        let status = Status::INVALID_FIELD.dnr();
        assert_eq!(status.to_field(), 0x8004);
        assert_eq!(Status::from_field(0x8005), status);
        assert_eq!(Status::ANA_TRANSITION.to_field(), 0x0606);
        assert_eq!(Status::ANA_TRANSITION.kind(), StatusType::PATH);
        assert!(!status.is_ok() && Status::SUCCESS.is_ok());
    }
}
