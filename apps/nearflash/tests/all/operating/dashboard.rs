//! Tests of the dashboard in a real browser, over a real server, as an operator reaches it: through
//! a local port that leads to the server's Unix socket, as `ssh -L` makes one.
//!
//! Screenshots of each page are kept in `target/ui`. `cargo xtask ci --only dashboard` runs these
//! tests, as they need a browser.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{BOB, Browser, Launch, OperatorFiles, PATIENCE, Server, wait_until};
use serde_json::{Value, json};

/// The configuration of a slow drive, which tests on busy machines can load fully, and of tenants
/// of every kind.
const SETUP: &str = r#"
[[device]]
name = "drive"
spec = "sim:a?size=1GiB&slow=20"

[[device]]
name = "scratch"
spec = "mem:16MiB"

[[tenant]]
name = "gold"
latency_us = 40000
iops = 2000

[[tenant]]
name = "silver"
latency_us = 60000
iops = 500
read_percent = 80

[[tenant]]
name = "hopeless"
latency_us = 10000
iops = 20

[[tenant]]
name = "<img src=x onerror=alert(1)>"

[[tenant]]
name = "batch"

[[access]]
token = "gold"
tenant = "gold"
rights = "read-write"

[[access]]
token = "silver"
tenant = "silver"
rights = "read-write"

[[access]]
token = "batch"
tenant = "batch"
rights = "read-write"
"#;

/// The configuration for the picture in the documents: a small drive with the latencies of a large
/// one, and typical tenants.
const SHOWN: &str = r#"
[[device]]
name = "flash0"
spec = "sim:small?size=1GiB"

[[tenant]]
name = "orders-db"
latency_us = 2000
iops = 6000

[[tenant]]
name = "search-index"
latency_us = 5000
iops = 2000
read_percent = 90

[[tenant]]
name = "sessions"
latency_us = 10000
iops = 500

[[tenant]]
name = "analytics"
weight = 2

[[tenant]]
name = "backup"
cap_tokens = 5000

[[access]]
token = "orders-db"
tenant = "orders-db"
rights = "read-write"

[[access]]
token = "search-index"
tenant = "search-index"
rights = "read-write"

[[access]]
token = "analytics"
tenant = "analytics"
rights = "read-write"

[[access]]
token = "backup"
tenant = "backup"
rights = "read-write"
"#;

/// A server with its admin API at a Unix socket, and the TCP port of a tunnel to the socket.
struct DashboardServer {
    folder: tempfile::TempDir,
    setup: String,
    server: Server,
    port: SocketAddr,
}

impl DashboardServer {
    fn start(setup: &str) -> DashboardServer {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let server = launch(setup, &socket);
        DashboardServer { port: tunnel(socket), folder, setup: setup.to_owned(), server }
    }

    fn restart(&mut self) {
        self.server = launch(&self.setup, &self.folder.path().join("admin.sock"));
    }

    fn url(&self) -> String {
        format!("http://localhost:{}/", self.port.port())
    }

    /// Starts `nearflash bench` against the server, as this tenant.
    fn load(&self, tenant: &str, arguments: &[&str]) -> Load {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
        command.args(["bench", &format!("reflex://{}", self.server.address())]);
        command.args(["--token", tenant, "--seconds", "300"]).args(arguments);
        Load(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Opens the dashboard in a browser that has kept nothing of it, and waits until it has figures
    /// of the server.
    fn show(&self, browser: &Browser) {
        browser.forget(&self.url());
        browser.open(&self.url());
        browser.await_true("figures", LIVE);
    }
}

/// A script that returns the requests a second that the dashboard's tile displays, as a number.
const RATE: &str =
    "Number(document.querySelector('#tile-requests strong').textContent.replace(/\\s/g, ''))";

const LIVE: &str = "document.querySelector('main').dataset.state === 'live'";

fn launch(setup: &str, socket: &Path) -> Server {
    Launch::config(setup).with("--admin").with(socket.to_str().unwrap()).start()
}

/// A process of `nearflash bench`, which is killed when this value is dropped.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended already
        let _ = self.0.wait();
    }
}

