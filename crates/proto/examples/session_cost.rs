//! Runs server sessions of `reflex` and NVMe/TCP on batches of reads and their replies, without
//! sockets, worker or device, to count their instructions.
//!
//! ```text
//! valgrind --tool=callgrind session_cost reflex|nvme|nvme-digest BLOCK_SIZE REQUESTS
//! ```
//!
//! The cost of one request is the difference of two runs of different length, divided by the
//! difference of their requests.

#[path = "../tests/all/nvme_host/mod.rs"]
mod nvme_host;

use std::hint::black_box;
use std::rc::Rc;

use contract::{
    ConnId, Hello, Instant, Range, Reply, SPEECH_BYTES_MAX, Session, SessionEvent, Status,
};
use nearflash_proto::nvme::PortId;
use nearflash_proto::nvme_tcp::{
    ControllerSession, Digests, HostOptions, HostQueue, QueueEvent, WorkerFabric,
};
use nearflash_proto::reflex::{ClientSession, ServerSession};

/// The number of requests that a session receives at once.
const BATCH: usize = 32;

/// Passes `input` to the session, and answers each read with `body`. Returns the bytes that the
/// session sends apart from replies to reads.
fn serve(session: &mut impl Session, mut input: &[u8], body: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    loop {
        match session.next_event(&mut input).expect("a peer that keeps to the protocol") {
            None => return said,
            Some(SessionEvent::Request(request)) => {
                let (tag, command) = (request.tag, request.command);
                let reply = Reply::Done { tag, command, status: Status::Ok };
                black_box(session.reply(&reply, body).expect("there is an answer"));
            }
            Some(SessionEvent::Control(control)) => {
                let contract::ControlRequest::Hello(Hello { tag, .. }) = *control else { panic!() };
                let reply = Default::default();
                let hello = Reply::Hello { tag, status: Status::Ok, reply };
                said.extend_from_slice(session.reply(&hello, &[]).expect("a hello").bytes());
            }
            Some(SessionEvent::Own) => {
                session.attend(Instant::ZERO).expect("nothing ends");
                let mut room = vec![0; SPEECH_BYTES_MAX];
                let bytes = session.speak(&mut room);
                said.extend_from_slice(&room[..bytes]);
            }
            Some(SessionEvent::Fenced(_)) => {}
            Some(other) => panic!("{other:?}"),
        }
    }
}

/// Creates a server session of `reflex` version 2, and the encoded bytes of a batch of reads for
/// it.
fn reflex(range: Range) -> (ServerSession, Vec<u8>) {
    let mut session = ServerSession::new();
    let mut client = ClientSession::v2(Hello::default());
    let greeting: Vec<u8> =
        client.greeting().iter().flat_map(|head| head.bytes().to_vec()).collect();
    let said = serve(&mut session, &greeting, &[]);
    client.next_event(&mut &said[..]).expect("the server's hello");
    let reads = (0..BATCH as u64).flat_map(|tag| {
        let head = client.request(tag, 0, None, contract::Command::Read(range), &[]);
        head.expect("a read").bytes().to_vec()
    });
    let reads = reads.collect();
    (session, reads)
}

/// Creates the server session of an NVMe I/O queue, and the encoded bytes of a batch of reads for
/// it. Also returns the session of the admin queue, which has to live as long.
fn nvme(range: Range, digests: Digests) -> (ControllerSession, Vec<u8>, ControllerSession) {
    let desk = Rc::new(WorkerFabric::new(nvme_host::fabric(&nvme_host::config()), 0));
    let options = Rc::new(HostOptions {
        subsystem: nvme_host::SUBSYSTEM.to_owned(),
        host: nvme_host::host(1).nqn,
        host_id: nvme_host::host(1).id.0,
        nsid: 1,
        queues: 1,
        queue_depth: BATCH as u16,
        digests,
        in_capsule: true,
        keep_alive: std::time::Duration::ZERO,
        key: None,
        controller_key: None,
        chance: [0; 32],
    });
    let rise = |mut queue: HostQueue, index| {
        let conn = ConnId { index, generation: 0 };
        let mut session = ControllerSession::new(desk.clone(), PortId(1), conn);
        while !queue.is_up() {
            let bytes: Vec<u8> = queue.speech().flat_map(|head| head.bytes().to_vec()).collect();
            let said = serve(&mut session, &bytes, &[]);
            let event = queue.next_event(&mut &said[..]).expect("a queue comes up");
            assert!(matches!(event, None | Some(QueueEvent::Up)));
        }
        (session, queue)
    };
    let (admin, queue) = rise(HostQueue::admin(options.clone(), 1), 0);
    let found = queue.found().clone();
    let (session, mut queue) = rise(HostQueue::io(options.clone(), 1, found), 1);
    let reads = (0..BATCH as u16).flat_map(|cid| {
        let read = queue.request(cid, contract::Command::Read(range), &[]).expect("a read");
        read.heads.into_iter().flat_map(|head| head.bytes().to_vec())
    });
    let reads = reads.collect();
    (session, reads, admin)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| words.get(n).and_then(|word| word.parse::<usize>().ok());
    let (Some(kind), Some(bytes), Some(requests)) = (words.first(), number(1), number(2)) else {
        eprintln!("session_cost reflex|nvme|nvme-digest BLOCK_SIZE REQUESTS");
        std::process::exit(2);
    };
    let body = vec![7; bytes];
    let range = Range::new(8, (bytes / contract::BLOCK_BYTES) as u32);
    match kind.as_str() {
        "reflex" => {
            let (mut session, reads) = reflex(range);
            for _ in 0..requests / BATCH {
                serve(&mut session, &reads, &body);
            }
        }
        kind => {
            let digests = Digests { header: false, data: kind == "nvme-digest" };
            let (mut session, reads, _admin) = nvme(range, digests);
            for _ in 0..requests / BATCH {
                serve(&mut session, &reads, &body);
            }
        }
    }
}
