//! Where cells are that were aside, by the system's word.

use std::process::{Child, Command};

use super::*;
use crate::group::{Share, VM_OVERHEAD};

/// A process in the group of a number, as a cell is.
struct Born<'a> {
    groups: &'a Groups,
    child: Child,
    number: u32,
}

impl<'a> Born<'a> {
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

    /// The end of its group's path, of those of processors.
    fn place(&self) -> String {
        let path = format!("/proc/{}/cgroup", self.child.id());
        let groups = fs::read_to_string(path).unwrap();
        let is_of_processors = |line: &&str| {
            let mut fields = line.split(':');
            let controllers = fields.nth(1).unwrap_or_default();
            controllers.split(',').any(|name| name == "cpu")
        };
        let line = groups.lines().find(is_of_processors).unwrap();
        let (_, place) = line.split_once(&self.groups.name).unwrap();
        place.to_owned()
    }
}

impl Drop for Born<'_> {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.groups.give_back(self.number, true);
    }
}

fn weight(groups: &Groups, number: u32) -> u64 {
    let above = groups.processors().unwrap().above.as_fd();
    let folder = open_folder(above, &*groups.aside_name(number)).unwrap();
    crate::group::get(folder.as_fd(), WEIGHT).unwrap()
}

#[test]
fn who_is_not_aside_any_more_is_soon_where_all_are() {
    let share = Share {
        memory: VM_OVERHEAD,
        processes: 1,
        weight: 100,
    };
    let groups = match Place::find().and_then(|place| Groups::prepare(&place, share)) {
        Ok(groups) if groups.can_step_aside().is_ok() => groups,
        Ok(groups) => {
            println!("SKIPPED: {:?}", groups.can_step_aside());
            return groups.remove();
        }
        Err(why) => return println!("SKIPPED (no control groups): {why}"),
    };
    {
        let (one, other) = (Born::new(&groups, 3), Born::new(&groups, 5));
        let step = |born: &Born<'_>, aside| {
            let stepped = groups.step_aside(born.number, born.pid(), aside);
            stepped.unwrap();
        };
        assert_eq!((&*one.place(), &*other.place()), ("/3", "/5"));
        for round in 0..3 {
            step(&one, true);
            step(&other, true);
            assert_eq!((&*one.place(), &*other.place()), ("-3", "-5"));
            assert_eq!((weight(&groups, 3), weight(&groups, 5)), (2, 2));
            step(&one, false);
            let back = Instant::now();
            assert_eq!((weight(&groups, 3), weight(&groups, 5)), (1024, 2));
            // A second order changes nothing, nor does one before its time.
            step(&one, false);
            let left = groups.bring_home(back).unwrap();
            assert!(left <= STAY, "{left:?}");
            assert_eq!(&*one.place(), "-3");
            if round == 1 {
                step(&one, true);
                assert_eq!(
                    groups.bring_home(back + 2 * STAY),
                    None,
                    "it is aside again"
                );
                assert_eq!((&*one.place(), weight(&groups, 3)), ("-3", 2));
                step(&one, false);
            }
            assert_eq!(groups.bring_home(Instant::now() + STAY), None);
            assert_eq!((&*one.place(), &*other.place()), ("/3", "-5"));
            let above = groups.processors().unwrap().above.as_fd();
            assert!(open_folder(above, &*groups.aside_name(3)).is_err());
        }
    }
    groups.remove();
}
