//! A helper whose program is copied to a file of its own when the first helper is started.
//!
//! This program is its own helper, in a jail as the spawner makes it. A separate process with one
//! thread makes the jail.
//!
//! If the host allows no namespaces, every test here prints a message and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "support/testbed.rs"]
mod testbed;

use std::{
    fs::{self, File},
    os::fd::FromRawFd as _,
    process::Command,
};

use faasw_compiler::protocol::contract::REPORT_FD;
use libtest_mimic::{Arguments, Trial};
use rustix::fs::{SealFlags, fcntl_get_seals};

use testbed::{Inmate, Testbed};

/// The argument with which this program makes jails; the test's name follows.
const TESTBED: &str = "--testbed";
/// The report of a helper that runs.
const RAN: &[u8] = b"it runs";
/// Exit code of a helper that could not be started.
const NOT_STARTED: i32 = 127;

/// A test's name, and its work in jails.
type Scene = (&'static str, fn(Testbed));

/// Each runs in a process of its own.
const SCENES: [Scene; 3] = [
    (
        "the_first_has_its_program_put_where_it_is_started_from",
        one_after_the_other,
    ),
    ("two_at_once_need_not_wait_for_each_other", at_once),
    (
        "what_cannot_be_put_there_whole_is_not_started_and_the_next_one_tries_again",
        cut_off,
    ),
];

fn main() {
    if testbed::part().is_some() {
        // SAFETY: this process inherited the descriptor, and nothing else owns it.
        let report = unsafe { File::from_raw_fd(REPORT_FD) };
        std::os::unix::fs::FileExt::write_all_at(&report, RAN, 0).unwrap();
        return;
    }
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, name] = words.as_slice()
        && word == TESTBED
    {
        let (_, scene) = SCENES.iter().find(|(scene, _)| scene == name).unwrap();
        return scene(Testbed::prepare());
    }
    let skip = !testbed::is_possible();
    let trials = SCENES.map(|(name, _)| {
        let trial = Trial::test(name, move || {
            let jailed = Command::new("/proc/self/exe")
                .args([TESTBED, name])
                .output();
            let jailed = jailed.unwrap();
            assert!(jailed.status.success(), "{jailed:?}");
            Ok(())
        });
        trial.with_ignored_flag(skip)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

fn start(testbed: &mut Testbed) -> Inmate {
    const CPU_SECONDS: u64 = 20;
    testbed.start("helper", &[], CPU_SECONDS)
}

/// Waits until a helper has written its report and ended.
fn assert_ran(helper: &Inmate) {
    let status = helper.wait();
    assert_eq!(
        (status.exit_status(), helper.report()),
        (Some(0), RAN.into())
    );
}

/// Asserts that the program is in its place, and cannot be changed.
fn assert_sealed(testbed: &Testbed) {
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    assert_eq!(fcntl_get_seals(testbed.program()).unwrap(), all);
    let file = File::from(testbed.program().try_clone().unwrap());
    let mut content = vec![0; file.metadata().unwrap().len().try_into().unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).unwrap();
    assert!(content == fs::read("/proc/self/exe").unwrap());
}

fn one_after_the_other(mut testbed: Testbed) {
    testbed.carry(0);
    for _ in 0..3 {
        assert_ran(&start(&mut testbed));
        assert_sealed(&testbed);
    }
    testbed.remove();
}

fn at_once(mut testbed: Testbed) {
    testbed.carry(0);
    let helpers = [(); 4].map(|()| start(&mut testbed));
    helpers.iter().for_each(assert_ran);
    assert_sealed(&testbed);
    testbed.remove();
}

fn cut_off(mut testbed: Testbed) {
    testbed.carry(1);
    for _ in 0..2 {
        let helper = start(&mut testbed);
        assert_eq!(helper.wait().exit_status(), Some(NOT_STARTED));
        assert!(helper.report().is_empty());
        let seals = fcntl_get_seals(testbed.program()).unwrap();
        assert_eq!(seals, SealFlags::empty());
    }
    testbed.carry(0);
    assert_ran(&start(&mut testbed));
    assert_sealed(&testbed);
    testbed.remove();
}
