//! Tests of tenants as clients see them: their limits, who may register them, and requests that are
//! refused.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{Answer, Launch, PATIENCE, SLOW_MODEL, Server, V1, V2, now, wait_until};
use contract::{Command, Hello, Notice, Range, Slo, Status, TenantReply};
use proto::reflex::ClientSession;

const RULES: &str = r#"
[[tenant]]
name = "gold"
latency_us = 500
iops = 1000

[[tenant]]
name = "bronze"

[[access]]
token = "gold"
tenant = "gold"
rights = "read-write"

[[access]]
token = "bronze"
tenant = "bronze"
rights = "read-write"
register = true
"#;

/// Starts a server of a null device, with the model of a slow one. Returns the server with the file
/// of the model.
fn serve(rest: &str) -> (Server, tempfile::NamedTempFile) {
    serve_at(SLOW_MODEL, rest)
}

fn serve_at(pace: &str, rest: &str) -> (Server, tempfile::NamedTempFile) {
    let model = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(model.path(), pace).unwrap();
    let device = format!(
        "[[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\nmodel = \"{}\"\n{rest}",
        model.path().display()
    );
    (Launch::config(&device).start(), model)
}

fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Option<Slo> {
    (latency_us > 0).then(|| Slo::new(latency_us, iops, read_percent))
}

fn enter(server: &Server, token: &str) -> V2 {
    V2::with_token(server.address(), token).unwrap()
}

const READ: Command = Command::Read(Range { lba: 0, blocks: 8 });

/// Keeps `depth` reads in flight for `time`, and returns the number of answered reads a second.
fn reads_a_second(v2: &mut V2, depth: u64, time: Duration) -> f64 {
    let (start, mut answered) = (now(), 0);
    (0..depth).for_each(|tag| v2.send(tag, READ, &[]));
    while now() - start < time {
        match v2.answer() {
            Answer::Done { tag, status: Status::Ok, .. } => v2.send(tag, READ, &[]),
            Answer::Notice(_) => continue,
            other => panic!("{other:?}"),
        }
        answered += 1;
    }
    let rate = f64::from(answered) / (now() - start).as_secs_f64();
    let mut left = depth;
    while left > 0 {
        match v2.answer() {
            Answer::Done { status: Status::Ok, .. } => left -= 1,
            Answer::Notice(_) => {}
            other => panic!("{other:?}"),
        }
    }
    rate
}

/// The least shares of a rate that must be reached: of a promised rate, and of a best-effort
/// tenant's share. A tenant with a promise makes up for a deficit later. A best-effort tenant loses
/// the time during which a busy machine kept the worker waiting; tests in virtual time check its
/// exact share.
const PROMISED: f64 = 0.8;
const BEST_EFFORT: f64 = 0.02;

/// Measures rates until each is above its least share of the promised one; each pair of `promised`
/// is a rate and that share. A busy machine may delay this. Fails if a rate is more than 15 % above
/// the promised one.
#[track_caller]
fn expect_about(promised: &[(f64, f64)], mut measure: impl FnMut() -> Vec<f64>) {
    let (mut tries, patience) = (Vec::new(), now() + PATIENCE);
    while now() < patience {
        let measured = measure();
        let pairs = || measured.iter().zip(promised);
        let much = pairs().any(|(measured, (rate, _))| *measured > 1.15 * rate);
        assert!(!much, "{measured:.0?} reads/s of {promised:?}");
        if pairs().all(|(measured, (rate, least))| *measured > least * rate) {
            return;
        }
        tries.push(measured);
    }
    panic!("{tries:.0?} reads/s of {promised:?}");
}

/// Returns the reads a second of two connections that read at the same time.
fn both(one: &mut V2, two: &mut V2) -> Vec<f64> {
    both_with(one, two, 32)
}

fn both_with(one: &mut V2, two: &mut V2, depth: u64) -> Vec<f64> {
    std::thread::scope(|scope| {
        let threads = [one, two].map(|v2| scope.spawn(move || reads_a_second(v2, depth, WHILE)));
        threads.map(|thread| thread.join().unwrap()).to_vec()
    })
}

const WHILE: Duration = Duration::from_millis(1000);

