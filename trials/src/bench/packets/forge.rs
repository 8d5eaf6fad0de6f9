//! `trials forge`: sends forged packets to a server as fast as it can, as somebody would who sees
//! the packets of a client; and `trials sink`, which receives packets and throws them away.
//!
//! The packets come from the address and port of the client, by a raw socket, so that the server
//! looks into them. A quarter of the packets each is random bytes, replays, packets with a wrong
//! cookie, association or number, and packets that were cut. An unsealed packet with everything
//! right is not made: no endpoint could tell it from the client's (docs/explanation/packets.md).

use std::io::IoSlice;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::num::Wrapping;
use std::time::{Duration, Instant};

use clap::Args;
use crc::Crc32c;
use rustix::net::{self, AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketType};
use rustix::net::{RecvFlags, SocketAddrAny, SocketFlags, sockopt};
use wire::packets::{FLAG_SEALED, PacketHead};
use zerocopy::{FromBytes, IntoBytes};

/// The number of packets that are captured, and the time limit for it.
const CAPTURED: usize = 64;
const CAPTURE_MAX: Duration = Duration::from_secs(20);

/// The number of different forged packets, and of packets in one system call.
const FORGED: usize = 1024;
const AT_ONCE: usize = 32;

/// The lengths of random packets.
const RANDOM_MAX: u64 = 1400;

/// The interval at which the number of sent packets is printed.
const PRINT_EVERY: Duration = Duration::from_millis(100);

/// Bytes of the head of UDP, and of the packets' own.
const UDP_BYTES: usize = 8;
const HEAD_BYTES: usize = size_of::<PacketHead>();

