//! Tests of the client library against the real server.

use std::time::Duration;

use crate::support::{Launch, PATIENCE, Server, free_port, now};
use nearflash::blocking::{self, block_on};
use nearflash::{Client, Error, Options, Slo, Status};

fn mem() -> (Server, blocking::Client) {
    let server = Launch::device("mem:64MiB").start();
    let client = connect(&server);
    (server, client)
}

fn url(server: &Server) -> String {
    format!("reflex://{}", server.address())
}

fn connect(server: &Server) -> blocking::Client {
    blocking::Client::connect(&url(server), Options::default()).expect("the server is there")
}

#[test]
fn everything_a_client_can_do() {
    let (_server, client) = mem();
    let info = client.info().unwrap();
    assert_eq!((info.bytes, info.blocks), (64 << 20, 131_072));
    assert!(info.may_read && info.may_write);

    let data: Vec<u8> = (0..8192u32).map(|n| (n / 3) as u8).collect();
    client.write(100, &data).unwrap();
    assert_eq!(client.read(100, 8192).unwrap(), data);
    client.write_durable(100, &[4; 512]).unwrap();
    let mut into = [0; 1024];
    client.read_into(100, &mut into).unwrap();
    assert_eq!((&into[..512], &into[512..]), (&[4; 512][..], &data[512..1024]));
    client.flush().unwrap();

    assert_eq!(client.compare_and_write(100, &[9; 512], &[5; 512]), Err(Error::CompareFailed));
    client.compare_and_write(100, &[4; 512], &[5; 512]).unwrap();
    assert_eq!(client.read(100, 512).unwrap(), [5; 512]);

    client.write_atomic(100, &[6; 4096]).unwrap();
    client.write_zeroes(101, 1).unwrap();
    client.discard(102, 1).unwrap();
    let read = client.read(100, 4 * 512).unwrap();
    let blocks: Vec<u8> = read.chunks(512).map(|block| block[0]).collect();
    assert_eq!(blocks, [6, 0, 0, 6]);
}

#[test]
fn long_requests_are_cut_and_put_together_again() {
    let (_server, client) = mem();
    let data: Vec<u8> = (0..5 << 20).map(|n: u32| (n >> 9) as u8 ^ (n >> 17) as u8).collect();
    client.write(7, &data).unwrap();
    assert!(client.read(7, data.len()).unwrap() == data, "5 MiB are the same");
    client.write_zeroes(0, 131_072).unwrap();
    assert!(client.read(0, 16 << 20).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn wrong_requests_are_answered_in_words() {
    let (_server, client) = mem();
    assert_eq!(client.read(0, 100), Err(Error::Length { bytes: 100 }));
    assert_eq!(client.read(131_072, 512), Err(Error::Failed(Status::OutOfRange)));
    assert_eq!(client.write(u64::MAX, &[0; 512]), Err(Error::Failed(Status::OutOfRange)));
    let error = client.read(131_071, 1024).unwrap_err();
    assert_eq!(error.to_string(), "the server answered: outside the namespace");
}

#[test]
fn connecting_fails_with_a_reason() {
    let connect = |url: &str| blocking::Client::connect(url, Options::default()).unwrap_err();
    let error = connect("reflex://127.0.0.1:1");
    assert!(matches!(error, Error::Connect(_)), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(matches!(connect("nvme://x"), Error::Address(_)));
    assert!(matches!(connect("reflex://no.such.host.invalid:7420"), Error::Address(_)));
}

#[test]
fn clones_and_threads_share_a_client() {
    let (_server, client) = mem();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let client = client.clone();
            scope.spawn(move || {
                for round in 0..50u8 {
                    let lba = u64::from(thread) * 100 + u64::from(round);
                    client.write(lba, &[thread ^ round; 512]).unwrap();
                    assert_eq!(client.read(lba, 512).unwrap(), [thread ^ round; 512]);
                }
            });
        }
    });
}

