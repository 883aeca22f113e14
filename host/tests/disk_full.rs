//! A full disk at a deployment gives a clear error and leaves no partial state, and the node goes
//! on.
//!
//! The disk is a small tmpfs in a mount namespace of this program's own, so that nothing is left of
//! it, however the program ends. Where the system allows no such namespace, the tests print a
//! notice and are ignored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use common::FakeBackend;
use faasw::{
    DeployError, FunctionName, FunctionOptions, Node, RegistryError,
    admin::{Client, ClientError},
};
use http::Request;
use libtest_mimic::{Arguments, Trial};

/// Set in the process that runs within the namespace.
const WITHIN: &str = "FAASW_TEST_OWN_MOUNTS";

/// The size of the disk.
const MEBIBYTES: usize = 8;

/// A tmpfs on a new folder.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={MEBIBYTES}m"))
            .arg("faasw-test")
            .arg(disk.path())
            .status();
        assert!(mounted.unwrap().success());
        disk
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk until `bytes` are free.
    fn fill_up_to(&self, bytes: usize) {
        let filler = self.path().join("filler");
        let mut size = MEBIBYTES << 20;
        let _ = fs::remove_file(&filler);
        // The space that other files take is not known, so this finds the largest filler that fits.
        while fs::write(&filler, vec![1; size]).is_err() {
            size -= 16 << 10;
        }
        let file = fs::File::options().write(true).open(&filler).unwrap();
        // The registry's file grows now and then, so less may be free than wanted.
        file.set_len(size.saturating_sub(bytes) as u64).unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The unmount is lazy, because tasks of a dropped node may still have files open there.
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(unmounted.unwrap().success() || std::thread::panicking());
    }
}

async fn start(data_dir: &Path) -> Node {
    let builder = Node::builder().data_dir(data_dir).admin(true);
    let backend = Arc::new(FakeBackend::default());
    builder.start_on(backend).await.unwrap()
}