/// Returns a local port whose connections lead to a Unix socket, for as long as the test runs.
fn tunnel(socket: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = UnixStream::connect(&socket) else { continue };
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || {
                copy(&near, &far);
                let _ = far.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || {
                copy(&back.0, &back.1);
                let _ = back.1.shutdown(Shutdown::Both);
            });
        }
    });
    port
}

/// Copies bytes from one stream to the other until one of them ends.
fn copy(mut from: impl Read, mut to: impl Write) {
    let _ = std::io::copy(&mut from, &mut to);
}

/// Returns the number at the beginning of a text; spaces separate its thousands.
fn number(text: &str) -> f64 {
    let digits: String = text.chars().filter(|c| *c != '\u{202f}').collect();
    digits.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

fn quiet(browser: &Browser) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
#[ignore = "browser: see `cargo xtask ci --only dashboard`"]
fn figures_move_under_load() {
    let site = DashboardServer::start(SETUP);
    let browser = Browser::start();
    site.show(&browser);
    browser.await_true("nobody's requests", &format!("{RATE} === 0"));
    let _gold = site.load("gold", &["--rate", "300", "--queue-depth", "32"]);
    let _silver =
        site.load("silver", &["--rate", "100", "--read-percent", "80", "--queue-depth", "16"]);
    let batch = site.load("batch", &["--rate", "400", "--queue-depth", "16"]);
    let busy = format!("{RATE} > 500");
    browser.await_true("requests of all three", &busy);
    browser.await_true(
        "the standing of gold",
        "/kept|late/.test(
        document.querySelector('#tenants-table tbody').textContent)",
    );
    let seconds = "document.querySelector('#latency-chart').chart.data[0].length";
    let before = browser.run(&format!("return {seconds}")).as_u64().unwrap();
    browser.await_true("new seconds", &format!("{seconds} >= {before} + 3"));
    let drawn = "const canvas = document.querySelector('#latency-chart canvas');
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(pixels.buffer)).size";
    wait_until("colours of the heat map", PATIENCE, || browser.run(drawn).as_u64().unwrap() > 20);
    wait_until("tokens", PATIENCE, || number(&browser.text("#tokens-key b")) > 100.0);
    browser.await_true(
        "a p95 for who does not see it",
        "((chart) => chart.textContent + chart.ariaLabel)(document.querySelector('#latency-chart'))\
        .includes('p95')",
    );
    browser.run("document.querySelector('#connections').scrollIntoView()");
    browser.await_true(
        "connections",
        "document.querySelectorAll('#connections-table tbody tr').length >= 3",
    );
    browser.await_text("#connections-table", "gold");
    let stacks = "[...document.querySelectorAll('#workers-table .stack i')].some(part => part.offsetWidth > 2)";
    browser.await_true("what workers do", stacks);
    assert_eq!(browser.run("return document.querySelectorAll('#tenants img').length"), json!(0));
    browser.resize(1360, 900);
    // Axes have round numbers, and a bar says how far beyond its bound a tenant is.
    let axis = "const { axes } = document.querySelector('#latency-chart').chart.plot;
        return axes[1]._values";
    let ticks = browser.run(axis);
    let round = |tick: &Value| {
        let words = tick.as_str().unwrap().split(' ').next().unwrap();
        words.trim_end_matches('0').len() == 1
    };
    let ticks = ticks.as_array().unwrap();
    assert!(ticks.len() > 1 && ticks.iter().all(round), "{ticks:?}");
    browser.picture("load");
    drop(batch);
    browser.await_true("less", &format!("{RATE} < 450"));
    quiet(&browser);
}

