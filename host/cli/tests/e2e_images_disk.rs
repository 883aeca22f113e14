//! The disk of images under a running node: full, read-only, removed and replaced. In each case
//! functions answer. The node reports images that it could not write, and writes them when it can.
//!
//! The disk is a small tmpfs in a mount namespace of this program's own, so that nothing is left of
//! it however the program ends. Without such a namespace or without KVM, the tests are ignored,
//! with a notice.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use common::time_limit;
use e2e::process::{Running, faasw, get};
use e2e::{bundle, filled, start_import, until};
use faasw::{FunctionName, FunctionOptions, admin::Client};

/// Set for the program that runs within the namespace.
const WITHIN: &str = "FAASW_TEST_OWN_MOUNTS";

/// Number of images of the seeds that all functions share, and of the scripts' engine.
const SHARED: usize = 3;

/// A node's data directory whose images are on a disk of their own.
struct Host {
    folder: tempfile::TempDir,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

fn run(command: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(command).args(arguments).arg(path).status();
    assert!(status.unwrap().success(), "{command} {arguments:?}");
}

impl Host {
    /// Makes a data directory with a disk of `mebibytes` MiB.
    fn new(mebibytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = Self {
            client: Client::new(folder.path()),
            folder,
            runtime: tokio::runtime::Runtime::new().unwrap(),
        };
        fs::create_dir(host.disk()).unwrap();
        let size = format!("size={mebibytes}m");
        run(
            "mount",
            &["-t", "tmpfs", "-o", &size, "faasw-test"],
            &host.disk(),
        );
        host
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("images")
    }

    fn start(&self) -> (Running, SocketAddr) {
        let mut node = Running::serving(self.folder.path(), &["--zygotes", "2"]);
        let address = node.address();
        (node, address)
    }

    /// Deploys a script with this answer.
    fn deploy(&self, name: &str, answer: &str) {
        let script = format!("export default {{ fetch() {{ return new Response('{answer}') }} }}");
        let (name, options) = (FunctionName::new(name).unwrap(), FunctionOptions::default());
        let script = bundle(&[("handler.js", &script)]).into();
        let deployed = self.client.deploy(&name, script, &options);
        self.runtime.block_on(deployed).unwrap();
    }

    /// Returns the names of complete images, and of other files.
    fn images(&self) -> (Vec<String>, Vec<String>) {
        let names = fs::read_dir(self.disk()).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name != "filler").collect();
        names.sort();
        names.into_iter().partition(|name| !name.starts_with('.'))
    }

    fn has_images(&self, count: usize) {
        until("there are images", || self.images().0.len() == count);
    }

    /// Leaves at most `bytes` of free space.
    fn fill_up_to(&self, bytes: u64) {
        let disk = rustix::fs::statvfs(self.disk()).unwrap();
        let taken = (disk.f_bavail * disk.f_frsize).saturating_sub(bytes);
        let mut options = fs::File::options();
        options.write(true).create(true).truncate(false);
        let filler = options.open(self.disk().join("filler")).unwrap();
        let at = filler.metadata().unwrap().len();
        if taken > 0 {
            // The node may have used some of it since.
            let flags = rustix::fs::FallocateFlags::empty();
            let _ = rustix::fs::fallocate(&filler, flags, at, taken);
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.disk().join("filler")).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Unmounts all file systems that are still mounted there, one over the other.
        let unmounted = || {
            let mut command = Command::new("umount");
            let command = command.arg("-l").arg(self.disk()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        while unmounted() {}
    }
}

#[track_caller]
fn answers(address: SocketAddr, path: &str, expected: &str) {
    let answer = get(address, path);
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, expected),
        "{path}"
    );
}

