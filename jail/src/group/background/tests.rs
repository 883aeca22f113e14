//! Tests of the groups of jails in and after the background, as the kernel reports them.

use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;
use crate::group::{Share, VM_OVERHEAD};

/// A process in the group of a number, as a jail is.
struct TestJail<'a> {
    groups: &'a Groups,
    child: Child,
    number: u32,
}

impl<'a> TestJail<'a> {
    fn new(groups: &'a Groups, number: u32) -> Self {
        let group = groups.group(number).unwrap();
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        for folder in &group.folders {
            put(folder.as_fd(), PROCESSES, &child.id().to_string()).unwrap();
        }
        Self {
            groups,
            child,
            number,
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns the end of the path of its group for processors.
    fn place(&self) -> String {
        let path = format!("/proc/{}/cgroup", self.child.id());
        let groups = fs::read_to_string(path).unwrap();
        let wanted = match self.groups.version {
            CgroupVersion::One => "cpu",
            CgroupVersion::Two => "",
        };
        let is_of_processors = |line: &&str| {
            let mut fields = line.split(':');
            let controllers = fields.nth(1).unwrap_or_default();
            controllers.split(',').any(|name| name == wanted)
        };
        let line = groups.lines().find(is_of_processors).unwrap();
        let (_, place) = line.split_once(&self.groups.name).unwrap();
        place.to_owned()
    }
}

impl Drop for TestJail<'_> {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.groups.give_back(self.number, true);
    }
}

/// Reads a file of the group that a jail has beside all others.
fn background_file(groups: &Groups, number: u32, file: &str) -> Result<u64, Errno> {
    let above = groups.processors().unwrap().above.as_fd();
    let folder = open_folder(above, &*groups.background_name(number))?;
    crate::group::get(folder.as_fd(), file)
}

fn weight(groups: &Groups, number: u32) -> u64 {
    background_file(groups, number, weight_file(groups.version, 0).0).unwrap()
}

fn step(born: &TestJail<'_>, in_background: bool) {
    let stepped = born
        .groups
        .set_background_group(born.number, born.pid(), in_background);
    stepped.unwrap();
}

/// Groups are named after their process, which is one for all tests: so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Returns groups whose jails can be in the background, and the turn. `None`, with a message, if
/// this host has none, or none of the `wanted` version.
pub(in crate::group) fn groups(
    wanted: Option<CgroupVersion>,
) -> Option<(MutexGuard<'static, ()>, Groups)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let share = Share {
        memory: VM_OVERHEAD,
        processes: 1,
        weight: 100,
    };
    match CgroupLocation::find().and_then(|place| Groups::prepare(&place, share)) {
        Ok(groups) if wanted.is_some_and(|wanted| wanted != groups.version) => {
            println!(
                "SKIPPED: control groups are of version {:?}",
                groups.version
            );
            groups.remove();
            None
        }
        Ok(groups) if groups.check_background_support().is_ok() => Some((turn, groups)),
        Ok(groups) => {
            println!("SKIPPED: {:?}", groups.check_background_support());
            groups.remove();
            None
        }
        Err(why) => {
            println!("SKIPPED (no control groups): {why}");
            None
        }
    }
}

#[test]
fn a_jail_that_leaves_the_background_is_moved_back() {
    let Some((_turn, groups)) = groups(None) else {
        return;
    };
    let [least, usual] = [0, USUAL_WEIGHT].map(|weight| weight_file(groups.version, weight).1);
    {
        let (one, other) = (TestJail::new(&groups, 3), TestJail::new(&groups, 5));
        assert_eq!((&*one.place(), &*other.place()), ("/3", "/5"));
        for round in 0..3 {
            step(&one, true);
            step(&other, true);
            assert_eq!((&*one.place(), &*other.place()), ("-3", "-5"));
            assert_eq!((weight(&groups, 3), weight(&groups, 5)), (least, least));
            step(&one, false);
            let back = Instant::now();
            assert_eq!((weight(&groups, 3), weight(&groups, 5)), (usual, least));
            // A second order changes nothing, nor does one before its time.
            step(&one, false);
            let left = groups.return_from_background(back).unwrap();
            assert!(left <= RETURN_DELAY, "{left:?}");
            assert_eq!(&*one.place(), "-3");
            if round == 1 {
                step(&one, true);
                assert_eq!(
                    groups.return_from_background(back + 2 * RETURN_DELAY),
                    None,
                    "it is aside again"
                );
                assert_eq!((&*one.place(), weight(&groups, 3)), ("-3", least));
                step(&one, false);
            }
            assert_eq!(
                groups.return_from_background(Instant::now() + RETURN_DELAY),
                None
            );
            assert_eq!((&*one.place(), &*other.place()), ("/3", "-5"));
            assert!(background_file(&groups, 3, PROCESSES).is_err());
        }
    }
    groups.remove();
}

