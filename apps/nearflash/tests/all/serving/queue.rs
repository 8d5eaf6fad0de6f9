//! Tests of the library's queue against the real server: memory, copies, event loops, ends.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::support::{Launch, PATIENCE, Server, free_port, now};
use nearflash::{
    Buf, BufPool, Command, Done, Error, Event, Op, Options, Queue, Range, SizeClass, Slo, Status,
    Wait, memory,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const CLASSES: [SizeClass; 2] =
    [SizeClass { bytes: 4096, count: 64 }, SizeClass { bytes: 1 << 20, count: 8 }];

fn queue_to(server: &Server, options: &Options) -> (Queue, BufPool) {
    let queue = Queue::connect(&format!("reflex://{}", server.address()), options).unwrap();
    (queue, memory(&CLASSES).unwrap())
}

fn mem() -> (Server, Queue, BufPool) {
    let server = Launch::device("mem:64MiB").start();
    let (queue, pool) = queue_to(&server, &Options::default());
    (server, queue, pool)
}

fn write(lba: u64, mut buf: Buf, byte: u8) -> Op {
    let blocks = (buf.capacity() / 512) as u32;
    buf.bytes_mut().fill(byte);
    Op::new(Command::Write { range: Range::new(lba, blocks), fua: false }, Some(buf))
}

fn read(lba: u64, buf: Buf) -> Op {
    let blocks = (buf.capacity() / 512) as u32;
    Op::new(Command::Read(Range::new(lba, blocks)), Some(buf))
}

/// Polls until all requests in flight have ended, and returns their ends.
fn finish(queue: &mut Queue) -> Vec<Done> {
    let started = now();
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.poll(&mut done, Wait::Sleep(PATIENCE));
        assert!(started.elapsed() < PATIENCE, "{queue:?}");
    }
    done
}

/// Submits a request, and waits for its end. Returns its status and its buffer.
fn carry_out(queue: &mut Queue, op: Op) -> (Status, Option<Buf>) {
    queue.submit(op).unwrap();
    let done = finish(queue).pop().unwrap();
    (done.status, done.buf)
}

fn await_event(queue: &mut Queue) -> Event {
    let started = now();
    loop {
        match queue.event() {
            Some(Event::Connected { .. }) | None => {}
            Some(event) => return event,
        }
        queue.poll(&mut Vec::new(), Wait::Sleep(PATIENCE));
        assert!(started.elapsed() < PATIENCE, "an event comes");
    }
}

#[test]
fn requests_bring_their_memory_back() {
    let (_server, mut queue, mut pool) = mem();
    assert!(!queue.is_open(0));
    for (lba, byte) in [(0, 3), (8, 4)] {
        queue.submit(write(lba, pool.take(4096).unwrap(), byte)).unwrap();
    }
    for done in finish(&mut queue) {
        assert_eq!(done.status, Status::Ok);
        pool.give(done.buf.unwrap());
    }
    assert!(queue.is_open(0) && pool.is_whole());
    for (lba, byte) in [(0, 3), (8, 4)] {
        let (status, buf) = carry_out(&mut queue, read(lba, pool.take(4096).unwrap()));
        let buf = buf.unwrap();
        assert!(status == Status::Ok && buf.bytes().iter().all(|it| *it == byte));
        pool.give(buf);
    }
    assert_eq!(carry_out(&mut queue, Op::new(Command::Flush, None)).0, Status::Ok);
    let (status, buf) = carry_out(&mut queue, read(131_072, pool.take(4096).unwrap()));
    assert_eq!(status, Status::OutOfRange);
    pool.give(buf.expect("the memory comes back on errors, too"));
    assert!(pool.is_whole());
}

#[test]
fn a_full_queue_says_so_and_goes_on() {
    let server = Launch::device("mem:64MiB").start();
    let options = Options { in_flight_max: 4, ..Options::default() };
    let (mut queue, mut pool) = queue_to(&server, &options);
    for lba in 0..4 {
        queue.submit(read(lba, pool.take(4096).unwrap())).unwrap();
    }
    let full = queue.submit(read(9, pool.take(4096).unwrap())).unwrap_err();
    assert_eq!((full.0.command, queue.room()), (Command::Read(Range::new(9, 8)), 0));
    assert_eq!(queue.info(), Err(Error::Full));
    assert_eq!(finish(&mut queue).len(), 4);
    assert_eq!(carry_out(&mut queue, full.0).0, Status::Ok);
}