#[test]
fn configured_tenants_get_their_rates() {
    let (server, _model) = serve(RULES);
    let mut gold = enter(&server, "gold");
    let mut bronze = enter(&server, "bronze");
    expect_about(&[(1_000.0, PROMISED), (3_000.0, BEST_EFFORT)], || both(&mut gold, &mut bronze));
}

/// Checks the shares of two best-effort tenants of a server of 400 tokens per second, with these
/// keys of their configuration, while both want all tokens. The reads per second of each never
/// exceed `most`, and become as `expected` once the machine lets them.
fn share(heavy: &str, light: &str, most: [f64; 2], expected: fn(f64, f64) -> bool) {
    let pace =
        SLOW_MODEL.replace("= 8000", "= 400").replace("= 4000", "= 200").replace("= 6000", "= 300");
    let access = |name: &str, told: &str| {
        format!(
            "[[tenant]]\nname = \"{name}\"\n{told}\n[[access]]\ntoken = \"{name}\"\ntenant = \
             \"{name}\"\nrights = \"read-write\"\n"
        )
    };
    let told = access("heavy", heavy) + &access("light", light);
    let (server, _model) = serve_at(&pace, &told);
    let [mut one, mut two] = ["heavy", "light"].map(|token| enter(&server, token));
    let (mut tries, patience) = (Vec::new(), now() + PATIENCE);
    while now() < patience {
        // So many that nobody runs out of them while a busy machine lets its client wait.
        let rates = both_with(&mut one, &mut two, 200);
        let within = rates.iter().zip(most).all(|(rate, most)| *rate <= 1.15 * most);
        assert!(within, "{rates:.0?} reads/s of {most:?}");
        if expected(rates[0], rates[1]) {
            return;
        }
        tries.push(rates);
    }
    panic!("{tries:.0?} reads/s of {most:?}");
}

#[test]
fn weights_share_what_is_left() {
    let expected = |heavy, light| (2.55..3.45).contains(&(heavy / light));
    share("weight = 3", "", [400.0, 400.0], expected);
}

#[test]
fn a_cap_holds_and_leaves_the_rest() {
    // Without the cap the heavy one gets three times as much as the light one. What the worker
    // could not give while a busy machine let it wait is gone, so the rest is not expected whole.
    let expected = |heavy, light| heavy > 0.85 * 150.0 && light > 115.0 && heavy < 1.5 * light;
    share("weight = 3\ncap_tokens = 150", "", [150.0, 400.0], expected);
}

/// Waits until the client reads faster than the model of [`crawling`] allows.
#[track_caller]
fn expect_unlimited(v2: &mut V2) {
    wait_until("more reads a second than the model allows", PATIENCE, || {
        reads_a_second(v2, 32, Duration::from_millis(250)) > 1_500.0
    });
}

/// Returns the model of a device with 800 tokens a second at most, which a client exceeds on a
/// busy machine, too.
fn crawling() -> String {
    SLOW_MODEL.replace("= 8000", "= 800").replace("= 4000", "= 400").replace("= 6000", "= 600")
}

#[test]
fn without_the_scheduler_nobody_is_limited() {
    let model = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(model.path(), crawling()).unwrap();
    let launch = Launch::device("null:64MiB").with("--no-scheduler").with("--model");
    let server = launch.with(&model.path().display().to_string()).start();
    let mut v2 = V2::connect(server.address());
    expect_unlimited(&mut v2);
}

#[test]
fn without_a_model_nobody_is_limited() {
    let server = Launch::device("null:64MiB").start();
    let mut v2 = V2::connect(server.address());
    expect_unlimited(&mut v2);
    let (status, _) = v2.register("gold", slo(500, 1_000, 100)).unwrap_err();
    assert_eq!(status, Status::Unsupported);
    assert_ne!(v2.register("silver", None).unwrap().tenant, 0);
}

