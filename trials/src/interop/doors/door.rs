//! The kinds of clients (doors) whose instructions are compared.

/// A kind of client through which a guest's reads reach a volume, or a device without a server for
/// comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// No client: a block device of the guest that answers at once.
    Nothing,
    Nvme,
    Nbd,
    Iscsi,
    /// `nearflash attach` with its default options.
    Attach,
    /// `nearflash attach` with options by which it sleeps when there is nothing to do.
    AttachSleeping,
}

impl Door {
    pub(super) const ALL: [Door; 6] =
        [Door::Nothing, Door::Nvme, Door::Nbd, Door::Iscsi, Door::Attach, Door::AttachSleeping];

    /// Returns the name of the door's block device in the guest.
    pub(super) fn device(self) -> &'static str {
        match self {
            Door::Nothing => "nullb0",
            Door::Nvme => "nvme0n1",
            Door::Nbd => "nbd0",
            Door::Iscsi => "sda",
            Door::Attach => "ublkb0",
            Door::AttachSleeping => "ublkb1",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Door::Nothing => "null_blk (the load alone)",
            Door::Nvme => "kernel NVMe/TCP host",
            Door::Nbd => "kernel NBD client",
            Door::Iscsi => "kernel iSCSI initiator",
            Door::Attach => "nearflash attach",
            Door::AttachSleeping => "nearflash attach --spin 0",
        }
    }
}

/// The numbers of reads in flight that are measured.
pub(super) const DEPTHS: [u32; 2] = [1, 32];
