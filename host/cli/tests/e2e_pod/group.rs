//! How a pod uses its control group, and that functions never end the pod. With version 2 the
//! kernel would kill the whole group at once (`memory.oom.group`).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{give_up, raw, time_limit},
    e2e::{
        self,
        pod::{HELLO, Pod, as_user, words},
        process::{Running, faasw, get},
    },
};

const MIB: u64 = 1 << 20;

/// A function that takes all the memory it can and touches every page again and again, if the path
/// is `/hog`. It answers requests for other paths.
const HOG: &str = r#"
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get"
    (func $environ_sizes_get (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "\20\00\00\00\14\00\00\00")
  (data (i32.const 32) "Content-Type: a/b\0a\0ax")
  (func $touch_all
    (local $at i32)
    (local $end i32)
    (local.set $at (i32.const 65536))
    (local.set $end (i32.mul (memory.size) (i32.const 65536)))
    (loop $again
      (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.const 1)))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $again (i32.lt_u (local.get $at) (local.get $end)))))
  (func $is_hog (result i32)
    (local $at i32)
    (drop (call $environ_get (i32.const 1024) (i32.const 8192)))
    (local.set $at (i32.const 8192))
    (loop $next
      (if (i32.eq (i32.load (local.get $at)) (i32.const 0x676f682f)) (then (return (i32.const 1))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 32768))))
    (i32.const 0))
  (func (export "_start")
    (if (call $is_hog)
      (then
        (loop $grow
          (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        (loop $touch
          (call $touch_all)
          (br $touch))))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))
"#;

/// The file names of a group's memory: its limit, its usage, and its count of killed processes.
struct Files {
    limit: &'static str,
    used: &'static str,
    events: &'static str,
}

/// Returns this process's own group, and the names of its files.
fn own_group() -> Option<(PathBuf, Files)> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let one = own.lines().find_map(|line| line.split_once(":memory:"));
    let two = own.lines().find_map(|line| line.strip_prefix("0::"));
    let below = |mount: &str, path: &str| Path::new(mount).join(path.trim_start_matches('/'));
    Some(match (one, two) {
        (Some((_, path)), _) => (
            below("/sys/fs/cgroup/memory", path),
            Files {
                limit: "memory.limit_in_bytes",
                used: "memory.usage_in_bytes",
                events: "memory.oom_control",
            },
        ),
        (None, Some(path)) => (
            below("/sys/fs/cgroup", path),
            Files {
                limit: "memory.max",
                used: "memory.current",
                events: "memory.events",
            },
        ),
        (None, None) => return None,
    })
}

/// A container's control group, which exists as long as this value.
struct Container {
    folder: PathBuf,
    files: Files,
}

/// Returns the reason why groups with limits cannot be made here, if they cannot.
pub fn cannot() -> Option<&'static str> {
    Container::made(1 << 10).err()
}

impl Container {
    /// Makes a group with a limit.
    fn new(mebibytes: u64) -> Self {
        let container = Self::made(mebibytes).unwrap();
        // If one process is killed, all of them are.
        let whole = container.file("memory.oom.group");
        println!(
            "{}: memory.oom.group {}",
            container.folder.display(),
            fs::write(whole, "1").is_ok()
        );
        container
    }