#[test]
fn connections_share_what_they_registered() {
    let (server, _model) = serve(RULES);
    let mut one = enter(&server, "bronze");
    let mut two = enter(&server, "bronze");
    let reply = one.register("mine", slo(2_000, 1_000, 100)).unwrap();
    assert_eq!((reply.tenant, reply.tokens_needed, reply.tokens_free), (1, 1_000, 2_000));
    let shared = two.register("mine", None).unwrap();
    assert_eq!(shared, reply, "the first one's SLO stands");
    assert_eq!(one.register("mine", None), Ok(reply), "and its handle");
    one.session.charge(reply.tenant);
    two.session.charge(shared.tenant);
    expect_about(&[(1_000.0, PROMISED)], || vec![both(&mut one, &mut two).iter().sum()]);
}

#[test]
fn a_refusal_says_what_was_needed_and_whose_latency_sets_the_limit() {
    let (server, _model) = serve(RULES);
    let mut v2 = enter(&server, "bronze");
    let refused = |answer: Result<TenantReply, (Status, TenantReply)>| answer.unwrap_err();
    // The configured one's 500 µs leave 4 000 tokens a second, of which it has 1 000.
    let (status, reply) = refused(v2.register("much", slo(2_000, 1_000, 50)));
    assert_eq!(
        (status, reply.tokens_needed, reply.tokens_free),
        (Status::NoResources, 5_500, 3_000)
    );
    assert_eq!(reply.limited_by, TenantReply::LIMITED_BY_OTHER);
    assert_eq!((reply.limit_latency_us, reply.tenant), (500, 0));
    let (status, reply) = refused(v2.register("tight", slo(100, 1, 100)));
    assert_eq!((status, reply.limited_by), (Status::NoResources, TenantReply::LIMITED_BY_THIS));
    assert_eq!(refused(v2.register("idle", slo(500, 0, 100))).0, Status::Invalid);
    assert_eq!(refused(v2.register("", slo(0, 0, 0))).0, Status::Invalid);
    assert_eq!(refused(v2.register("gold", slo(0, 0, 0))).0, Status::Denied);
    assert_eq!(refused(v2.renegotiate(3, slo(0, 0, 0))).0, Status::NoTenant);
    assert_eq!(refused(v2.unregister(0)).0, Status::NoTenant);
    let mut gold = enter(&server, "gold");
    assert_eq!(refused(gold.register("mine", slo(0, 0, 0))).0, Status::Denied, "it has no right");
    assert_eq!(refused(gold.renegotiate(0, slo(0, 0, 0))).0, Status::Denied);
    // Its own handle, where it has one.
    let strict = v2.register("strict", slo(500, 1_000, 100)).unwrap().tenant;
    let (_, reply) = refused(v2.register("more", slo(2_000, 2_001, 100)));
    assert!([strict, TenantReply::LIMITED_BY_OTHER].contains(&reply.limited_by), "{reply:?}");
    assert_eq!(v2.call(READ, &[]).0, Status::Ok);
}

#[test]
fn who_exceeds_its_slo_is_told_and_can_renegotiate() {
    let (server, _model) = serve(RULES);
    let mut v2 = enter(&server, "bronze");
    let handle = v2.register("mine", slo(2_000, 500, 100)).unwrap().tenant;
    v2.session.charge(handle);
    let mut tags = 0..;
    tags.by_ref().take(32).for_each(|tag| v2.send(tag, READ, &[]));
    let mut notice = || loop {
        match v2.answer() {
            Answer::Done { .. } => v2.send(tags.next().expect("there is no last"), READ, &[]),
            Answer::Notice(notice) => break notice,
            other => panic!("{other:?}"),
        }
    };
    // Of a second in which a busy machine let it wait, a notice tells fewer; the next one comes ten
    // seconds later.
    let told = (0..5).any(|_| {
        let notice = notice();
        let Notice::Renegotiate { tenant, iops, read_percent } = notice else {
            panic!("{notice:?}");
        };
        assert_eq!((tenant, read_percent), (handle, 100));
        assert!(iops < 575, "{iops} reads/s of 500");
        iops >= 300
    });
    assert!(told, "it is told fewer reads than it does");
    let mut left = 32;
    while left > 0 {
        if matches!(v2.answer(), Answer::Done { .. }) {
            left -= 1;
        }
    }
    assert_eq!(v2.renegotiate(handle, slo(2_000, 2_000, 100)).unwrap().tokens_needed, 2_000);
    expect_about(&[(2_000.0, PROMISED)], || vec![reads_a_second(&mut v2, 32, WHILE)]);
}

