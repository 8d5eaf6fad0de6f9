//! NVMe/TCP (NVM Express TCP Transport Specification, revision 1.0a): the headers of its protocol
//! data units (PDUs), little-endian.
//!
//! Sections in this module are sections of that document. The contents of a submission or
//! completion queue entry belong to the NVM Express Base Specification; the transport treats them
//! as bytes.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The only defined version of the PDU format (section 3.6.2.2, field PFV).
pub const PDU_FORMAT_1_0: u16 = 0;

/// Bytes of a header digest or a data digest: CRC-32C (section 3.3.1).
pub const DIGEST_BYTES: usize = 4;

/// Bytes of a submission queue entry (Base Specification 2.0, section 3.3.3.1).
pub const ENTRY_BYTES: usize = 64;

/// Bytes of a completion queue entry (Base Specification 2.0, section 3.3.3.2).
pub const COMPLETION_BYTES: usize = 16;

/// The minimum of MAXH2CDATA in ICResp (section 3.6.2.3).
pub const DATA_BYTES_LEAST: u32 = 4096;

/// The maximum number of bytes of the offending PDU that a TermReq carries after its header
/// (sections 3.6.2.4 and 3.6.2.5).
pub const TERM_DATA_BYTES_MAX: u32 = 128;

/// The largest value of HPDA and CPDA, in units of four bytes less one (sections 3.6.2.2 and 3.6.2.3).
pub const ALIGNMENT_MAX: u8 = 31;

/// The largest offset of data in a PDU, which follows from [`ALIGNMENT_MAX`].
pub const DATA_OFFSET_MAX: usize = (ALIGNMENT_MAX as usize + 1) * 4;

/// Bits of [`CommonHeader::flags`] (section 3.6.1).
pub mod flags {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU of H2CData and C2HData: this PDU ends the transfer.
    pub const LAST_PDU: u8 = 1 << 2;
    /// SUCCESS of C2HData: the command succeeded, and no CapsuleResp follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Bits of DGST in ICReq and ICResp (sections 3.6.2.2 and 3.6.2.3).
pub mod digests {
    /// HDGST_ENABLE: headers carry digests.
    pub const HEADER: u8 = 1 << 0;
    /// DDGST_ENABLE: data carries digests.
    pub const DATA: u8 = 1 << 1;
}

/// The type of a PDU (section 3.6.1, field PDU-Type).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct PduType(pub u8);

impl PduType {
    /// ICReq: the host requests a connection.
    pub const INIT_REQUEST: PduType = PduType(0x00);
    /// ICResp: the controller accepts the connection.
    pub const INIT_RESPONSE: PduType = PduType(0x01);
    /// H2CTermReq: the host terminates the connection and reports the reason.
    pub const HOST_TERMINATES: PduType = PduType(0x02);
    /// C2HTermReq: the controller terminates the connection and reports the reason.
    pub const CONTROLLER_TERMINATES: PduType = PduType(0x03);
    /// CapsuleCmd: a command, possibly with data.
    pub const COMMAND: PduType = PduType(0x04);
    /// CapsuleResp: a completion.
    pub const RESPONSE: PduType = PduType(0x05);
    /// H2CData: data that an R2T requested.
    pub const HOST_DATA: PduType = PduType(0x06);
    /// C2HData: data of a command.
    pub const CONTROLLER_DATA: PduType = PduType(0x07);
    /// R2T: the controller is ready for data.
    pub const READY: PduType = PduType(0x09);
}

/// The reason for the end of a connection (sections 3.6.2.4 and 3.6.2.5, field FES).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct FatalStatus(pub U16);

impl FatalStatus {
    /// A header field is invalid; FEI is the field's offset in the PDU.
    pub const INVALID_FIELD: FatalStatus = FatalStatus(U16::new(0x01));
    /// The PDU is not expected at this point.
    pub const SEQUENCE: FatalStatus = FatalStatus(U16::new(0x02));
    /// The header does not match its digest; FEI is the received digest.
    pub const HEADER_DIGEST: FatalStatus = FatalStatus(U16::new(0x03));
    /// The data lies outside the range of the command or of the R2T.
    pub const OUT_OF_RANGE: FatalStatus = FatalStatus(U16::new(0x04));
    /// In a C2HTermReq: a PDU carries more data than MAXH2CDATA. In an H2CTermReq: the number of
    /// R2Ts exceeds MAXR2T.
    pub const LIMIT_EXCEEDED: FatalStatus = FatalStatus(U16::new(0x05));
    /// A parameter is not supported; FEI is its offset in the PDU.
    pub const UNSUPPORTED: FatalStatus = FatalStatus(U16::new(0x06));
}

/// The beginning of every PDU (section 3.6.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CommonHeader {
    /// Type of the PDU.
    pub pdu_type: PduType,
    /// Bits of [`flags`]; reserved bits are zero.
    pub flags: u8,
    /// HLEN: length of the header in bytes, without its digest.
    pub header_bytes: u8,
    /// PDO: offset of the data from the start of the PDU; zero without data.
    pub data_offset: u8,
    /// PLEN: length of the whole PDU in bytes, digests and padding included.
    pub pdu_bytes: U32,
}

