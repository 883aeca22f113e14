//! `deploy --watch`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStderr, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use crate::{
    common::time_limit,
    program::{Desk, module, reference},
    registry::Registry,
};

/// A program that follows a tag; it is killed when this is dropped.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Follower {
    fn start(desk: &Desk, tag: &str, words: &[&str]) -> Self {
        let mut command = desk.command(env!("CARGO_BIN_EXE_faasw"));
        command
            .args([
                "deploy",
                &format!("oci://{tag}"),
                "--watch",
                "--interval",
                "1s",
            ])
            .args(words);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, lines) = channel();
        let said: ChildStderr = child.stderr.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        let follower = Self { child, lines };
        follower.says("following");
        follower
    }

    /// Waits for a line that contains `words`.
    fn says(&self, words: &str) -> String {
        let mut all = String::new();
        loop {
            let line = self.lines.recv_timeout(time_limit(60));
            let line = line.unwrap_or_else(|_| panic!("{words:?} is not said, but:\n{all}"));
            if line.contains(words) {
                return line;
            }
            all += &line;
            all.push('\n');
        }
    }
}

fn push(desk: &Desk, tag: &str, what: &str, words: &[&str]) -> String {
    let file = desk.write("a.wasm", module(what));
    desk.done(&[&["push", &file, tag], words].concat())
        .trim_end()
        .to_owned()
}

/// Waits until the function's source is this digest.
fn comes_from(desk: &Desk, digest: &str) {
    let deadline = std::time::Instant::now() + time_limit(60);
    loop {
        let function = desk.inspected("a");
        if function["options"]["source"] == format!("oci://{digest}") {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{function}");
        thread::sleep(std::time::Duration::from_millis(50));
    }
}

pub async fn a_tag_is_watched() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let tag = reference(&registry, "a:main");
    let first = push(&desk, &tag, "one", &[]);
    let follower = Follower::start(&desk, &tag, &[]);
    comes_from(&desk, &first);
    let second = push(&desk, &tag, "two", &[]);
    comes_from(&desk, &second);
    // An artifact that cannot be deployed changes nothing, and the next one is deployed.
    push(
        &desk,
        &tag,
        "three",
        &["--allow-outbound", "https://a.test"],
    );
    follower.says("its artifact requests");
    assert_eq!(desk.inspected("a")["version"], 2);
    let last = push(&desk, &tag, "four", &[]);
    comes_from(&desk, &last);
    assert_eq!(desk.inspected("a")["version"], 3);
    // A push to a different tag has no effect.
    push(&desk, &reference(&registry, "a:other"), "five", &[]);
    comes_from(&desk, &last);
}

pub async fn an_unavailable_registry_is_retried() {
    let (desk, mut registry) = (Desk::new().await, Registry::open());
    let tag = reference(&registry, "a:main");
    push(&desk, &tag, "one", &[]);
    let follower = Follower::start(&desk, &tag, &[]);
    registry.kill();
    let told = follower.says("next attempt in");
    assert!(told.contains("cannot be connected to"), "{told}");
    registry.run();
    let second = push(&desk, &tag, "two", &[]);
    comes_from(&desk, &second);
}

pub async fn a_watched_tag_gets_no_further_grants() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let tag = reference(&registry, "a:main");
    let one = ["--allow-outbound", "https://a.test"];
    push(&desk, &tag, "one", &one);
    let follower = Follower::start(&desk, &tag, &["--accept", "outbound"]);
    let second = push(&desk, &tag, "two", &one);
    comes_from(&desk, &second);
    push(
        &desk,
        &tag,
        "three",
        &["--allow-outbound", "https://*.test"],
    );
    let told = follower.says("requests more");
    assert!(told.contains("https://*.test"), "{told}");
    comes_from(&desk, &second);
}
