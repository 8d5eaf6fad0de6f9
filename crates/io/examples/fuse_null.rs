//! A file system that does next to nothing: one file of zeroes, which takes writes and forgets
//! them. Files that somebody creates are that file, too, and are found by no name. It is the
//! yardstick of a file system that does more over the same channel to the kernel.
//!
//! `fuse_null FOLDER` mounts it at the folder, and serves until somebody unmounts it (`umount`).

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use contract::{Buf, BufPool, SizeClass, TurnOutcome};
use nearflash_io::fuse::{Channel, FuseRequest, MESSAGE_BYTES_MAX, mount, mounted};
use nearflash_io::{Clock, Owner, Ring, SpinPolicy, carve, run};
use proto::fuse::{
    Agreement, Attributes, FileSystemSizes, Listing, ListingEntry, NodeEntry, OpenReply, Operation,
    ReplyMessage, Request, is_write, parse,
};
use wire::fuse::{Errno, ROOT, open_flag};

/// The inode number of the only file.
const FILE: u64 = 2;

/// The name of the only file.
const NAME: &[u8] = b"zeroes";

/// Maximum number of requests in service.
const DEPTH: usize = 32;

/// Buffers for messages of the kernel. There are as many for replies.
const BUFFERS: SizeClass = SizeClass { bytes: MESSAGE_BYTES_MAX, count: DEPTH };

/// Time for which the kernel may cache names and attributes.
const CACHED: Duration = Duration::from_secs(1);

/// A file system of one file.
#[derive(Parser)]
struct Options {
    /// The folder to mount at.
    folder: PathBuf,
    /// Bytes of the file.
    #[arg(long, default_value_t = 1 << 30)]
    size: u64,
    /// Microseconds for which the thread spins for the next request.
    #[arg(long, default_value_t = 50)]
    spin: u64,
    /// The core to stay on.
    #[arg(long)]
    cpu: Option<usize>,
}

/// A reply to the kernel. `Data` is a buffer and the number of bytes to send from it.
enum Answer {
    Nothing,
    Head(ReplyMessage),
    Data(Buf, usize),
}

struct Null {
    size: u64,
    inbox: BufPool,
    outbox: BufPool,
    scratch: Vec<u8>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    if let Some(cpu) = options.cpu {
        nearflash_io::pin_to_cpu(cpu)?;
    }
    let folder = options.folder.canonicalize()?;
    let ring = Ring::new()?;
    let file = mount("zeroes", &folder, false)?;
    let mut channel = Channel::open(file, &ring, Owner::device(0), DEPTH);
    let (inbox, outbox) = (carve(&[BUFFERS])?, carve(&[BUFFERS])?);
    let mut null = Null {
        size: options.size,
        inbox: BufPool::new(inbox.bufs),
        outbox: BufPool::new(outbox.bufs),
        scratch: Vec::new(),
    };
    if let Some(mounted) = mounted(&folder)? {
        mounted.read_ahead()?;
    }
    println!("ready: {}", folder.display());
    let (mut messages, mut freed) = (Vec::new(), Vec::new());
    let policy = SpinPolicy { spin: Duration::from_micros(options.spin) };
    run(&ring, &Clock::start(), policy, |_| {
        channel.poll(&mut messages, &mut freed, || null.inbox.take(MESSAGE_BYTES_MAX));
        let progressed = !messages.is_empty();
        freed.drain(..).for_each(|buf| null.outbox.give(buf));
        for message in messages.drain(..) {
            null.serve(&mut channel, message);
        }
        (!channel.has_ended()).then_some(TurnOutcome { progressed, wake_at: None })
    });
    match channel.failure() {
        Some(error) => Err(format!("the kernel has refused a message: {error}").into()),
        None => Ok(()),
    }
}

