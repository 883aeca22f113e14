//! The proxy in a separate process.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::patience;

/// A running proxy. Dropping it kills the process.
pub struct Program {
    child: Child,
    pub address: SocketAddr,
    /// The PID of the process from which the node's other processes descend.
    spawner: String,
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edge-proxy"));
    command
        .args(words)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null());
    command
}

impl Program {
    pub fn start(words: &[&str]) -> Self {
        let mut child = command(words)
            .arg("--listen=127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line
            .strip_prefix("serving http://")
            .and_then(|rest| rest.strip_suffix("/\n"))
            .unwrap_or_else(|| panic!("it says {line:?}"));
        let me = child.id().to_string();
        let children = processes(|process| process.parent == me);
        assert_eq!(children.len(), 1, "one spawner");
        Self {
            child,
            address: address.parse().unwrap(),
            spawner: children[0].id.clone(),
        }
    }

    /// Returns the error message of a proxy that does not start.
    pub fn refused(words: &[&str]) -> String {
        let output = command(words).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Sends a signal once the proxy handles it, which is shortly after it begins to serve.
    pub fn signal(&self, signal: Signal) {
        let deadline = Instant::now() + patience(30);
        while !self.catches(signal) {
            assert!(Instant::now() < deadline, "it does not catch {signal:?}");
            thread::yield_now();
        }
        kill_process(self.pid(), signal).unwrap();
    }

    fn catches(&self, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & (1 << (signal.as_raw() - 1)) != 0
    }

    /// Waits until the proxy and all processes that it started have ended. Returns its exit code.
    pub fn ended(mut self) -> Option<i32> {
        wait(self.pid());
        let code = self.child.wait().unwrap().code();
        // The kernel ends these processes with the proxy, but asynchronously. They are found by
        // their session, which the spawner leads.
        for process in processes(|process| process.session == self.spawner) {
            wait(Pid::from_raw(process.id.parse().unwrap()).unwrap());
        }
        code
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

/// A process as described by /proc.
struct Process {
    id: String,
    parent: String,
    session: String,
}

/// Returns the processes for which `is_meant` returns true.
fn processes(is_meant: impl Fn(&Process) -> bool) -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The fields after the name in parentheses: state, parent, group, session.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        Some(Process {
            id: entry.file_name().into_string().ok()?,
            parent: fields[1].into(),
            session: fields[3].into(),
        })
    });
    processes.filter(is_meant).collect()
}

/// Waits until a process has ended, even if its parent has not reaped it yet.
fn wait(pid: Pid) {
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return,
        process => process.unwrap(),
    };
    let patience = Timespec::try_from(patience(30)).unwrap();
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    let count = poll(&mut polled, Some(&patience)).unwrap();
    assert_eq!(count, 1, "{pid} does not end");
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