/// Options of `trials forge`.
#[derive(Args)]
pub(crate) struct ForgeOptions {
    /// Send the packets to this address
    #[arg(long)]
    to: SocketAddr,
    /// Forge the packets that go to this UDP port
    #[arg(long)]
    seen: u16,
    /// Send at most this many packets a second
    #[arg(long, default_value_t = 1_000_000)]
    rate: u32,
    /// Seed the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Options of `trials sink`.
#[derive(Args)]
pub(crate) struct SinkOptions {
    /// Receive packets at this address
    #[arg(long)]
    at: SocketAddr,
}

/// Captures packets, and sends forged ones until it is killed. Prints how many it has sent so far.
pub(crate) fn run(options: &ForgeOptions) -> Result<(), String> {
    println!("ready {}", options.to);
    let mut chance = Rng(Wrapping(options.seed));
    let captured = capture(options.seen)?;
    let SocketAddr::V4(to) = options.to else { return Err("expected an IPv4 address".to_owned()) };
    let forged: Vec<Vec<u8>> = (0..FORGED)
        .map(|nth| {
            let seen = &captured[chance.below(captured.len() as u64) as usize];
            datagram(seen.from, to, &forge(nth, &seen.packet, &mut chance))
        })
        .collect();
    let raw = Some(net::ipproto::RAW);
    let socket = net::socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, raw);
    let socket = socket.map_err(|error| format!("a raw socket: {error}"))?;
    let to = SocketAddrAny::from(to);
    let slices: Vec<[IoSlice<'_>; 1]> = forged.iter().map(|one| [IoSlice::new(one)]).collect();
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
        slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let parts = slices.iter().zip(&mut controls);
    let mut messages: Vec<MMsgHdr<'_>> =
        parts.map(|(slice, control)| MMsgHdr::new_with_addr(&to, slice, control)).collect();
    let (began, mut sent, mut printed) = (Instant::now(), 0, Instant::now());
    for batch in (0..FORGED / AT_ONCE).cycle() {
        let messages = &mut messages[batch * AT_ONCE..][..AT_ONCE];
        match net::sendmmsg(&socket, messages, SendFlags::empty()) {
            Ok(count) => sent += count as u64,
            // The answers to earlier packets, and full queues, are no reason to stop.
            Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOBUFS) => {}
            Err(error) => return Err(format!("sending to {}: {error}", options.to)),
        }
        if printed.elapsed() >= PRINT_EVERY {
            printed = Instant::now();
            println!("sent {sent} seconds {:.3}", began.elapsed().as_secs_f64());
        }
        while sent as f64 > began.elapsed().as_secs_f64() * f64::from(options.rate) {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Receives packets and throws them away, until it is killed.
pub(crate) fn sink(options: &SinkOptions) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", options.at);
    let socket = UdpSocket::bind(options.at).map_err(failed)?;
    println!("ready {}", options.at);
    let mut buffer = vec![0; 1 << 16];
    loop {
        socket.recv(&mut buffer).map_err(failed)?;
    }
}

/// A packet of a client, and the UDP port that it came from.
#[derive(Debug, PartialEq, Eq)]
struct CapturedPacket {
    from: u16,
    packet: Vec<u8>,
}

/// Captures packets that go to a UDP port from here. Needs root.
fn capture(port: u16) -> Result<Vec<CapturedPacket>, String> {
    let failed = |error: rustix::io::Errno| format!("capturing packets: {error}");
    let all = Some(net::eth::ALL);
    let kind = SocketType::DGRAM;
    let socket = net::socket_with(AddressFamily::PACKET, kind, SocketFlags::CLOEXEC, all);
    let socket = socket.map_err(failed)?;
    let limit = Some(Duration::from_millis(100));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, limit).map_err(failed)?;
    let (mut captured, mut buffer, began) = (Vec::new(), vec![0; 1 << 16], Instant::now());
    while captured.len() < CAPTURED {
        match net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((length, _)) => captured.extend(seen(&buffer[..length], port)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        if began.elapsed() > CAPTURE_MAX {
            return Err(format!("few packets go to port {port}: {}", captured.len()));
        }
    }
    Ok(captured)
}

/// Returns the first packet in the IPv4 datagram, if that goes to the UDP port.
fn seen(datagram: &[u8], port: u16) -> Option<CapturedPacket> {
    let head = usize::from(datagram.first().filter(|first| **first >> 4 == 4)? & 15) * 4;
    let is_udp = datagram.get(9) == Some(&17);
    let udp = datagram.get(head..).filter(|udp| is_udp && udp.len() >= UDP_BYTES)?;
    let payload = (udp[2..4] == port.to_be_bytes()).then_some(&udp[UDP_BYTES..])?;
    // A large datagram is cut into packets further down.
    let (head, _) = PacketHead::read_from_prefix(payload).ok()?;
    let length = usize::from(head.bytes.get());
    let packet = payload.get(..length).filter(|packet| packet.len() >= HEAD_BYTES)?.to_vec();
    Some(CapturedPacket { from: u16::from_be_bytes([udp[0], udp[1]]), packet })
}

/// Returns an IPv4 datagram with a packet. The kernel fills in its source address, length and
/// checksum. The checksum of UDP is left out.
fn datagram(from: u16, to: SocketAddrV4, packet: &[u8]) -> Vec<u8> {
    let (ttl, udp) = (64, 17);
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, ttl, udp, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&to.ip().octets());
    let length = (UDP_BYTES + packet.len()) as u16;
    for field in [from, to.port(), length, 0] {
        bytes.extend_from_slice(&field.to_be_bytes());
    }
    bytes.extend_from_slice(packet);
    bytes
}

/// Makes a forged packet of the kind of number `nth` from one that was captured.
fn forge(nth: usize, captured: &[u8], chance: &mut Rng) -> Vec<u8> {
    let mut packet = captured.to_vec();
    match nth % 4 {
        0 => {
            packet.resize(1 + chance.below(RANDOM_MAX) as usize, 0);
            packet.fill_with(|| chance.below(256) as u8);
        }
        1 => {}
        2 => mislead(&mut packet, chance),
        _ => packet.truncate(1 + chance.below(packet.len() as u64 - 1) as usize),
    }
    packet
}

/// Gives a packet a wrong cookie, association or, if it is sealed, number. The checksum of one that
/// is not sealed is right.
fn mislead(packet: &mut [u8], chance: &mut Rng) {
    let (mut head, _) = PacketHead::read_from_prefix(packet).expect("captured packets have heads");
    let is_sealed = head.flags & FLAG_SEALED != 0;
    match chance.below(if is_sealed { 3 } else { 2 }) {
        0 => head.cookie.set(head.cookie.get() ^ (1 + chance.below(u64::MAX))),
        1 => head.association.set(head.association.get() ^ (1 + chance.below(4095) as u32)),
        _ => head.number.set(head.number.get().wrapping_add(1 + chance.below(1 << 20) as u32)),
    }
    if !is_sealed {
        head.crc32c = 0.into();
    }
    packet[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    if !is_sealed {
        head.crc32c = Crc32c::of(packet).into();
        packet[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    }
}

/// A generator of random numbers with a seed (SplitMix64).
struct Rng(Wrapping<u64>);

impl Rng {
    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 += 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0;
        z = (z ^ (z >> 30)) * Wrapping(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)) * Wrapping(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).0 % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a packet as a client sends it, with or without a seal.
    fn whole(flags: u8) -> Vec<u8> {
        let mut packet = vec![7; 100];
        let (mut head, _) = PacketHead::read_from_prefix(&packet[..]).unwrap();
        (head.version_kind, head.flags) = (16, flags);
        (head.bytes, head.crc32c) = (100.into(), 0.into());
        packet[..HEAD_BYTES].copy_from_slice(head.as_bytes());
        head.crc32c = Crc32c::of(&packet).into();
        packet[..HEAD_BYTES].copy_from_slice(head.as_bytes());
        packet
    }

    fn head(packet: &[u8]) -> PacketHead {
        PacketHead::read_from_prefix(packet).unwrap().0
    }

    #[test]
    fn no_forged_packet_has_everything_right() {
        let mut chance = Rng(Wrapping(1));
        let captured = whole(0);
        for nth in 0..400 {
            let packet = forge(nth, &captured, &mut chance);
            match nth % 4 {
                1 => assert_eq!(packet, captured, "a replay"),
                2 => {
                    let (ours, theirs) = (head(&packet), head(&captured));
                    assert_eq!(ours.number, theirs.number);
                    assert!(ours.cookie != theirs.cookie || ours.association != theirs.association);
                    let mut zeroed = packet.clone();
                    zeroed[HEAD_BYTES - 4..HEAD_BYTES].fill(0);
                    assert_eq!(Crc32c::of(&zeroed), ours.crc32c.get(), "the server looks further");
                }
                _ => assert_ne!(packet, captured),
            }
        }
        let mut sealed = whole(FLAG_SEALED);
        mislead(&mut sealed, &mut chance);
        assert_eq!(head(&sealed).crc32c, head(&whole(FLAG_SEALED)).crc32c, "a path and a phase");
    }

    #[test]
    fn the_first_packet_of_a_datagram_to_the_port_is_captured() {
        let (packet, to) = (whole(0), SocketAddrV4::new([10, 0, 0, 1].into(), 7420));
        let mut bytes = datagram(999, to, &packet);
        assert_eq!(bytes.len(), 128);
        bytes.extend_from_slice(&packet);
        assert_eq!(seen(&bytes, 7420), Some(CapturedPacket { from: 999, packet }));
        assert_eq!(seen(&bytes, 7421), None);
        assert_eq!(seen(&bytes[..60], 7420), None);
        bytes[9] = 6;
        assert_eq!(seen(&bytes, 7420), None);
        assert_eq!(seen(&[], 7420), None);
    }
}
