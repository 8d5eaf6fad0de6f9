//! Measurements of the cost of operating a server: idle connections, moves, scrapes, and tens of
//! thousands of tenants. `cargo xtask bench ops` runs these tests, each alone and in release, and
//! makes a table of the lines `figure: NAME | VALUE | LIMIT`.
//!
//! A figure that misses its limit is reported and does not fail the test, since the machine may be
//! at fault. Errors, ended connections and wrong contents do fail it.
//!
//! Clients of the admin API and generators of load take processor time, too, which is no cost of
//! the server. So the worker has a processor of its own, which all others avoid, and latencies are
//! measured where a promise bounds them: at the server. The latency that the client sees is shown
//! beside; the client shares its processors with everything else. Where that matters, the
//! measurement is repeated beside an equal amount of unrelated computing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Answer, Launch, PATIENCE, Server, ServerFolder, V2, now, wait_until};
use contract::{Command, Range, Status};
use control::admin::{AddListener, Client, ClientError, NewTenant, Slo, TenantPatch, TenantStatus};
use serde_json::Value;

/// The servers that these tests start in a [`ServerFolder`].
trait Servers {
    /// Returns a server of the device `device` with the options `words` and the admin socket in
    /// this place. It is not started.
    fn launch(&self, device: &str, words: &[&str]) -> Launch;
}

impl Servers for ServerFolder {
    fn launch(&self, device: &str, words: &[&str]) -> Launch {
        let socket = self.socket();
        let own = ["--admin", socket.to_str().unwrap()];
        own.iter().chain(words).fold(Launch::device(device), |launch, word| launch.with(word))
    }
}

/// Starts `nearflash bench` on `url` for `seconds` seconds, with the options in `words`.
fn bench(url: &str, seconds: f64, words: &str) -> Child {
    let mut bench = Process::new(env!("CARGO_BIN_EXE_nearflash"));
    bench.args(["bench", url, "--json", "--warmup", "0.2", "--seconds", &seconds.to_string()]);
    bench.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped());
    bench.spawn().expect("the program starts")
}

fn result(bench: Child) -> Value {
    let output = bench.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!(result["errors"], 0, "{result}");
    result
}

fn figure(name: &str, value: &str, limit: &str) {
    println!("figure: {name} | {value} | {limit}");
}

/// Prints a measured figure with its limit `most`, and whether the figure misses the limit.
fn held_to(name: &str, (measured, value): (f64, &str), (most, unit): (f64, &str)) {
    let verdict = if measured <= most { "" } else { ": missed" };
    figure(name, value, &format!("{most}{unit}{verdict}"));
}

/// The factor by which a p95 may grow beside other work: without that work it varies by as much.
const NOISE: f64 = 1.1;

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Formats values as their median, with the lowest and the highest.
fn spread(values: &mut [f64], unit: &str) -> String {
    let middle = median(values);
    format!("{middle:.2} {unit} ({:.2} to {:.2})", values[0], values[values.len() - 1])
}

/// Returns how often a measurement is repeated: `NEARFLASH_REPETITIONS`, or 5.
fn repetitions() -> usize {
    std::env::var("NEARFLASH_REPETITIONS").map_or(5, |n| n.parse().expect("a number"))
}

#[test]
#[ignore = "ops: measures; see `cargo xtask bench ops`"]
fn idle_connections() {
    let place = ServerFolder::in_memory();
    let server = place.launch("mem:16MiB", &["--workers", "1"]).start();
    let mut clients: Vec<V2> = (0..1_000).map(|_| V2::connect(server.address())).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.read_blocks(0, 8).len(), 4096));
    std::thread::sleep(Duration::from_secs(2));
    let window = Duration::from_secs(5);
    let mut shares: Vec<f64> = (0..repetitions())
        .map(|_| {
            let (before, begun) = (server.processor_time(), now());
            std::thread::sleep(window);
            let used = server.processor_time() - before;
            100.0 * used.as_secs_f64() / (now() - begun).as_secs_f64()
        })
        .collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.read_blocks(0, 8).len(), 4096));
    let value = spread(&mut shares, "% of a core");
    held_to("idle server with 1 000 connections", (median(&mut shares), &value), (2.0, " %"));
}

