//! Tests of the admin API from outside: every resource, its answers to invalid requests, and
//! authentication.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, IoKind};
use nearflash_control::admin::{
    AdminAddress, AdminListener, Check, Class, Client, ClientError, Code, Correction, Devices,
    NewTenant, Origin, Router, ServerParts, Share, Slo, State, Strictest, TenantPatch,
    TenantStatus, Worker, scrape_router, start,
};
use nearflash_control::{DeviceSetup, Switches, Tenants, WorkerController};
use qos::DeviceModel;
use serde_json::{Value, json};

/// Maximum number of tenants.
const TENANTS_MAX: usize = 1_100;

struct TwoWorkers;

impl ServerParts for TwoWorkers {
    fn cpu(&self, worker: usize) -> Option<usize> {
        Some(worker + 3)
    }
}

fn tenants() -> Tenants {
    let device = |name: &str, model| DeviceSetup {
        name: name.to_owned(),
        model,
        switches: Switches { correct_online: name == "fast", ..Switches::default() },
    };
    let devices = vec![device("fast", Some(DeviceModel::device_a())), device("disk", None)];
    Tenants::new(devices, 2, TENANTS_MAX, Arc::new(|| Instant::ZERO))
}

/// Returns the API of these tenants, whose workers do not answer.
fn router(tenants: &Tenants) -> Router {
    let (controller, _) = WorkerController::new(tenants.clone(), 2);
    nearflash_control::admin::router(tenants.clone(), controller.commands(), Arc::new(TwoWorkers))
        .merge(scrape_router(tenants.clone(), TENANTS_MAX))
}

/// A running admin API for a test, at a Unix socket in a temporary folder.
pub(crate) struct Api {
    _folder: tempfile::TempDir,
    path: PathBuf,
    tenants: Tenants,
}

impl Api {
    pub(crate) fn start() -> Api {
        Api::owned_by(own_uid())
    }

    fn owned_by(owner: u32) -> Api {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let tenants = tenants();
        let listener = UnixListener::bind(&path).unwrap();
        let router = router(&tenants);
        start(router, AdminListener::Unix(listener, owner), false).unwrap();
        Api { _folder: folder, path, tenants }
    }

    fn client(&self) -> Client {
        Client::new(AdminAddress::Unix(self.path.clone())).unwrap()
    }

    /// Sends these bytes, shuts the sending direction, and returns all received bytes.
    pub(crate) fn raw(&self, request: &str) -> String {
        talk(UnixStream::connect(&self.path).unwrap(), request)
    }

    /// Sends a request, and returns the status and body of its answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        parse(&self.raw(&(head + body)))
    }
}

fn own_uid() -> u32 {
    // The folder belongs to the user of this process.
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(folder.path()).unwrap())
}