/// The memory of jails in the background, where they leave the limits of their own group.
mod version_two {
    use super::*;

    /// A process in the group of `number` that writes to as many MiB as it is ordered to, and
    /// reports that.
    struct Eater {
        child: Child,
        lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    }

    impl Eater {
        fn new(groups: &Groups, number: u32) -> Self {
            use std::io::BufRead;
            let group = groups.group(number).unwrap();
            // Each line that it reads is the number of MiB to write to.
            let mut child = Command::new("perl")
                .args([
                    "-e",
                    "$| = 1; while (<STDIN>) { $_[$i++] = 'x' x ($_ << 20); print \"x\\n\" }",
                ])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let folder = group.folders.first().unwrap();
            put(folder.as_fd(), PROCESSES, &child.id().to_string()).unwrap();
            let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
            Self { child, lines }
        }

        fn pid(&self) -> Pid {
            Pid::from_child(&self.child)
        }

        /// Writes to so much more memory; returns whether the process is still alive.
        fn eat(&mut self, mebibytes: u32) -> bool {
            use std::io::Write;
            let input = self.child.stdin.as_mut().unwrap();
            writeln!(input, "{mebibytes}").unwrap();
            self.lines.next().is_some()
        }
    }

    impl Drop for Eater {
        fn drop(&mut self) {
            let _ = self.child.kill();
            self.child.wait().unwrap();
        }
    }

    #[test]
    fn the_background_group_enforces_the_memory_limit() {
        let Some((_turn, groups)) = groups(Some(CgroupVersion::Two)) else {
            return;
        };
        {
            let mut eater = Eater::new(&groups, 2);
            groups.limit_memory(2, 32 << 20).unwrap();
            groups.set_background_group(2, eater.pid(), true).unwrap();
            assert_eq!(background_file(&groups, 2, "memory.max"), Ok(32 << 20));
            assert_eq!(background_file(&groups, 2, "pids.max"), Ok(1));
            // The limit may become lower or higher.
            groups.limit_memory(2, 24 << 20).unwrap();
            assert_eq!(background_file(&groups, 2, "memory.max"), Ok(24 << 20));
            assert!(eater.eat(4));
            assert!(!groups.is_out_of_memory(2));
            assert!(!eater.eat(48), "it has more than its limit");
            assert!(groups.is_out_of_memory(2));
        }
        groups.give_back(2, false);
        assert!(background_file(&groups, 2, "memory.max").is_err());
        groups.remove();
    }

    #[test]
    fn memory_charged_in_the_background_stays_charged_to_the_jail() {
        let Some((_turn, groups)) = groups(Some(CgroupVersion::Two)) else {
            return;
        };
        {
            let mut eater = Eater::new(&groups, 2);
            groups.set_background_group(2, eater.pid(), true).unwrap();
            assert!(eater.eat(8));
            groups.set_background_group(2, eater.pid(), false).unwrap();
            assert_eq!(
                groups.return_from_background(Instant::now() + RETURN_DELAY),
                None
            );
            let charged = background_file(&groups, 2, "memory.current").unwrap();
            assert!(charged >= 8 << 20, "{charged}");
            // The next time, it is the same group.
            groups.set_background_group(2, eater.pid(), true).unwrap();
            let again = background_file(&groups, 2, "memory.current").unwrap();
            assert!(again >= 8 << 20, "{again}");
        }
        groups.give_back(2, true);
        assert!(background_file(&groups, 2, "memory.current").is_err());
        groups.remove();
    }

    #[test]
    fn background_jails_together_are_bounded() {
        let Some((_turn, groups)) = groups(Some(CgroupVersion::Two)) else {
            return;
        };
        groups.limit_all(8 * VM_OVERHEAD).unwrap();
        {
            let jails: Vec<_> = (0..3)
                .map(|number| TestJail::new(&groups, number))
                .collect();
            let step =
                |born: &TestJail<'_>| groups.set_background_group(born.number, born.pid(), true);
            let result: Vec<_> = jails.iter().map(step).collect();
            assert_eq!(result, [Ok(()), Ok(()), Err(Errno::AGAIN)]);
            let places: Vec<_> = jails.iter().map(TestJail::place).collect();
            assert_eq!(places, ["-0", "-1", "/2"]);
        }
        // Jails that have ended leave their limits to others.
        let next = TestJail::new(&groups, 7);
        assert_eq!(groups.set_background_group(7, next.pid(), true), Ok(()));
        drop(next);
        groups.remove();
    }
}
