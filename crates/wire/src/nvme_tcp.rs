//! NVMe/TCP (NVM Express TCP Transport Specification, revision 1.0a): the headers of its protocol
//! data units (PDUs), little-endian.
//!
//! Sections in this module are sections of that document. The contents of a submission or
//! completion queue entry belong to the NVM Express Base Specification; the transport treats them
//! as bytes.

use zerocopy::little_endian::{U16, U32};

/// The only defined version of the PDU format (section 3.6.2.2, field PFV).
pub const PDU_FORMAT_1_0: u16 = 0;

/// Length in bytes of a header digest or a data digest, which is a CRC-32C (section 3.3.1).
pub const DIGEST_BYTES: usize = 4;

/// Length in bytes of a submission queue entry (Base Specification 2.0, section 3.3.3.1).
pub const ENTRY_BYTES: usize = 64;

/// Length in bytes of a completion queue entry (Base Specification 2.0, section 3.3.3.2).
pub const COMPLETION_BYTES: usize = 16;

/// The minimum of MAXH2CDATA in ICResp, in bytes (section 3.6.2.3).
pub const DATA_BYTES_LEAST: u32 = 4096;

/// The maximum number of bytes of the offending PDU that a TermReq carries after its header
/// (sections 3.6.2.4 and 3.6.2.5).
pub const TERM_DATA_BYTES_MAX: u32 = 128;

/// The largest value of HPDA and CPDA, the alignment of data in units of four bytes, less one
/// (sections 3.6.2.2 and 3.6.2.3).
pub const ALIGNMENT_MAX: u8 = 31;

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

open_enum! {
    /// The type of a PDU (section 3.6.1, field PDU-Type).
    pub struct PduType {
        /// ICReq: the host requests a connection.
        INIT_REQUEST = 0x00,
        /// ICResp: the controller accepts the connection.
        INIT_RESPONSE = 0x01,
        /// H2CTermReq: the host terminates the connection and reports the reason.
        HOST_TERMINATES = 0x02,
        /// C2HTermReq: the controller terminates the connection and reports the reason.
        CONTROLLER_TERMINATES = 0x03,
        /// CapsuleCmd: a command, possibly with data.
        COMMAND = 0x04,
        /// CapsuleResp: a completion.
        RESPONSE = 0x05,
        /// H2CData: data that an R2T requested.
        HOST_DATA = 0x06,
        /// C2HData: data that a command reads.
        CONTROLLER_DATA = 0x07,
        /// R2T: the controller is ready for the data of a write.
        READY = 0x09,
    }
}

open_enum! {
    /// The reason for the end of a connection (sections 3.6.2.4 and 3.6.2.5, field FES).
    pub struct FatalStatus(U16) {
        /// A header field is invalid; FEI is the field's offset in the PDU.
        INVALID_FIELD = U16::new(0x01),
        /// The PDU is not expected at this point.
        SEQUENCE = U16::new(0x02),
        /// The header does not match its digest; FEI is the received digest.
        HEADER_DIGEST = U16::new(0x03),
        /// The data lies outside the range of the command or of the R2T.
        OUT_OF_RANGE = U16::new(0x04),
        /// In a C2HTermReq: a PDU carries more data than MAXH2CDATA. In an H2CTermReq: the number
        /// of R2Ts exceeds MAXR2T.
        LIMIT_EXCEEDED = U16::new(0x05),
        /// A parameter is not supported; FEI is its offset in the PDU.
        UNSUPPORTED = U16::new(0x06),
    }
}

layout! {
    /// The beginning of every PDU (section 3.6.1).
    pub struct CommonHeader: 8 {
        /// Type of the PDU.
        [0] pdu_type: PduType,
        /// Bits of [`flags`]; reserved bits are zero.
        [1] flags: u8,
        /// HLEN: length of the header in bytes, without its digest.
        [2] header_bytes: u8,
        /// PDO: offset of the data from the start of the PDU; zero without data.
        [3] data_offset: u8,
        /// PLEN: length of the whole PDU in bytes, digests and padding included.
        [4] pdu_bytes: U32,
    }
}