/// Writes blocks of one page, 32 under way on each of four connections, and counts the writes of
/// the page.
#[test]
#[ignore = "ops: measures; see `cargo xtask bench ops`"]
fn small_writes() {
    const DEPTH: u64 = 32;
    const WRITES: u64 = 5_000;
    let place = ServerFolder::in_memory();
    let server = place.launch("ftl:mem:64MiB?ftl.absorb=1ms", &["--workers", "1"]).start();
    let address = server.address();
    let load = |of: u64| {
        let mut client = V2::connect(address);
        let write = |tag: u64| Command::Write { range: Range::new((of + tag) % 8, 1), fua: false };
        (0..DEPTH).for_each(|tag| client.send(tag, write(tag), &[of as u8; 512]));
        for next in DEPTH..WRITES + DEPTH {
            match client.answer() {
                Answer::Done { status: Status::Ok, .. } if next >= WRITES => {}
                Answer::Done { status: Status::Ok, .. } => {
                    client.send(next, write(next), &[of as u8; 512]);
                }
                other => panic!("a write was answered by {other:?}"),
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|of| drop(scope.spawn(move || load(of)))));
    let count = |what: &str| {
        let series = "nearflash_device_small_writes_total";
        place.metric(&format!("{series}{{device=\"device0\",what=\"{what}\"}}"))
    };
    let (asked, written) = (count("asked"), count("written"));
    assert_eq!(asked, (4 * WRITES) as f64, "every write went through a frame");
    let share = 100.0 * written / asked;
    let value = format!("{share:.2} % ({written} pages for {asked} writes)");
    held_to("small writes to one page that cause a write of it", (share, &value), (5.0, " %"));
}

#[test]
#[ignore = "ops: measures; see `cargo xtask bench ops`"]
fn moves() {
    let place = ServerFolder::in_memory();
    let server = place.launch("mem:16MiB", &["--workers", "2"]).start();
    let words = "--verify --read-percent 50 --connections 4 --queue-depth 32";
    let mut load = bench(&format!("reflex://{}", server.address()), 10.0, words);
    let (mut client, mut pauses) = (place.client(), Vec::new());
    while load.try_wait().unwrap().is_none() {
        for own in client.connections().unwrap().connections {
            match client.move_connection(&own.id, 1 - own.worker) {
                Ok(moved) => pauses.push(moved.pause_us as f64 / 1e3),
                Err(ClientError::Refused(_)) => {} // it has ended, or was not quiet in time
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert_eq!(result(load)["verify_failures"], 0);
    pauses.sort_by(f64::total_cmp);
    let (count, p99) = (pauses.len(), pauses[pauses.len() * 99 / 100]);
    let half = pauses[count / 2];
    let value = format!("{p99:.2} ms (of {count}; half of them {half:.2} ms)");
    let name = "pause of a connection that moves under full load, p99";
    held_to(name, (p99, &value), (5.0, " ms"));
}

/// Sends a GET request for a path of the admin API, and returns the whole answer.
fn ask(socket: &PathBuf, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// Returns the nice value of the server's first thread whose name begins with `name`; `None` if
/// there is no such thread. A new thread has the name of its creator until it runs.
fn nice(server: &Server, name: &str) -> Option<i32> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let mut stats = threads.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        let (of, fields) = stat.rsplit_once(") ")?;
        of.contains(&format!("({name}")).then(|| fields.split(' ').nth(16)?.parse().ok())?
    });
    stats.next()
}

/// Waits until the server has a thread of this name with the nice value `value`.
fn await_nice(server: &Server, name: &str, value: i32) {
    let mut seen = None;
    wait_until(&format!("a thread {name} that is {value} nice"), PATIENCE, || {
        seen = nice(server, name);
        seen == Some(value)
    });
}

#[test]
fn workers_go_before_threads_that_answer_operators() {
    let place = ServerFolder::in_memory();
    let server = place.launch("mem:16MiB", &["--workers", "1"]).start();
    // Work that waits has threads of its own, which live on for a while.
    ask(&place.socket(), "/v1/connections");
    let worker = nice(&server, "worker-0").expect("it runs");
    await_nice(&server, "admin", (worker + 10).min(19));
    await_nice(&server, "tokio-", (worker + 10).min(19));
    // It tells workers what to do.
    await_nice(&server, "control", worker);
}

#[test]
fn all_other_threads_keep_off_a_processor_that_is_a_workers() {
    let processors = std::thread::available_parallelism().unwrap().get();
    if processors == 1 {
        println!("SKIPPED: there is one processor, which all threads share");
        return;
    }
    let place = ServerFolder::new();
    let cpu = WORKERS[0].to_string();
    let server = place.launch("mem:16MiB", &["--workers", "1", "--cpus", &cpu]).start();
    ask(&place.socket(), "/v1/connections");
    for thread in std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
        let read = |file: &str| std::fs::read_to_string(thread.as_ref().unwrap().path().join(file));
        let (Ok(name), Ok(status)) = (read("comm"), read("status")) else { continue }; // it ended
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        let allowed = allowed.expect("the kernel says where it may run");
        let first = allowed.split([',', '-']).next().unwrap();
        if name.starts_with("worker-") {
            assert_eq!(allowed, cpu, "{name}");
        } else {
            assert_ne!(first, cpu, "{} may run on {allowed}", name.trim());
        }
    }
}

/// Checks that threads of the NVMe fabric do not inherit the low priority of the thread that opens
/// the first listener.
#[test]
fn what_works_for_hosts_runs_as_workers_do_whoever_opened_their_first_listener() {
    let place = ServerFolder::in_memory();
    let state = place.path("state").display().to_string();
    let server = place.launch("mem:16MiB", &["--workers", "1", "--state", &state]).start();
    let wanted = AddListener::from_argument("nvme-tcp://127.0.0.1:0");
    place.client().send(&wanted).unwrap();
    let worker = nice(&server, "worker-0").expect("it runs");
    for name in ["nvme-auth", "nvme-keep"] {
        await_nice(&server, name, worker);
    }
}

/// Returns the number of tenants for measurements: `NEARFLASH_CROWD`, or 10 000.
fn crowd() -> usize {
    std::env::var("NEARFLASH_CROWD").map_or(10_000, |n| n.parse().expect("a number"))
}

/// The configuration of a server for ten thousand tenants beside `gold`, which has an SLO.
const ROOM: &str = "[[device]]\nname = \"fast\"\nspec = \"mem:64MiB\"\nmodel = \"cloud\"\n\
                    [[tenant]]\nname = \"gold\"\nlatency_us = 2000\niops = 20000\n\
                    [[access]]\ntoken = \"gold\"\ntenant = \"gold\"\nrights = \"read-write\"\n\
                    [limits]\ntenants = 12000\n";

fn crowded(place: &ServerFolder, tenants: &str, words: &[&str]) -> Server {
    let socket = place.socket();
    let cpu = WORKERS[0].to_string();
    let own = ["--workers", "1", "--cpus", &cpu, "--admin", socket.to_str().unwrap()];
    let launch = Launch::config(&format!("{ROOM}{tenants}"));
    own.iter().chain(words).fold(launch, |launch, word| launch.with(word)).start()
}

/// The processor that only the server's worker uses.
const WORKERS: [usize; 1] = [0];

/// The p95s of the reads of tenant `gold`, in microseconds: as the client saw it, and at the
/// server. The server's is from the last byte of a request to its reply handed to the socket, which
/// an SLO bounds.
#[derive(Clone, Copy)]
struct P95 {
    client: f64,
    server: f64,
}

impl P95 {
    fn medians(of: &[P95]) -> P95 {
        let of = |which: fn(&P95) -> f64| median(&mut of.iter().map(which).collect::<Vec<f64>>());
        P95 { client: of(|p95| p95.client), server: of(|p95| p95.server) }
    }
}

/// Returns the histogram of all reads of tenant `gold` so far: upper edges of latencies in
/// microseconds, each with the number of reads within it.
fn reads_of_gold(place: &ServerFolder) -> Vec<(f64, f64)> {
    let begin = "nearflash_tenant_read_latency_seconds_bucket{le=\"";
    let text = ask(&place.socket(), "/metrics");
    let read = |line: &str| {
        let (edge, count) = line.strip_prefix(begin)?.split_once("\",tenant=\"gold\"} ")?;
        Some((edge.parse::<f64>().ok()? * 1e6, count.parse().ok()?))
    };
    text.lines().filter_map(read).collect()
}

/// Returns the p95 of the reads between two histograms in microseconds, as if the reads of a bucket
/// were spread evenly over it. Each bucket is twice as wide as the one before.
fn p95(before: &[(f64, f64)], after: &[(f64, f64)]) -> f64 {
    let so_far = |edge: f64| before.iter().rfind(|(at, _)| *at <= edge).map_or(0.0, |(_, n)| *n);
    let came: Vec<(f64, f64)> = after.iter().map(|&(at, n)| (at, n - so_far(at))).collect();
    let wanted = 0.95 * came.last().expect("gold has read something").1;
    let place = came.partition_point(|(_, n)| *n < wanted);
    let (below, fewer) = if place == 0 { (0.0, 0.0) } else { came[place - 1] };
    let (above, more) = came[place];
    below + (above - below) * (wanted - fewer) / (more - fewer)
}

/// Measures the p95s of tenant `gold` over `seconds` seconds, while it reads at half of its
/// promised rate.
fn p95_of_gold(place: &ServerFolder, server: &Server, seconds: f64) -> P95 {
    let words = "--token gold --rate 10000 --queue-depth 64";
    let before = reads_of_gold(place);
    let load = aside(|| bench(&format!("reflex://{}", server.address()), seconds, words));
    let client = result(load)["read"]["latency_us"]["p95"].as_f64().expect("a latency");
    // A scrape tells the last full second.
    std::thread::sleep(Duration::from_millis(1_100));
    P95 { client, server: p95(&before, &reads_of_gold(place)) }
}

/// Runs `what` on a thread that keeps off the worker's processor, and returns its result.
fn aside<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    let off = || {
        io::keep_off_cpus(&WORKERS).unwrap();
        what()
    };
    std::thread::scope(|scope| scope.spawn(off).join().unwrap())
}