fn a_node_serves_on_a_read_only_disk_and_writes_later() {
    let host = Host::new(200);
    let (node, address) = host.start();
    host.deploy("one", "one");
    answers(address, "/one/", "one");
    host.has_images(SHARED + 1);
    until("nothing is being written", || {
        let mut command = Command::new("mount");
        command.args(["-o", "remount,ro"]).arg(host.disk());
        command.stderr(Stdio::null()).status().unwrap().success()
    });
    let before = host.images();
    host.deploy("two", "two");
    answers(address, "/two/", "two");
    node.said("a func-image was not written");
    let name = FunctionName::new("one").unwrap();
    host.runtime.block_on(host.client.remove(&name)).unwrap();
    node.said("cannot be removed");
    assert_eq!(host.images(), before);
    node.stop("TERM");
    // The node also starts with a read-only disk.
    let (node, address) = host.start();
    answers(address, "/two/", "two");
    assert_eq!(get(address, "/one/").status, 404);
    assert_eq!(host.images(), before);
    run("mount", &["-o", "remount,rw"], &host.disk());
    host.deploy("two", "2");
    answers(address, "/two/", "2");
    until("there is one of the new version", || {
        host.images().0.iter().any(|name| !before.0.contains(name))
    });
    node.stop("TERM");
    let (node, address) = host.start();
    answers(address, "/two/", "2");
    host.has_images(SHARED + 1);
    node.stop("TERM");
}

fn a_node_serves_when_its_disk_is_replaced_and_writes_there() {
    let host = Host::new(200);
    let (node, address) = host.start();
    host.deploy("one", "one");
    answers(address, "/one/", "one");
    host.has_images(SHARED + 1);
    // The directory below it is empty, except for working sets that were recorded and written
    // since.
    let before = host.images().0;
    run("umount", &["-l"], &host.disk());
    let since = host.images().0;
    assert!(since.len() < before.len(), "{since:?}");
    host.deploy("two", "two");
    answers(address, "/one/", "one");
    answers(address, "/two/", "two");
    until("there is its image", || {
        host.images().0.iter().any(|name| !before.contains(name))
    });
    // The directory disappears in one step, because the node may be writing there.
    let aside = host.folder.path().join("aside");
    fs::rename(host.disk(), &aside).unwrap();
    host.deploy("three", "three");
    answers(address, "/three/", "three");
    node.said("was missing and is created again");
    until("there is an image", || !host.images().0.is_empty());
    // A file replaces the directory.
    let file = host.folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, &file, here, host.disk(), flags).unwrap();
    host.deploy("four", "four");
    answers(address, "/four/", "four");
    node.said("a func-image was not written");
    assert_eq!(fs::read(host.disk()).unwrap(), b"mine");
    node.stop("TERM");
    fs::remove_file(host.disk()).unwrap();
    let (node, address) = host.start();
    for name in ["one", "two", "three", "four"] {
        answers(address, &format!("/{name}/"), name);
    }
    host.has_images(SHARED + 4);
    node.stop("TERM");
}

/// Space for nothing, for a header, for some of the pages, and for all of them.
fn a_node_serves_on_a_full_disk_without_partial_images() {
    let host = Host::new(64);
    let (node, address) = host.start();
    host.deploy("f", "0");
    answers(address, "/f/", "0");
    host.has_images(SHARED + 1);
    for (version, room) in [0, 8 << 10, 100 << 10, 1 << 20, 4 << 20, 64 << 20]
        .into_iter()
        .enumerate()
    {
        host.fill_up_to(room);
        let version = format!("{room} {version}");
        host.deploy("f", &version);
        answers(address, "/f/", &version);
        until("nothing is left by half", || host.images().1.is_empty());
        host.make_room();
    }
    node.stop("TERM");
    host.fill_up_to(0);
    let (node, address) = host.start();
    answers(address, "/f/", "67108864 5");
    node.stop("TERM");
    host.make_room();
    let (node, address) = host.start();
    answers(address, "/f/", "67108864 5");
    host.has_images(SHARED + 1);
    node.stop("TERM");
}

