//! Coverage marks: the faults and branches that a run has reached. A world that never fills a queue
//! does not test the full queue, so the runs of many seeds fail if a mark stays at zero.

use std::cell::Cell;
use std::rc::Rc;

/// Declares the marks, with the meaning of each for the table.
macro_rules! marks {
    ($($name:ident: $meaning:literal),+ $(,)?) => {
        /// A fault or branch that a run should reach.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mark {
            $(#[doc = $meaning] $name),+
        }

        impl Mark {
            /// Every mark with its meaning.
            pub const ALL: &[(Mark, &str)] = &[$((Mark::$name, $meaning)),+];
        }
    };
}

marks! {
    SegmentsCut: "sends cut into segments",
    PieceOfOneByte: "receives of a single byte",
    SendBlocked: "sends that waited for the peer's window",
    FramesCoalesced: "sends of several frames at once",
    ReceiveDry: "receives that found no buffer",
    FramesFull: "frame stores filled to the last place",
    FilledWhole: "payloads whose rest was received where it belongs",
    FilledInPart: "receives into payloads that took less than was asked for",
    FilledNothing: "buffers that came back from a connection as they were",
    FillRefused: "receives into payloads that were refused",
    PausedStillDelivered: "bytes that still came after a pause",
    Paused: "connections paused",
    HungUpWhilePaused: "connections whose end was noticed while they were not read",
    Resumed: "connections resumed",
    ResetByNetwork: "connections reset by the network",
    ResetMidMessage: "connections ended with a message half delivered",
    FinByNetwork: "connections ended in order by the network",
    WentDark: "connections that fell silent without an end",
    HalfOpen: "dials that only the client believes in",
    DialRefused: "dials refused",
    DialFailedAtOnce: "dials that never became a connection",
    PlaceReused: "places of connections used again",
    SentToGone: "frames sent to connections that were gone",
    SendCutByClose: "sends that the end of a connection cut",
    FinishWaited: "finished connections whose peer closed",
    FinishExpired: "finished connections whose peer did not close in time",
    AtAnotherWorker: "clients that came back at another worker",
    Drained: "workers that drained to the end",
    Restarted: "servers that stopped and started again",
    DeviceFailed: "device commands that failed",
    DeviceTorn: "device writes that were torn",
    DeviceStalled: "stalls of a device",
    DeviceLate: "device commands that took very long",
    FinishedAfterClose: "device commands that ended after their connection",
    DeviceFull: "device queues without room",
    PoolEmpty: "buffer pools of workers found empty",
    Reissued: "requests that the device saw more than once",
    OutlivedAcknowledgement: "writes with several copies that were acknowledged",
    LostConnection: "requests that ended as lost with their connection",
    AnsweredRetry: "requests answered with retry",
    AnsweredError: "requests answered with a media error",
    AnsweredRange: "requests answered as out of range",
    NoticeDraining: "clients told of a drain",
    ServerSilent: "servers given up as silent",
    CompareWon: "compare-and-writes that won",
    CompareLost: "compare-and-writes that lost",
    AtomicRead: "atomic groups read back",
    BarrierOrdered: "pairs of writes that a barrier ordered",
    ReadChecked: "reads checked against the model",
    ReadOfRacing: "reads that raced with a write",
    HugeRequest: "requests of at least 256 KiB",
    VersionOne: "requests of version 1 that succeeded",
    TenantOfClient: "tenants registered by clients",
    TenantOfOperator: "tenants registered by the operator",
    TenantChanged: "tenants whose SLO was changed",
    TenantRefused: "tenants refused for want of tokens or numbers",
    TenantsFull: "tables of tenants found full",
    TenantLeaving: "tenants seen leaving with requests in flight",
    TenantGone: "numbers of tenants that became free again",
    TenantDenied: "registers denied, because the name was somebody else's",
    TenantCharged: "requests charged to a registered tenant that succeeded",
    AnsweredNoTenant: "requests answered as charged to no tenant",
    NoticeRenegotiate: "clients told to renegotiate",
    TokensAddUp: "servers whose tokens were counted at their end",
    Detached: "connections taken out of a worker",
    MovedLanded: "connections that moved to another worker",
    MovedBack: "connections that found no room at another worker",
    MovedBusy: "moves given up because the connection did not become quiet",
    MovedGone: "moves given up because the connection had gone",
    MovedQueued: "requests that moved while they waited for tokens",
    MovedHeld: "requests that moved behind a barrier",
    MovedMidPayload: "payloads that moved when a part had come",
    MovedUnparsed: "connections that moved with bytes that nobody had parsed",
    MovedQueue: "I/O queues of NVMe hosts that moved",
    MovedAdmin: "other connections of NVMe hosts that moved: admin queues, and such as have none yet",
    MovedPutOff: "requests that moved before their payload was asked for",
    MovedNbd: "NBD connections that moved",
    MovedTooEarly: "NBD connections that stayed because no export was chosen yet",
    MovedNoPackets: "connections over packets that stayed where they were",
    Killed: "servers killed",
    LostBegun: "writes of lost NBD connections that a device had begun",
    LostUnbegun: "writes of lost NBD connections that no device had begun",
    NbdConnected: "NBD connections that chose their export",
    NbdCut: "NBD connections cut in the middle of a request",
    NbdHungUp: "NBD connections closed with requests in flight",
    NbdLeft: "NBD connections that their client ended in order",
    NbdLost: "NBD requests that ended as lost with their connection",
    NbdBig: "NBD requests that were cut and succeeded",
    NbdForced: "durable NBD writes",
    NbdFlushed: "NBD flushes",
    NbdZeroed: "NBD writes of zeroes",
    NbdTrimmed: "NBD trims",
    AttachKilled: "processes of attached volumes killed, by queue",
    AttachUnheard: "completions that died with their process",
    AttachInherited: "requests of a block device that a successor completed",
    AttachFlushed: "flushes of a block device",
    AttachFailed: "requests of a block device that failed for want of a server",
    PacketLost: "packets lost",
    PacketDamaged: "packets damaged",
    PacketSwallowed: "packets too large for their path",
    PacketsDark: "hosts that no packet reached for a while",
    PacketsReplayed: "repetitions of old packets",
    NvmeConnected: "I/O queues that NVMe hosts connected",
    NvmeReconnected: "NVMe hosts that connected again",
    NvmeKeptAlive: "keep-alives that were answered",
    NvmeDozed: "NVMe connections that ended while their host dozed",
    NvmeCut: "NVMe connections cut in the middle of a PDU",
    NvmeInCapsule: "payloads in capsules",
    NvmeInvited: "payloads that NVMe hosts were asked for",
    NvmeWaited: "turns with payloads that wait to be asked for",
    NvmeDigested: "NVMe requests with digests that succeeded",
    NvmeReissued: "NVMe requests that were sent again and succeeded",
    NvmeRewritten: "NVMe writes that were sent again and succeeded",
    NvmeNotRewritten: "NVMe writes given up, because the lost controller was not known to be gone",
    NvmeBusy: "turns that found another thread inside the NVMe fabric",
    NvmeFenced: "turns with NVMe writes that wait for those of a lost controller",
    NvmeFlushed: "NVMe flushes",
    NvmeZeroed: "NVMe writes of zeroes",
    NvmeDiscarded: "NVMe deallocations",
    NvmeCompared: "NVMe compares that ended as equal or not",
    NvmeFusedWon: "fused compare-and-writes that won",
    NvmeFusedLost: "fused compare-and-writes that lost",
    HostileEnded: "hostile connections ended by the server",
    HostileFlood: "hostile floods that the server stopped reading",
    HostileHalf: "hostile messages left half sent",
    HostileStuck: "hostile connections ended for being stuck",
    HostileWrote: "hostile writes inside the hostile namespace",
    RaiderHalf: "attackers that sent half of a payload",
    RaiderUnread: "attackers that read no data",
    RaiderDeaf: "attackers that read no answers without data",
    RaiderSlow: "attackers that read a little now and then",
    RaiderDrip: "attackers that sent a payload byte by byte",
    RaiderGreedy: "attackers that asked for all they could get",
    RaiderCut: "attackers ended for being stuck",
    RaiderReplaced: "attackers that came again",
}