#[test]
fn properties_and_tenants_come_as_events() {
    let server = Launch::device("null:64MiB").with("--model").with("a").start();
    let (mut queue, _) = queue_to(&server, &Options::default());
    let ticket = queue.info().unwrap();
    let Event::Info { ticket: answered, info: Ok(info) } = await_event(&mut queue) else {
        panic!("no properties");
    };
    assert_eq!((answered, info.bytes), (ticket, 64 << 20));
    let slo = |iops| Slo { latency_us: 500, iops, read_percent: 100, ..Slo::default() };
    assert_eq!(queue.renegotiate(slo(1)), Err(Error::Failed(Status::NoTenant)));
    queue.register("gold", slo(1000)).unwrap();
    assert_eq!(queue.register("other", slo(1)), Err(Error::Full));
    let Event::Tenant(Ok(registered)) = await_event(&mut queue) else { panic!("not registered") };
    assert!(registered.tokens_needed > 0);
    queue.renegotiate(slo(500_000)).unwrap();
    assert!(matches!(await_event(&mut queue), Event::Tenant(Err(Error::Refused(_)))));
    queue.unregister().unwrap();
    assert!(matches!(await_event(&mut queue), Event::Tenant(Ok(_))));
}

/// Waits at most `seconds` seconds for the queue's descriptor, as an event loop does. Returns
/// `true` if it becomes readable in that time.
fn is_readable(queue: &mut Queue, seconds: u64) -> bool {
    let limit = Timespec { tv_sec: seconds as i64, tv_nsec: 0 };
    let fd = queue.fd().unwrap();
    let mut polled = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut polled, Some(&limit)).unwrap() == 1
}

#[test]
fn an_event_loop_learns_when_to_poll() {
    let (_server, mut queue, mut pool) = mem();
    queue.fd().unwrap();
    for lba in 0..100 {
        queue.submit(read(lba, pool.take(4096).unwrap())).unwrap();
        queue.kick();
        let mut done = Vec::new();
        while queue.poll(&mut done, Wait::No) == 0 {
            assert!(is_readable(&mut queue, PATIENCE.as_secs()), "read {lba} ends");
        }
        pool.give(done.pop().unwrap().buf.unwrap());
    }
    // Sends may end after their answers; then nothing is to be done.
    let mut rounds = 0;
    while is_readable(&mut queue, 0) {
        queue.poll(&mut Vec::new(), Wait::No);
        rounds += 1;
        assert!(rounds < 100, "a loop would spin");
    }
}

#[test]
fn an_event_loop_learns_of_the_time_to_dial_again() {
    let options = Options { outage_max: Duration::from_millis(50), ..Options::default() };
    let url = format!("reflex://{}", free_port());
    let mut queue = Queue::connect(&url, &options).unwrap();
    queue.submit(Op::new(Command::Flush, None)).unwrap();
    let started = now();
    let mut done = Vec::new();
    while queue.poll(&mut done, Wait::No) == 0 {
        assert!(is_readable(&mut queue, PATIENCE.as_secs()));
        assert!(started.elapsed() < PATIENCE);
    }
    assert_eq!(done[0].status, Status::ConnectionLost);
    let Some(Event::Lost { why, .. }) = queue.event() else { panic!("a reason is told") };
    assert!(why.to_string().contains("refused"), "{why}");
}

