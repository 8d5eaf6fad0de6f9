//! A real browser without a window, over the WebDriver protocol (W3C) that `chromedriver` speaks.
//!
//! The protocol is a dozen requests in JSON over HTTP, so there is no library for it here.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{PATIENCE, now};

/// Time limit for the start of a browser, on a busy machine too.
const START: Duration = Duration::from_secs(120);

/// A browser with one page, which is ended when this value is dropped.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser.
    pub(crate) fn start() -> Browser {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
        let mut driver = command.spawn().expect("chromedriver (Debian: chromium-driver) starts");
        let said = BufReader::new(driver.stdout.take().expect("piped"));
        let port = said.lines().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("it says its port")));
        let profile = tempfile::tempdir().expect("a folder");
        let mut browser = Browser { driver, address, session: String::new(), _profile: profile };
        let folder = browser._profile.path().display();
        // Containers have neither namespaces for its sandbox nor much shared memory.
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--window-size=1360,900",
            format!("--user-data-dir={folder}"),
        ]);
        let wanted = json!({"capabilities": {"alwaysMatch": {
            // Nobody vouches for the certificates of tests.
            "acceptInsecureCerts": true,
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = browser.ask("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Opens a page, by its URL.
    pub(crate) fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// Runs a script on the page, and returns the script's result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Returns the text of the first element that a selector finds; empty if there is none.
    pub(crate) fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?})?.textContent ?? ''");
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a script returns true.
    #[track_caller]
    pub(crate) fn await_true(&self, what: &str, expression: &str) {
        let end = now() + PATIENCE * 2;
        while self.run(&format!("return Boolean({expression})")) != json!(true) {
            assert!(now() < end, "{what}: not in time; on the page: {}", self.text("main"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the first element that a selector finds has these words.
    #[track_caller]
    pub(crate) fn await_text(&self, selector: &str, words: &str) {
        let what = format!("{words:?} in {selector}");
        let expression =
            format!("document.querySelector({selector:?})?.textContent.includes({words:?})");
        self.await_true(&what, &expression);
    }

    /// Deletes all that the browser has kept of this address. Empties its log of errors, and resets
    /// the size and the colour scheme of its screen.
    pub(crate) fn forget(&self, url: &str) {
        self.open("about:blank");
        let everything = json!({"origin": url, "storageTypes": "all"});
        self.devtools("Storage.clearDataForOrigin", &everything);
        self.devtools("Emulation.clearDeviceMetricsOverride", &json!({}));
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": []}));
        self.complaints();
    }

    /// Presses keys one after the other: characters, or names such as `Tab`.
    pub(crate) fn press(&self, keys: &[&str]) {
        let steps: Vec<Value> = keys
            .iter()
            .flat_map(|key| {
                let value = match *key {
                    "Tab" => "\u{e004}",
                    "Enter" => "\u{e007}",
                    "Escape" => "\u{e00c}",
                    other => other,
                };
                ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": value}))
            })
            .collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": steps});
        self.post("/actions", &json!({"actions": [keyboard]}));
    }

    /// Sends a command of the DevTools protocol, and returns the command's result.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Sets the size of the screen, in pixels; below a width of 600 the browser is a telephone's.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// Sets the colour scheme that the user prefers: `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": feature}));
    }

    /// Saves a screenshot of the whole page in `target/ui`, under this name.
    pub(crate) fn picture(&self, name: &str) {
        use base64::Engine;
        self.run("window.scrollTo({ top: 0, behavior: 'instant' })");
        let taken = self.devtools(
            "Page.captureScreenshot",
            &json!({"format": "png", "captureBeyondViewport": true}),
        );
        let text = taken["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/ui");
        std::fs::create_dir_all(&folder).expect("a folder for pictures");
        std::fs::write(folder.join(format!("{name}.png")), bytes).expect("the picture is kept");
    }

    /// Returns the errors of the page since the last call: errors of scripts, and violations of its
    /// policy. Errors of the network are left out.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "browser"}));
        let severe = entries.as_array().into_iter().flatten().filter(|entry| {
            entry["level"] != "INFO" && entry["level"] != "DEBUG" && entry["source"] != "network"
        });
        severe.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// Sends a request to the driver, and returns the value of its answer. An error fails the test.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut answer = self.exchange(method, path, body).expect("the driver answers");
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{path} {body}: {value}");
        value
    }

    /// Sends a request to `chromedriver`, and returns its answer. The driver keeps connections open
    /// whatever it is asked, so the answer is read up to its stated length.
    fn exchange(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(START))?;
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while answer.read_line(&mut line)? > 2 {
            if let Some(bytes) = line.to_lowercase().strip_prefix("content-length:") {
                length = bytes.trim().parse().expect("a number");
            }
            line.clear();
        }
        let mut bytes = vec![0; length];
        answer.read_exact(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser outlives its driver unless it is told to end, also when the test fails.
        let session = format!("/session/{}", self.session);
        let _ = self.exchange("DELETE", &session, &json!({})); // it may have ended already
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
