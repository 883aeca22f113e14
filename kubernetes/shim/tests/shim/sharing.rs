//! Sharing on a host, with a script in place of `faasw`: which entries a pod gets, and which are
//! made for the next pod.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    containerd::digest,
    host::{Host, specification},
};
use serde_json::Value;

/// Timeout, longer than any step of these tests.
const LONG: Duration = Duration::from_secs(60);

/// A script in place of `faasw`, which finds the namespace's entry once one was added.
const FAASW: &str = r#"
store=/var/lib/faasw-pods/shared
what=$2
for word in "$@"; do
    case "$word" in --namespace=*) own=$store/${word#*=} ;; esac
done
echo "$*" >>$store/said
case "$what" in
    find)
        [ -e $own/made ] || exit 5
        printf '{"entry": "1", "folder": "%s/1/entry", "key": "%s/1/key"}' $own $own ;;
    ls) echo '[]' ;;
    add) read -r module </function.wasm; read -r variables </function.env.json
        echo "$module $variables" >$own/made ;;
esac
"#;

/// Returns whether this user can make another root and use KVM; otherwise prints that it skips.
fn can_share() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/kvm").exists();
    if !can {
        eprintln!("SKIPPED (not root, or no /dev/kvm)");
    }
    can
}

/// Returns a host with a store, where `faasw` is a script.
fn sharing(script: &str) -> Host {
    let mut host = Host::new();
    host.mount("state", 16);
    let root = host.at("1/root");
    for folder in ["dev", "proc", "sys", "tmp", "var/lib/faasw-pods/shared"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["function.wasm", "function.env.json"] {
        fs::write(root.join(file), "").unwrap();
    }
    // A shell and its libraries.
    let needed = Command::new("ldd").arg("/bin/sh").output().unwrap();
    let needed = String::from_utf8(needed.stdout).unwrap();
    let libraries = needed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/bin/sh"]) {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    let program = root.join("bin/faasw");
    fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(host.at("state/shared/shop")).unwrap();
    host
}

/// Creates a container in a namespace. Returns the node's `--shared` arguments, and the sources of
/// its mounts.
fn created(host: &Host, namespace: &str) -> (Vec<String>, Vec<String>) {
    let mut wanted = specification("/hello.wasm");
    wanted["annotations"]["io.kubernetes.cri.sandbox-namespace"] = namespace.into();
    wanted["hostname"] = "pod-1".into();
    wanted["process"]["env"] = serde_json::json!(["HOSTNAME=pod-1", "A=b"]);
    host.write_specification(&wanted);
    host.artifact(b"module\n", |_| {});
    for file in [".faasw-module.wasm", ".faasw-function.env.json"] {
        let _ = fs::remove_file(host.at("bundle/rootfs").join(file));
    }
    let output = host.create();
    assert!(output.status.success(), "{output:?}");
    let made = host.read_specification();
    let texts = |value: &Value| -> Vec<String> {
        let words = value.as_array().unwrap().iter();
        words
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    };
    let mounts = made["mounts"].as_array().unwrap().iter();
    let sources = mounts.map(|mount| mount["source"].as_str().unwrap().to_owned());
    let arguments = texts(&made["process"]["args"]);
    let shared = arguments
        .into_iter()
        .filter(|word| word.starts_with("--shared"));
    (shared.collect(), sources.collect())
}

/// Returns the waiting jobs, and the records of failed ones.
fn queue(host: &Host) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let all = fs::read_dir(host.at("state/queue-1")).unwrap().flatten();
    let all = all.map(|entry| entry.path());
    let all = all.filter(|path| !path.ends_with(".lock"));
    all.partition(|path| {
        !path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(".failed-")
    })
}