#[test]
fn only_small_reads_are_copied() {
    let (_server, mut queue, mut pool) = mem();
    for (bytes, rounds) in [(4096, 20), (1 << 20, 20)] {
        let before = queue.copied_bytes();
        for round in 0..rounds {
            let buf = pool.take(bytes).unwrap();
            let (status, buf) = carry_out(&mut queue, write(0, buf, round));
            assert_eq!(status, Status::Ok);
            pool.give(buf.unwrap());
        }
        assert_eq!(queue.copied_bytes(), before, "writes are not copied");
        for _ in 0..rounds {
            let (_, buf) = carry_out(&mut queue, read(0, pool.take(bytes).unwrap()));
            let buf = buf.unwrap();
            assert!(buf.bytes().iter().all(|byte| *byte == rounds - 1));
            pool.give(buf);
        }
        let copied = queue.copied_bytes() - before;
        let all = bytes as u64 * u64::from(rounds);
        match bytes {
            4096 => assert_eq!(copied, all, "once"),
            // What comes with a head is copied: 512 bytes, and 64 KiB after a pause.
            _ => assert!(copied <= all / 15, "{copied} of {all} bytes"),
        }
    }
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let (_server, mut queue, mut pool) = mem();
    let mut done = Vec::with_capacity(256);
    let mut turns = |queue: &mut Queue, count: u64| {
        for round in 0..count {
            for _ in 0..queue.room().min(16) {
                let bytes = if round % 16 == 0 { 1 << 20 } else { 4096 };
                let Some(buf) = pool.take(bytes) else { break };
                let lba = round * 8 % 1024;
                let op = if round % 3 == 0 { write(lba, buf, 1) } else { read(lba, buf) };
                queue.submit(op).unwrap();
            }
            queue.poll(&mut done, Wait::Sleep(PATIENCE));
            for ended in done.drain(..) {
                assert_eq!(ended.status, Status::Ok);
                pool.give(ended.buf.unwrap());
            }
        }
    };
    turns(&mut queue, 1000);
    let used = allocation_counter::measure(|| turns(&mut queue, 2000));
    assert_eq!(used.count_total, 0);
}

#[test]
fn a_queue_outlives_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let spec = format!("file:{}?size=16MiB", directory.path().join("volume").display());
    let listen = format!("reflex://{}", free_port());
    // Over io_uring, a killed server's port is free only a while after its end.
    let arguments = ["--device", &spec, "--listen", &listen, "--interface", "epoll"];
    let launch = || Launch::new(&arguments);
    let mut server = launch().start();
    let (mut queue, mut pool) = queue_to(&server, &Options::default());
    let mut value = 0u8;
    for _ in 0..3 {
        for lba in 0..32 {
            let op = write(lba * 8, pool.take(4096).unwrap(), value + lba as u8);
            queue.submit(op).unwrap();
        }
        queue.kick();
        server.kill();
        server = launch().start();
        for done in finish(&mut queue) {
            assert_eq!(done.status, Status::Ok, "a fence makes it safe to repeat");
            pool.give(done.buf.unwrap());
        }
        for lba in 0..32 {
            let (_, buf) = carry_out(&mut queue, read(lba * 8, pool.take(4096).unwrap()));
            let buf = buf.unwrap();
            assert!(buf.bytes().iter().all(|byte| *byte == value + lba as u8));
            pool.give(buf);
        }
        value += 32;
    }
}

#[test]
fn a_closed_queue_gives_all_memory_back() {
    // Accepts a connection, says nothing and reads nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("reflex://{}?v=1", mute.local_addr().unwrap());
    let mut queue = Queue::connect(&url, &Options::default()).unwrap();
    let mut pool = memory(&CLASSES).unwrap();
    let mut done = Vec::new();
    while !queue.is_open(0) {
        queue.poll(&mut done, Wait::Sleep(PATIENCE));
    }
    let count = 16;
    for n in 0..count {
        let bytes = if n % 2 == 0 { 1 << 20 } else { 4096 };
        queue.submit(write(n, pool.take(bytes).unwrap(), 1)).unwrap();
    }
    queue.poll(&mut done, Wait::Sleep(Duration::from_millis(20)));
    let started = now();
    assert!(queue.close(&mut done), "the kernel is done with everything");
    assert!(started.elapsed() < PATIENCE);
    assert_eq!(done.len() as u64, count);
    for done in done {
        assert_eq!(done.status, Status::ConnectionLost);
        pool.give(done.buf.unwrap());
    }
    assert!(pool.is_whole());
}

#[test]
fn another_thread_ends_a_wait() {
    let (_server, mut queue, _pool) = mem();
    while !queue.is_open(0) {
        queue.poll(&mut Vec::new(), Wait::Sleep(PATIENCE));
    }
    while queue.event().is_some() {}
    let waker = queue.waker();
    let other = std::thread::spawn(move || waker.wake());
    let started = now();
    assert_eq!(queue.poll(&mut Vec::new(), Wait::Sleep(PATIENCE)), 0);
    assert!(started.elapsed() < PATIENCE);
    other.join().unwrap();
}