/// ICReq (section 3.6.2.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InitRequest {
    /// The common header.
    pub common: CommonHeader,
    /// PFV: [`PDU_FORMAT_1_0`].
    pub format: U16,
    /// HPDA: the alignment of data that the host requires, in units of four bytes, less one.
    pub alignment: u8,
    /// DGST: [`digests`] that the host requests.
    pub digests: u8,
    /// MAXR2T: the maximum number of outstanding R2Ts of a command, less one.
    pub ready_max: U32,
    /// Zero.
    pub reserved: [u8; 112],
}

/// ICResp (section 3.6.2.3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InitResponse {
    /// The common header.
    pub common: CommonHeader,
    /// PFV: [`PDU_FORMAT_1_0`].
    pub format: U16,
    /// CPDA: the alignment of data that the controller requires, in units of four bytes, less one.
    pub alignment: u8,
    /// DGST: [`digests`] that the connection uses.
    pub digests: u8,
    /// MAXH2CDATA: the maximum data of an H2CData PDU, in bytes; at least [`DATA_BYTES_LEAST`].
    pub data_bytes_max: U32,
    /// Zero.
    pub reserved: [u8; 112],
}

/// H2CTermReq and C2HTermReq (sections 3.6.2.4 and 3.6.2.5); the header of the offending PDU follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Terminate {
    /// The common header.
    pub common: CommonHeader,
    /// FES: the reason.
    pub status: FatalStatus,
    /// FEI: further information, which depends on the status.
    pub information: U32,
    /// Zero.
    pub reserved: [u8; 10],
}

/// CapsuleCmd (section 3.6.2.6); the command's data may follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CommandHead {
    /// The common header.
    pub common: CommonHeader,
    /// CCSQE: the submission queue entry.
    pub entry: [u8; ENTRY_BYTES],
}

/// CapsuleResp (section 3.6.2.7).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ResponseHead {
    /// The common header.
    pub common: CommonHeader,
    /// RCCQE: the completion queue entry.
    pub completion: [u8; COMPLETION_BYTES],
}

/// H2CData and C2HData (sections 3.6.2.8 and 3.6.2.9); the data follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DataHead {
    /// The common header.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub command: U16,
    /// TTAG: the tag of the R2T that H2CData answers; zero in C2HData.
    pub tag: U16,
    /// DATAO: offset of the data in the command's buffer.
    pub offset: U32,
    /// DATAL: length of the data in this PDU, in bytes.
    pub bytes: U32,
    /// Zero.
    pub reserved: U32,
}

/// R2T (section 3.6.2.10).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReadyHead {
    /// The common header.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub command: U16,
    /// TTAG: the tag that the H2CData PDUs return.
    pub tag: U16,
    /// R2TO: offset of the requested data in the command's buffer.
    pub offset: U32,
    /// R2TL: length of the requested data in bytes.
    pub bytes: U32,
    /// Zero.
    pub reserved: U32,
}

/// Asserts a header's size and the offsets of its fields.
macro_rules! assert_places {
    ($layout:ty, $size:literal: $($field:ident = $offset:literal),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<$layout>() == $size);
            $(assert!(offset_of!($layout, $field) == $offset);)+
        };
    };
}

assert_places!(CommonHeader, 8: pdu_type = 0, flags = 1, header_bytes = 2, data_offset = 3,
    pdu_bytes = 4);
assert_places!(InitRequest, 128: common = 0, format = 8, alignment = 10, digests = 11,
    ready_max = 12, reserved = 16);
assert_places!(InitResponse, 128: common = 0, format = 8, alignment = 10, digests = 11,
    data_bytes_max = 12, reserved = 16);
assert_places!(Terminate, 24: common = 0, status = 8, information = 10, reserved = 14);
assert_places!(CommandHead, 72: common = 0, entry = 8);
assert_places!(ResponseHead, 24: common = 0, completion = 8);
assert_places!(DataHead, 24: common = 0, command = 8, tag = 10, offset = 12, bytes = 16,
    reserved = 20);
assert_places!(ReadyHead, 24: common = 0, command = 8, tag = 10, offset = 12, bytes = 16,
    reserved = 20);