/// Runs `what` repeatedly, at low priority, while `of` measures. Returns the measurement, and the
/// processor time that `what` used in this process.
fn beside<T: Send>(mut what: impl FnMut() + Send, of: impl FnOnce() -> T) -> (T, Duration) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let body = || {
            io::lower_priority(10).unwrap();
            io::keep_off_cpus(&WORKERS).unwrap();
            while !done.load(Ordering::Relaxed) {
                what();
            }
            clocked(Path::new("/proc/thread-self")).expect("this kernel clocks threads")
        };
        let busy = scope.spawn(body);
        let measured = of();
        done.store(true, Ordering::Relaxed);
        (measured, busy.join().unwrap())
    })
}

/// Returns the processor time that a thread has used, by its folder in `/proc`; `None` if the
/// kernel does not clock threads.
fn clocked(thread: &Path) -> Option<Duration> {
    let clocked = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    clocked.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Keeps a processor busy for the share `share` of a millisecond, and sleeps for the rest of it.
fn compute(share: f64) {
    let period = Duration::from_millis(1);
    let begun = now();
    while now() - begun < period.mul_f64(share) {
        std::hint::spin_loop();
    }
    std::thread::sleep(period.mul_f64(1.0 - share));
}

/// Prints how the p95s at the server and at the client with `name` compare with those without, and
/// whether the server's misses its limit.
fn beside_and_without(name: &str, with: &[P95], without: &[P95]) {
    let (with, without) = (P95::medians(with), P95::medians(without));
    let over = |with: f64, without: f64| {
        let ratio = with / without;
        (ratio, format!("{ratio:.2} ({with:.0} µs beside {without:.0} µs)"))
    };
    let (ratio, value) = over(with.server, without.server);
    held_to(&format!("p95 of a tenant {name}, over without"), (ratio, &value), (NOISE, ""));
    let (_, value) = over(with.client, without.client);
    figure("the same as the client saw it, on the processor of all the others", &value, "-");
}

/// Number of tenants that have made requests in the measurement of scrapes. By default fewer
/// tenants than that have series of their own; with series of all tenants a scrape would have 90
/// MB.
const ACTIVE: usize = 1_000;

#[test]
#[ignore = "ops: measures; see `cargo xtask bench ops`"]
fn scrapes() {
    let active = ACTIVE.min(crowd());
    let tenants = (0..crowd()).map(|n| format!("[[tenant]]\nname = \"tenant {n:05}\"\n"));
    let rule = |n| {
        format!("[[access]]\ntoken = \"{n:05}\"\ntenant = \"tenant {n:05}\"\nrights = \"read\"\n")
    };
    let tenants: String = tenants.chain((0..active).map(rule)).collect();
    for (words, name) in
        [(&[][..], "default"), (&["--metrics-tenants", "10000"], "with metrics of all")]
    {
        let place = ServerFolder::in_memory();
        let server = crowded(&place, &tenants, words);
        for n in 0..active {
            let mut client = V2::with_token(server.address(), &format!("{n:05}")).unwrap();
            assert_eq!(client.read_blocks(0, 8).len(), 4096);
        }
        let (mut times, mut bytes) = (Vec::new(), 0);
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..repetitions() {
            without.push(p95_of_gold(&place, &server, 2.0));
            let scrape = || {
                let begun = now();
                bytes = ask(&place.socket(), "/metrics").len();
                times.push((now() - begun).as_secs_f64() * 1e3);
                std::thread::sleep(Duration::from_millis(900));
            };
            with.push(beside(scrape, || p95_of_gold(&place, &server, 2.0)).0);
        }
        let what = format!("scrape of 10 000 tenants, {active} of them active, {name}");
        figure(&what, &spread(&mut times, "ms"), "bounded");
        figure(&format!("its size, {name}"), &format!("{} KiB", bytes >> 10), "bounded");
        beside_and_without(&format!("beside a scrape a second, {name}"), &with, &without);
    }
}

/// Returns the processor time that the threads of the server's workers have used so far.
fn worker_time(server: &Server) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let used = threads.map(|thread| thread.unwrap().path()).filter_map(|thread| {
        let name = std::fs::read_to_string(thread.join("comm")).ok()?;
        if name.starts_with("worker-") { clocked(&thread) } else { None }
    });
    used.sum()
}

