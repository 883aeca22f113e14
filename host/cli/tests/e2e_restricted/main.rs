//! The program on hosts that do not allow it namespaces. It names cause and remedy, and runs with
//! less confinement only by option.
//!
//! The restrictions are real, and apply to a child process only; the host itself is not changed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../../jail/tests/escape/denied.rs"]
mod denied;
#[path = "../e2e/mod.rs"]
mod e2e;
mod restriction;

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    process::Stdio,
    thread,
};

use e2e::{
    process::{Running, descendants, get, name_of, stdout_of},
    until,
};
use restriction::Restriction;
use serde_json::Value;

const HELLO: &str = "examples/hello/hello.wasm";
const PROBE: &str = "tests/fixtures/call-probe.wasm";

/// Returns parts of the error for each host: the cause, and the remedy.
fn expected(restriction: Restriction) -> [&'static str; 2] {
    match restriction {
        Restriction::Container | Restriction::OrdinaryUser => [
            "a system-call filter that this process was started with refuses namespaces",
            "docker run --device /dev/kvm --security-opt seccomp=unconfined",
        ],
        Restriction::NoUserNamespaces => [
            "user.max_user_namespaces is 0",
            "sudo sysctl user.max_user_namespaces=15000",
        ],
    }
}

/// `up` does not start with less confinement unless an option allows it, and names the cause and
/// the remedy.
fn without_namespaces_nothing_starts_by_default() {
    for restriction in Restriction::ALL {
        let folder = tempfile::tempdir().unwrap();
        let words = ["up", HELLO, "--listen", "127.0.0.1:0"];
        let ended = restriction.faasw(folder.path(), &words).output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        // The exit code for hosts that cannot run microVMs.
        assert_eq!(ended.status.code(), Some(4), "{restriction:?}: {stderr}");
        for text in expected(restriction) {
            assert!(stderr.contains(text), "{restriction:?}: {stderr}");
        }
        assert!(stderr.contains("--confinement reduced"), "{stderr}");
        assert!(!stderr.contains("confinement is reduced"), "{stderr}");
    }
}

fn doctor(restriction: Restriction, words: &[&str]) -> (bool, Value) {
    let folder = tempfile::tempdir().unwrap();
    let words = [&["doctor", "--json"][..], words].concat();
    let mut command = restriction.faasw(folder.path(), &words);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{restriction:?}: {error}: {output:?}"));
    (output.status.success(), report)
}

/// Returns the state and the detail of a finding.
fn finding<'a>(report: &'a Value, what: &str) -> Option<(&'a str, &'a str)> {
    let mut findings = report["findings"].as_array().unwrap().iter();
    let finding = findings.find(|finding| finding["what"] == what)?;
    Some((
        finding["state"].as_str().unwrap(),
        finding["detail"].as_str().unwrap(),
    ))
}

/// `doctor` reports the same before anything is started, and describes the reduced confinement.
fn doctor_reports_the_restriction() {
    for restriction in Restriction::ALL {
        let (is_well, report) = doctor(restriction, &[]);
        assert!(!is_well, "{restriction:?}: {report}");
        let (state, detail) = finding(&report, "namespaces").unwrap();
        let failure = report["failure"].as_str().unwrap();
        assert_eq!(state, "bad");
        for text in expected(restriction) {
            assert!(detail.contains(text), "{restriction:?}: {detail}");
            assert!(failure.contains(text), "{restriction:?}: {failure}");
        }
        assert_eq!(finding(&report, "confinement"), None);

        let (is_well, report) = doctor(restriction, &["--confinement", "reduced"]);
        assert!(is_well, "{restriction:?}: {report}");
        let of = |what| finding(&report, what).unwrap();
        assert_eq!(of("confinement").0, "poor");
        assert_eq!(of("namespaces").0, "poor");
        let has_users = restriction == Restriction::Container;
        let state = if has_users { "good" } else { "poor" };
        assert_eq!(of("users of jails").0, state, "{restriction:?}");
    }
}

/// Starts a server on this machine that answers requests, each on a connection of its own.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                match connection.read(&mut byte) {
                    Ok(1) => head.extend(byte),
                    _ => break,
                }
            }
            let answer =
                b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nupstream";
            // The client may have disconnected.
            let _ = connection.write_all(answer);
        }
    });
    address
}

