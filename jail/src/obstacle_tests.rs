//! Tests of causes, which are distinguished by files of each kind of host.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A folder with files of /proc in it, removed at the end.
struct Host(PathBuf);

impl Host {
    fn new(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("faasw-obstacle-{}-{number}", std::process::id());
        let host = Self(std::env::temp_dir().join(name));
        let usual = [
            ("proc/self/ns/user", ""),
            (USER_LIMIT, "31000\n"),
            (OTHER_LIMITS[0], "31000\n"),
        ];
        for (path, text) in usual.iter().chain(files) {
            let path = host.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        host
    }

    fn find(&self, process: Process) -> Obstacle {
        Obstacle::find(&self.0, process, false)
    }

    /// Returns cause and cure for `process` in one line.
    fn advice(&self, process: Process) -> String {
        let advice = self.find(process).advice_by(&self.0).unwrap();
        assert!(!advice.contains('\n'), "{advice}");
        advice
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

const ORDINARY: Process = Process {
    is_root: false,
    is_administrator: false,
    is_refused: false,
};
const ADMINISTRATOR: Process = Process {
    is_root: true,
    is_administrator: true,
    is_refused: false,
};
/// Root of a container without its own capability.
const CONTAINED: Process = Process {
    is_root: true,
    ..ORDINARY
};
const REFUSED: Process = Process {
    is_refused: true,
    ..CONTAINED
};

#[test]
fn a_host_without_restrictions_has_no_obstacle() {
    let host = Host::new(&[(UNPRIVILEGED, "1\n"), (APPARMOR, "0\n")]);
    for process in [ORDINARY, ADMINISTRATOR, CONTAINED] {
        assert_eq!(host.find(process), Obstacle::Unknown);
    }
    assert_eq!(Obstacle::Unknown.advice_by(&host.0), None);
}

#[test]
fn apparmors_restriction_is_for_programs_without_a_profile() {
    let restricted = |profile| Host::new(&[(APPARMOR, "1\n"), (PROFILE[1], profile)]);
    for profile in ["unconfined\n", "unprivileged_userns (enforce)\n"] {
        let host = restricted(profile);
        assert_eq!(host.find(ORDINARY), Obstacle::AppArmorRestriction);
        assert!(host.advice(ORDINARY).contains("packaging/apparmor/faasw"));
        assert_eq!(host.find(ADMINISTRATOR), Obstacle::Unknown);
        assert_eq!(host.find(CONTAINED), Obstacle::MissingCapability);
    }
    let ours = restricted("faasw (unconfined)\n");
    assert_eq!(ours.find(ORDINARY), Obstacle::Unknown);
    // The newer file wins over one that another security module has filled.
    let newer = Host::new(&[
        (APPARMOR, "1\n"),
        (PROFILE[0], "faasw (unconfined)\n"),
        (PROFILE[1], "unconfined\n"),
    ]);
    assert_eq!(newer.find(ORDINARY), Obstacle::Unknown);
}

#[test]
fn debians_switch_is_for_ordinary_users() {
    let host = Host::new(&[(UNPRIVILEGED, "0\n")]);
    assert_eq!(host.find(ORDINARY), Obstacle::UnprivilegedOff);
    assert_eq!(host.find(ADMINISTRATOR), Obstacle::Unknown);
    assert!(host.advice(ORDINARY).contains("sudo"));
    assert!(host.advice(CONTAINED).contains("--cap-add SYS_ADMIN"));
}

#[test]
fn limits_that_are_zero_hold_for_root_too() {
    let host = Host::new(&[(USER_LIMIT, "0\n")]);
    for process in [ORDINARY, ADMINISTRATOR, CONTAINED] {
        assert_eq!(host.find(process), Obstacle::UserNamespacesOff);
    }
    assert_eq!(
        Obstacle::exceeded(&host.0),
        Some(Obstacle::UserNamespacesOff)
    );
    let network = Host::new(&[(OTHER_LIMITS[1], "0\n")]);
    assert_eq!(network.find(ADMINISTRATOR), Obstacle::OtherNamespacesOff);
    let none = Host::new(&[]);
    assert_eq!(Obstacle::exceeded(&none.0), None);
}

#[test]
fn a_containers_options_are_the_least_that_its_host_asks_for() {
    let line = |files: &[(&str, &str)]| {
        let advice = Host::new(files).advice(REFUSED);
        advice.split('`').nth(1).unwrap().to_owned()
    };
    const DOCKER: (&str, &str) = (PROFILE[1], "docker-default (enforce)\n");
    let least = "docker run --device /dev/kvm --security-opt seccomp=unconfined";
    let unconfined = format!("{least} --security-opt apparmor=unconfined");
    assert_eq!(line(&[]), least);
    assert_eq!(line(&[DOCKER]), unconfined);
    assert_eq!(
        line(&[DOCKER, (APPARMOR, "1\n")]),
        format!("{unconfined} --cap-add SYS_ADMIN")
    );
    assert_eq!(
        line(&[(UNPRIVILEGED, "0\n")]),
        format!("{least} --cap-add SYS_ADMIN")
    );
}

#[test]
fn a_containers_profile_is_the_cause_where_a_mount_failed() {
    let host = Host::new(&[(PROFILE[1], "docker-default (enforce)\n")]);
    let found = |was_mount| Obstacle::find(&host.0, CONTAINED, was_mount);
    assert_eq!(found(true), Obstacle::AppArmorProfile);
    assert_eq!(found(false), Obstacle::Unknown);
    let advice = found(true).advice_by(&host.0).unwrap();
    assert!(advice.contains("--security-opt apparmor=unconfined"));
}

#[test]
fn a_kernel_without_user_namespaces_takes_root() {
    let host = Host::new(&[]);
    fs::remove_file(host.0.join("proc/self/ns/user")).unwrap();
    assert_eq!(host.find(ORDINARY), Obstacle::NotBuilt);
    assert_eq!(host.find(ADMINISTRATOR), Obstacle::Unknown);
}

#[test]
fn a_process_is_read_as_the_system_describes_it() {
    let read = |status: &str, is_refused: bool| {
        let host = Host::new(&[("proc/self/status", status)]);
        Process::read(&host.0, || is_refused)
    };
    let of = |user: u32, set: &str, seccomp: u32| {
        format!("Name:\tx\nUid:\t5\t{user}\t5\t5\nCapEff:\t{set}\nSeccomp:\t{seccomp}\n")
    };
    assert_eq!(read(&of(0, "000001ffffffffff", 0), true), ADMINISTRATOR);
    assert_eq!(read(&of(1000, "0000000000000000", 0), true), ORDINARY);
    // Docker's set for root.
    assert_eq!(read(&of(0, "00000000a80425fb", 2), true), REFUSED);
    // A filter that allows namespaces.
    assert_eq!(read(&of(0, "00000000a80425fb", 2), false), CONTAINED);
    assert_eq!(read("", true), ORDINARY);
}

#[test]
fn without_a_filter_the_kernel_answers() {
    let status = text(Path::new("/"), "proc/self/status");
    let is_filtered = !status.lines().any(|line| line == "Seccomp:\t0");
    let before = fs::read_link("/proc/self/ns/user").unwrap();
    assert!(is_filtered || !is_unshare_refused());
    assert_eq!(fs::read_link("/proc/self/ns/user").unwrap(), before);
}