/// Another writer takes the free space once the first bytes of an image are written.
fn a_disk_that_fills_during_a_write_leaves_no_partial_image() {
    let host = Host::new(64);
    let (node, address) = host.start();
    host.deploy("f", "0");
    answers(address, "/f/", "0");
    host.has_images(SHARED + 1);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let deadline = Instant::now() + time_limit(60);
        let ended = &ended;
        let host = &host;
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) && Instant::now() < deadline {
                if host.images().1.is_empty() {
                    std::hint::spin_loop()
                } else {
                    host.fill_up_to(0)
                }
            }
        });
        let mut version = 0;
        while !node.stderr().contains("a func-image was not written") {
            assert!(Instant::now() < deadline, "it was never full in time");
            version += 1;
            host.deploy("f", &version.to_string());
            answers(address, "/f/", &version.to_string());
            until("it is written or not", || host.images().1.is_empty());
            let _ = fs::remove_file(host.disk().join("filler"));
            // A small rest is taken quickly later.
            host.fill_up_to(8 << 20);
        }
        ended.store(true, Ordering::Relaxed);
        println!("full at the {version}th time");
        assert!(node.stderr().contains("No space left"), "{}", node.stderr());
    });
    let _ = fs::remove_file(host.disk().join("filler"));
    host.deploy("f", "last");
    answers(address, "/f/", "last");
    host.has_images(SHARED + 1);
    node.stop("TERM");
    let (node, address) = host.start();
    answers(address, "/f/", "last");
    assert!(!node.stderr().contains("is not used"), "{}", node.stderr());
    node.stop("TERM");
}

/// A second writer takes the free space while an image arrives: the function is deployed from the
/// module that came with it.
fn an_import_on_a_full_disk_deploys_the_module() {
    let host = Host::new(100);
    let (node, address) = host.start();
    let (name, options) = (FunctionName::new("f").unwrap(), FunctionOptions::default());
    let deployed = host.client.deploy(&name, filled(6).into(), &options);
    host.runtime.block_on(deployed).unwrap();
    // There is no script, and so no engine.
    host.has_images(SHARED);
    let file = host.folder.path().join("f.faasw");
    let command = |words: &[&str]| {
        let mut command = faasw(words);
        let output = command.arg(&file).env("FAASW_DATA_DIR", host.folder.path());
        let output = output.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    command(&["image", "export", "f", "-o"]);
    let export = fs::read(&file).unwrap();
    host.runtime.block_on(host.client.remove(&name)).unwrap();
    host.has_images(SHARED - 1);
    let half = export.len() / 2;
    let mut client = start_import(host.folder.path(), &export, half);
    until("some of it has come", || {
        let (_, by_half) = host.images();
        let bytes = |name: &String| fs::metadata(host.disk().join(name)).map_or(0, |it| it.len());
        by_half.iter().map(bytes).sum::<u64>() > 1 << 20
    });
    // Data that has arrived may still be on its way to the disk, and take some space there.
    until("the disk is full", || {
        host.fill_up_to(0);
        rustix::fs::statvfs(host.disk()).unwrap().f_bavail == 0
    });
    client.write_all(&export[half..]).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(
        answer.contains("was not written to this node's disk"),
        "{answer}"
    );
    answers(address, "/f/", "filled\n");
    until("nothing is left by half", || host.images().1.is_empty());
    host.make_room();
    let said = command(&["image", "import"]);
    assert!(said.contains("nothing was initialised"), "{said}");
    answers(address, "/f/", "filled\n");
    host.has_images(SHARED);
    node.stop("TERM");
}

fn in_own_mounts() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation", "private", "--"]);
    command
}

fn main() {
    let within = std::env::var_os(WITHIN).is_some();
    if !within {
        let probe = in_own_mounts()
            .args(["sh", "-c", "mount -t tmpfs faasw-test /mnt"])
            .stderr(Stdio::null())
            .status();
        if probe.is_ok_and(|status| status.success()) {
            let status = in_own_mounts()
                .arg(std::env::current_exe().unwrap())
                .args(std::env::args_os().skip(1))
                .env(WITHIN, "1")
                .status();
            std::process::exit(status.unwrap().code().unwrap_or(1));
        }
    }
    e2e::main_where(
        within.then_some(()).ok_or("no mount namespace of its own"),
        tests![
            a_node_serves_on_a_read_only_disk_and_writes_later,
            a_node_serves_when_its_disk_is_replaced_and_writes_there,
            a_node_serves_on_a_full_disk_without_partial_images,
            a_disk_that_fills_during_a_write_leaves_no_partial_image,
            an_import_on_a_full_disk_deploys_the_module,
        ],
    );
}
