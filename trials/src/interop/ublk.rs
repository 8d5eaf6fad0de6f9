//! Tests of volumes as block devices of a guest through its kernel's driver ublk_drv: verified
//! data, partitions and file systems, refusals, and kills of the server and of the process that
//! serves the device.

pub(super) mod devices;
pub(super) mod failures;
mod fixture;
pub(super) mod impairments;
pub(super) mod resize;