layout! {
    /// ICReq, the first PDU of the host (section 3.6.2.2).
    pub struct InitRequest: 128 {
        /// The common header.
        [0] common: CommonHeader,
        /// PFV: [`PDU_FORMAT_1_0`].
        [8] format: U16,
        /// HPDA: the alignment of data that the host requires, in units of four bytes, less one.
        [10] alignment: u8,
        /// DGST: [`digests`] that the host requests.
        [11] digests: u8,
        /// MAXR2T: the maximum number of outstanding R2Ts of a command, less one.
        [12] ready_max: U32,
        /// Reserved bytes, which are zero.
        [16] reserved: [u8; 112],
    }
}

layout! {
    /// ICResp, the first PDU of the controller (section 3.6.2.3).
    pub struct InitResponse: 128 {
        /// The common header.
        [0] common: CommonHeader,
        /// PFV: [`PDU_FORMAT_1_0`].
        [8] format: U16,
        /// CPDA: the alignment of data that the controller requires, in units of four bytes, less
        /// one.
        [10] alignment: u8,
        /// DGST: [`digests`] that the connection uses.
        [11] digests: u8,
        /// MAXH2CDATA: the maximum data of an H2CData PDU, in bytes; at least [`DATA_BYTES_LEAST`].
        [12] data_bytes_max: U32,
        /// Reserved bytes, which are zero.
        [16] reserved: [u8; 112],
    }
}

layout! {
    /// H2CTermReq and C2HTermReq (sections 3.6.2.4 and 3.6.2.5); the header of the offending PDU
    /// follows.
    pub struct Terminate: 24 {
        /// The common header.
        [0] common: CommonHeader,
        /// FES: the reason for the end of the connection.
        [8] status: FatalStatus,
        /// FEI: an offset or a digest, as [`FatalStatus`] says; otherwise zero.
        [10] information: U32,
        /// Reserved bytes, which are zero.
        [14] reserved: [u8; 10],
    }
}

layout! {
    /// The head of CapsuleCmd (section 3.6.2.6); the command's data may follow.
    pub struct CommandHead: 72 {
        /// The common header.
        [0] common: CommonHeader,
        /// CCSQE: the submission queue entry.
        [8] entry: [u8; ENTRY_BYTES],
    }
}

layout! {
    /// CapsuleResp, which completes a command (section 3.6.2.7).
    pub struct ResponseHead: 24 {
        /// The common header.
        [0] common: CommonHeader,
        /// RCCQE: the completion queue entry.
        [8] completion: [u8; COMPLETION_BYTES],
    }
}

layout! {
    /// The head of H2CData and C2HData (sections 3.6.2.8 and 3.6.2.9); the data follows.
    pub struct DataHead: 24 {
        /// The common header.
        [0] common: CommonHeader,
        /// CCCID: the command's identifier.
        [8] command: U16,
        /// TTAG: the tag of the R2T that H2CData answers; zero in C2HData.
        [10] tag: U16,
        /// DATAO: offset of the data in the command's buffer, in bytes.
        [12] offset: U32,
        /// DATAL: length of the data in this PDU, in bytes.
        [16] bytes: U32,
        /// Reserved bytes, which are zero.
        [20] reserved: U32,
    }
}

layout! {
    /// R2T, by which the controller asks for data of a write (section 3.6.2.10).
    pub struct ReadyHead: 24 {
        /// The common header.
        [0] common: CommonHeader,
        /// CCCID: the command's identifier.
        [8] command: U16,
        /// TTAG: the tag that the H2CData PDUs return.
        [10] tag: U16,
        /// R2TO: offset of the requested data in the command's buffer, in bytes.
        [12] offset: U32,
        /// R2TL: length of the requested data in bytes.
        [16] bytes: U32,
        /// Reserved bytes, which are zero.
        [20] reserved: U32,
    }
}
