//! An AF_XDP socket at a card: its memory, its rings and its program.
//!
//! All that needs rights happens here, so that the thread that uses the socket needs none.

// UNSAFETY: options of sockets are read and written by pointers.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use contract::{Buf, SizeClass};
use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::mode::XdpMode;
use super::program::Program;
use super::rings::{ConsumerRing, ProducerRing};
use crate::ether::{BusyPolicy, EtherPort};
use crate::{Error, carve};

/// Bytes of a chunk: the most that the kernel takes.
pub(crate) const CHUNK_BYTES: usize = 4096;

/// Chunks that frames are received into, and chunks that frames are sent from. Each is a power of
/// two, and all together stay below 8 MiB, the usual limit of locked memory.
pub(crate) const RECEIVED_MAX: usize = 1024;
pub(super) const SENT_MAX: usize = 512;

/// Entries of the ring of chunks to receive into. The kernel shows a received frame before it shows
/// that it has taken the frame's chunk from this ring: so the ring has room for each chunk twice.
const FILL_MAX: usize = 2 * RECEIVED_MAX;

/// Bytes before a frame in the chunk that it begins in (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;

/// The option by which one call sends more frames than 32 (Linux 6.17), and their number.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
const FRAMES_OF_A_CALL: u32 = SENT_MAX as u32;

/// An AF_XDP socket that is bound to the only queue of a card.
#[derive(Debug)]
pub(crate) struct CardSocket {
    pub(super) socket: OwnedFd,
    pub(super) program: Program,
    pub(super) fill: ProducerRing<u64>,
    pub(super) completions: ConsumerRing<u64>,
    pub(super) received: ConsumerRing<libc::xdp_desc>,
    pub(super) sent: ProducerRing<libc::xdp_desc>,
    /// The chunks, by their numbers: first those for received frames.
    pub(super) chunks: Vec<Buf>,
    /// The card reads and writes the chunks itself.
    pub(super) is_zero_copy: bool,
    /// A frame may lie in several chunks.
    pub(super) has_pieces: bool,
}

impl CardSocket {
    /// Opens an AF_XDP socket for the frames to a port of a card (`ether_port`).
    ///
    /// # Errors
    /// Says which right, queue or feature of the kernel is missing, or who has the card.
    pub(crate) fn open(ether_port: &EtherPort, mode: XdpMode) -> Result<CardSocket, Error> {
        let queues = ether_port.card.queues;
        if queues > 1 {
            return Err(Error::new(format!(
                "the card has {queues} queues, and a frame may come to any of them; expected one, as \
                 after `ethtool -L INTERFACE combined 1`"
            )));
        }
        if ether_port.card.takes_tags_off {
            return Err(Error::new(
                "the card takes the tags of VLANs off, so frames of other VLANs would pass for ours; \
                 expected one that leaves them, as after `ethtool -K INTERFACE rxvlan off`",
            ));
        }
        let opened = match CardSocket::attempt(ether_port, mode, true) {
            // Kernels before 6.6 know no frames of several pieces.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                CardSocket::attempt(ether_port, mode, false)
            }
            result => result,
        };
        opened.map_err(|e| {
            let hint = match e.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    " (AF_XDP needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF)"
                }
                Some(libc::ENOBUFS | libc::ENOMEM) => {
                    " (raise the limit of locked memory, `ulimit -l`, to 8 MiB or more)"
                }
                Some(libc::EBUSY | libc::EEXIST) => {
                    " (another program is at the card, as `ip link show` tells, or another process \
                     has its queue)"
                }
                Some(libc::EAFNOSUPPORT) => " (the kernel has no AF_XDP)",
                _ => "",
            };
            Error::system(format!("cannot open a socket of AF_XDP{hint}"), e)
        })
    }

    fn attempt(ether_port: &EtherPort, mode: XdpMode, has_pieces: bool) -> io::Result<CardSocket> {
        // A kernel without AF_XDP says so here.
        drop(unbound()?);
        // Before there is memory: here most attempts fail that do.
        let attach = || Program::attach(ether_port, mode, has_pieces);
        let program = ether_port.patience.attempt_for_memory(attach)?;
        let has_a_chance = !is_forbidden((RECEIVED_MAX + SENT_MAX) * CHUNK_BYTES);
        let patience = if has_a_chance { ether_port.patience } else { BusyPolicy::Fails };
        let opened = patience
            .attempt_for_memory(|| OpenedSocket::attempt(ether_port, mode, has_pieces, &program))?;
        let is_zero_copy = opened.options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        let Rings { fill, completions, received, sent } = opened.rings;
        Ok(CardSocket {
            socket: opened.socket,
            program,
            fill,
            completions,
            received,
            sent,
            chunks: opened.chunks,
            is_zero_copy,
            has_pieces,
        })
    }

    /// Returns the largest frame in bytes.
    pub(crate) fn frame_bytes(&self) -> usize {
        if self.has_pieces { usize::MAX } else { CHUNK_BYTES - HEADROOM }
    }

    /// Says in words how frames pass the kernel.
    pub(crate) fn way(&self) -> &'static str {
        if self.is_zero_copy { "AF_XDP, zero-copy" } else { "AF_XDP, copied" }
    }
}

/// Returns a socket of AF_XDP without memory.
fn unbound() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened the descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns `true` if the limit of locked memory alone forbids a socket of `bytes` of memory, so
/// that to wait helps nothing.
fn is_forbidden(bytes: usize) -> bool {
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    let is_exempt = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    !is_exempt && limit.is_some_and(|limit| limit < bytes as u64)
}