/// Makes the picture of the dashboard, as `target/ui/documents.png`. The picture in the documents,
/// `docs/images/dashboard.png`, has this server and this load, both in a real-time class of the
/// kernel's scheduler (`chrt --rr 10`), so that other programs of the machine held nothing up.
#[test]
#[ignore = "browser: see `cargo xtask ci --only dashboard`"]
fn the_picture_of_the_documents_shows_a_server_at_work() {
    let site = DashboardServer::start(SHOWN);
    let browser = Browser::start();
    site.show(&browser);
    let load = |tenant: &str, rate: &str, read_percent: &str| {
        let arguments = ["--rate", rate, "--read-percent", read_percent, "--queue-depth", "32"];
        site.load(tenant, &arguments)
    };
    let _loads = [
        load("orders-db", "2900", "100"),
        load("search-index", "900", "90"),
        load("analytics", "2000", "95"),
        load("backup", "300", "100"),
    ];
    browser.run(
        "const span = document.querySelector('#span'); span.value = '60';
        span.dispatchEvent(new Event('change'))",
    );
    browser.await_true("requests of all", &format!("{RATE} > 1000"));
    let seconds = "document.querySelector('#latency-chart').chart.data[0].length";
    browser.await_true("a minute", &format!("{seconds} >= 60"));
    browser.resize(1360, 900);
    browser.run("document.querySelector('#connections').scrollIntoView()");
    browser.await_text("#connections-table", "orders-db");
    browser.picture("documents");
    quiet(&browser);
}

/// Checks all other pages for operators of this machine in one browser. Each check begins with a
/// page of which the browser has kept nothing.
#[test]
#[ignore = "browser: see `cargo xtask ci --only dashboard`"]
fn every_page_can_be_read_used_and_trusted() {
    let browser = Browser::start();
    let mut site = DashboardServer::start(SETUP);
    it_is_light_or_dark_and_can_be_read(&site, &browser);
    it_fits_a_telephone(&site, &browser);
    broken_promises_fit_a_telephone(&site, &browser);
    a_moment_is_held_and_its_address_leads_there(&site, &browser);
    everything_is_done_with_a_keyboard(&site, &browser);
    what_if_says_what_would_have_to_give(&site, &browser);
    a_server_that_is_gone_comes_back(&mut site, &browser);
    drop(site);
    thousands_of_tenants_are_a_short_page(&browser);
    nobody_yet_is_said_in_words(&browser);
}

/// A script that returns the lowest contrast of the page's texts, which must be at least 4.5 (WCAG
/// 2.2, 1.4.3), and the text that has it.
const CONTRAST: &str = r#"
    const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    let worst = [99, ''];
    for (const element of document.querySelectorAll('body *')) {
        const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!text || !element.checkVisibility()) continue;
        const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < worst[0]) worst = [ratio, element.outerHTML.slice(0, 120)];
    }
    return worst;
"#;

fn it_is_light_or_dark_and_can_be_read(site: &DashboardServer, browser: &Browser) {
    site.show(browser);
    let lightness =
        "const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g);
        return Number(r) + Number(g) + Number(b)";
    let is_light = || browser.run(lightness).as_u64().unwrap() > 382;
    let readable = |name: &str| {
        let worst = browser.run(CONTRAST);
        assert!(worst[0].as_f64().unwrap() >= 4.5, "{name}: {worst}");
        browser.picture(name);
    };
    browser.prefer("dark");
    assert!(!is_light());
    readable("dark");
    browser.prefer("light");
    assert!(is_light());
    readable("light");
    let choose = |theme: &str| {
        browser.run(&format!(
            "const select = document.querySelector('#theme'); select.value = '{theme}';
            select.dispatchEvent(new Event('change'))"
        ));
    };
    choose("dark");
    assert!(!is_light(), "somebody chose");
    browser.open(&site.url());
    browser.await_true("figures", LIVE);
    assert!(!is_light(), "it is remembered");
    choose("auto");
    assert!(is_light());
    quiet(browser);
}