/// Waits until the queue is empty and no worker runs.
fn wait_for_worker(host: &Host) {
    let began = Instant::now();
    let lock = host.at("state/queue-1/.lock");
    loop {
        // The lock is not taken while a job waits: a worker that is about to do the job would find
        // the lock taken and exit.
        let is_free = || {
            let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
            let lock = fs::File::open(&lock);
            queue(host).0.is_empty()
                && lock.is_ok_and(|lock| rustix::fs::flock(&lock, operation).is_ok())
        };
        if is_free() {
            return;
        }
        assert!(began.elapsed() < LONG, "{:?}", queue(host));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_new_entry_is_given_to_the_next_pod_of_the_same_function() {
    if !can_share() {
        return;
    }
    let host = sharing(FAASW);
    assert_eq!(created(&host, "shop").0, [""; 0]);
    wait_for_worker(&host);
    let made = fs::read_to_string(host.at("state/shared/shop/made")).unwrap();
    assert_eq!(made, "module {\"A\":\"b\"}\n");
    let (arguments, sources) = created(&host, "shop");
    assert_eq!(
        arguments,
        ["--shared=/shared/entry", "--shared-key=/shared/key"]
    );
    let store = host.at("state/shared").canonicalize().unwrap();
    for name in ["entry", "key"] {
        let source = store.join("shop/1").join(name);
        assert!(
            sources.contains(&source.to_str().unwrap().to_owned()),
            "{sources:?}"
        );
    }
    assert!(!sources.contains(&store.to_str().unwrap().to_owned()));
    // `faasw` gets the function's options, but nothing that belongs to one pod.
    let said = fs::read_to_string(store.join("said")).unwrap();
    let of_function =
        "--namespace=shop --name=hello --args=x --memory=16 --env-file=/function.env.json";
    let store = "--store /var/lib/faasw-pods/shared";
    let find = format!(
        "share find --json {store} --digest {} {of_function}",
        digest(b"module\n")
    );
    let expected = [
        find.clone(),
        format!("share ls {store} --json"),
        format!("share add {store} /function.wasm {of_function}"),
        format!("share ls {store} --json"),
        find,
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    assert_eq!(queue(&host), (vec![], vec![]));
    for hierarchy in ["", "cpu", "memory", "pids"] {
        let group = Path::new("/sys/fs/cgroup")
            .join(hierarchy)
            .join("faasw-share");
        assert!(!group.exists(), "{}", group.display());
    }
}

#[test]
fn nothing_is_shared_without_a_folder_or_a_namespace() {
    if !can_share() {
        return;
    }
    let mut host = sharing(FAASW);
    for namespace in ["", "..", "a/b", "Shop"] {
        assert_eq!(created(&host, namespace).0, [""; 0]);
    }
    assert!(!host.at("state/queue-1").exists());
    assert!(!host.at("state/shared/said").exists());
    fs::remove_dir_all(host.at("state/shared")).unwrap();
    assert_eq!(created(&host, "shop").0, [""; 0]);
    assert!(!host.at("state/queue-1").exists());
    host.unmount("state");
    assert_eq!(created(&host, "shop").0, [""; 0]);
    assert!(!host.at("state").exists());
}

#[test]
fn nothing_is_kept_on_a_nearly_full_disk() {
    if !can_share() {
        return;
    }
    let host = sharing(FAASW);
    let filler = host.at("state/filler");
    fs::write(&filler, vec![1; 13 << 20]).unwrap();
    assert_eq!(created(&host, "shop").0, [""; 0]);
    assert_eq!(queue(&host), Default::default());
    assert!(!host.at("state/shared/shop/made").exists());
    fs::remove_file(filler).unwrap();
    assert_eq!(created(&host, "shop").0, [""; 0]);
    wait_for_worker(&host);
    assert!(host.at("state/shared/shop/made").exists());
}

#[test]
fn a_failed_job_is_reported_and_not_retried_at_each_start() {
    if !can_share() {
        return;
    }
    let host = sharing(
        "echo \"$2\" >>/var/lib/faasw-pods/shared/said\n\
         case $2 in find) exit 5 ;; ls) echo '[]' ;; \
         *) echo 'no such function' >&2; exit 1 ;; esac",
    );
    for _ in 0..3 {
        assert_eq!(created(&host, "shop").0, [""; 0]);
        wait_for_worker(&host);
    }
    let said = fs::read_to_string(host.at("state/shared/said")).unwrap();
    assert_eq!(
        said.split_whitespace()
            .filter(|what| *what == "add")
            .count(),
        1
    );
    let (_, failed) = queue(&host);
    assert_eq!(failed.len(), 1);
    let why = fs::read_to_string(&failed[0]).unwrap();
    assert!(why.contains("no such function"), "{why}");
}

#[test]
fn pods_start_without_a_store_that_lies_or_hangs() {
    if !can_share() {
        return;
    }
    for (script, makes_it) in [
        ("echo nonsense", false),
        (r#"echo '{"folder": "/etc", "key": "/etc/shadow"}'"#, false),
        (
            r#"echo '{"folder": "/var/lib/faasw-pods/shared/../..", "key": "/x"}'"#,
            false,
        ),
        ("while :; do :; done", false),
        ("kill -9 $$", false),
        // A damaged entry is made again.
        ("[ $2 = find ] && exit 1; [ $2 = ls ] && echo '[]'", true),
    ] {
        let host = sharing(&format!(
            "echo $2 >>/var/lib/faasw-pods/shared/said\n{script}"
        ));
        let (arguments, sources) = created(&host, "shop");
        assert_eq!(arguments, [""; 0], "{script}");
        assert!(
            sources.iter().all(|source| !source.contains("shadow")),
            "{script}"
        );
        if host.at("state/queue-1").exists() {
            wait_for_worker(&host);
        }
        let said = fs::read_to_string(host.at("state/shared/said")).unwrap();
        assert_eq!(said.contains("add"), makes_it, "{script}: {said}");
    }
}

#[test]
fn functions_larger_than_their_pod_are_not_built_outside_of_it() {
    if !can_share() {
        return;
    }
    let host = sharing(FAASW);
    for (limit, is_made) in [(8 << 20, false), (16 << 20, true)] {
        let mut wanted = specification("/hello.wasm");
        wanted["annotations"]["io.kubernetes.cri.sandbox-namespace"] = "shop".into();
        wanted["linux"]["resources"]["memory"]["limit"] = (limit as u64).into();
        host.write_specification(&wanted);
        host.artifact(b"module\n", |_| {});
        let _ = fs::remove_file(host.at("bundle/rootfs/.faasw-module.wasm"));
        let _ = fs::remove_file(host.at("bundle/rootfs/.faasw-function.env.json"));
        assert!(host.create().status.success());
        assert_eq!(host.at("state/queue-1").exists(), is_made);
    }
    wait_for_worker(&host);
}

#[test]
fn old_jobs_are_built_only_by_their_own_version() {
    if !can_share() {
        return;
    }
    let host = sharing(FAASW);
    let order = |root: &str| {
        serde_json::json!({ "root": root, "namespace": "shop", "options": ["--name=f"],
            "files": [["/function.wasm", "0"]] })
    };
    let own = host.at("1/root").canonicalize().unwrap();
    for (name, root) in [
        ("shop.1", own.to_str().unwrap()),
        ("evil.1", "/tmp/evil/root"),
    ] {
        let folder = host.at("state/queue-1").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("order.json"), order(root).to_string()).unwrap();
        fs::write(folder.join("0"), "of before\n").unwrap();
    }
    // The shim of this pod starts the worker, which also does the jobs from before.
    assert_eq!(created(&host, "shop").0, [""; 0]);
    wait_for_worker(&host);
    let said = fs::read_to_string(host.at("state/shared/said")).unwrap();
    assert_eq!(
        said.lines()
            .filter(|line| line.contains("share add"))
            .count(),
        2,
        "{said}"
    );
    let (_, failed) = queue(&host);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(
        fs::read_to_string(&failed[0])
            .unwrap()
            .contains("no version")
    );
}

#[test]
fn a_state_folder_writable_by_others_is_not_used() {
    if !can_share() {
        return;
    }
    let host = sharing(FAASW);
    let state = host.at("state");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(created(&host, "shop").0, [""; 0]);
    assert!(!state.join("queue-1").exists());
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&state, Some(1000), None).unwrap();
    assert_eq!(created(&host, "shop").0, [""; 0]);
    assert!(!state.join("queue-1").exists());
}

#[test]
fn settings_of_the_host_are_read_only_in_the_view() {
    if !can_share() {
        return;
    }
    let mounts = "while read -r line; do echo \"$line\"; done </proc/self/mountinfo \
         >/var/lib/faasw-pods/shared/mounts\n";
    let host = sharing(&format!("{mounts}{FAASW}"));
    created(&host, "shop");
    wait_for_worker(&host);
    let mounts = fs::read_to_string(host.at("state/shared/mounts")).unwrap();
    // The fifth field is the mount point, the sixth its options.
    let mounts: Vec<(&str, &str)> = mounts
        .lines()
        .map(|line| {
            let mut fields = line.split(' ').skip(4);
            (fields.next().unwrap(), fields.next().unwrap())
        })
        .collect();
    let options = |point: &str| {
        let last = mounts.iter().rfind(|(at, _)| *at == point);
        last.unwrap_or_else(|| panic!("no {point}: {mounts:?}")).1
    };
    for point in ["/sys", "/proc/sys"] {
        assert!(options(point).starts_with("ro"), "{point}: {mounts:?}");
    }
    // Other file systems below /sys, such as debugfs, are not there at all.
    let below = |point: &str| point.starts_with("/sys/") && !point.starts_with("/sys/fs/cgroup");
    assert!(!mounts.iter().any(|(at, _)| below(at)), "{mounts:?}");
}