/// The parts of a socket that are opened anew in each attempt.
struct OpenedSocket {
    socket: OwnedFd,
    rings: Rings,
    options: libc::xdp_options,
    chunks: Vec<Buf>,
}

impl OpenedSocket {
    /// Opens a socket with its memory and binds it to the card of `ether_port`; `program` redirects
    /// frames to the socket.
    fn attempt(
        ether_port: &EtherPort,
        mode: XdpMode,
        has_pieces: bool,
        program: &Program,
    ) -> io::Result<OpenedSocket> {
        let (socket, count) = (unbound()?, RECEIVED_MAX + SENT_MAX);
        let arena = carve(&[SizeClass { bytes: CHUNK_BYTES, count }]);
        let arena =
            arena.map_err(|e| io::Error::from_raw_os_error(e.errno().unwrap_or(libc::ENOMEM)))?;
        let opened = Rings::map(&socket, arena.base as u64, count).and_then(|rings| {
            bind(&socket, ether_port, mode, has_pieces)?;
            program.give_to(&socket)?;
            Ok((rings, get::<libc::xdp_options>(&socket, libc::XDP_OPTIONS)?))
        });
        let (rings, options) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                // SAFETY: no buffer was taken out. The kernel keeps pages that it still uses.
                unsafe { arena.unmap() };
                return Err(e);
            }
        };
        // Older kernels send 32 frames a call, and are called again.
        let _ = set(&socket, XDP_MAX_TX_SKB_BUDGET, &FRAMES_OF_A_CALL);
        Ok(OpenedSocket { socket, rings, options, chunks: arena.bufs })
    }
}

/// The four rings of a socket.
struct Rings {
    fill: ProducerRing<u64>,
    completions: ConsumerRing<u64>,
    received: ConsumerRing<libc::xdp_desc>,
    sent: ProducerRing<libc::xdp_desc>,
}

impl Rings {
    /// Gives a socket `count` chunks of memory, and maps its rings.
    fn map(socket: &OwnedFd, chunks: u64, count: usize) -> io::Result<Rings> {
        let memory = libc::xdp_umem_reg {
            addr: chunks,
            len: (count * CHUNK_BYTES) as u64,
            chunk_size: CHUNK_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(socket, libc::XDP_UMEM_REG, &memory)?;
        set(socket, libc::XDP_UMEM_FILL_RING, &(FILL_MAX as u32))?;
        set(socket, libc::XDP_UMEM_COMPLETION_RING, &(SENT_MAX as u32))?;
        set(socket, libc::XDP_RX_RING, &(RECEIVED_MAX as u32))?;
        set(socket, libc::XDP_TX_RING, &(SENT_MAX as u32))?;
        let at: libc::xdp_mmap_offsets = get(socket, libc::XDP_MMAP_OFFSETS)?;
        let by = socket.as_fd();
        let fill = ProducerRing::map(by, libc::XDP_UMEM_PGOFF_FILL_RING, &at.fr, FILL_MAX as u32)?;
        let completed = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let completions = ConsumerRing::map(by, completed, &at.cr, SENT_MAX as u32)?;
        let received =
            ConsumerRing::map(by, libc::XDP_PGOFF_RX_RING as u64, &at.rx, RECEIVED_MAX as u32)?;
        let sent = ProducerRing::map(by, libc::XDP_PGOFF_TX_RING as u64, &at.tx, SENT_MAX as u32)?;
        Ok(Rings { fill, completions, received, sent })
    }
}

/// Binds the socket to the only queue of the card of `ether_port`, zero-copy where the driver
/// supports it.
fn bind(
    socket: &OwnedFd,
    ether_port: &EtherPort,
    mode: XdpMode,
    has_pieces: bool,
) -> io::Result<()> {
    let pieces = if has_pieces { libc::XDP_USE_SG } else { 0 };
    let copies = match mode {
        XdpMode::Generic => libc::XDP_COPY,
        XdpMode::Native => 0,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP | pieces | copies,
        sxdp_ifindex: ether_port.card.index as u32,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    ether_port.patience.attempt_after_ring(|| {
        // SAFETY: the kernel reads the address, which outlives the call.
        let result = unsafe {
            let bytes = size_of_val(&address) as libc::socklen_t;
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    })
}

/// Sets an option of the socket.
fn set<T: Copy>(socket: &OwnedFd, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads the value, which outlives the call.
    let result = unsafe {
        let (at, bytes): (*const T, _) = (value, size_of::<T>() as libc::socklen_t);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, at.cast(), bytes)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A structure of the kernel for which every pattern of bits is a value.
trait PlainOldData: Copy {}
impl PlainOldData for libc::xdp_mmap_offsets {}
impl PlainOldData for libc::xdp_options {}

/// Reads an option of the socket.
fn get<T: PlainOldData>(socket: &OwnedFd, name: i32) -> io::Result<T> {
    // SAFETY: every pattern of bits is a value.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to the value, which outlives the call.
    let result = unsafe {
        let to = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, to, &raw mut bytes)
    };
    match result {
        0 if bytes as usize == size_of::<T>() => Ok(value),
        0 => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        _ => Err(io::Error::last_os_error()),
    }
}

const _: () = assert!(offset_of!(libc::xdp_desc, options) == 12, "the kernel's layout");