#[test]
fn streams_are_lent_and_ordered() {
    let (_server, client) = mem();
    let client = client.asynchronous();
    let streams: Vec<_> = (0..7).map(|_| client.stream().unwrap()).collect();
    assert_eq!(client.stream().err(), Some(Error::NoStreams));
    drop(streams);
    let stream = client.stream().unwrap();
    block_on(async {
        for round in 0..100u8 {
            // All five are in flight together; the second write must win.
            let (long, short) = ([round; 65536], [round ^ 0xff; 512]);
            let first = stream.write(0, &long);
            let order = stream.barrier();
            let second = stream.write(0, &short);
            let again = stream.barrier();
            let read = stream.read(0, 512);
            let (a, b, c, d, e) = join(first, order, second, again, read).await;
            a.and(b).and(c).and(d).unwrap();
            assert_eq!(e.unwrap(), [round ^ 0xff; 512]);
        }
    });
}

/// Polls five futures in turn, in their order, until all have ended. Returns their outputs.
async fn join<A: Future, B: Future, C: Future, D: Future, E: Future>(
    a: A,
    b: B,
    c: C,
    d: D,
    e: E,
) -> (A::Output, B::Output, C::Output, D::Output, E::Output) {
    use std::pin::pin;
    use std::task::Poll;
    let (mut a, mut b, mut c) = (pin!(a), pin!(b), pin!(c));
    let (mut d, mut e) = (pin!(d), pin!(e));
    let mut out = (None, None, None, None, None);
    std::future::poll_fn(move |context| {
        macro_rules! poll {
            ($future:ident, $place:tt) => {
                if out.$place.is_none()
                    && let Poll::Ready(value) = $future.as_mut().poll(context)
                {
                    out.$place = Some(value);
                }
            };
        }
        poll!(a, 0);
        poll!(b, 1);
        poll!(c, 2);
        poll!(d, 3);
        poll!(e, 4);
        match &mut out {
            (a @ Some(_), b @ Some(_), c @ Some(_), d @ Some(_), e @ Some(_)) => Poll::Ready((
                a.take().unwrap(),
                b.take().unwrap(),
                c.take().unwrap(),
                d.take().unwrap(),
                e.take().unwrap(),
            )),
            _ => Poll::Pending,
        }
    })
    .await
}

#[test]
fn a_dropped_future_harms_nobody() {
    use std::task::{Context, Waker};
    let (_server, client) = mem();
    let inner = client.asynchronous();
    for lba in 0..500 {
        let mut write = Box::pin(inner.write(lba, &[1; 512]));
        let mut read = Box::pin(inner.read(lba, 4096));
        let mut context = Context::from_waker(Waker::noop());
        // In flight, in line or, where this thread was held up, done.
        let _ = write.as_mut().poll(&mut context);
        let _ = read.as_mut().poll(&mut context);
    }
    client.write(0, &[2; 512]).unwrap();
    assert_eq!(client.read(0, 512).unwrap(), [2; 512]);
}

#[test]
fn a_client_survives_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let spec = format!("file:{}?size=16MiB", directory.path().join("volume").display());
    let listen = format!("reflex://{}", free_port());
    let launch = || Launch::new(&["--device", &spec, "--listen", &listen]);
    let mut server = launch().start();
    let client = connect(&server);
    client.write(9, &[7; 512]).unwrap();
    client.flush().unwrap();
    server.kill();
    // Sent while there is no server; carried out by the next one.
    let waiting = std::thread::spawn({
        let client = client.clone();
        move || (client.read(9, 512), client.write(10, &[8; 512]))
    });
    std::thread::sleep(Duration::from_millis(100));
    let _next = launch().start();
    let (read, write) = waiting.join().unwrap();
    assert_eq!(read.unwrap(), [7; 512]);
    write.unwrap();
    assert_eq!(client.read(10, 512).unwrap(), [8; 512]);
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    let mut server = Launch::device("mem:1MiB").start();
    let options = Options { outage_max: Duration::from_millis(300), ..Options::default() };
    let client = blocking::Client::connect(&url(&server), options).unwrap();
    server.kill();
    let started = now();
    assert_eq!(client.read(0, 512), Err(Error::ConnectionLost));
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

