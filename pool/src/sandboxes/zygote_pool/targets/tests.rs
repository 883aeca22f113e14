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

/// The targets, and zygotes that follow their actions.
struct SimulatedPool {
    targets: SpecialisationTargets<Name>,
    ready: Vec<Option<Name>>,
    wanted: usize,
    now: Instant,
    ended: usize,
}

impl SimulatedPool {
    fn new(wanted: usize) -> Self {
        let now = Instant::now();
        let mut targets = SpecialisationTargets::default();
        targets.set_base(BASE, now);
        let mut pool = Self {
            targets,
            ready: vec![None; wanted],
            wanted,
            now,
            ended: 0,
        };
        pool.settle();
        pool
    }

    /// Performs actions until there are none.
    fn settle(&mut self) {
        let most = 8 * (self.wanted + self.ready.len()) + 8;
        for _ in 0..most {
            let images: Vec<Option<&Name>> = self.ready.iter().map(Option::as_ref).collect();
            match self.targets.next(self.wanted, &images, self.now) {
                PoolAction::End(place) => {
                    self.ready.remove(place);
                    self.ended += 1;
                }
                PoolAction::Specialise(place, name) => {
                    assert_eq!(self.ready.remove(place), None);
                    self.ready.push(Some(name));
                }
                PoolAction::Make(name) => {
                    assert!(self.ready.len() < self.wanted);
                    self.ready.push(name);
                }
                PoolAction::Idle => return,
            }
        }
        panic!("it never rests: {:?} {:?}", self.ready, self.targets);
    }

    fn record_fork(&mut self, name: Name) {
        self.targets.record_fork(&name, is_shared(name), self.now);
    }

