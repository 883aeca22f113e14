//! Tests of which settings are written at which time, with a scheduler that records them.

use std::cell::{Cell, RefCell};

use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::*;

const HOG: u64 = 7;
const NEIGHBOUR: u64 = 8;
const SECOND: Duration = Duration::from_secs(1);

/// A setting of one jail, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    One(u32, u64),
    /// Processors of a process, by the number of its jail.
    Processors(u32, Option<u64>),
    All(bool),
}

#[derive(Default)]
struct Noted {
    written: RefCell<Vec<Written>>,
    background: Option<u32>,
    /// Idle time of all reserved processors together; `None` if the host does not report it.
    idle: Cell<Option<Duration>>,
}

impl Scheduler for Noted {
    fn set_weight(&self, number: u32, weight: u64) {
        self.written.borrow_mut().push(Written::One(number, weight));
    }

    fn set_total_weight(&self, is_contended: bool) {
        self.written.borrow_mut().push(Written::All(is_contended));
    }

    fn limit_processors(&self, pid: Pid, processors: Option<u64>) {
        let number = pid.as_raw_nonzero().get() as u32 - 1;
        let written = Written::Processors(number, processors);
        self.written.borrow_mut().push(written);
    }

    fn idle(&self, _: u64) -> Option<Duration> {
        self.idle.get()
    }

    fn is_in_background_group(&self, number: u32) -> bool {
        self.background == Some(number)
    }
}

/// Returns the number of a jail's process, which is never 0.
fn pid(number: u32) -> Pid {
    Pid::from_raw(number as i32 + 1).unwrap()
}

/// A node with one processor and some jails, numbered by their position.
struct Node {
    sharing: Sharing,
    members: Vec<Member>,
    /// Run time of each jail in nanoseconds.
    totals: Vec<TotalRunTime>,
    noted: Noted,
    now: Instant,
}

impl Node {
    fn new(functions: &[u64]) -> Self {
        let now = Instant::now();
        Self {
            sharing: Sharing::new(1, true, now),
            members: functions.iter().map(|id| Member::of(*id, false)).collect(),
            totals: vec![TotalRunTime { ran: 1, waited: 1 }; functions.len()],
            noted: Noted {
                idle: Cell::new(Some(Duration::ZERO)),
                ..Noted::default()
            },
            now,
        }
    }

    /// Lets seconds pass. In each of them a jail of a function ran and waited for the percentages
    /// that `did` returns. Returns the writes of that time.
    fn pass(&mut self, seconds: u32, did: impl Fn(u64) -> (u64, u64)) -> Vec<Written> {
        for _ in 0..seconds {
            self.now += SECOND;
            for (member, total) in self.members.iter().zip(&mut self.totals) {
                let (ran, waited) = did(member.function);
                total.ran += ran * 10_000_000;
                total.waited += waited * 10_000_000;
            }
            let totals = &self.totals;
            let total = |pid: Pid| {
                let index = pid.as_raw_nonzero().get() as usize - 1;
                totals.get(index).copied()
            };
            let members = (0..).zip(&mut self.members);
            let members = members.map(|(number, member)| (number, pid(number), member));
            self.sharing.look(members, &self.noted, total, self.now);
        }
        self.noted.written.take()
    }
}

#[test]
fn the_kernels_account_is_read() {
    let told = parse("12 345 6\n");
    let expected = TotalRunTime {
        ran: 12,
        waited: 345,
    };
    assert_eq!(told, Some(expected));
    for nonsense in ["", "12", "12 x", "-1 2 3"] {
        assert_eq!(parse(nonsense), None, "{nonsense}");
    }
    assert!(total(rustix::process::getpid()).is_some_and(|total| total.ran > 0));
    assert_eq!(total(Pid::from_raw(i32::MAX).unwrap()), None);
}

#[test]
fn the_kernels_account_of_a_process_that_has_ended_is_read_until_it_is_reaped() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).unwrap();
    assert!(total(pid).is_some_and(|total| total.ran > 0));
    child.wait().unwrap();
    assert_eq!(total(pid), None);
}

#[test]
fn too_few_to_contend_are_not_looked_at() {
    let mut node = Node::new(&[HOG]);
    assert_eq!(node.pass(20, |_| (100, 900)), []);
    assert!(node.members.iter().all(|member| member.total.is_none()));
}

#[test]
fn weights_are_written_when_they_change_and_a_member_that_joins_gets_its_functions() {
    let busy = |function| match function {
        HOG => (30, 70),
        _ => (1, 0),
    };
    let mut node = Node::new(&[HOG, HOG, HOG, NEIGHBOUR]);
    let written = node.pass(20, busy);
    let least = WEIGHT_FULL >> (2 + 2);
    for hog in 0..3 {
        let of_hog = written.iter().filter_map(|written| match written {
            Written::One(one, weight) if *one == hog => Some(*weight),
            _ => None,
        });
        let of_hog: Vec<_> = of_hog.collect();
        assert_eq!(of_hog.last(), Some(&least), "{written:?}");
        assert!(of_hog.is_sorted_by(|one, next| one > next), "{written:?}");
    }
    assert!(!written.iter().any(|one| matches!(one, Written::One(3, _))));
    assert!(written.contains(&Written::All(true)));
    assert_eq!(node.pass(20, busy), [], "nothing has changed");
    let mut joining = [HOG, NEIGHBOUR].map(|id| Member::of(id, false));
    for (number, member) in (4..).zip(&mut joining) {
        let member = (number, pid(number), member);
        node.sharing.join(member, &node.noted, |_| None, node.now);
    }
    assert_eq!(node.noted.written.take(), [Written::One(4, least)]);
    let written = node.pass(20, |_| (1, 0));
    assert!(
        node.members
            .iter()
            .all(|member| member.weight == WEIGHT_FULL)
    );
    assert_eq!(written.last(), Some(&Written::All(false)), "{written:?}");
}

