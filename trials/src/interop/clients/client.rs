//! The kinds of clients (clients) whose instructions are compared.

/// A kind of client through which a guest's reads reach a volume, or a device without a server for
/// comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
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

impl Client {
    pub(super) const ALL: [Client; 6] = [
        Client::Nothing,
        Client::Nvme,
        Client::Nbd,
        Client::Iscsi,
        Client::Attach,
        Client::AttachSleeping,
    ];

    /// Returns the name of the client's block device in the guest.
    pub(super) fn device(self) -> &'static str {
        match self {
            Client::Nothing => "nullb0",
            Client::Nvme => "nvme0n1",
            Client::Nbd => "nbd0",
            Client::Iscsi => "sda",
            Client::Attach => "ublkb0",
            Client::AttachSleeping => "ublkb1",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Nothing => "null_blk (the load alone)",
            Client::Nvme => "kernel NVMe/TCP host",
            Client::Nbd => "kernel NBD client",
            Client::Iscsi => "kernel iSCSI initiator",
            Client::Attach => "nearflash attach",
            Client::AttachSleeping => "nearflash attach --spin 0",
        }
    }
}

/// The numbers of reads in flight that are measured.
pub(super) const DEPTHS: [u32; 2] = [1, 32];
