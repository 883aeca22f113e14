//! The program in a process of its own.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::root;
use crate::common::{
    give_up,
    raw::{self, RawResponse},
};

pub fn faasw(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faasw"));
    command
        .args(words)
        .current_dir(root())
        // A killed `up` leaves the directory of its socket.
        .env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("FAASW_DATA_DIR");
    command
}

/// Returns the output of a client command.
pub fn stdout_of(words: &[&str], data_dir: &Path) -> String {
    let output = faasw(words)
        .env("FAASW_DATA_DIR", data_dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn get(address: SocketAddr, path: &str) -> RawResponse {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(raw::get(address, path))
}

/// A node in a process of its own, which is killed when this is dropped.
pub struct Running {
    pub child: Child,
    pub stdout: BufReader<ChildStdout>,
    stderr: Arc<Mutex<String>>,
}

impl Running {
    pub fn start(words: &[&str]) -> Self {
        Self::start_command(faasw(words))
    }

    /// Starts a node with a data directory, at a free port that it prints.
    pub fn serving(data_dir: &Path, options: &[&str]) -> Self {
        let data_dir = data_dir.to_str().unwrap();
        let words = ["serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0"];
        Self::start(&[&words[..], &["--json"], options].concat())
    }

    /// Starts a node by a command that becomes the program.
    pub fn start_command(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let stderr = said.clone();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                stderr.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Self {
            child,
            stdout,
            stderr: said,
        }
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Returns the next line of standard output; empty at its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Waits until standard error contains `text`.
    pub fn said(&self, text: &str) {
        let begun = Instant::now();
        while !self.stderr().contains(text) {
            assert!(
                begun.elapsed() < give_up(),
                "no {text:?} in {}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the address of a node that was started with `--json`.
    pub fn address(&mut self) -> SocketAddr {
        let line = self.line();
        let ready: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: {line:?} {}", self.stderr()));
        ready["address"].as_str().unwrap().parse().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
    }

    /// Stops the node by a signal. Returns its exit code.
    pub fn stop(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.ended()
    }

    /// Waits until a node that received a signal to stop has ended. Returns its exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                begun.elapsed() < give_up(),
                "it does not stop: {}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the processes that descend from `ancestor`, by their parents in /proc.
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        if let Some(parent) = parent.and_then(|text| text.trim().parse().ok()) {
            parents.insert(pid, parent);
        }
    }
    let is_below = |pid: u32| {
        let mut at = pid;
        while let Some(parent) = parents.get(&at) {
            if *parent == ancestor {
                return true;
            }
            at = *parent;
        }
        false
    };
    parents
        .keys()
        .copied()
        .filter(|pid| is_below(*pid))
        .collect()
}

pub fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

pub fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // A zombie has ended; its parent has not reaped it yet.
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}