#[test]
fn run_time_in_the_background_does_not_count() {
    let mut node = Node::new(&[HOG, NEIGHBOUR]);
    node.noted.background = Some(0);
    let polling = |function| match function {
        HOG => (50, 50),
        _ => (90, 10),
    };
    assert_eq!(node.pass(20, polling), []);
    node.noted.background = None;
    assert_ne!(node.pass(20, polling), []);
}

#[test]
fn members_that_have_ended_change_nothing() {
    let mut node = Node::new(&[HOG, HOG, HOG, NEIGHBOUR]);
    node.totals.clear();
    assert_eq!(node.pass(5, |_| (0, 0)), []);
}

#[test]
fn a_heavy_function_gets_fewer_processors_beside_a_light_one_also_for_members_that_join() {
    let busy = |function| match function {
        HOG => (40, 60),
        _ => (20, 20),
    };
    let mut node = Node::new(&[HOG, HOG, HOG, HOG, NEIGHBOUR]);
    node.sharing = Sharing::new(2, true, node.now);
    let of = |written: &[Written], number| {
        let processors = written.iter().filter_map(|written| match written {
            Written::Processors(one, processors) if *one == number => Some(*processors),
            _ => None,
        });
        processors.collect::<Vec<_>>()
    };
    let written = node.pass(20, busy);
    for hog in 0..4 {
        assert_eq!(of(&written, hog), [Some(1)], "{written:?}");
    }
    assert_eq!(of(&written, 4), []);
    let mut joining = Member::of(HOG, false);
    let member = (5, pid(5), &mut joining);
    node.sharing.join(member, &node.noted, |_| None, node.now);
    assert_eq!(of(&node.noted.written.take(), 5), [Some(1)]);
    let written = node.pass(20, |_| (1, 0));
    for hog in 0..4 {
        assert_eq!(of(&written, hog), [None], "{written:?}");
    }
}

#[test]
fn a_reserve_pauses_if_its_processors_are_mostly_idle() {
    let busy = |function| match function {
        HOG => (40, 60),
        // Most of what serves the neighbour is the node's time, which no sandbox has used.
        _ => (20, 20),
    };
    for (idle_per_second, pauses) in [(Some(200), false), (Some(800), true), (None, true)] {
        let mut node = Node::new(&[HOG, HOG, HOG, HOG, NEIGHBOUR]);
        node.sharing = Sharing::new(2, true, node.now);
        let mut unlimited = 0;
        for second in 0..40 {
            let idle = idle_per_second.map(|idle| Duration::from_millis(idle * second));
            node.noted.idle.set(idle);
            let written = node.pass(1, busy);
            unlimited += usize::from(written.contains(&Written::Processors(0, None)));
        }
        assert_eq!(unlimited > 0, pauses, "{idle_per_second:?}: {unlimited}");
        assert!(unlimited < 10, "{idle_per_second:?}: {unlimited}");
    }
}

#[test]
fn sandboxes_that_live_shorter_than_a_look_count() {
    let mut node = Node::new(&[HOG, HOG, NEIGHBOUR]);
    let mut contended = 0;
    for _ in 0..20 {
        // A process for each request: all of its life is between two looks. Four at a time want
        // the processor, and 40 in a second have it.
        for number in 3..43 {
            let started = |_| Some(TotalRunTime { ran: 1, waited: 1 });
            let ended = |_| {
                Some(TotalRunTime {
                    ran: 1 + 24_000_000,
                    waited: 1 + 72_000_000,
                })
            };
            let mut short = Member::of(HOG, false);
            let member = (number, pid(number), &mut short);
            node.sharing.join(member, &node.noted, started, node.now);
            let member = (number, pid(number), &short);
            node.sharing.leave(member, &node.noted, ended);
        }
        node.pass(1, |_| (2, 0));
        contended += usize::from(node.sharing.is_contended);
    }
    assert!(contended > 10, "{contended} of 20 looks");
}

#[test]
fn a_sandbox_in_the_background_keeps_a_tenth_of_its_functions_weight() {
    let busy = |function| match function {
        HOG => (30, 70),
        _ => (1, 0),
    };
    let mut node = Node::new(&[HOG, HOG, HOG, NEIGHBOUR]);
    let set = |node: &mut Node, is_background| {
        let member = (0, pid(0), &mut node.members[0]);
        node.sharing
            .set_background(member, is_background, &node.noted);
        node.noted.written.take()
    };
    let tenth = WEIGHT_FULL / BACKGROUND_PART;
    assert_eq!(set(&mut node, true), [Written::One(0, tenth)]);
    node.pass(20, busy);
    let of_hog = WEIGHT_FULL >> (2 + 2);
    let weights: Vec<_> = node.members.iter().map(|member| member.weight).collect();
    assert_eq!(
        weights,
        [of_hog / BACKGROUND_PART, of_hog, of_hog, WEIGHT_FULL]
    );
    assert_eq!(set(&mut node, false), [Written::One(0, of_hog)]);
}
