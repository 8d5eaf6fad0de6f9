//! Encodes what an NBD client sends, and decodes a server's replies, for tests.

use std::collections::BTreeMap;

use wire::nbd::{
    BASE_ALLOCATION, CHUNK_DONE, CHUNK_IS_ERROR, CHUNK_MAGIC, ChunkHead, ChunkKind, CommandKind,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHead, OptionKind, OptionReply, OptionReplyHead,
    REQUEST_MAGIC, RequestHead, SIMPLE_REPLY_MAGIC, SimpleReply,
};
use zerocopy::{FromBytes, IntoBytes};

/// Returns the bytes of a client's option with this data.
pub(crate) fn option(kind: OptionKind, data: &[u8]) -> Vec<u8> {
    let head = OptionHead {
        magic: OPTION_MAGIC.into(),
        option: kind.0.into(),
        bytes: (data.len() as u32).into(),
    };
    [head.as_bytes(), data].concat()
}

/// Returns the data of `NBD_OPT_INFO` or `NBD_OPT_GO` for the export of this name.
pub(crate) fn named(name: &str) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 1, 0, 3]].concat()
}

/// Returns the data of an option that names meta contexts of the export `name`.
pub(crate) fn queries(name: &str, contexts: &[&str]) -> Vec<u8> {
    let string = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let mut bytes = string(name);
    bytes.extend((contexts.len() as u32).to_be_bytes());
    bytes.extend(contexts.iter().flat_map(|context| string(context)));
    bytes
}

/// Returns the bytes that a client sends up to the choice of an export and of its block status.
pub(crate) fn hello_with_status(name: &str) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    bytes.extend(option(OptionKind::STRUCTURED_REPLY, &[]));
    bytes.extend(option(OptionKind::SET_META_CONTEXT, &queries(name, &[BASE_ALLOCATION])));
    bytes.extend(option(OptionKind::GO, &named(name)));
    bytes
}

/// Returns the bytes that a client sends up to the choice of an export.
pub(crate) fn hello(name: &str, structured: bool) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    if structured {
        bytes.extend(option(OptionKind::STRUCTURED_REPLY, &[]));
    }
    bytes.extend(option(OptionKind::GO, &named(name)));
    bytes
}

/// Returns the bytes of a request's head.
pub(crate) fn request(
    command: CommandKind,
    flags: u16,
    cookie: u64,
    offset: u64,
    bytes: u32,
) -> Vec<u8> {
    let head = RequestHead {
        magic: REQUEST_MAGIC.into(),
        flags: flags.into(),
        command: command.0.into(),
        cookie: cookie.into(),
        offset: offset.into(),
        bytes: bytes.into(),
    };
    head.as_bytes().to_vec()
}

/// Takes `count` replies to options off the front of `bytes`. Returns the option, the reply type
/// and the data of each.
pub(crate) fn option_replies(bytes: &mut &[u8], count: usize) -> Vec<(u32, OptionReply, Vec<u8>)> {
    let mut replies = Vec::new();
    for _ in 0..count {
        let (head, rest) = OptionReplyHead::read_from_prefix(bytes).expect("a reply");
        assert_eq!(head.magic.get(), OPTION_REPLY_MAGIC);
        let (data, rest) = rest.split_at(head.bytes.get() as usize);
        replies.push((head.option.get(), OptionReply(head.reply.get()), data.to_vec()));
        *bytes = rest;
    }
    replies
}

/// An answer to a request: the error number, or the data by its offset in the export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) error: u32,
    pub(crate) data: BTreeMap<u64, Vec<u8>>,
    /// The extents of a block status: length and status of each.
    pub(crate) extents: Vec<(u32, u32)>,
    pub(crate) is_done: bool,
}

impl Answer {
    /// Returns the data of a read as one piece, which has no holes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let first = self.data.keys().next().copied().unwrap_or(0);
        for (offset, piece) in &self.data {
            assert_eq!(*offset, first + bytes.len() as u64, "pieces follow each other");
            bytes.extend_from_slice(piece);
        }
        bytes
    }
}

/// Decodes the answers to requests, by cookie. `reads` has the offset and the length in bytes of
/// each read.
pub(crate) fn answers(
    mut bytes: &[u8],
    reads: &BTreeMap<u64, (u64, u32)>,
) -> BTreeMap<u64, Answer> {
    let mut all: BTreeMap<u64, Answer> = BTreeMap::new();
    while !bytes.is_empty() {
        let magic = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
        if magic == SIMPLE_REPLY_MAGIC {
            let (head, rest) = SimpleReply::read_from_prefix(bytes).expect("a reply");
            bytes = rest;
            let answer = all.entry(head.cookie.get()).or_default();
            assert!(!answer.is_done, "{head:?} comes twice");
            answer.is_done = true;
            answer.error = head.error.get();
            if let (0, Some((offset, length))) = (answer.error, reads.get(&head.cookie.get())) {
                let (data, rest) = bytes.split_at(*length as usize);
                answer.data.insert(*offset, data.to_vec());
                bytes = rest;
            }
            continue;
        }
        assert_eq!(magic, CHUNK_MAGIC);
        let (head, rest) = ChunkHead::read_from_prefix(bytes).expect("a chunk");
        let (body, rest) = rest.split_at(head.bytes.get() as usize);
        bytes = rest;
        let answer = all.entry(head.cookie.get()).or_default();
        assert!(!answer.is_done, "{head:?} comes after the last");
        answer.is_done = head.flags.get() & CHUNK_DONE != 0;
        if head.kind.get() == ChunkKind::OFFSET_DATA.0 {
            let offset = u64::from_be_bytes(body[..8].try_into().expect("an offset"));
            assert!(answer.data.insert(offset, body[8..].to_vec()).is_none());
        } else if head.kind.get() == ChunkKind::BLOCK_STATUS.0 {
            let number = |place: usize| {
                u32::from_be_bytes(body[place..place + 4].try_into().expect("four bytes"))
            };
            assert_eq!(number(0), 1, "the number of the context");
            assert_eq!(body.len() % 8, 4);
            answer.extents =
                (4..body.len()).step_by(8).map(|n| (number(n), number(n + 4))).collect();
        } else {
            assert!(head.kind.get() & CHUNK_IS_ERROR != 0, "{head:?}");
            answer.error = u32::from_be_bytes(body[..4].try_into().expect("an error"));
        }
    }
    all
}