fn it_fits_a_telephone(site: &DashboardServer, browser: &Browser) {
    site.show(browser);
    for width in [375, 320, 768] {
        browser.resize(width, 800);
        // The charts take the new width when their own has changed, which is a frame later.
        browser.await_true(
            "that nothing stands out",
            &format!("document.scrollingElement.scrollWidth === {width}"),
        );
        let small = browser.run(
            "return [...document.querySelectorAll('button, input, select')].filter(
                (each) => each.checkVisibility() && !each.closest('table') && each.offsetHeight < 32
            ).map((each) => each.outerHTML)",
        );
        assert_eq!(small, json!([]), "at {width}");
        browser.await_true(
            "a chart that fits",
            &format!("document.querySelector('#latency-chart canvas').offsetWidth < {width}"),
        );
        let card = browser.run(
            "const row = document.querySelector('#tenants-table tbody tr');
            return [getComputedStyle(row).display,
                getComputedStyle(row.lastElementChild, '::before').content]",
        );
        let is_card = card == json!(["grid", "\"Failed/s\""]);
        assert_eq!(is_card, width < 640, "at {width}: {card}");
        browser.picture(&format!("narrow-{width}"));
    }
    quiet(browser);
}

/// A script by which the page's requests for broken promises are answered with one.
const BROKEN: &str = "
    const slo = { latency_us: 40000, percentile: 95, iops: 2000, read_percent: 100 };
    const one = { tenant: 'silver', slo, age: 90, late_seconds: 12, starved_seconds: 3,
        worst_us: 123456, goes_on: true };
    const [ask, answer] = [window.fetch, JSON.stringify({ violations: [one] })];
    window.fetch = (path, options) => path === '/v1/violations'
        ? Promise.resolve(new Response(answer)) : ask(path, options);";

fn broken_promises_fit_a_telephone(site: &DashboardServer, browser: &Browser) {
    site.show(browser);
    browser.run(BROKEN);
    browser.resize(390, 844);
    browser.await_text("#violations-table", "silver");
    for words in ["12 s so far", "123 ms", "p95 40.0 ms", "overcommitted in 3 of 12 s"] {
        browser.await_text("#violations-table", words);
    }
    browser.picture("broken-390");
    let cut = browser.run(
        "return [...document.querySelectorAll('#violations-table, #violations-table tbody :is(tr, th, td)')]
            .filter((each) => each.scrollWidth > each.clientWidth)
            .map((each) => each.outerHTML)",
    );
    assert_eq!(cut, json!([]), "nothing is cut off, and nothing scrolls sideways");
    let names = "return [...document.querySelectorAll('#violations-table tbody td')]
        .map((each) => getComputedStyle(each, '::before').content)";
    let named = json!(["none", "\"Late\"", "\"Worst\"", "\"Promised\"", "\"Machine\""]);
    assert_eq!(browser.run(names), named);
    browser.resize(1360, 900);
    assert_eq!(browser.run(names), json!(vec!["none"; 5]), "the table has a head");
    quiet(browser);
}

fn a_moment_is_held_and_its_address_leads_there(site: &DashboardServer, browser: &Browser) {
    site.show(browser);
    let times = "document.querySelector('#latency-chart').chart.data[0]";
    browser.await_true("two seconds", &format!("{times}.length >= 2"));
    let press = || browser.run("document.querySelector('#hold').click()");
    press();
    let hash = browser.run("return location.hash");
    let hash = hash.as_str().expect("a text").to_owned();
    assert!(hash.starts_with("#at=") && hash.ends_with("&span=300"), "{hash}");
    browser.await_text("#held", "held at");
    // Another page, of somebody to whom the address was sent.
    browser.open("about:blank");
    browser.open(&format!("{}{hash}", site.url()));
    browser.await_text("#held", "held at");
    browser.await_true("the moment", &format!("{times}.length >= 2"));
    let choose = |seconds: u32| {
        browser.run(&format!(
            "const span = document.querySelector('#span'); span.value = '{seconds}';
            span.dispatchEvent(new Event('change'))"
        ))
    };
    choose(86_400);
    browser.await_true("no minute yet", &format!("{times}.length === 0"));
    browser.await_text("#held", "remembers nothing");
    press();
    assert_eq!(browser.run("return location.hash"), json!(""));
    assert_eq!(browser.text("#hold"), "Hold");
    choose(300);
    browser.await_true("now", &format!("{times}.length >= 2"));
    quiet(browser);
}