async fn text(node: &Node, name: &str, path: &str) -> String {
    let request = Request::get(path).body(String::new()).unwrap();
    let response = node.invoke(name, request).await;
    String::from_utf8(response.body().as_bytes().unwrap().to_vec()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Cached compilations are deleted when something else needs their room.
async fn compile_caches_are_removed_if_the_disk_is_full() {
    let disk = SmallDisk::new();
    let data_dir = disk.path().join("data");
    let node = start(&data_dir).await;
    let large = |which: u8| [vec![b' '; 1 << 20], vec![which]].concat();
    let options = FunctionOptions::default();
    node.deploy("f", large(1), options.clone()).await.unwrap();
    let kept = data_dir.join("compiled");
    let files = names(&kept);
    assert_eq!(files.len(), 1);
    // Real cache files are as large.
    fs::write(kept.join(&files[0]), vec![1; 2 << 20]).unwrap();
    disk.fill_up_to(256 << 10);
    node.deploy("g", "module g", options.clone()).await.unwrap();
    assert_eq!(names(&kept), files);
    node.deploy("h", vec![b' '; 1 << 19], options.clone())
        .await
        .unwrap();
    assert!(names(&kept).is_empty());
    for name in ["f", "g", "h"] {
        assert!(text(&node, name, "/module").await.len() >= 8);
    }
    node.shutdown().await;
}

/// A deployment that does not fit is refused and leaves everything as it was, at whichever step the
/// disk becomes full.
async fn a_deployment_that_does_not_fit_changes_nothing() {
    let disk = SmallDisk::new();
    let data_dir = disk.path().join("data");
    let node = start(&data_dir).await;
    let client = Client::new(&data_dir);
    let f = FunctionName::new("f").unwrap();
    let options = FunctionOptions::default();
    node.deploy("f", "module f", options.clone()).await.unwrap();
    let before = (node.list(), names(&data_dir.join("modules")));

    let mut refused = 0;
    // Room for nothing; for the module's file; for the code's file, too; perhaps for the record.
    for room in (0..12).map(|step| (step * 24) << 10) {
        disk.fill_up_to(room);
        let module = Bytes::from(format!("{room:0>60000}"));
        match client.deploy(&f, module, &options).await {
            Ok(_) => {
                assert_eq!(node.rollback("f", Some(1)).await.unwrap().version, 1);
                node.remove("f").await.unwrap();
                disk.make_room();
                node.deploy("f", "module f", options.clone()).await.unwrap();
            }
            Err(ClientError::Refused { status, detail }) => {
                refused += 1;
                assert_eq!(status, 507, "{detail}");
                assert!(
                    detail.contains("is full") && detail.contains("free space"),
                    "{detail}"
                );
                assert_eq!(text(&node, "f", "/module").await, "module f");
                assert_eq!(node.list(), before.0, "room for {room}");
                assert_eq!(names(&data_dir.join("modules")), before.1);
                assert_eq!(names(&data_dir.join("artifacts")).len(), 1);
            }
            Err(other) => panic!("{other}"),
        }
        if refused == 0 {
            panic!("the first one fits");
        }
        if node.list() != before.0 {
            // From this size on, the deployment fits.
            break;
        }
    }
    println!("refused {refused} times");
    node.shutdown().await;
}

async fn a_node_starts_on_a_full_disk_and_deploys_when_there_is_room() {
    let disk = SmallDisk::new();
    let data_dir = disk.path().join("data");
    let options = FunctionOptions::default();
    let node = start(&data_dir).await;
    node.deploy("f", "module f", options.clone()).await.unwrap();
    node.deploy("g", "module g", options.clone()).await.unwrap();
    node.shutdown().await;
    drop(node);

    disk.fill_up_to(0);
    let node = start(&data_dir).await;
    assert_eq!(text(&node, "f", "/module").await, "module f");
    let module = vec![b'x'; 100 << 10];
    let refused = node.deploy("f", module.clone(), options.clone()).await;
    assert!(
        matches!(refused, Err(DeployError::Registry(RegistryError::NoSpace))),
        "{refused:?}"
    );
    // Removing a function also works now, and makes room.
    node.remove("g").await.unwrap();
    disk.make_room();
    let deployed = node.deploy("f", module, options).await.unwrap();
    assert_eq!(deployed.function.version, 2);
    node.shutdown().await;
    drop(node);
    let node = start(&data_dir).await;
    assert_eq!(node.list().len(), 1);
    assert_eq!(node.list()[0].version, 2);
}

fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    tokio::runtime::Runtime::new().unwrap().block_on(test());
}

const TESTS: [(&str, fn()); 3] = [
    ("compile_caches_are_removed_if_the_disk_is_full", || {
        run(compile_caches_are_removed_if_the_disk_is_full);
    }),
    ("a_deployment_that_does_not_fit_changes_nothing", || {
        run(a_deployment_that_does_not_fit_changes_nothing);
    }),
    (
        "a_node_starts_on_a_full_disk_and_deploys_when_there_is_room",
        || run(a_node_starts_on_a_full_disk_and_deploys_when_there_is_room),
    ),
];

fn in_own_mounts() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--"]);
    command
}

fn main() {
    let arguments = Arguments::from_args();
    let within = std::env::var_os(WITHIN).is_some();
    let mut possible = true;
    if !within && !arguments.list {
        let probe = in_own_mounts()
            .args(["sh", "-c", "mount -t tmpfs faasw-test /tmp"])
            .stderr(Stdio::null())
            .status();
        possible = probe.is_ok_and(|status| status.success());
        if possible {
            let status = in_own_mounts()
                .arg(std::env::current_exe().unwrap())
                .args(std::env::args_os().skip(1))
                .env(WITHIN, "1")
                .status()
                .unwrap();
            std::process::exit(status.code().unwrap_or(1));
        }
    }
    let trials = TESTS.iter().map(|(name, test)| {
        if !possible {
            eprintln!("SKIPPED (no mount namespace of its own): {name}");
        }
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(!possible)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