/// The number of times that each mark was reached; clones count together.
#[derive(Clone, Debug)]
pub struct Marks {
    counts: Rc<[Cell<u64>]>,
}

impl Default for Marks {
    fn default() -> Self {
        Marks { counts: Mark::ALL.iter().map(|_| Cell::new(0)).collect() }
    }
}

impl Marks {
    /// Counts a mark once.
    pub fn hit(&self, mark: Mark) {
        self.add(mark, 1);
    }

    /// Counts a mark several times.
    pub fn add(&self, mark: Mark, count: u64) {
        let cell = &self.counts[mark as usize];
        cell.set(cell.get() + count);
    }

    /// Returns how many times a mark was reached.
    pub fn count(&self, mark: Mark) -> u64 {
        self.counts[mark as usize].get()
    }

    /// Returns the marks that were never reached.
    pub fn missing(&self) -> impl Iterator<Item = (Mark, &'static str)> + '_ {
        Mark::ALL.iter().copied().filter(|&(mark, _)| self.count(mark) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_count_together() {
        let marks = Marks::default();
        assert_eq!(marks.missing().count(), Mark::ALL.len());
        marks.clone().add(Mark::Paused, 2);
        assert_eq!(marks.count(Mark::Paused), 2);
        assert!(marks.missing().all(|(mark, _)| mark != Mark::Paused));
    }
}