fn everything_is_done_with_a_keyboard(site: &DashboardServer, browser: &Browser) {
    site.show(browser);
    let focused =
        |what: &str| browser.run(&format!("return document.activeElement.matches({what:?})"));
    browser.press(&["Tab"]);
    assert_eq!(focused(".skip"), json!(true));
    browser.press(&["Enter", "Tab"]);
    assert_eq!(focused("#tenants-search"), json!(true), "the figures come first");
    let outline = "const style = getComputedStyle(document.activeElement);
        return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2";
    assert_eq!(browser.run(outline), json!(true), "one sees where one is");
    // All that can be used is reached, and shows it.
    let mut reached = Vec::new();
    for _ in 0..60 {
        browser.press(&["Tab"]);
        let name = browser.run("const at = document.activeElement; return at.id || at.name || at.textContent.slice(0, 20)");
        let visible = browser.run(outline) == json!(true) || focused("body") == json!(true);
        assert!(visible, "{name} does not show that it is focused");
        reached.push(name.as_str().unwrap_or_default().to_owned());
    }
    for name in [
        "tenants-order",
        "gold",
        "latency_us",
        "iops",
        "Would it fit?",
        "connections-search",
        "theme",
    ] {
        assert!(reached.iter().any(|known| known == name), "{name} of {reached:?}");
    }
    browser.run("document.activeElement.blur()");
    browser.press(&["/", "s", "i", "l", "v"]);
    assert_eq!(focused("#tenants-search"), json!(true));
    browser.await_true(
        "one tenant",
        "document.querySelectorAll('#tenants-table tbody tr').length === 1",
    );
    browser.press(&["Tab", "Tab", "Tab", "Enter"]);
    browser.await_true("silver's dialog", "document.querySelector('#tenant[open] dd')");
    assert_eq!(browser.text("#tenant-title"), "silver");
    browser.await_text("#tenant .facts", "p95 ≤ 60.0 ms");
    browser.picture("tenant");
    browser.press(&["Escape"]);
    browser.await_true("its end", "!document.querySelector('#tenant').open");
    assert_eq!(focused("#tenants-table button"), json!(true), "back where one was");
    quiet(browser);
}

fn what_if_says_what_would_have_to_give(site: &DashboardServer, browser: &Browser) {
    site.show(browser);
    let fill = |latency_us: u32, iops: u32| {
        browser.run(&format!(
            "const form = document.querySelector('#check-form');
            form.elements.latency_us.value = {latency_us};
            form.elements.iops.value = {iops};
            form.requestSubmit()"
        ));
    };
    browser.await_true(
        "an answer to its own suggestion",
        "document.querySelector('#check-answer[data-tone=good]')",
    );
    fill(40_000, 500);
    browser.await_true("a yes", "document.querySelector('#check-answer[data-tone=good]')");
    browser.await_text("#check-answer", "needs 500 tokens/s");
    fill(40_000, 900_000);
    browser
        .await_true("a no", "document.querySelector('#check-answer[data-tone=bad] .ways button')");
    let said = browser.text("#check-answer");
    assert!(said.contains("needs 900 000 tokens/s"), "{said}");
    browser.picture("what-if");
    browser.run("document.querySelector('#check-answer .ways button').click()");
    browser.await_true("a way out", "document.querySelector('#check-answer[data-tone=good]')");
    // The other device has no model.
    browser.run("document.querySelector('#check-form').elements.device.value = 'scratch'");
    fill(40_000, 500);
    browser.await_true(
        "no model",
        "document.querySelector('#check-answer').textContent.includes('nearflash calibrate')",
    );
    let tenants =
        "fetch('/v1/standing').then((answer) => answer.json()).then((said) => said.total)";
    let total = browser.run(&format!("return {tenants}"));
    fill(40_000, 500);
    assert_eq!(browser.run(&format!("return {tenants}")), total, "it changes nothing");
    quiet(browser);
}

