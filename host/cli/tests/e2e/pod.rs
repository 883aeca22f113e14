//! A node with one function, `faasw pod`, as tests start it: as root, or as a user without any
//! privilege.

use std::{fs, net::SocketAddr, process::Command};

use serde_json::Value;

use super::{
    process::{Running, faasw, get},
    root, until,
};

pub const HELLO: &str = "tests/fixtures/wat/hello.wasm";

/// A pod, and where it is.
pub struct Pod {
    pub node: Running,
    pub address: SocketAddr,
    pub health: SocketAddr,
}

/// What begins a pod on free ports, as words.
pub fn words<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let ports = ["--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"];
    [&["pod", file, "--log-format", "json"], &ports[..], more].concat()
}

impl Pod {
    /// One whose probes are answered; its function may still be made.
    pub fn begin(command: Command) -> Self {
        let node = Running::start_command(command);
        let starting = event(&node, "starting");
        let address = |field: &str| starting[field].as_str().unwrap().parse().unwrap();
        Self {
            address: address("address"),
            health: address("health"),
            node,
        }
    }

    /// One that serves, and what it says of itself then.
    pub fn start(command: Command) -> (Self, Value) {
        let pod = Self::begin(command);
        let ready = event(&pod.node, "ready");
        (pod, ready)
    }

    /// One that serves.
    pub fn of(file: &str, more: &[&str]) -> Self {
        Self::start(faasw(&words(file, more))).0
    }

    /// Status and body of a probe.
    pub fn probe(&self, path: &str) -> (u16, String) {
        let answer = get(self.health, path);
        (answer.status, answer.body)
    }
}

/// An event of a node's, once it has said it.
pub fn event(node: &Running, message: &str) -> Value {
    let mut found = None;
    until("the pod says how far it is", || {
        let said = node.stderr();
        let mut events = said
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        found = events.find(|event| event["message"] == message);
        found.is_some() || !said.is_empty() && is_refusal(&said)
    });
    found.unwrap_or_else(|| panic!("no {message:?} in {}", node.stderr()))
}

/// Whether the program has said why it ends.
fn is_refusal(said: &str) -> bool {
    said.lines().any(|line| line.starts_with("faasw: "))
}

/// What puts the program into a mount namespace of its own, in which a user of the number 1000 may
/// open `/dev/kvm`, and starts it as that user, with nothing else.
const AS_USER: &str = r#"
mount -t tmpfs -o mode=755 none /mnt &&
mknod -m 660 /mnt/kvm c 10 232 && chown 0:1000 /mnt/kvm &&
mount --bind /mnt/kvm /dev/kvm &&
exec setpriv --reuid 1000 --regid 1000 --clear-groups \
  --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs -- "$@"
"#;

/// Why such a user cannot be had here, if that is so.
pub fn no_user() -> Option<&'static str> {
    let has = |program: &str| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        found.is_ok_and(|found| found.status.success())
    };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    if !status.contains("\nUid:\t0\t") {
        Some("NOT ROOT")
    } else if !has("setpriv") || !has("unshare") {
        Some("WITHOUT setpriv AND unshare (util-linux)")
    } else {
        None
    }
}

/// The program by that user, with a folder that it may write to only if it is given one.
pub fn as_user(words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "sh",
            "-c",
            AS_USER,
            "sh",
            env!("CARGO_BIN_EXE_faasw"),
        ])
        .args(words)
        .current_dir(root())
        .env("TMPDIR", "/proc")
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("FAASW_DATA_DIR");
    command
}