#[test]
fn unregistering_while_busy_loses_nothing() {
    let (server, _model) = serve(RULES);
    let mut v2 = enter(&server, "bronze");
    for round in 0..20 {
        let name = format!("tenant {round}");
        let handle = v2.register(&name, slo(2_000, 1_000, 100)).unwrap().tenant;
        assert_eq!(handle, 1);
        v2.session.charge(handle);
        (0..64).for_each(|tag| v2.send(tag, READ, &[]));
        v2.control(&contract::ControlRequest::Unregister { tag: 99, tenant: handle });
        v2.send(64, READ, &[]);
        v2.session.charge(0);
        let (mut done, mut late, mut unregistered) = (0, 0, 0);
        while done + late + unregistered < 66 {
            match v2.answer() {
                Answer::Done { tag, status: Status::Ok, .. } => {
                    assert!(tag < 64);
                    done += 1;
                }
                Answer::Done { tag: 64, status: Status::NoTenant, .. } => late += 1,
                Answer::Tenant { tag: 99, status: Status::Ok, .. } => unregistered += 1,
                Answer::Notice(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((done, late, unregistered), (64, 1, 1));
    }
}

#[test]
fn who_asks_for_a_tenant_that_is_not_there_is_sent_away_whatever_it_said_besides() {
    let (server, _model) = serve("");
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let hello = Hello { tenant: "nobody".into(), ..Hello::default() };
    let heads = ClientSession::v2(hello).greeting();
    let mut bytes: Vec<u8> = heads.into_iter().flat_map(|head| head.bytes().to_vec()).collect();
    bytes.extend([0; 64]);
    stream.write_all(&bytes).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("the connection ends");
    assert!(!said.is_empty());
}

#[test]
fn a_long_line_behind_a_barrier_of_a_tenant_that_left_is_refused() {
    const MANY: u64 = 30_000;
    let limits = "[limits]\nin_flight = 65536\nin_flight_of_connection = 65536\n";
    let (server, _model) = serve(&format!("{RULES}{limits}"));
    let mut v2 = enter(&server, "bronze");
    let handle = v2.register("mine", slo(2_000, 1, 100)).unwrap().tenant;
    v2.session.charge(handle);
    // As many as its deficit allows, and some that wait.
    (0..60).for_each(|tag| v2.send(tag, READ, &[]));
    v2.send(60, Command::Barrier, &[]);
    let mut bytes = Vec::new();
    for tag in 61..61 + MANY {
        bytes.extend(v2.encode(tag, 0, 0, Command::Flush, &[]));
    }
    v2.send_bytes(&bytes);
    v2.control(&contract::ControlRequest::Unregister { tag: 6, tenant: handle });
    let (mut ended, mut refused) = (0, 0);
    while ended < 61 + MANY {
        match v2.answer() {
            Answer::Done { status: Status::Retry, .. } => {
                (ended, refused) = (ended + 1, refused + 1)
            }
            Answer::Done { .. } => ended += 1,
            Answer::Tenant { .. } | Answer::Notice(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, MANY);
}

#[test]
fn clients_of_version_1_belong_to_their_listeners_tenant() {
    let listen = "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n[[listen]]\nurl = \
                  \"reflex://127.0.0.1:0?tenant=gold\"\n[[tenant]]\nname = \"gold\"\nlatency_us = \
                  500\niops = 1000\n";
    let (server, _model) = serve(listen);
    let measure = |address: SocketAddr| {
        let mut v1 = V1::connect(address);
        let (start, mut answered) = (now(), 0);
        (1..=16).for_each(|handle| v1.get(handle, 0, 8));
        while now() - start < WHILE {
            let head = v1.receive(24);
            v1.receive(4096);
            v1.send(&head);
            answered += 1;
        }
        f64::from(answered) / (now() - start).as_secs_f64()
    };
    expect_about(&[(3_000.0, BEST_EFFORT), (1_000.0, PROMISED)], || {
        std::thread::scope(|scope| {
            let listeners = [0, 1].map(|n| server.listener(n));
            let each = listeners.map(|address| scope.spawn(move || measure(address)));
            each.map(|thread| thread.join().unwrap()).to_vec()
        })
    });
    // A hello that asks for it by name gets it, too; and nobody gets another.
    let ask = |n, tenant: &str| {
        let hello = Hello { tenant: tenant.into(), ..Hello::default() };
        V2::hello(server.listener(n), hello).map(|mut v2| v2.call(READ, &[]).0)
    };
    assert_eq!(ask(1, "gold"), Ok(Status::Ok));
    assert_eq!(ask(0, "gold"), Err(Status::Denied));
}

#[test]
fn a_server_with_a_backlog_stops_in_time() {
    let pace = SLOW_MODEL.replace("= 8000", "= 400").replace("= 4000", "= 300");
    let pace = pace.replace("= 6000", "= 350");
    let bronze = "[[access]]\nfrom = \"anyone\"\nrights = \"read-write\"\n";
    let (mut server, _model) = serve_at(&pace, &format!("{bronze}[limits]\ndrain_seconds = 1\n"));
    let mut v2 = V2::connect(server.address());
    let data = vec![7; 256 << 10];
    // 640 tokens each, of 400 a second: without the limit it takes 24 s and does them all.
    for tag in 0..16 {
        v2.send(tag, Command::Write { range: Range::new(0, 512), fua: false }, &data);
    }
    wait_until("the first one is done", PATIENCE, || {
        matches!(v2.answer(), Answer::Done { status: Status::Ok, .. })
    });
    server.terminate();
    assert!(server.wait().success());
    let mut done = 1;
    loop {
        match v2.answer() {
            Answer::Done { status: Status::Ok, .. } => done += 1,
            Answer::End => break,
            _ => {}
        }
    }
    assert!(done < 16, "it waited for all of them");
}

#[test]
fn mistakes_are_told_at_start() {
    let fails = |text: &str| Launch::config(text).fail().1;
    let device = "[[device]]\nname = \"disk\"\nspec = \"null:64MiB\"\n";
    let gold = "[[tenant]]\nname = \"gold\"\nlatency_us = 500\niops = 1000\n";
    let said = fails(&format!("{device}{gold}"));
    assert!(said.contains("\"gold\"") && said.contains("nearflash calibrate"), "{said}");
    let rule = "[[access]]\nfrom = \"anyone\"\nrights = \"read\"\ntenant = \"lead\"\n";
    let sim = "[[device]]\nname = \"disk\"\nspec = \"sim:a\"\n";
    let said = fails(&format!("{sim}{gold}{rule}"));
    assert!(said.contains("access rule 1") && said.contains("there are: gold"), "{said}");
    let much = gold.replace("1000", "500000");
    let said = fails(&format!("{sim}{much}"));
    assert!(said.contains("needs 500 000 tokens/s of 420 000 available"), "{said}");
    let said = fails(&format!("{sim}{gold}device = \"tape\"\n"));
    assert!(said.contains("there are: disk"), "{said}");
    let named = sim.replace("sim:a\"", "sim:a\"\nmodel = \"nothing.toml\"");
    let said = fails(&named);
    assert!(said.contains("nothing.toml") && said.contains("expected a file, `a`"), "{said}");
    for switch in ["correct_online", "bound_depth", "fail_fast"] {
        let said = fails(&format!("{device}{switch} = true\n"));
        assert!(said.contains(&format!("\"disk\": {switch} needs a device model")), "{said}");
    }
    let said = fails(&format!("{sim}{gold}percentile = 99\n"));
    assert!(said.contains("\"gold\"") && said.contains("no rates for p99"), "{said}");
    let said = fails(&format!("{sim}{gold}weight = 2\n"));
    assert!(said.contains("\"gold\"") && said.contains("promised a latency"), "{said}");
    let bulk = "[[tenant]]\nname = \"bulk\"\n";
    for (device, told, expected) in [
        (sim, "weight = 0", "weight is 0; expected a number from 1 to 1000"),
        (sim, "weight = 1001", "weight is 1001; expected"),
        (sim, "cap_tokens = 0", "cap_tokens is 0; expected"),
        (device, "weight = 2", "device \"disk\" has none"),
    ] {
        let said = fails(&format!("{device}{bulk}{told}\n"));
        assert!(said.contains("\"bulk\"") && said.contains(expected), "{said}");
    }
}