fn talk(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A server that refuses a request during its transmission resets the connection; its answer
    // stands.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

pub(crate) fn parse(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status in {answer:?}"));
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Slo {
    Slo { latency_us, percentile: 95.0, iops, read_percent, request_bytes: 4096 }
}

fn add(name: &str, slo: Option<Slo>) -> NewTenant {
    NewTenant { name: name.to_owned(), device: None, slo, share: None, note: None }
}

fn to_contract(slo: Option<Slo>) -> Option<contract::Slo> {
    slo.map(|slo| contract::Slo::new(slo.latency_us, slo.iops, slo.read_percent))
}

fn to(slo: Option<Slo>) -> TenantPatch {
    TenantPatch { slo, share: None, note: None, device: None }
}

#[test]
fn a_tenant_is_made_shown_changed_and_removed() {
    let api = Api::start();
    let mut client = api.client();
    let admitted = client.send(&add("gold", Some(slo(500, 120_000, 100)))).unwrap();
    assert_eq!((admitted.tokens_needed, admitted.tokens_left), (120_000, 300_000));
    assert_eq!((admitted.device.as_str(), admitted.number), ("fast", 1));
    let gold = client.get::<TenantStatus>("gold").unwrap();
    assert_eq!(gold.slo, Some(slo(500, 120_000, 100)));
    assert_eq!((gold.class, gold.origin), (Class::LatencyCritical, Origin::Operator));
    assert_eq!((gold.state, gold.connections, gold.in_flight), (State::Active, 0, 0));
    let changed = client.send_to("gold", &to(Some(slo(2_000, 60_000, 80)))).unwrap();
    assert_eq!(changed.tokens_needed, 60_000 * 28 / 10);
    assert_eq!(client.send_to("gold", &to(None)).unwrap().tokens_needed, 0);
    assert_eq!(client.get::<TenantStatus>("gold").unwrap().class, Class::BestEffort);
    client.delete::<TenantStatus>("gold").unwrap();
    assert_eq!(client.get::<TenantStatus>("gold").unwrap_err().code(), Some(Code::NoTenant));
    let left: Vec<_> = client.tenants().unwrap().into_iter().map(|t| t.state).collect();
    assert_eq!(left, [State::Leaving], "no worker has let go of it");
}

#[test]
fn a_share_stays_until_it_is_changed() {
    let api = Api::start();
    let mut client = api.client();
    let share = |weight, cap_tokens| Share { weight, cap_tokens };
    let heavy = NewTenant { share: Some(share(3, Some(9_000))), ..add("heavy", None) };
    client.send(&heavy).unwrap();
    client.send(&add("light", None)).unwrap();
    let mut shown = |name: &str| client.get::<TenantStatus>(name).unwrap().share;
    assert_eq!((shown("heavy"), shown("light")), (share(3, Some(9_000)), share(1, None)));
    // To an SLO and back.
    client.send_to("heavy", &to(Some(slo(500, 1_000, 100)))).unwrap();
    client.send_to("heavy", &to(None)).unwrap();
    assert_eq!(client.get::<TenantStatus>("heavy").unwrap().share, share(3, Some(9_000)));
    let lighter = TenantPatch { share: Some(share(2, None)), ..to(None) };
    client.send_to("heavy", &lighter).unwrap();
    assert_eq!(client.get::<TenantStatus>("heavy").unwrap().share, share(2, None));
    let wrong = TenantPatch { share: Some(share(2, None)), ..to(Some(slo(500, 1_000, 100))) };
    assert_eq!(client.send_to("heavy", &wrong).unwrap_err().code(), Some(Code::Invalid));
    assert_eq!(
        client.get::<TenantStatus>("heavy").unwrap().slo,
        None,
        "nothing is changed by halves"
    );
}

#[test]
fn a_note_stays_until_it_is_changed_or_removed() {
    let api = Api::start();
    let mut client = api.client();
    let note = |text: &str| Some(text.to_owned());
    client.send(&NewTenant { note: note("team storage"), ..add("gold", None) }).unwrap();
    let changes =
        [(None, Some("team storage")), (note("ticket 7"), Some("ticket 7")), (note(""), None)];
    for (change, shown) in changes {
        let patch = TenantPatch { note: change, ..to(Some(slo(500, 1_000, 100))) };
        client.send_to("gold", &patch).unwrap();
        let gold = client.get::<TenantStatus>("gold").unwrap();
        assert_eq!((gold.note.as_deref(), gold.slo), (shown, Some(slo(500, 1_000, 100))));
    }
    for bad in ["é".repeat(201), "two\nlines".to_owned()] {
        let refused = client.send_to("gold", &TenantPatch { note: note(&bad), ..to(None) });
        assert_eq!(refused.unwrap_err().code(), Some(Code::Invalid));
        let refused = client.send(&NewTenant { note: note(&bad), ..add("silver", None) });
        assert_eq!(refused.unwrap_err().code(), Some(Code::Invalid));
    }
}

#[test]
fn names_may_have_any_characters_that_names_have() {
    let api = Api::start();
    let mut client = api.client();
    for name in ["check", "a/b", "ünï côde", "100 % ?&#", ".."] {
        client.send(&add(name, None)).unwrap();
        assert_eq!(client.get::<TenantStatus>(name).unwrap().name, name);
        client.send_to(name, &to(Some(slo(1_000, 10, 100)))).unwrap();
        client.delete::<TenantStatus>(name).unwrap();
    }
}

#[test]
fn a_refusal_names_need_supply_the_limit_and_ways_out() {
    let api = Api::start();
    let mut client = api.client();
    client.send(&add("gold", Some(slo(500, 120_000, 100)))).unwrap();
    let refused = client.send(&add("silver", Some(slo(2_000, 400_000, 100)))).unwrap_err();
    let ClientError::Refused(problem) = &refused else { panic!("{refused}") };
    assert_eq!(problem.code, Code::TooMuch);
    let shortage = problem.shortage.as_ref().unwrap();
    assert_eq!((shortage.tokens_needed, shortage.tokens_available), (400_000, 300_000));
    assert_eq!((shortage.tokens_device, shortage.latency_us), (420_000, 500));
    assert_eq!(shortage.limited_by.as_deref(), Some("gold"));
    let ways = problem.ways.as_ref().unwrap();
    assert_eq!((ways.iops, ways.leave.as_slice()), (Some(300_000), &["gold".to_owned()][..]));
    for words in ["needs 400 000", "300 000 available", "\"gold\"", "at most 300 000 requests/s"] {
        assert!(problem.message.contains(words), "{}", problem.message);
    }
    assert!(client.get::<TenantStatus>("silver").is_err());
    // A refused change leaves the old SLO, and the tenant's own share is no reason to refuse.
    let refused = client.send_to("gold", &to(Some(slo(500, 500_000, 100)))).unwrap_err();
    let ClientError::Refused(problem) = &refused else { panic!("{refused}") };
    assert_eq!((problem.code, problem.ways.as_ref().unwrap().iops), (Code::TooMuch, Some(420_000)));
    assert_eq!(client.get::<TenantStatus>("gold").unwrap().slo, Some(slo(500, 120_000, 100)));
    client.send_to("gold", &to(Some(slo(500, 420_000, 100)))).unwrap();
}

#[test]
fn a_check_changes_nothing() {
    let api = Api::start();
    let mut client = api.client();
    let question =
        |device: Option<&str>, slo| Check { device: device.map(str::to_owned), tenant: None, slo };
    let fits = client.send(&question(None, slo(500, 100_000, 100))).unwrap();
    assert!(fits.admitted && fits.refusal.is_none());
    assert_eq!((fits.tokens_needed, fits.tokens_left), (Some(100_000), Some(320_000)));
    assert_eq!(fits.fits, Some(4), "420 000 tokens/s in all");
    let not = client.send(&question(None, slo(500, 1_000_000, 100))).unwrap();
    assert!(!not.admitted);
    assert_eq!(not.fits, Some(0));
    assert_eq!(not.refusal.unwrap().ways.unwrap().iops, Some(420_000));
    let disk = client.send(&question(Some("disk"), slo(500, 1, 100))).unwrap();
    assert_eq!(disk.refusal.unwrap().code, Code::NoModel);
    let tape = client.send(&question(Some("tape"), slo(500, 1, 100))).unwrap_err();
    assert_eq!(tape.code(), Some(Code::NoDevice));
    assert!(client.tenants().unwrap().is_empty());
    client.send(&add("gold", Some(slo(500, 400_000, 100)))).unwrap();
    let change = |device: Option<&str>, tenant: &str| Check {
        tenant: Some(tenant.to_owned()),
        ..question(device, slo(500, 420_000, 100))
    };
    let large = Slo { request_bytes: (1 << 20) + 1, ..slo(500, 1, 100) };
    let nonsense = client.send(&question(None, large)).unwrap_err();
    assert_eq!(nonsense.code(), Some(Code::Invalid), "as when such a tenant is added");
    let changed = client.send(&change(None, "gold")).unwrap();
    assert!(changed.admitted, "its own share counts as free");
    assert_eq!(changed.fits, None, "there is one already");
    let nobody = client.send(&change(None, "nobody")).unwrap_err();
    assert_eq!(nobody.code(), Some(Code::NoTenant));
    let moved = client.send(&change(Some("disk"), "gold")).unwrap();
    assert_eq!(moved.refusal.unwrap().code, Code::NoModel, "where it would move to");
    assert_eq!(client.get::<TenantStatus>("gold").unwrap().slo.unwrap().iops, 400_000);
}

#[test]
fn devices_and_workers_are_told() {
    let api = Api::start();
    let mut client = api.client();
    client.send(&add("lax", Some(slo(2_000, 10_000, 100)))).unwrap();
    client.send(&add("strict", Some(slo(500, 20_000, 100)))).unwrap();
    let devices = client.read::<Devices>().unwrap().devices;
    let (fast, disk) = (&devices[0], &devices[1]);
    assert_eq!((fast.tokens, fast.tokens_promised), (Some(420_000), 30_000));
    let strictest = Strictest { latency_us: 500, tenant: "strict".to_owned() };
    assert_eq!((fast.tokens_left, &fast.strictest), (Some(390_000), &Some(strictest)));
    assert_eq!((disk.has_model, disk.tokens, &disk.strictest), (false, None, &None));
    let uncorrected = Correction { rate_percent: 100.0, write_price_percent: 100.0 };
    assert_eq!((&fast.correction, &disk.correction), (&Some(uncorrected), &None));
    let workers = client.workers().unwrap().workers;
    let told = workers.iter().map(|worker| (worker.number, worker.cpu, worker.connections));
    assert_eq!(told.collect::<Vec<_>>(), [(0, Some(3), 0), (1, Some(4), 0)]);
}

#[test]
fn nonsense_is_answered_with_what_to_do() {
    let api = Api::start();
    let long = format!("{{\"name\": \"{}\"}}", "x".repeat(65));
    let huge = format!("{{\"name\": \"{}\"}}", "x".repeat(70_000));
    let batch = "x".repeat((4 << 20) + 1);
    for (method, path, body, status, words) in [
        ("POST", "/v1/tenants", "", 400, "EOF"),
        ("POST", "/v1/tenants", "{", 400, "EOF"),
        ("POST", "/v1/tenants", "[1]", 400, "expected an object, not a list"),
        ("POST", "/v1/tenants", r#"{"nome": "x"}"#, 400, "unknown field `nome`"),
        ("POST", "/v1/tenants", r#"{"name": ""}"#, 400, "1 to 64 bytes"),
        ("POST", "/v1/tenants", &long, 400, "1 to 64 bytes"),
        ("POST", "/v1/tenants", &huge, 413, "larger than 64 KiB"),
        ("PATCH", "/v1/tenants", &batch, 413, "larger than 4096 KiB"),
        ("POST", "/v1/tenants", r#"{"name":"x","device":"tape"}"#, 422, "there are: fast, disk"),
        ("POST", "/v1/tenants", r#"{"name":"x","slo":{"iops":1}}"#, 400, "latency_us"),
        (
            "POST",
            "/v1/tenants",
            r#"{"name":"x","slo":{"iops":1,"latency_us":0}}"#,
            400,
            "best effort",
        ),
        ("POST", "/v1/tenants", r#"{"name":"x","slo":{"iops":-1,"latency_us":9}}"#, 400, "u32"),
        (
            "POST",
            "/v1/tenants",
            r#"{"name":"x","slo":{"iops":1,"latency_us":900,"percentile":99}}"#,
            422,
            "no rates for p99",
        ),
        (
            "POST",
            "/v1/tenants",
            r#"{"name":"x","slo":{"iops":1,"latency_us":900,"percentile":1e308}}"#,
            400,
            "0.1 to 99.9",
        ),
        (
            "POST",
            "/v1/tenants",
            r#"{"name":"x","slo":{"iops":1,"latency_us":900,"read_percent":101}}"#,
            400,
            "100 % reads",
        ),
        ("POST", "/v1/tenants", r#"{"name":"x","slo":{"iops":1,"latency_us":9}}"#, 409, "lowest"),
        ("POST", "/v1/tenants", r#"{"name":"x","share":{"weight":0}}"#, 400, "1 to 1000"),
        ("POST", "/v1/tenants", r#"{"name":"x","share":{"cap_tokens":0}}"#, 400, "cap_tokens is 0"),
        ("POST", "/v1/tenants", r#"{"name":"x","share":{"wait":2}}"#, 400, "unknown field `wait`"),
        (
            "POST",
            "/v1/tenants",
            r#"{"name":"x","device":"disk","share":{"weight":2}}"#,
            400,
            "device \"disk\" has none",
        ),
        (
            "POST",
            "/v1/tenants",
            r#"{"name":"x","slo":{"iops":1,"latency_us":900},"share":{"weight":2}}"#,
            400,
            "promised a latency",
        ),
        ("PUT", "/v1/tenants/none", r#"{"slo":null}"#, 404, "none yet"),
        ("PUT", "/v1/tenants/none", "{}", 400, "missing field `slo`"),
        ("GET", "/v1/tenants/none", "", 404, "none yet"),
        ("DELETE", "/v1/tenants/none", "", 404, "none yet"),
        ("POST", "/v1/tenants/other", r#"{"slo":{}}"#, 405, "/openapi.json"),
        ("GET", "/v1/tenants/check", "", 404, "none yet"),
        ("GET", "/v1/connections?limit=-1", "", 400, "limit"),
        ("GET", "/v1/history?after=-1", "", 400, "after"),
        ("PUT", "/v1/tenants", "", 405, "/openapi.json"),
        ("PATCH", "/v1/tenants", "", 400, "EOF"),
        ("GET", "/nothing", "", 404, "/openapi.json"),
        ("GET", "/ui/nothing.js", "", 404, "/ui/"),
        ("POST", "/v1/flows", "", 405, "/openapi.json"),
        ("GET", "/v1/trace", "", 400, "missing field `seconds`"),
        ("GET", "/v1/trace?seconds=x&one_in=1", "", 400, "invalid"),
        ("GET", "/v1/trace?seconds=9&one_in=1", "", 400, "from 0 to 5"),
        ("GET", "/v1/trace?seconds=1&one_in=0", "", 400, "at least 1"),
        ("PUT", "/v1/workers/many", r#"{"state":"active"}"#, 400, "many"),
        ("GET", "/v1/tenants/%ff", "", 400, "UTF-8"),
        ("DELETE", "/v1/namespaces/1?froce=true", "", 400, "froce"),
        ("POST", "/v1/history", "", 405, "/openapi.json"),
        ("GET", "/v1/history?after=x", "", 400, "invalid"),
        ("GET", "/v2/tenants", "", 404, "/openapi.json"),
    ] {
        let (code, answer) = api.ask(method, path, body);
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(code, status, "{method} {path}: {message}");
        assert!(message.contains(words), "{method} {path}: {message}");
        assert!(answer["error"]["code"].is_string(), "{answer}");
    }
    assert!(api.tenants.list().is_empty(), "nonsense changes nothing");
}

#[test]
fn a_body_needs_its_type_and_a_head_its_form() {
    let api = Api::start();
    let body = r#"{"name":"x"}"#;
    let head = format!(
        "POST /v1/tenants HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {}\r\n",
        body.len()
    );
    // Forms and scripts of other sites can send these types without asking first.
    for kind in ["", "content-type: text/plain\r\n"] {
        let (code, answer) = parse(&api.raw(&format!("{head}{kind}\r\n{body}")));
        assert_eq!((code, &answer["error"]["code"]), (400, &json!("invalid")), "{answer}");
    }
    assert!(api.raw("nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    let endless = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(200_000));
    let answer = api.raw(&endless);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert!(api.tenants.list().is_empty());
}

#[test]
fn only_the_owner_and_root_are_let_in() {
    let uid = own_uid();
    let api = Api::owned_by(uid + 1);
    match (uid, api.client().tenants()) {
        (0, answer) => assert!(answer.is_ok(), "root may"),
        (_, answer) => assert_eq!(answer.unwrap_err().code(), Some(Code::Forbidden)),
    }
}

#[test]
fn a_port_of_loopback_wants_a_name_of_loopback() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    start(router(&tenants()), AdminListener::Tcp(listener), false).unwrap();
    let mut client = Client::new(format!("http://{address}").parse().unwrap()).unwrap();
    assert_eq!(client.workers().unwrap().workers.len(), 2);
    for (host, expected) in [("localhost", 200), ("127.0.0.1:1", 200), ("evil.example", 403)] {
        let request =
            format!("GET /v1/tenants HTTP/1.1\r\nconnection: close\r\nhost: {host}\r\n\r\n");
        let (code, _) = parse(&talk(TcpStream::connect(address).unwrap(), &request));
        assert_eq!(code, expected, "{host}");
        // `ssh -L` makes a Unix socket a loopback port.
        assert_eq!(parse(&Api::start().raw(&request)).0, expected, "{host} by the socket");
    }
    let stream = TcpStream::connect(address).unwrap();
    let (code, _) = parse(&talk(stream, "GET /v1/tenants HTTP/1.0\r\n\r\n"));
    assert_eq!(code, 403, "no host at all");
}

#[test]
fn pages_of_other_sites_are_not_let_in() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    start(router(&tenants()), AdminListener::Tcp(listener), false).unwrap();
    let link = "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n";
    for (path, said, expected) in [
        ("/openapi.json", link.to_owned(), 200),
        ("/v1/workers", link.to_owned(), 403),
        ("/v1/workers", String::new(), 200),
        ("/v1/workers", format!("origin: http://{address}\r\n"), 200),
        ("/v1/workers", "sec-fetch-site: same-origin\r\n".to_owned(), 200),
        ("/v1/workers", "sec-fetch-site: none\r\n".to_owned(), 200),
        // Another port of this machine also counts as another site.
        ("/v1/workers", "origin: http://127.0.0.1:1\r\n".to_owned(), 403),
        ("/v1/workers", "sec-fetch-site: cross-site\r\n".to_owned(), 403),
        ("/v1/workers", "sec-fetch-site: same-site\r\n".to_owned(), 403),
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nconnection: close\r\nhost: {address}\r\n");
        let request = head + &said + "\r\n";
        let (code, _) = parse(&talk(TcpStream::connect(address).unwrap(), &request));
        assert_eq!(code, expected, "{path} {said}");
    }
}

#[test]
fn pages_of_other_origins_change_nothing() {
    let api = Api::start();
    let body = r#"{"name":"x"}"#;
    let post = |origin: &str| {
        parse(&api.raw(&format!(
            "POST /v1/tenants HTTP/1.1\r\nhost: localhost:80\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n{origin}\r\n{body}",
            body.len()
        )))
    };
    for origin in ["http://evil.example", "http://localhost:3000", "null"] {
        let (code, answer) = post(&format!("origin: {origin}\r\n"));
        assert_eq!((code, &answer["error"]["code"]), (403, &json!("forbidden")), "{origin}");
    }
    assert_eq!(post("sec-fetch-site: cross-site\r\n").0, 403);
    assert!(api.tenants.list().is_empty());
    assert_eq!(post("origin: http://localhost:80\r\nsec-fetch-site: same-origin\r\n").0, 201);
}

#[test]
fn whoever_comes_while_it_is_held_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let unix = AdminListener::Unix(listener, own_uid());
    let running = start(router(&tenants()), unix, true).unwrap();
    let ask = "GET /v1/tenants HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut early = UnixStream::connect(&path).unwrap();
    early.write_all(ask.as_bytes()).unwrap();
    early.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(early.read(&mut [0]).is_err(), "nobody answers");
    running.hold(false);
    early.set_read_timeout(None).unwrap();
    let mut answer = String::new();
    early.read_to_string(&mut answer).unwrap();
    assert_eq!(parse(&answer).0, 200);
    running.hold(true);
    running.hold(false);
    assert_eq!(parse(&talk(UnixStream::connect(&path).unwrap(), ask)).0, 200);
}

#[test]
fn silent_connections_keep_nobody_out_for_long() {
    let api = Api::start();
    // As many connections as are served at a time, in every stage of a request.
    let stages = [
        "",
        "GET /v1/te",
        "POST /v1/tenants HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{",
        "GET /v1/workers HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ];
    let silent: Vec<UnixStream> = (0..16)
        .map(|n| {
            let mut stream = UnixStream::connect(&api.path).unwrap();
            stream.write_all(stages[n % stages.len()].as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(api.client().workers().unwrap().workers.len(), 2);
    let mut slow = &silent[2];
    slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = String::new();
    let _ = slow.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
    assert!(answer.contains("did not arrive within 10 s"), "{answer:?}");
    // A connection that was answered and sends no further request is ended, too.
    let mut idle = &silent[3];
    idle.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    idle.read_to_end(&mut Vec::new()).expect("its end");
}

#[test]
fn a_reader_that_stops_holds_up_no_other_scrape() {
    let tenants = tenants();
    let meters = tenants.meters(0);
    for n in 0..1_000 {
        let made = tenants.register(&format!("t{n}"), None.into(), None);
        let meter = meters.get(made.unwrap().tenant).unwrap();
        meter.record(contract::IoKind::Read, 4096, 90_000);
    }
    tenants.registry().measure(Instant::ZERO + Duration::from_secs(1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let listener = UnixListener::bind(&path).unwrap();
    start(scrape_router(tenants, 1_000), AdminListener::Unix(listener, own_uid()), false).unwrap();
    let head = "GET /metrics HTTP/1.1\r\nconnection: close\r\nhost: localhost\r\n\r\n";
    let whole = talk(UnixStream::connect(&path).unwrap(), head);
    assert!(whole.len() > 2 << 20, "more than what sockets keep: {} bytes", whole.len());
    let mut stopped = UnixStream::connect(&path).unwrap();
    stopped.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 1 << 16];
    stopped.read_exact(&mut first).unwrap();
    let second = talk(UnixStream::connect(&path).unwrap(), head);
    assert!(second.starts_with("HTTP/1.1 200"), "{:?}", second.lines().next());
    assert!(second.contains("# EOF\n"), "it is whole");
    // The reader that stopped cannot mistake its part for the whole.
    let mut rest = Vec::new();
    let _ = stopped.read_to_end(&mut rest);
    assert!(!String::from_utf8(rest).unwrap().contains("# EOF\n"));
}

#[test]
fn a_thousand_tenants_come_and_go_over_one_connection() {
    let api = Api::start();
    let mut client = api.client();
    for n in 0..1_000 {
        client.send(&add(&format!("t{n}"), Some(slo(2_000, 100, 100)))).unwrap();
    }
    assert_eq!(client.tenants().unwrap().len(), 1_000);
    assert_eq!(client.read::<Devices>().unwrap().devices[0].tokens_promised, 100_000);
    for n in 0..1_000 {
        client.delete::<TenantStatus>(&format!("t{n}")).unwrap();
    }
    assert_eq!(client.read::<Devices>().unwrap().devices[0].tokens_promised, 0);
}

#[test]
fn a_page_is_told_of_few_tenants_however_many_there_are() {
    let api = Api::start();
    for n in 0..1_000 {
        let promise = (n % 10 == 0).then(|| slo(2_000, 100, 100));
        api.tenants.register(&format!("Tenant {n:03}"), to_contract(promise).into(), None).unwrap();
    }
    let (code, stood) = api.ask("GET", "/v1/standing", "");
    assert_eq!((code, &stood["total"], &stood["matched"]), (200, &json!(1_000), &json!(1_000)));
    assert_eq!(stood["standings"]["idle"], json!(1_000), "nobody has done anything");
    assert_eq!(stood["tenants"].as_array().unwrap().len(), 50);
    let (_, found) = api.ask("GET", "/v1/standing?search=TENANT%2099&order=name&limit=3", "");
    let names: Vec<&str> = found["tenants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["tenant"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        (names, &found["matched"]),
        (vec!["Tenant 990", "Tenant 991", "Tenant 992"], &json!(10))
    );
    let (_, most) = api.ask("GET", "/v1/standing?limit=100000", "");
    assert_eq!(most["tenants"].as_array().unwrap().len(), 500);
    assert_eq!(api.ask("GET", "/v1/standing?order=colour", "").0, 400);
}

#[test]
fn the_last_seconds_are_told_once() {
    let api = Api::start();
    api.tenants.register("gold", to_contract(Some(slo(500, 1_000, 100))).into(), None).unwrap();
    let meters = api.tenants.meters(0);
    let gold = api.tenants.find("gold").unwrap();
    meters.get(gold).unwrap().record(IoKind::Read, 4_096, 700_000);
    let second = |n| api.tenants.registry().measure(Instant::ZERO + Duration::from_secs(n));
    second(1);
    second(2);
    let (code, violations) = api.ask("GET", "/v1/violations", "");
    let [broken] = &violations["violations"].as_array().unwrap()[..] else {
        panic!("{violations}")
    };
    assert_eq!((code, &broken["tenant"], &broken["device"]), (200, &json!("gold"), &json!("fast")));
    assert_eq!((&broken["late_seconds"], &broken["goes_on"]), (&json!(1), &json!(true)));
    assert_eq!(broken["slo"]["latency_us"], json!(500));
    assert!((650.0..750.0).contains(&broken["worst_us"].as_f64().unwrap()), "{broken}");
    let (code, history) = api.ask("GET", "/v1/history", "");
    assert_eq!((code, &history["devices"]), (200, &json!(["fast", "disk"])));
    let seconds = history["seconds"].as_array().unwrap();
    let first = &seconds[0];
    assert_eq!((&first["number"], &first["standings"]["late"]), (&json!(1), &json!(1)));
    let bucket = first["reads"]["from"].as_u64().unwrap() as usize;
    assert_eq!(first["reads"]["counts"], json!([1]));
    let edge = |n: usize| history["edges_us"][n].as_f64().unwrap();
    assert!((edge(bucket - 1)..edge(bucket)).contains(&700.0), "{bucket}");
    assert_eq!(first["devices"][0]["made"], json!(420_000));
    assert_eq!(
        (&first["devices"][1]["made"], &first["devices"][0]["bound_us"]),
        (&Value::Null, &json!(500))
    );
    assert_eq!(
        (&seconds[1]["standings"]["idle"], &seconds[1]["reads"]["counts"]),
        (&json!(1), &json!([]))
    );
    let later = api.ask("GET", "/v1/history?after=1", "").1;
    assert_eq!(later["seconds"].as_array().unwrap().len(), 1);
    let restarted = api.ask("GET", "/v1/history?after=99", "").1;
    assert_eq!(restarted["seconds"].as_array().unwrap().len(), 2, "the number of an earlier run");
    let minutes = || api.ask("GET", "/v1/history?step=minute", "").1["seconds"].clone();
    assert_eq!(minutes(), json!([]), "none has ended");
    (3..=60).for_each(second);
    let minutes = minutes();
    assert_eq!((&minutes[0]["number"], &minutes[0]["reads"]["counts"]), (&json!(1), &json!([1])));
    assert_eq!(minutes[0]["standings"]["late"], json!(1), "the worst of its seconds");
    assert_eq!(api.ask("GET", "/v1/history?step=hour", "").0, 400);
}

#[test]
fn a_model_is_told_as_it_was_measured() {
    let api = Api::start();
    let (code, model) = api.ask("GET", "/v1/devices/fast/model", "");
    let first = json!({"latency_us": 500, "mixed": 420_000, "read_only": 850_000});
    assert_eq!((code, &model["p95"][0], &model["p99"]), (200, &first, &json!([])));
    assert_eq!((&model["write_price"], &model["read_only_price"]), (&json!(10.0), &json!(0.5)));
    for (device, expected) in [("disk", "no-model"), ("tape", "no-device")] {
        let (code, answer) = api.ask("GET", &format!("/v1/devices/{device}/model"), "");
        assert_eq!((code, &answer["error"]["code"]), (422, &json!(expected)));
    }
}

#[test]
fn a_worker_is_shown_alone() {
    let api = Api::start();
    let both = api.client().workers().unwrap().workers;
    assert_eq!(api.client().get::<Worker>(&1.to_string()).unwrap(), both[1]);
    assert_eq!(
        api.client().get::<Worker>(&2.to_string()).unwrap_err().code(),
        Some(Code::NoWorker)
    );
    assert_eq!(api.ask("GET", "/v1/workers/x", "").0, 400);
}

#[test]
fn a_client_without_a_server_says_where_it_looked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.sock");
    let error = Client::new(AdminAddress::Unix(path.clone())).unwrap().tenants().unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()) && text.contains("--admin"), "{text}");
}