#[test]
#[ignore = "ops: measures; see `cargo xtask bench ops`"]
fn tenants_by_the_ten_thousand() {
    let place = ServerFolder::in_memory();
    let server = crowded(&place, "", &[]);
    let slo = |iops| Slo {
        latency_us: 10_000,
        percentile: 95.0,
        iops,
        read_percent: 100,
        request_bytes: 4096,
    };
    let name = |n: usize| format!("t{n}");
    let quiet = p95_of_gold(&place, &server, 4.0);
    let add = |client: &mut Client, n| {
        let tenant =
            NewTenant { name: name(n), device: None, slo: Some(slo(1)), share: None, note: None };
        client.send(&tenant).map(drop)
    };
    let set = |client: &mut Client, n| {
        let to = TenantPatch { slo: Some(slo(2)), share: None, note: None, device: None };
        client.send_to(&name(n), &to).map(drop)
    };
    let remove = |client: &mut Client, n| client.delete::<TenantStatus>(&name(n));
    type Change<'a> = &'a dyn Fn(&mut Client, usize) -> Result<(), ClientError>;
    let changes: [(&str, Change<'_>); 3] =
        [("registered", &add), ("changed", &set), ("removed", &remove)];
    for (what, change) in changes {
        // Without load, the worker does nothing but take the changes.
        let mut client = place.client();
        let (used, begun) = (worker_time(&server), now());
        (0..crowd()).for_each(|n| change(&mut client, n).unwrap());
        let (took, used) = (now() - begun, worker_time(&server) - used);
        let each = |time: Duration| time.as_secs_f64() * 1e3 / crowd() as f64;
        let value = format!("{:.4} ms each ({:.3} ms from the outside)", each(used), each(took));
        let name = format!("10 000 tenants {what}: the worker's time");
        held_to(&name, (each(used), &value), (1.0, " ms"));
    }
    wait_until("free numbers", PATIENCE, || place.client().tenants().unwrap().len() <= 2);
    let mut n = 0;
    let mut client = place.client();
    let (mut with, mut without, mut nobody) = (Vec::new(), vec![quiet], Vec::new());
    let others = || server.processor_time() - worker_time(&server);
    let mut shares = Vec::new();
    for _ in 0..repetitions() {
        let churn = || {
            add(&mut client, n).unwrap();
            set(&mut client, n).unwrap();
            remove(&mut client, n).unwrap();
            n += 1;
        };
        let (begun, before) = (now(), others());
        let (p95, used) = beside(churn, || p95_of_gold(&place, &server, 2.0));
        with.push(p95);
        let used = used + others().saturating_sub(before);
        let share = (used.as_secs_f64() / (now() - begun).as_secs_f64()).min(1.0);
        shares.push(100.0 * share);
        without.push(p95_of_gold(&place, &server, 2.0));
        nobody.push(beside(|| compute(share), || p95_of_gold(&place, &server, 2.0)).0);
    }
    let share = spread(&mut shares, "% of a processor");
    beside_and_without(&format!("while {n} others come and go"), &with, &without);
    beside_and_without(&format!("beside as much computing of nobody, {share}"), &nobody, &without);
}
