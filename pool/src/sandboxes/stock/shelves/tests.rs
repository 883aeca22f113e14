//! The policy, compared with a plain account of forks.

#[path = "../../../../tests/support/random.rs"]
#[allow(dead_code, reason = "a test uses a part")]
mod random;

use std::collections::BTreeMap;
use std::time::Duration;

use faasw_seedtree::HALF_LIFE;

use super::*;

/// Names of seeds; odd ones are a function's own.
type Name = u32;

const BASE: Name = 0;

fn is_shared(name: Name) -> bool {
    name.is_multiple_of(2)
}

/// Shelves, and zygotes that follow their actions.
struct Stock {
    shelves: Shelves<Name>,
    ready: Vec<Option<Name>>,
    wanted: usize,
    now: Instant,
    ended: usize,
}

impl Stock {
    fn new(wanted: usize) -> Self {
        let now = Instant::now();
        let mut shelves = Shelves::default();
        shelves.set_base(BASE, now);
        let mut stock = Self {
            shelves,
            ready: vec![None; wanted],
            wanted,
            now,
            ended: 0,
        };
        stock.settle();
        stock
    }

    /// Performs actions until there are none.
    fn settle(&mut self) {
        let most = 8 * (self.wanted + self.ready.len()) + 8;
        for _ in 0..most {
            let images: Vec<Option<&Name>> = self.ready.iter().map(Option::as_ref).collect();
            match self.shelves.next(self.wanted, &images, self.now) {
                Step::End(place) => {
                    self.ready.remove(place);
                    self.ended += 1;
                }
                Step::Preset(place, name) => {
                    assert_eq!(self.ready.remove(place), None);
                    self.ready.push(Some(name));
                }
                Step::Make(name) => {
                    assert!(self.ready.len() < self.wanted);
                    self.ready.push(name);
                }
                Step::Rest => return,
            }
        }
        panic!("it never rests: {:?} {:?}", self.ready, self.shelves);
    }

    fn note(&mut self, name: Name) {
        self.shelves.note(&name, is_shared(name), self.now);
    }

    /// A child of `name` is forked in a zygote that is specialised for it, or in the base's.
    fn fork(&mut self, name: Name) -> Option<Name> {
        self.note(name);
        let suits = [Some(name), Some(BASE), None];
        let place = suits
            .iter()
            .find_map(|image| self.ready.iter().position(|ready| ready == image));
        let taken = place.and_then(|place| self.ready.remove(place));
        self.settle();
        taken
    }

    fn count(&self, name: Name) -> usize {
        let its = self.ready.iter().filter(|ready| **ready == Some(name));
        its.count()
    }
}

#[test]
fn with_one_parent_all_sandboxes_are_its_own_and_none_is_ended() {
    let mut stock = Stock::new(4);
    for round in 0..100 {
        assert_eq!(stock.ready, [Some(BASE); 4], "{round}");
        assert_eq!(stock.fork(BASE), Some(BASE));
        stock.now += Duration::from_millis(round * round);
    }
    stock.wanted = 9;
    stock.settle();
    assert_eq!((stock.count(BASE), stock.ended), (9, 0));
    stock.wanted = 4;
    stock.settle();
    assert_eq!((stock.count(BASE), stock.ended), (4, 5));
}

#[test]
fn sandboxes_are_bare_until_functions_descend_from_something() {
    let mut stock = Stock::new(0);
    stock.shelves = Shelves::default();
    stock.wanted = 3;
    stock.settle();
    assert_eq!(stock.ready, [None; 3]);
    stock.shelves.set_base(BASE, stock.now);
    stock.settle();
    assert_eq!((stock.count(BASE), stock.ended), (3, 0));
    // Zygotes that cannot be specialised stay generic.
    for _ in 0..FAILURES_MAX {
        stock.shelves.note_preset(&BASE, false);
        stock.shelves.note_preset(&BASE, true);
    }
    stock.ready.clear();
    stock.settle();
    assert_eq!(stock.count(BASE), 3, "it was not in a row");
    for _ in 0..FAILURES_MAX {
        stock.shelves.note_preset(&BASE, true);
    }
    stock.ready.clear();
    stock.settle();
    assert_eq!(stock.ready, [None; 3]);
}

#[test]
fn popular_parents_get_sandboxes_by_how_often_they_are_asked_for() {
    let mut stock = Stock::new(12);
    for _ in 0..100 {
        for name in [2, 2, 2, 4] {
            stock.fork(name);
        }
    }
    // The base keeps its part. Of the other nine, three of four are for the seed that had three of
    // four forks, as far as it is worth ending any for that.
    assert_eq!(stock.count(BASE), 3);
    let (many, few) = (stock.count(2), stock.count(4));
    assert!(many + few == 9 && (5..=7).contains(&many), "{many} {few}");
    // Habits change, and slowly so do the zygotes.
    for _ in 0..1000 {
        stock.fork(4);
        stock.now += HALF_LIFE / 100;
    }
    assert_eq!((stock.count(2), stock.count(BASE)), (0, 3));
}

#[test]
fn what_nobody_asks_for_loses_its_sandboxes() {
    let mut stock = Stock::new(8);
    for _ in 0..32 {
        stock.fork(2);
        stock.fork(3);
    }
    assert!(stock.count(2) > 0 && stock.count(3) > 0);
    // After six half-lives, 32 forks count half as much as one.
    stock.now += HALF_LIFE * 7;
    stock.settle();
    assert_eq!(stock.ready, [Some(BASE); 8]);
    assert!(!stock.shelves.has(&2) && !stock.shelves.has(&3));
}

