//! The program at a card that gives the frames for our port to a socket, and all others to the
//! kernel.
//!
//! The program is twenty-one instructions, so they are written here: no compiler and no library for
//! BPF is needed. The kernel verifies them when they are loaded (Linux's `Documentation/bpf`;
//! RFC 9669).

// UNSAFETY: attributes of bpf(2) are passed by pointers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use contract::Mac;

use super::mode::XdpMode;
use crate::ether::{ETHERTYPE, EtherPort};

/// Commands, types and flags of bpf(2) (`linux/bpf.h`).
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const F_XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The number of the function that gives a frame to a socket of a map.
const REDIRECT_MAP: i32 = 51;

/// The verdict that leaves a frame to the kernel.
const XDP_PASS: i32 = 2;

/// Offsets in the context of a program (`struct xdp_md`).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

/// Bytes of a frame's head and the ports behind it.
const HEAD_BYTES: i32 = 18;

/// An instruction: operation, registers, offset and operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    operand: i32,
}

/// Copies a register.
const fn copy(to: u8, from: u8) -> Instruction {
    Instruction { code: 0xbf, registers: from << 4 | to, offset: 0, operand: 0 }
}

/// Sets a register to a number.
const fn set(to: u8, operand: i32) -> Instruction {
    Instruction { code: 0xb7, registers: to, offset: 0, operand }
}

/// Adds a number to a register.
const fn add(to: u8, operand: i32) -> Instruction {
    Instruction { code: 0x07, registers: to, offset: 0, operand }
}

/// Loads a word of four bytes.
const fn word(to: u8, from: u8, offset: i16) -> Instruction {
    Instruction { code: 0x61, registers: from << 4 | to, offset, operand: 0 }
}

/// Loads two bytes.
const fn half(to: u8, from: u8, offset: i16) -> Instruction {
    Instruction { code: 0x69, registers: from << 4 | to, offset, operand: 0 }
}

/// Jumps over so many instructions if the lower half of a register is another number.
const fn unless(of: u8, operand: i32, offset: i16) -> Instruction {
    Instruction { code: 0x56, registers: of, offset, operand }
}

/// Jumps over so many instructions if one register is greater than the other.
const fn if_greater(of: u8, than: u8, offset: i16) -> Instruction {
    Instruction { code: 0x2d, registers: than << 4 | of, offset, operand: 0 }
}

const EXIT: Instruction = Instruction { code: 0x95, registers: 0, offset: 0, operand: 0 };