impl Null {
    fn serve(&mut self, channel: &mut Channel, message: FuseRequest) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let (head, rest) = message.parts();
        let behind = if is_write(head) { rest.len() } else { 0 };
        scratch.clear();
        scratch.extend_from_slice(head);
        scratch.extend_from_slice(&rest[behind..]);
        let answer = match parse(&scratch, behind) {
            Ok(request) => self.answer(&request),
            Err(mistake) => match mistake.unique {
                Some(unique) => Answer::Head(ReplyMessage::error(unique, mistake.errno)),
                None => Answer::Nothing,
            },
        };
        let unique = u64::from_ne_bytes(message.head[8..16].try_into().expect("eight bytes"));
        self.scratch = scratch;
        self.inbox.give(message.buf);
        match answer {
            Answer::Nothing => channel.ignore(),
            Answer::Head(head) => channel.reply(head.bytes(), None),
            Answer::Data(buf, bytes) => {
                channel.reply(ReplyMessage::data(unique, bytes).bytes(), Some((buf, 0..bytes)));
            }
        }
    }

    fn attributes(&self, ino: u64) -> Attributes {
        let (mode, size, links) = match ino {
            ROOT => (0o040_755, 0, 2),
            _ => (0o100_666, self.size, 1),
        };
        Attributes { ino, size, blocks: size / 512, mode, links, ..Attributes::default() }
    }

    fn entry(&self, ino: u64) -> NodeEntry {
        NodeEntry {
            generation: 0,
            attributes: self.attributes(ino),
            name_cached: CACHED,
            attributes_cached: CACHED,
        }
    }

    fn answer(&mut self, request: &Request<'_>) -> Answer {
        let (unique, node) = (request.unique, request.node);
        let opened = |flags| ReplyMessage::opened(unique, OpenReply { handle: 0, flags });
        Answer::Head(match &request.operation {
            Operation::Init(greeting) => match Agreement::with(greeting) {
                Ok(Some(agreed)) => agreed.reply(unique),
                Ok(None) => Agreement::reply_other_major(unique),
                Err(errno) => ReplyMessage::error(unique, errno),
            },
            Operation::Lookup(name) if node == ROOT && *name == NAME => {
                ReplyMessage::entry(unique, &self.entry(FILE))
            }
            Operation::Lookup(_) => ReplyMessage::error(unique, Errno::NOENT),
            Operation::Forget(_) => return Answer::Nothing,
            Operation::GetAttr { .. } | Operation::SetAttr { .. } => {
                ReplyMessage::attributes(unique, &self.attributes(node), CACHED)
            }
            Operation::Open { .. } => opened(open_flag::PARALLEL_DIRECT_WRITES),
            Operation::Create { .. } => {
                ReplyMessage::created(unique, &self.entry(FILE), OpenReply { handle: 0, flags: 0 })
            }
            Operation::OpenDir { .. } => opened(0),
            Operation::Read { offset, bytes, .. } => {
                let bytes = u64::from(*bytes).min(self.size.saturating_sub(*offset)) as usize;
                let mut buf = self.outbox.take(bytes).expect("each request in service has one");
                buf.zero_prefix(bytes);
                return Answer::Data(buf, bytes);
            }
            Operation::Write { bytes, .. } => ReplyMessage::size(unique, *bytes),
            Operation::ReadDir { cookie, with_attributes, bytes, .. } => {
                let mut buf = self.outbox.take(*bytes as usize).expect("as for a read");
                let mut listing = Listing::new(buf.prefix_mut(*bytes as usize));
                let entry = self.entry(FILE);
                let mode = entry.attributes.mode;
                if *cookie == 0 {
                    let place = ListingEntry { ino: FILE, next: 1, mode, name: NAME };
                    listing.add(&place, with_attributes.then_some(&entry));
                }
                let bytes = listing.len();
                return Answer::Data(buf, bytes);
            }
            Operation::StatFs => {
                let blocks = self.size / 4096;
                ReplyMessage::sizes(
                    unique,
                    &FileSystemSizes { block_bytes: 4096, blocks, ..FileSystemSizes::default() },
                )
            }
            Operation::Unlink(_)
            | Operation::Flush { .. }
            | Operation::Release { .. }
            | Operation::ReleaseDir { .. }
            | Operation::Fsync { .. }
            | Operation::Destroy => ReplyMessage::done(unique),
            _ => ReplyMessage::error(unique, Errno::NOSYS),
        })
    }
}
