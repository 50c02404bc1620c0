//! A headless Chromium, driven over its DevTools protocol through two pipes: no port, no further program.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::waiting::wait_or;

pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None`, said aloud, where there is no Chromium and none is required.
    pub fn start() -> Option<Self> {
        let found = Command::new("chromium").arg("--version").stderr(Stdio::null()).stdout(Stdio::null()).status();
        if found.is_err() {
            assert!(std::env::var_os("REQUIRE_SERVICES").is_none(), "chromium is not installed");
            eprintln!("skipped: chromium is not installed");
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        // The protocol is spoken on the descriptors 3 and 4.
        let mut process = Command::new("sh")
            .arg("-c")
            .arg("exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1")
            .arg("sh")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser = Self { process, to, from, session: None, last: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser.call("Page.enable", json!({}));
        Some(browser)
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has gone");
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.until("document.readyState == 'complete'");
    }

    /// What an expression is in the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let result = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, also across pages.
    pub fn until(&mut self, expression: &str) {
        let text = RefCell::new(Value::Null);
        let is_true = || {
            let is_true = self.eval(expression) == true;
            if !is_true {
                text.replace(self.eval("document.body.innerText"));
            }
            is_true
        };
        wait_or(is_true, || format!("{expression}: {}", text.borrow()));
    }

    /// Types into what has the focus, as a keyboard does.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    pub fn key(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let params = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    pub fn width(&mut self, width: u32) {
        let metrics = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub fn scheme(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// Writes a picture into the folder that `SCREENSHOTS` names, if it names one.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("SCREENSHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let path = std::path::Path::new(&folder).join(format!("{name}.b64"));
        std::fs::write(path, shot["data"].as_str().unwrap()).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