/// Returns the instructions for a map of sockets: frames of our type to a card's port go to the
/// socket of the queue that they arrived at.
fn instructions(map: i32, mac: Mac, port: u16) -> [Instruction; 21] {
    let [a, b, c, d, e, f] = mac.0;
    // As a load from memory sees them.
    let (low, high) = (i32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([e, f]));
    let (kind, port) = (ETHERTYPE.to_be(), port.to_be());
    [
        word(2, 1, DATA),
        word(3, 1, DATA_END),
        copy(4, 2),
        add(4, HEAD_BYTES),
        if_greater(4, 3, 14),
        word(5, 2, 0),
        unless(5, low, 12),
        half(5, 2, 4),
        unless(5, i32::from(high), 10),
        half(5, 2, 12),
        unless(5, i32::from(kind), 8),
        half(5, 2, 14),
        unless(5, i32::from(port), 6),
        word(2, 1, RX_QUEUE_INDEX),
        // An address of a map takes two instructions, and the kernel puts it in.
        Instruction { code: 0x18, registers: 1 << 4 | 1, offset: 0, operand: map },
        Instruction { code: 0, registers: 0, offset: 0, operand: 0 },
        // The verdict if no socket has the queue.
        set(3, XDP_PASS),
        Instruction { code: 0x85, registers: 0, offset: 0, operand: REDIRECT_MAP },
        EXIT,
        set(0, XDP_PASS),
        EXIT,
    ]
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Calls bpf(2).
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads the attributes, and what they point to, which outlive the call; it
    // writes to none of it.
    let result = unsafe {
        let at: *const T = attributes;
        libc::syscall(libc::SYS_bpf, command, at, size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The number of times that the kernel is asked to verify a program.
const VERIFY_TRIES: u32 = 100;

/// Makes the attempt again, up to [`VERIFY_TRIES`] times, while it fails with `EAGAIN`. The
/// verifier gives up with that error as soon as its thread has a signal to handle, and io_uring
/// notifies a thread of completed calls by one.
fn uninterrupted<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..VERIFY_TRIES {
        match attempt() {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
            result => return result,
        }
    }
    attempt()
}

fn descriptor<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: these commands return a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A program at a card. It is detached when the value is dropped, and when the process ends.
#[derive(Debug)]
pub(super) struct Program {
    map: OwnedFd,
    /// Keeps the program at the card.
    link: Option<OwnedFd>,
}

impl Program {
    /// Attaches an XDP program to the card of `ether_port`, for frames to its port. With `frags`,
    /// the program accepts frames in several buffers.
    ///
    /// # Errors
    /// Fails without rights, and where another program is attached.
    pub(super) fn attach(
        ether_port: &EtherPort,
        mode: XdpMode,
        frags: bool,
    ) -> io::Result<Program> {
        let sockets = MapCreate {
            map_type: MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: 1,
            map_flags: 0,
        };
        let map = descriptor(MAP_CREATE, &sockets)?;
        let steps = instructions(map.as_raw_fd(), ether_port.card.mac, ether_port.port);
        let mut name = [0; 16];
        name[..9].copy_from_slice(b"nearflash");
        let load = ProgLoad {
            prog_type: PROG_TYPE_XDP,
            instructions: steps.len() as u32,
            first: steps.as_ptr() as u64,
            license: c"MIT".as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel_version: 0,
            flags: if frags { F_XDP_HAS_FRAGS } else { 0 },
            name,
            interface: 0,
            attach_type: ATTACH_TYPE_XDP,
        };
        let program = uninterrupted(|| descriptor(PROG_LOAD, &load))?;
        let link = LinkCreate {
            program: program.as_raw_fd() as u32,
            interface: ether_port.card.index as u32,
            attach_type: ATTACH_TYPE_XDP,
            flags: match mode {
                XdpMode::Generic => XDP_FLAGS_SKB_MODE,
                XdpMode::Native => XDP_FLAGS_DRV_MODE,
            },
        };
        let link = ether_port.patience.attempt(|| descriptor(LINK_CREATE, &link))?;
        Ok(Program { map, link: Some(link) })
    }

    /// Gives the frames of the first queue to a socket.
    pub(super) fn give_to(&self, socket: impl AsFd) -> io::Result<()> {
        let (key, value) = (0u32, socket.as_fd().as_raw_fd());
        let update = MapUpdate {
            map: self.map.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const key) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE, &update).map(drop)
    }

    /// Detaches the program: all frames go to the kernel from now on.
    pub(super) fn detach(&mut self) {
        self.link = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verification_that_a_signal_interrupts_is_repeated_a_limited_number_of_times() {
        let mut asked = 0;
        let mut answer = |good_at: u32| {
            asked = 0;
            let result = uninterrupted(|| {
                asked += 1;
                let error = io::Error::from_raw_os_error(libc::EAGAIN);
                if asked == good_at { Ok(()) } else { Err(error) }
            });
            (result.is_ok(), asked)
        };
        assert_eq!(answer(3), (true, 3));
        assert_eq!(answer(0), (false, VERIFY_TRIES));
        let refuse = || Err::<(), _>(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(uninterrupted(refuse).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn every_jump_leads_to_the_verdict_for_others() {
        let steps = instructions(7, Mac([2, 0, 0, 0, 0, 1]), 7420);
        let pass = steps.len() - 2;
        assert_eq!((steps[pass], steps[pass + 1]), (set(0, XDP_PASS), EXIT));
        let mut jumps = 0;
        for (n, step) in steps.iter().enumerate() {
            if matches!(step.code, 0x56 | 0x2d) {
                assert_eq!(n + 1 + step.offset as usize, pass, "instruction {n}");
                jumps += 1;
            }
        }
        assert_eq!(jumps, 5);
        assert_eq!(size_of::<Instruction>(), 8);
    }
}