    fn made(mebibytes: u64) -> Result<Self, &'static str> {
        let (own, files) = own_group().ok_or("no memory group")?;
        if files.limit == "memory.max" {
            // This works only in a group without processes, or in the root group.
            let _ = fs::write(own.join("cgroup.subtree_control"), "+memory +pids");
        }
        let folder = own.join(format!("pod-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|_| "no control groups")?;
        let container = Self { folder, files };
        let limit = (mebibytes * MIB).to_string();
        let limited = fs::write(container.file(container.files.limit), limit);
        limited.map_err(|_| "no limits of memory")?;
        Ok(container)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn used(&self) -> u64 {
        let text = fs::read_to_string(self.file(self.files.used)).unwrap();
        text.trim().parse().unwrap()
    }

    /// Returns how many processes the kernel has killed in it, without those of groups below.
    fn killed(&self) -> u64 {
        let text = fs::read_to_string(self.file(self.files.events)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|number| number.trim().parse().ok())
            .unwrap_or(0)
    }

    /// Returns a command that runs `command` in the group.
    fn command(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside
            .args(["-c", r#"echo $$ > "$0" && exec "$@""#])
            .arg(self.file("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(e2e::root());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let begun = Instant::now();
        // The processes in it are ending.
        while fs::remove_dir(&self.folder).is_err() && begun.elapsed() < give_up() {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Sends more requests at once than fit into memory, each of which fills its own.
fn hogs_run(pod: &Pod, hogs: usize) -> Vec<u16> {
    let address = pod.address;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let asked = (0..hogs).map(|_| tokio::spawn(raw::get(address, "/hog")));
        let asked: Vec<_> = asked.collect();
        let mut statuses = Vec::new();
        for one in asked {
            statuses.push(one.await.unwrap().status);
        }
        statuses
    })
}

/// Asserts that the pod outlives guests that fill their memory, several times over.
fn outlives_hogs(container: &Container, command: &Command) {
    let (mut pod, ready) = Pod::start(container.command(command));
    let fitting = ready["instances_fitting"].as_u64().unwrap();
    assert!(fitting >= 2, "{ready}");
    assert_eq!(get(pod.address, "/").status, 200);
    for _ in 0..3 {
        let statuses = hogs_run(&pod, 24);
        println!("{statuses:?}, {} MiB used", container.used() / MIB);
        assert!(statuses.iter().all(|status| [503, 504].contains(status)));
        assert!(statuses.contains(&504), "none of them ran: {statuses:?}");
        assert_eq!(get(pod.address, "/").status, 200, "{}", pod.node.stderr());
        assert_eq!(get(pod.health, "/readyz").status, 200);
    }
    assert_eq!(container.killed(), 0, "{}", pod.node.stderr());
    assert_eq!(pod.node.child.try_wait().unwrap(), None);
    assert_eq!(pod.node.stop("TERM"), Some(0));
}

fn hog(folder: &Path) -> String {
    // The module looks for `/hog` in its environment, which has the function's own path.
    let file = folder.join("module.wat");
    fs::write(&file, HOG).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    // The user without privileges reads the file, too.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Calls `run` with `--timeout` and `--cpu-time` for a slow machine.
fn with_limits(run: impl FnOnce(&[&str])) {
    let (timeout, cpu_time) = (
        format!("{}s", time_limit(4).as_secs()),
        format!("{}s", time_limit(10).as_secs()),
    );
    run(&[
        "--memory",
        "32",
        "--timeout",
        &timeout,
        "--cpu-time",
        &cpu_time,
        "--drain-delay",
        "0",
    ]);
}

/// The user may make no groups: only as many guests are admitted as fit in the worst case.
pub fn full_memory_ends_requests_and_never_the_pod() {
    let container = Container::new(320);
    let folder = tempfile::tempdir().unwrap();
    let file = hog(folder.path());
    with_limits(|limits| outlives_hogs(&container, &as_user(&words(&file, limits))));
}

/// The user may make groups: microVMs are limited to less than the container.
pub fn full_memory_ends_requests_if_microvms_have_groups() {
    let container = Container::new(320);
    let folder = tempfile::tempdir().unwrap();
    let file = hog(folder.path());
    with_limits(|limits| outlives_hogs(&container, &faasw(&words(&file, limits))));
}

pub fn a_limit_that_is_too_small_reports_the_needed_memory() {
    let container = Container::new(100);
    let output = container
        .command(&faasw(&words(HELLO, &[])))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the memory limit of 100 MiB does not suffice"),
        "{said}"
    );
    let needed = said.split("a limit of ").nth(1).unwrap();
    let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
    drop(container);
    // The stated limit suffices.
    let container = Container::new(needed);
    let (pod, ready) = Pod::start(container.command(&faasw(&words(HELLO, &[]))));
    assert_eq!(ready["memory_limit"], needed * MIB);
    assert_eq!(ready["instances_fitting"], 1);
    assert_eq!(get(pod.address, "/").status, 200);
    assert_eq!(pod.node.stop("TERM"), Some(0));
}

/// The seed would leave too little memory for instances in the worst case, so the pod does not
/// start.
pub fn a_seed_that_leaves_too_little_memory_is_rejected() {
    let container = Container::new(320);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("filled.wat");
    fs::write(&file, e2e::filled(100)).unwrap();
    let file = file.to_str().unwrap();
    let output = container
        .command(&faasw(&words(file, &[])))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("seed") && said.contains("--seed-memory"),
        "{said}"
    );
    drop(container);
    let container = Container::new(480);
    let command = faasw(&words(
        file,
        &["--seed-memory", "120", "--drain-delay", "0"],
    ));
    let (pod, _) = Pod::start(container.command(&command));
    assert_eq!(get(pod.address, "/").body, "filled\n");
    assert_eq!(pod.node.stop("TERM"), Some(0));
}

/// Above all, this is the compile helper's program of 20 MiB. The figure is for a build without
/// optimisation.
pub fn an_idle_pod_returns_the_memory_of_its_start() {
    const MOST: u64 = 28 * MIB;
    let container = Container::new(512);
    let (pod, _): (Pod, _) = Pod::start(container.command(&faasw(&words(HELLO, &[]))));
    assert_eq!(get(pod.address, "/").status, 200);
    e2e::until("what starting took is given back", || {
        container.used() < MOST
    });
    println!(
        "{} KiB are charged to a pod that idles",
        container.used() >> 10
    );
    let node: Running = pod.node;
    assert_eq!(node.stop("TERM"), Some(0));
}