fn a_server_that_is_gone_comes_back(site: &mut DashboardServer, browser: &Browser) {
    site.show(browser);
    browser.run("window.killedAt = Date.now() / 1000");
    site.server.kill();
    browser.await_true("the banner", "!document.querySelector('#banner').hidden");
    let banner = browser.text("#banner");
    assert!(banner.contains("No answer") && banner.contains("Trying again"), "{banner}");
    assert_eq!(browser.run("return document.querySelector('#link').dataset.state"), json!("lost"));
    browser.picture("lost");
    site.restart();
    browser.await_true("its end", "document.querySelector('#banner').hidden");
    browser.await_true(
        "the new server's seconds, and no others",
        "document.querySelector('#latency-chart').chart.data[0][0] > window.killedAt",
    );
    quiet(browser);
}

fn thousands_of_tenants_are_a_short_page(browser: &Browser) {
    let tenants: String =
        (0..10_000).map(|n| format!("[[tenant]]\nname = \"tenant {n:04}\"\n")).collect();
    let site = DashboardServer::start(&format!("{SETUP}\n[limits]\ntenants = 10100\n{tenants}"));
    site.show(browser);
    let elements = browser.run("return document.querySelectorAll('*').length").as_u64().unwrap();
    assert!(elements < 2_500, "{elements} elements");
    browser.await_text("#tenants-more", "The first 50 of 10\u{202f}00");
    browser.run(
        "const search = document.querySelector('#tenants-search');
        search.value = 'TENANT 177'; search.dispatchEvent(new Event('input'))",
    );
    browser.await_true(
        "ten that match",
        "document.querySelectorAll('#tenants-table tbody tr').length === 10",
    );
    browser.run(
        "const search = document.querySelector('#tenants-search');
        search.value = 'nobody'; search.dispatchEvent(new Event('input'))",
    );
    browser.await_true("words for none", "!document.querySelector('#tenants-empty').hidden");
    assert!(browser.text("#tenants-empty").contains("No tenant has “nobody”"));
    // Bytes that the page asks for in a second, and how long it waits for them.
    let look = browser.run(
        "const [...seen] = performance.getEntriesByType('resource').filter((each) => each.name.includes('/v1/'));
        return [Math.max(...seen.slice(-10).map((each) => each.encodedBodySize)), Math.max(...seen.slice(-10).map((each) => each.duration))]",
    );
    println!("largest answer in bytes, slowest answer in ms: {look}");
    assert!(look[0].as_f64().unwrap() < 200_000.0, "{look}");
    quiet(browser);
}