/// Every kind of process works: microVMs, the compile helper, connector and worker.
fn reduced_confinement_works_and_is_reported() {
    let upstream = upstream();
    for restriction in Restriction::ALL {
        let folder = tempfile::tempdir().unwrap();
        let words = [
            "up",
            HELLO,
            PROBE,
            "--confinement",
            "reduced",
            "--allow-private",
            "127.0.0.0/8",
            "--allow-outbound",
            "http://127.0.0.1:*",
            "--listen",
            "127.0.0.1:0",
            "--json",
        ];
        let mut node = Running::start_command(restriction.faasw(folder.path(), &words));
        let address = node.address();
        node.said("confinement is reduced, as configured");
        // The instances come from a seed, or were reset.
        for _ in 0..3 {
            assert_eq!(get(address, "/hello/").status, 200, "{restriction:?}");
        }
        let answer = get(address, &format!("/call-probe/get/{upstream}/"));
        assert!(answer.body.contains("upstream"), "{}", answer.body);

        let nodes = status(node.child.id()).unwrap();
        for name in ["faasw-sandbox", "faasw-connector", "faasw-worker"] {
            let mut closed = Vec::new();
            until("one of each kind has closed its jail", || {
                closed = closed_jails(&node, name);
                !closed.is_empty()
            });
            for (pid, own) in closed {
                assert_reduced(restriction, (node.child.id(), &nodes), (pid, &own));
            }
        }
        assert_eq!(node.stop("TERM"), Some(0), "{restriction:?}");
    }
}

type Status = BTreeMap<String, String>;

/// Returns the kernel's status of a process; `None` if it has ended.
fn status(pid: u32) -> Option<Status> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    Some(text.lines().filter_map(field).collect())
}

/// Returns how many filters a process has.
fn filters(status: &Status) -> u32 {
    status["Seccomp_filters"].parse().unwrap()
}

/// Returns the processes of this name below a node that have closed their jails. Such a process has
/// one filter more than the launcher, and installs it last. Zygotes may still be starting.
fn closed_jails(node: &Running, name: &str) -> Vec<(u32, Status)> {
    let all = descendants(node.child.id());
    let launcher = all.iter().find(|pid| name_of(**pid) == "faasw-launcher");
    let launcher = status(*launcher.unwrap()).unwrap();
    let named = all.into_iter().filter(|pid| name_of(*pid) == name);
    let living = named.filter_map(|pid| Some((pid, status(pid)?)));
    living
        .filter(|(_, own)| filters(own) > filters(&launcher))
        .collect()
}

/// Asserts the properties of a process at the reduced level, compared with its node.
fn assert_reduced(
    restriction: Restriction,
    (node, nodes): (u32, &Status),
    (pid, own): (u32, &Status),
) {
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(own[set], "0000000000000000", "{restriction:?}: {set}");
    }
    assert_eq!((&*own["NoNewPrivs"], &*own["Seccomp"]), ("1", "2"));
    // A zygote may end at any moment.
    let Ok(root) = fs::read_link(format!("/proc/{pid}/root")) else {
        return;
    };
    for kind in ["net", "pid", "mnt", "user"] {
        let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
        let own = space(pid);
        assert!(own.is_none() || own == space(node), "{kind}");
    }
    let root = root.to_str().unwrap();
    if restriction == Restriction::Container {
        assert_ne!(own["Uid"], nodes["Uid"]);
        assert!(
            root.contains("faasw-root-") && root.ends_with("(deleted)"),
            "{root}"
        );
    } else {
        assert_eq!(own["Uid"], nodes["Uid"]);
        assert_eq!(root, "/");
    }
    // Only root may inspect a process that cannot be dumped.
    let folder = fs::metadata(format!("/proc/{pid}/fd"));
    assert!(folder.is_err() || folder.is_ok_and(|folder| folder.uid() == 0));
}

/// Checks the level that commands and metrics report.
fn assert_level_is_reported(level: &str) {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let mut node = Running::serving(&data_dir, &["--confinement", level]);
    node.address();
    let summary: Value = serde_json::from_str(&stdout_of(&["stats", "--json"], &data_dir)).unwrap();
    assert_eq!(summary["confinement"], level);
    let text = stdout_of(&["stats"], &data_dir);
    assert!(text.contains(&format!("confinement  {level}")), "{text}");
    let mut text = String::new();
    let mut admin = UnixStream::connect(data_dir.join("faasw.sock")).unwrap();
    let asked = b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    admin.write_all(asked).unwrap();
    admin.read_to_string(&mut text).unwrap();
    let line = format!("faasw_confinement{{level=\"{level}\"}} 1");
    assert!(text.lines().any(|other| other == line), "{text}");
    assert_eq!(
        node.stderr().contains("confinement is reduced"),
        level == "reduced",
        "{}",
        node.stderr()
    );
    assert_eq!(node.stop("TERM"), Some(0));
}

fn reduced_confinement_is_reported() {
    assert_level_is_reported("reduced");
}

fn confinement_is_full_by_default() {
    assert_level_is_reported("full");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn main() {
    // These tests change namespaces, users and capabilities in the child.
    let not_root = (!is_root()).then_some("not root");
    let of_root = tests![
        without_namespaces_nothing_starts_by_default,
        doctor_reports_the_restriction,
        reduced_confinement_works_and_is_reported,
    ];
    let of_all = tests![
        reduced_confinement_is_reported,
        confinement_is_full_by_default
    ];
    e2e::main_of(&[(of_root, not_root), (of_all, None)]);
}