#[test]
fn a_parent_that_is_gone_takes_its_sandboxes_along() {
    let mut stock = Stock::new(8);
    for _ in 0..9 {
        stock.fork(2);
    }
    assert!(stock.count(2) > 0);
    stock.shelves.forget(|name| *name == 2);
    stock.settle();
    assert_eq!(stock.ready, [Some(BASE); 8]);
}

#[test]
fn a_function_that_is_called_without_end_leaves_half_to_others() {
    let mut stock = Stock::new(8);
    for _ in 0..1000 {
        stock.fork(3);
        stock.fork(5);
    }
    assert_eq!(stock.count(3) + stock.count(5), 4);
    stock.wanted = 2;
    stock.settle();
    assert_eq!((stock.count(3) + stock.count(5), stock.count(BASE)), (1, 1));
    stock.wanted = 1;
    stock.settle();
    assert_eq!(stock.ready, [Some(BASE)]);
}

#[test]
fn there_are_no_more_shelves_than_there_may_be_and_the_popular_ones_stay() {
    let mut stock = Stock::new(8);
    for round in 0..50 {
        stock.note(2);
        stock.note(2);
        for other in 0..SHELVES_MAX as u32 {
            stock.note(100 + 40 * round + other);
        }
        assert!(stock.shelves.all.len() <= SHELVES_MAX);
    }
    assert!(stock.shelves.has(&BASE) && stock.shelves.has(&2));
    stock.settle();
    assert!(stock.count(2) > 0);
}

/// The forks by name and time, and their present rate.
#[derive(Default)]
struct Forks(BTreeMap<Name, Vec<Instant>>);

impl Forks {
    fn rate(&self, name: Name, now: Instant) -> f64 {
        let times = self.0.get(&name).into_iter().flatten();
        let counted = times.map(|at| {
            let age = now.duration_since(*at).as_secs_f64();
            (-age / HALF_LIFE.as_secs_f64() * std::f64::consts::LN_2).exp()
        });
        counted.sum()
    }
}

/// Checks the invariants that hold whenever no action is left.
fn check(stock: &Stock, forks: &Forks, names: &[Name]) {
    assert_eq!(stock.ready.len(), stock.wanted);
    let own = names.iter().filter(|name| !is_shared(**name));
    let own: usize = own.map(|name| stock.count(*name)).sum();
    assert!(own <= stock.wanted / 2, "{own} of {}", stock.wanted);
    assert!(stock.count(BASE) >= stock.wanted.div_ceil(4));
    let listed: usize = names.iter().map(|name| stock.count(*name)).sum();
    assert_eq!(listed, stock.wanted, "{:?}", stock.ready);
    for name in names {
        let (rate, count) = (forks.rate(*name, stock.now), stock.count(*name));
        let is_faint = *name != BASE && rate < RATE_MIN * 0.999;
        assert!(!is_faint || count == 0, "{name} has {count} at {rate}");
        // No shelf would gain more than twice what this one would lose.
        let spare = stock.wanted.div_ceil(4) < count || *name != BASE;
        if count == 0 || !spare {
            continue;
        }
        let base = |name| if name == BASE { BASE_RATE } else { 0.0 };
        let here = (rate + base(*name)) / count as f64;
        for to in names.iter().filter(|to| *to != name) {
            let may = is_shared(*to) || own < stock.wanted / 2 || !is_shared(*name);
            let other = forks.rate(*to, stock.now) + base(*to);
            let there = other / (stock.count(*to) as f64 + 1.0);
            let is_tracked = stock.shelves.has(to);
            assert!(
                !may || !is_tracked || there <= WORTH_ENDING * here * 1.001,
                "{to} at {other} has {}, {name} at {rate} has {count}",
                stock.count(*to),
            );
        }
    }
}

#[test]
fn whatever_comes_the_bounds_hold_and_sandboxes_go_where_they_are_worth_most() {
    let mut random = random::seeded("shelves");
    for _ in 0..40 {
        let mut stock = Stock::new(1 + random.usize(..12));
        let names: Vec<Name> = (0..2 + random.usize(..8) as Name).collect();
        let mut forks = Forks::default();
        forks.0.insert(BASE, vec![stock.now]);
        for _ in 0..150 {
            match random.usize(..12) {
                0 => stock.wanted = random.usize(..40),
                1 => stock.now += HALF_LIFE.mul_f64(random.usize(..100) as f64 / 20.0),
                2 => {
                    let gone = names[1 + random.usize(..names.len() - 1)];
                    stock.shelves.forget(|name| *name == gone);
                    forks.0.remove(&gone);
                    stock.settle();
                    assert_eq!(stock.count(gone), 0);
                }
                // A zygote has ended by itself.
                3 if !stock.ready.is_empty() => {
                    let place = random.usize(..stock.ready.len());
                    stock.ready.remove(place);
                }
                _ => {
                    // The first seeds are the more popular.
                    let most = 1 + random.usize(..names.len());
                    let name = names[random.usize(..most)];
                    for _ in 0..1 + random.usize(..6) {
                        let taken = stock.fork(name);
                        assert!(taken.is_none_or(|taken| taken == name || taken == BASE));
                        forks.0.entry(name).or_default().push(stock.now);
                    }
                }
            }
            stock.settle();
            // A forgotten seed counts from its next fork on.
            forks
                .0
                .retain(|name, _| *name == BASE || stock.shelves.has(name));
            check(&stock, &forks, &names);
        }
    }
}