    /// A child of `name` is forked in a zygote that is specialised for it, or in the base's.
    fn fork(&mut self, name: Name) -> Option<Name> {
        self.record_fork(name);
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
fn a_single_parent_gets_all_zygotes_and_none_is_ended() {
    let mut pool = SimulatedPool::new(4);
    for round in 0..100 {
        assert_eq!(pool.ready, [Some(BASE); 4], "{round}");
        assert_eq!(pool.fork(BASE), Some(BASE));
        pool.now += Duration::from_millis(round * round);
    }
    pool.wanted = 9;
    pool.settle();
    assert_eq!((pool.count(BASE), pool.ended), (9, 0));
    pool.wanted = 4;
    pool.settle();
    assert_eq!((pool.count(BASE), pool.ended), (4, 5));
}

#[test]
fn zygotes_are_generic_until_there_is_a_base() {
    let mut pool = SimulatedPool::new(0);
    pool.targets = SpecialisationTargets::default();
    pool.wanted = 3;
    pool.settle();
    assert_eq!(pool.ready, [None; 3]);
    pool.targets.set_base(BASE, pool.now);
    pool.settle();
    assert_eq!((pool.count(BASE), pool.ended), (3, 0));
    // Zygotes that cannot be specialised stay generic.
    for _ in 0..FAILURES_MAX {
        pool.targets.record_specialisation(&BASE, false);
        pool.targets.record_specialisation(&BASE, true);
    }
    pool.ready.clear();
    pool.settle();
    assert_eq!(pool.count(BASE), 3, "it was not in a row");
    for _ in 0..FAILURES_MAX {
        pool.targets.record_specialisation(&BASE, true);
    }
    pool.ready.clear();
    pool.settle();
    assert_eq!(pool.ready, [None; 3]);
}

#[test]
fn zygotes_are_divided_by_fork_rate() {
    let mut pool = SimulatedPool::new(12);
    for _ in 0..100 {
        for name in [2, 2, 2, 4] {
            pool.fork(name);
        }
    }
    // The base keeps its part. Of the other nine, three of four are for the seed that had three of
    // four forks, as far as it is worth ending any for that.
    assert_eq!(pool.count(BASE), 3);
    let (many, few) = (pool.count(2), pool.count(4));
    assert!(many + few == 9 && (5..=7).contains(&many), "{many} {few}");
    // Habits change, and slowly so do the zygotes.
    for _ in 0..1000 {
        pool.fork(4);
        pool.now += HALF_LIFE / 100;
    }
    assert_eq!((pool.count(2), pool.count(BASE)), (0, 3));
}

#[test]
fn unused_parents_lose_their_zygotes() {
    let mut pool = SimulatedPool::new(8);
    for _ in 0..32 {
        pool.fork(2);
        pool.fork(3);
    }
    assert!(pool.count(2) > 0 && pool.count(3) > 0);
    // After six half-lives, 32 forks count half as much as one.
    pool.now += HALF_LIFE * 7;
    pool.settle();
    assert_eq!(pool.ready, [Some(BASE); 8]);
    assert!(!pool.targets.has(&2) && !pool.targets.has(&3));
}

#[test]
fn zygotes_of_an_evicted_parent_are_ended() {
    let mut pool = SimulatedPool::new(8);
    for _ in 0..9 {
        pool.fork(2);
    }
    assert!(pool.count(2) > 0);
    pool.targets.forget(|name| *name == 2);
    pool.settle();
    assert_eq!(pool.ready, [Some(BASE); 8]);
}

#[test]
fn own_seeds_get_at_most_half_of_the_zygotes() {
    let mut pool = SimulatedPool::new(8);
    for _ in 0..1000 {
        pool.fork(3);
        pool.fork(5);
    }
    assert_eq!(pool.count(3) + pool.count(5), 4);
    pool.wanted = 2;
    pool.settle();
    assert_eq!((pool.count(3) + pool.count(5), pool.count(BASE)), (1, 1));
    pool.wanted = 1;
    pool.settle();
    assert_eq!(pool.ready, [Some(BASE)]);
}

#[test]
fn the_least_used_target_is_removed_at_the_maximum() {
    let mut pool = SimulatedPool::new(8);
    for round in 0..50 {
        pool.record_fork(2);
        pool.record_fork(2);
        for other in 0..TARGETS_MAX as u32 {
            pool.record_fork(100 + 40 * round + other);
        }
        assert!(pool.targets.all.len() <= TARGETS_MAX);
    }
    assert!(pool.targets.has(&BASE) && pool.targets.has(&2));
    pool.settle();
    assert!(pool.count(2) > 0);
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
fn check(pool: &SimulatedPool, forks: &Forks, names: &[Name]) {
    assert_eq!(pool.ready.len(), pool.wanted);
    let own = names.iter().filter(|name| !is_shared(**name));
    let own: usize = own.map(|name| pool.count(*name)).sum();
    assert!(own <= pool.wanted / 2, "{own} of {}", pool.wanted);
    assert!(pool.count(BASE) >= pool.wanted.div_ceil(4));
    let listed: usize = names.iter().map(|name| pool.count(*name)).sum();
    assert_eq!(listed, pool.wanted, "{:?}", pool.ready);
    for name in names {
        let (rate, count) = (forks.rate(*name, pool.now), pool.count(*name));
        let is_faint = *name != BASE && rate < RATE_MIN * 0.999;
        assert!(!is_faint || count == 0, "{name} has {count} at {rate}");
        // No target would gain more than twice what this one would lose.
        let spare = pool.wanted.div_ceil(4) < count || *name != BASE;
        if count == 0 || !spare {
            continue;
        }
        let base = |name| if name == BASE { BASE_RATE } else { 0.0 };
        let here = (rate + base(*name)) / count as f64;
        for to in names.iter().filter(|to| *to != name) {
            let may = is_shared(*to) || own < pool.wanted / 2 || !is_shared(*name);
            let other = forks.rate(*to, pool.now) + base(*to);
            let there = other / (pool.count(*to) as f64 + 1.0);
            let is_tracked = pool.targets.has(to);
            assert!(
                !may || !is_tracked || there <= WORTH_ENDING * here * 1.001,
                "{to} at {other} has {}, {name} at {rate} has {count}",
                pool.count(*to),
            );
        }
    }
}

#[test]
fn random_forks_keep_the_bounds_and_the_most_valuable_division() {
    let mut random = random::seeded("shelves");
    for _ in 0..40 {
        let mut pool = SimulatedPool::new(1 + random.usize(..12));
        let names: Vec<Name> = (0..2 + random.usize(..8) as Name).collect();
        let mut forks = Forks::default();
        forks.0.insert(BASE, vec![pool.now]);
        for _ in 0..150 {
            match random.usize(..12) {
                0 => pool.wanted = random.usize(..40),
                1 => pool.now += HALF_LIFE.mul_f64(random.usize(..100) as f64 / 20.0),
                2 => {
                    let gone = names[1 + random.usize(..names.len() - 1)];
                    pool.targets.forget(|name| *name == gone);
                    forks.0.remove(&gone);
                    pool.settle();
                    assert_eq!(pool.count(gone), 0);
                }
                // A zygote has ended by itself.
                3 if !pool.ready.is_empty() => {
                    let place = random.usize(..pool.ready.len());
                    pool.ready.remove(place);
                }
                _ => {
                    // The first seeds are the more popular.
                    let most = 1 + random.usize(..names.len());
                    let name = names[random.usize(..most)];
                    for _ in 0..1 + random.usize(..6) {
                        let taken = pool.fork(name);
                        assert!(taken.is_none_or(|taken| taken == name || taken == BASE));
                        forks.0.entry(name).or_default().push(pool.now);
                    }
                }
            }
            pool.settle();
            // A forgotten seed counts from its next fork on.
            forks
                .0
                .retain(|name, _| *name == BASE || pool.targets.has(name));
            check(&pool, &forks, &names);
        }
    }
}