fn nobody_yet_is_said_in_words(browser: &Browser) {
    let site = DashboardServer::start("[[device]]\nname = \"drive\"\nspec = \"mem:16MiB\"\n");
    site.show(browser);
    browser.await_text("#device-empty", "has no model");
    browser.await_text("#device-facts", "none: it has no model");
    let facts = browser.text("#device-facts");
    assert!(!facts.contains('–'), "what a device without a model does not have: {facts}");
    browser.await_text("#first", "nearflash tenant add gold");
    browser.await_text("#first", "nearflash device set drive --model model.toml");
    let hidden = browser.run("return document.querySelector('#latency').checkVisibility()");
    assert_eq!(hidden, json!(false), "figures that are all empty");
    browser.await_text("#tile-promises strong", "–");
    browser.await_text("#tokens-note", "no model");
    browser.run("document.querySelector('#connections').scrollIntoView()");
    browser.await_true(
        "no connections",
        "document.querySelector('#connections-note').textContent === 'Nobody is connected.'",
    );
    let others: Value = browser.run("return [...document.querySelectorAll('label:has(select.devices)')].filter((each) => each.checkVisibility()).length");
    assert_eq!(others, json!(0), "one device needs no choice");
    browser.picture("empty");
    quiet(browser);
}

#[test]
#[ignore = "browser: see `cargo xtask ci --only dashboard`"]
fn the_report_of_figures_fits_a_telephone() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(["reproduce", "fig1", "--virtual-only", "--quick", "-o"]).arg(folder.path());
    command.stdout(Stdio::null()).status().unwrap();
    let browser = Browser::start();
    for scheme in ["light", "dark"] {
        browser.resize(390, 844);
        browser.prefer(scheme);
        browser.open(&format!("file://{}/report.html", folder.path().display()));
        let width = browser.run("return document.scrollingElement.scrollWidth");
        assert_eq!(width, json!(390), "the page does not scroll sideways");
        let pictures = browser.run(
            "return [...document.querySelectorAll('figure')].filter((each) => each.checkVisibility())
                .map((each) => [each.className, each.scrollWidth <= each.clientWidth])",
        );
        assert_eq!(pictures, json!([["narrow", true]]), "one picture, which fits");
        let words = browser.run(
            "return Math.min(...[...document.querySelectorAll('.narrow text')]
                .map((each) => each.getBoundingClientRect().height))",
        );
        assert!(words.as_f64().is_some_and(|height| height >= 10.0), "{words} pixels can be read");
        browser.picture(&format!("report-390-{scheme}"));
    }
}

#[test]
#[ignore = "browser: see `cargo xtask ci --only dashboard`"]
fn who_comes_from_elsewhere_gives_a_token() {
    let operators = OperatorFiles::new();
    let _server = operators.start();
    let browser = Browser::start();
    browser.open(&format!("https://{}/", operators.at));
    browser.await_true("a question", "document.querySelector('#sign-in').open");
    let sign_in = |token: &str| {
        let keys: Vec<String> = token.chars().map(String::from).collect();
        browser.press(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        browser.press(&["Enter"]);
    };
    assert_eq!(browser.text("#version"), "", "nothing is told without one");
    browser.press(&["Escape"]);
    sign_in("short");
    assert_eq!(browser.run("return document.querySelector('#sign-in').open"), json!(true));
    browser.run("document.querySelector('#sign-in input').value = ''");
    sign_in("nobody-has-this-token-0123456789");
    browser.await_true("a no", "document.querySelector('#sign-in-trouble').textContent");
    assert!(browser.text("#sign-in-trouble").contains("does not know"));
    for (width, name) in [(375, "sign-in-narrow"), (1360, "sign-in")] {
        browser.resize(width, 800);
        browser.picture(name);
    }
    sign_in(BOB);
    browser.await_true("figures", LIVE);
    // It is the tab's, and lasts until it is given up.
    browser.open(&format!("https://{}/ui/", operators.at));
    browser.await_true("figures", LIVE);
    assert_eq!(browser.run("return localStorage.getItem('nearflash-token')"), json!(null));
    browser.picture("signed-in");
    browser.run("document.querySelector('#sign-out').click()");
    browser.await_true("a question", "document.querySelector('#sign-in').open");
    assert_eq!(browser.run("return sessionStorage.length"), json!(0));
    let unexpected = |said: &String| !said.contains("401");
    let complaints = browser.complaints();
    assert!(!complaints.iter().any(unexpected), "{complaints:?}");
}
