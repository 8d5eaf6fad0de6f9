//! Requests over nearflash's packets: a thread at each end, whose turns receive, serve and
//! send, with at most one system call each.

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::Duration;

use contract::{
    Buf, ConnId, Dial, Frame, FrameHead, Instant, ListenerId, NetEvent, Streams, TurnOutcome,
};
use nearflash_io::{
    Clock, Endpoint, Error, Listener, Network, PacketSockets, Ring, SocketsConfig, SpinPolicy,
};

use crate::stamps::{Point, stamp};
use crate::yardstick::{HEAD_BYTES, Op, head};
use crate::{DISK_BYTES, Measured, Options, Variant};

/// The sockets of an end, and the bytes of the message that is arriving.
struct End {
    sockets: PacketSockets,
    events: Vec<NetEvent>,
    input: Vec<u8>,
    bodies: Vec<Buf>,
    conn: Option<ConnId>,
    is_target: bool,
}

impl End {
    fn new(ring: &Ring, is_target: bool) -> Result<End, Error> {
        let config =
            SocketsConfig { connections_max: 8, frames_max: 64, ..SocketsConfig::default() };
        let sockets = PacketSockets::new(ring, config)?;
        let (events, bodies) = (Vec::with_capacity(64), Vec::new());
        Ok(End { sockets, events, input: Vec::new(), bodies, conn: None, is_target })
    }

    /// Receives packets that have arrived. Returns `true` if there were any.
    fn poll(&mut self, now: Instant) -> bool {
        self.sockets.poll(now, &mut self.events, 64);
        let progressed = !self.events.is_empty();
        for event in self.events.drain(..) {
            match event {
                NetEvent::Opened { conn, .. } => self.conn = Some(conn),
                NetEvent::Received { buf, len, .. } => {
                    self.input.extend_from_slice(&buf.bytes()[..len]);
                    self.sockets.give(buf);
                }
                NetEvent::Sent { buf, .. } => self.bodies.push(buf),
                NetEvent::Closed { .. } if self.is_target => {} // the initiator is done
                NetEvent::Closed { reason, .. } => {
                    eprintln!("the connection has ended: {reason:?}");
                    std::process::exit(1);
                }
                NetEvent::Filled { .. } => unreachable!("nothing is received in place"),
            }
        }
        progressed
    }

    /// Sends a head, and the bytes that `fill` writes behind it.
    fn send(&mut self, now: Instant, head: &[u8], bytes: usize, fill: impl FnOnce(&mut [u8])) {
        let conn = self.conn.expect("the connection is open");
        let head = FrameHead::new(head);
        if bytes == 0 {
            return self.sockets.send(now, conn, Frame::bare(head));
        }
        let fits = |buf: &Buf| buf.capacity() >= bytes;
        let found = self.bodies.iter().position(fits);
        let mut body = match found {
            Some(found) => self.bodies.swap_remove(found),
            None => Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), 0),
        };
        fill(body.prefix_mut(bytes));
        self.sockets.send(now, conn, Frame { head, body: Some(body), body_len: bytes });
    }

    /// Ends the turn.
    fn turn(&self, progressed: bool) -> TurnOutcome {
        TurnOutcome { progressed, wake_at: self.sockets.wake_at() }
    }
}

fn policy(options: &Options) -> SpinPolicy {
    let spin = if options.variant == Variant::Turn { Duration::MAX } else { Duration::ZERO };
    SpinPolicy { spin }
}

/// Serves requests for ever, and sends its address to `told`.
fn target(options: &Options, told: &std::sync::mpsc::Sender<SocketAddr>) -> Result<(), Error> {
    let (ring, clock) = (Ring::new()?, Clock::start());
    let mut end = End::new(&ring, true)?;
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let listener = Listener::bind_packets(&any.into())?;
    let _ = told.send(listener.endpoint().internet().expect("it is an address"));
    end.sockets.listen(ListenerId(1), listener)?;
    let mut disk = vec![7; DISK_BYTES];
    let request_bytes = HEAD_BYTES + if options.write { options.bytes } else { 0 };
    let bytes = options.bytes;
    nearflash_io::run(&ring, &clock, policy(options), |now| {
        let progressed = end.poll(now);
        let is_whole = end.input.len() >= request_bytes;
        if is_whole {
            stamp(Point::AtTarget);
            stamp(Point::Received);
            let mut reply = [0; HEAD_BYTES];
            reply.copy_from_slice(&end.input[..HEAD_BYTES]);
            let lba = u64::from_le_bytes(reply[12..20].try_into().expect("eight bytes"));
            let place = lba as usize * 512 % (DISK_BYTES - bytes + 1);
            stamp(Point::ToDrive);
            if options.write {
                disk[place..place + bytes].copy_from_slice(&end.input[HEAD_BYTES..request_bytes]);
                stamp(Point::Done);
                end.send(now, &reply, 0, |_| {});
            } else {
                let data = &disk[place..place + bytes];
                end.send(now, &reply, bytes, |to| {
                    to.copy_from_slice(data);
                    stamp(Point::Done);
                });
            }
            end.input.drain(..request_bytes);
        }
        end.sockets.kick(now);
        if is_whole {
            stamp(Point::Replied);
        }
        Some(end.turn(progressed))
    });
    Ok(())
}

/// Measures requests, one after the other.
pub(crate) fn run(options: &Options) -> std::io::Result<Measured> {
    let (told, address) = channel();
    let of_target = options.clone();
    std::thread::spawn(move || {
        let ended = of_target.pin(1).map_err(|error| error.to_string());
        let ended = ended.and_then(|()| target(&of_target, &told).map_err(|e| e.to_string()));
        eprintln!("the target ended: {ended:?}");
        std::process::exit(1)
    });
    let address = address.recv().map_err(std::io::Error::other)?;
    options.pin(0)?;
    initiate(options, address).map_err(|error| std::io::Error::other(error.to_string()))
}

fn initiate(options: &Options, address: SocketAddr) -> Result<Measured, Error> {
    let (ring, clock) = (Ring::new()?, Clock::start());
    let mut end = End::new(&ring, false)?;
    end.sockets.dial_to(Endpoint::Packets(address.into()));
    end.sockets.dial(clock.now());
    let reply_bytes = HEAD_BYTES + if options.write { 0 } else { options.bytes };
    let (mut measured, mut data) = (Measured::new(options), vec![1; options.bytes]);
    let (mut sent, mut is_under_way) = (0, false);
    nearflash_io::run(&ring, &clock, policy(options), |now| {
        let progressed = end.poll(now);
        if is_under_way && end.input.len() >= reply_bytes {
            stamp(Point::AtInitiator);
            stamp(Point::Back);
            if !options.write {
                data.copy_from_slice(&end.input[HEAD_BYTES..reply_bytes]);
            }
            end.input.clear();
            stamp(Point::Complete);
            stamp(Point::Notified);
            is_under_way = false;
            if !measured.end() {
                return None;
            }
        }
        let begins = !is_under_way && end.conn.is_some();
        if begins {
            stamp(Point::Issued);
            let op = if options.write { Op::Write } else { Op::Read };
            let (lba, sectors) = (options.place(sent) / 512, options.bytes as u32 / 512);
            let head = head(op, u64::from(sent), lba, sectors);
            let bytes = if options.write { options.bytes } else { 0 };
            end.send(now, &head, bytes, |to| to.copy_from_slice(&data));
            (sent, is_under_way) = (sent + 1, true);
        }
        end.sockets.kick(now);
        if begins {
            stamp(Point::Left);
        }
        Some(end.turn(progressed))
    });
    Ok(measured)
}