#[test]
fn version_one_reads_and_writes() {
    let server = Launch::device("mem:1MiB").start();
    let url = format!("{}?v=1", url(&server));
    let client = blocking::Client::connect(&url, Options::default()).unwrap();
    client.write(3, &[3; 1024]).unwrap();
    assert_eq!(client.read(3, 1024).unwrap(), [3; 1024]);
    assert_eq!(client.flush(), Err(Error::Failed(Status::Unsupported)));
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(name).filter(|name| name.trim() == "nf-alone").count()
    };
    let (_server, client) = mem();
    let named = Options { thread_name: "nf-alone".to_owned(), ..Options::default() };
    let url = url(&_server);
    drop(client);
    let alone = block_on(Client::connect(&url, named)).unwrap();
    let clone = alone.clone();
    drop(alone);
    assert_eq!(threads(), 1);
    drop(clone);
    crate::support::wait_until("the thread ends", PATIENCE, || threads() == 0);
}

#[test]
fn a_client_registers_a_tenant_on_all_its_connections() {
    let listen = format!("reflex://{}", free_port());
    let device = ["--device", "null:64MiB", "--listen", &listen, "--model", "a"];
    let mut server = Launch::new(&device).start();
    let options = Options { connections: 3, ..Options::default() };
    let client = blocking::Client::connect(&url(&server), options).unwrap();
    let slo = |latency_us, iops| Slo { latency_us, iops, read_percent: 100, ..Slo::default() };
    assert_eq!(client.renegotiate(slo(500, 1)), Err(Error::Failed(Status::NoTenant)));
    let Err(Error::Refused(refused)) = client.register("gold", slo(500, 500_000)) else {
        panic!("the device does not make as many tokens");
    };
    assert_eq!((refused.status, refused.figures.tokens_free), (Status::NoResources, 420_000));
    assert_eq!((refused.limit_latency_us, refused.limited_by_other), (Some(500), false));
    assert!(refused.to_string().contains("needs 500000 tokens/s of 420000"), "{refused}");
    let registered = client.register("gold", slo(500, 50)).unwrap();
    assert_eq!((registered.tokens_needed, registered.tokens_free), (50, 419_950));
    // Half a second's worth of reads: promised fifty a second, they take long enough to notice, as
    // there is a best-effort tenant to whom the rest belongs.
    let start = now();
    let many = |client: &blocking::Client| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20).for_each(|n| drop(client.read(n * 8, 4096).unwrap())));
            }
        });
    };
    many(&client);
    assert!(now() - start > Duration::from_secs(1), "{:?}", now() - start);
    assert_eq!(client.renegotiate(slo(500, 100_000)).unwrap().tokens_needed, 100_000);
    // In one try of a few: a busy machine may take as long for that.
    let mut times = Vec::new();
    while times.len() < 20 && times.last().is_none_or(|time| *time >= Duration::from_secs(1)) {
        let start = now();
        many(&client);
        times.push(now() - start);
    }
    assert!(times.last().is_some_and(|time| *time < Duration::from_secs(1)), "{times:?}");
    // A server that was started again does not know the tenant: the client registers it again.
    server.kill();
    let _server = Launch::new(&device).start();
    client.read(0, 4096).unwrap();
    crate::support::wait_until("the tenant is there again", PATIENCE, || {
        client.renegotiate(slo(500, 50)).is_ok()
    });
    client.unregister().unwrap();
    assert_eq!(client.unregister(), Err(Error::Failed(Status::NoTenant)));
    client.read(0, 4096).unwrap();
}
