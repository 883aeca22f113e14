//! A node with one function, `faasw pod`, as tests start it: as root, or as a user without
//! privileges.

use std::{fs, net::SocketAddr, process::Command};

use serde_json::Value;

use super::{
    process::{Running, faasw, get},
    root, until,
};

pub const HELLO: &str = "tests/fixtures/wat/hello.wasm";

/// A pod and its addresses.
pub struct Pod {
    pub node: Running,
    pub address: SocketAddr,
    pub health: SocketAddr,
}

/// Returns the arguments that start a pod on free ports.
pub fn words<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let ports = ["--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"];
    [&["pod", file, "--log-format", "json"], &ports[..], more].concat()
}

impl Pod {
    /// Starts a pod, and waits until its probes are answered. Its function may not be ready yet.
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

    /// Starts a pod, and waits until it serves. Returns its `ready` event, too.
    pub fn start(command: Command) -> (Self, Value) {
        let pod = Self::begin(command);
        let ready = event(&pod.node, "ready");
        (pod, ready)
    }

    /// Starts a pod from a file, and waits until it serves.
    pub fn of(file: &str, more: &[&str]) -> Self {
        Self::start(faasw(&words(file, more))).0
    }

    /// Returns status and body of a probe.
    pub fn probe(&self, path: &str) -> (u16, String) {
        let answer = get(self.health, path);
        (answer.status, answer.body)
    }
}

/// Returns an event of a node, once the node has logged it.
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

/// Whether the program has reported why it ends.
fn is_refusal(said: &str) -> bool {
    said.lines().any(|line| line.starts_with("faasw: "))
}

/// Script that starts the program without privileges as user 1000, in a mount namespace of its own
/// in which this user may open `/dev/kvm`.
const AS_USER: &str = r#"
mount -t tmpfs -o mode=755 none /mnt &&
mknod -m 660 /mnt/kvm c 10 232 && chown 0:1000 /mnt/kvm &&
mount --bind /mnt/kvm /dev/kvm &&
exec setpriv --reuid 1000 --regid 1000 --clear-groups \
  --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs -- "$@"
"#;

/// Returns the reason why tests cannot run as such a user here, if there is one.
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

/// Returns a command that runs the program as that user. The user has a writable directory only if
/// `words` name one.
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
