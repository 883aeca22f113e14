//! Decides for which seeds zygotes are specialised, and which seed gets the next one.
//!
//! A seed that others are forked from is a target from the first fork of a child on, and stays one
//! while that happens often enough ([`UseRate`]). The total number of zygotes is not decided here
//! ([`super::watermarks`]). Each goes to the target where one more is worth most: the worth is the
//! target's rate divided by the number of zygotes that it would have then. A zygote of another
//! target is ended for that only if it is worth more than twice as much there, so that zygotes are
//! made and ended for a change of habits and not by chance.
//!
//! Two bounds hold whatever the rates are. A quarter of the zygotes are for the *base*, from which
//! all functions descend: these can serve any function, though with more steps than a nearer
//! seed's. And no more than half are for seeds that have run a function's code, which serve that
//! function alone, so that one function's requests do not take all zygotes.
//!
//! Nothing here waits, reads a clock or holds a sandbox: [`SpecialisationTargets::next`] receives
//! the zygotes that exist, and returns one action.

#[cfg(test)]
mod tests;

use std::time::Instant;

use faasw_seedtree::UseRate;

/// The maximum number of targets; the least used one is removed first.
const TARGETS_MAX: usize = 32;
/// A target with a lower rate is removed.
const RATE_MIN: f64 = 0.5;
/// Added to the rate of the base, because the first request of any function descends from it.
const BASE_RATE: f64 = 1.0;
/// Failures in a row after which the pool stops specialising for a parent. Fewer do not suffice: a
/// host that is short of a resource may recover.
const FAILURES_MAX: u32 = 5;
/// The base has at least this part of all zygotes.
const BASE_PART: usize = 4;
/// Functions' own seeds have at most this part of all zygotes.
const OWN_PART: usize = 2;
/// How many times as much a zygote has to be worth for another target to be ended for it.
const WORTH_ENDING: f64 = 2.0;

/// The next action on the zygotes that are ready.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolAction<P> {
    /// End the zygote at this place.
    End(usize),
    /// Specialise the generic zygote at this place for this seed.
    Specialise(usize, P),
    /// Make a zygote, specialised for this seed if there is one.
    Make(Option<P>),
    /// Nothing is to be done.
    Idle,
}

/// The seeds for which zygotes are specialised. `P` names a seed.
#[derive(Debug)]
pub struct SpecialisationTargets<P> {
    /// The first one is the base's, once there is a base.
    all: Vec<SpecialisationTarget<P>>,
}

#[derive(Debug)]
struct SpecialisationTarget<P> {
    parent: P,
    is_base: bool,
    is_shared: bool,
    /// The rate of forks of its children.
    rate: UseRate,
    /// How often specialising for it has failed in a row.
    failures: u32,
}

impl<P> SpecialisationTarget<P> {
    fn new(parent: P, is_base: bool, is_shared: bool, now: Instant) -> Self {
        Self {
            parent,
            is_base,
            is_shared,
            rate: UseRate::once(now),
            failures: 0,
        }
    }

    fn is_abandoned(&self) -> bool {
        self.failures >= FAILURES_MAX
    }
}

/// A target with its present numbers.
struct TargetLoad<'a, P> {
    target: &'a SpecialisationTarget<P>,
    count: usize,
    rate: f64,
    /// The minimum number of its zygotes.
    floor: usize,
}

impl<P> TargetLoad<'_, P> {
    /// Returns the worth of each of its zygotes if it had one more.
    fn gain(&self) -> f64 {
        if self.count < self.floor {
            f64::INFINITY
        } else {
            self.rate / (self.count as f64 + 1.0)
        }
    }

    /// Returns the worth of each of its zygotes.
    fn loss(&self) -> f64 {
        if self.count <= self.floor {
            f64::INFINITY
        } else {
            self.rate / self.count as f64
        }
    }
}

impl<P> Default for SpecialisationTargets<P> {
    fn default() -> Self {
        Self { all: Vec::new() }
    }
}

impl<P: Clone + PartialEq> SpecialisationTargets<P> {
    /// Sets `parent` as the base, from which functions descend from now on. It has run no tenant's
    /// code.
    pub fn set_base(&mut self, parent: P, now: Instant) {
        self.all
            .retain(|target| !target.is_base && target.parent != parent);
        self.all
            .insert(0, SpecialisationTarget::new(parent, true, true, now));
    }

    /// Records that a child of `parent` is forked. If not `is_shared`, `parent` has run a
    /// function's code.
    pub fn record_fork(&mut self, parent: &P, is_shared: bool, now: Instant) {
        if let Some(target) = self.all.iter_mut().find(|target| target.parent == *parent) {
            return target.rate.add(now);
        }
        if self.all.len() >= TARGETS_MAX {
            let rates = self.all.iter().map(|target| (target, target.rate.at(now)));
            let indexed = rates
                .enumerate()
                .filter(|(_, (target, _))| !target.is_base)
                .min_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other));
            if let Some(index) = indexed.map(|(index, _)| index) {
                self.all.remove(index);
            }
        }
        self.all.push(SpecialisationTarget::new(
            parent.clone(),
            false,
            is_shared,
            now,
        ));
    }

    /// Records that a zygote was specialised for `parent`, or that this failed. Returns whether the
    /// pool stops specialising for `parent` now, because it failed too often in a row.
    pub fn record_specialisation(&mut self, parent: &P, has_failed: bool) -> bool {
        let Some(target) = self.all.iter_mut().find(|target| target.parent == *parent) else {
            return false;
        };
        target.failures = if has_failed {
            target.failures.saturating_add(1)
        } else {
            0
        };
        target.is_abandoned()
    }

    /// Removes the targets that are no longer in memory.
    pub fn forget(&mut self, is_gone: impl Fn(&P) -> bool) {
        self.all.retain(|target| !is_gone(&target.parent));
    }

    /// Returns whether `parent` is a target.
    pub fn has(&self, parent: &P) -> bool {
        self.all.iter().any(|target| target.parent == *parent)
    }

    /// Returns whether the worth of any of these zygotes falls by time alone, as that of all but
    /// the base's does.
    pub fn has_fading_worth(&self, ready: &[Option<&P>]) -> bool {
        let others = self.all.iter().filter(|target| !target.is_base);
        let mut others = others.map(|target| &target.parent);
        others.any(|parent| ready.contains(&Some(parent)))
    }

    /// Returns the next action so that `wanted` zygotes are ready for the right targets. `ready`
    /// are the existing ones, oldest first, by the seed that they are specialised for. After the
    /// action it has to be called again.
    pub fn next(&mut self, wanted: usize, ready: &[Option<&P>], now: Instant) -> PoolAction<P> {
        self.all
            .retain(|target| target.is_base || target.rate.at(now) >= RATE_MIN);
        let is_without_target = |image: &Option<&P>| image.is_some_and(|image| !self.has(image));
        if let Some(index) = ready.iter().position(is_without_target) {
            return PoolAction::End(index);
        }
        let loads = self.loads(wanted, ready, now);
        let oldest = |load: &TargetLoad<'_, P>| {
            let image = Some(&load.target.parent);
            ready.iter().position(|ready| *ready == image)
        };
        let bare = ready.iter().position(Option::is_none);
        let own = loads.iter().filter(|load| !load.target.is_shared);
        let own = own.map(|load| load.count).sum::<usize>();
        let own_most = wanted / OWN_PART;

        if ready.len() > wanted || own > own_most {
            if let Some(index) = bare.filter(|_| own <= own_most) {
                return PoolAction::End(index);
            }
            let least = least(&loads, |load| own <= own_most || !load.target.is_shared);
            if let Some(index) = least.and_then(oldest) {
                return PoolAction::End(index);
            }
        }
        if ready.len() < wanted {
            let most = most(&loads, |load| load.target.is_shared || own < own_most);
            return PoolAction::Make(most.map(|load| load.target.parent.clone()));
        }
        if let Some(index) = bare
            && let Some(most) = most(&loads, |load| load.target.is_shared || own < own_most)
        {
            return PoolAction::Specialise(index, most.target.parent.clone());
        }
        // If functions' own seeds are at their bound, another of them can only grow at their
        // expense.
        let giver = |to: &TargetLoad<'_, P>| {
            let from = least(&loads, |from| {
                to.target.is_shared || own < own_most || !from.target.is_shared
            })?;
            (to.gain() > WORTH_ENDING * from.loss()).then_some(from)
        };
        let mut givers = loads
            .iter()
            .filter(|to| !to.target.is_abandoned())
            .filter_map(giver);
        match givers.next().and_then(oldest) {
            Some(index) => PoolAction::End(index),
            None => PoolAction::Idle,
        }
    }

    fn loads(&self, wanted: usize, ready: &[Option<&P>], now: Instant) -> Vec<TargetLoad<'_, P>> {
        let loads = self.all.iter().map(|target| {
            let is_its = |image: &&Option<&P>| **image == Some(&target.parent);
            let (more, floor) = if target.is_base {
                (BASE_RATE, wanted.div_ceil(BASE_PART))
            } else {
                (0.0, 0)
            };
            TargetLoad {
                target,
                count: ready.iter().filter(is_its).count(),
                rate: target.rate.at(now) + more,
                floor,
            }
        });
        loads.collect()
    }
}

/// Returns the target for which one more is worth most, the first of several.
fn most<'a, P>(
    loads: &'a [TargetLoad<'a, P>],
    suits: impl Fn(&TargetLoad<'_, P>) -> bool,
) -> Option<&'a TargetLoad<'a, P>> {
    let loads = loads.iter().filter(|load| !load.target.is_abandoned());
    loads
        .filter(|load| suits(load))
        .min_by(|one, other| other.gain().total_cmp(&one.gain()))
}

/// Returns the target with any zygotes for which one is worth least.
fn least<'a, P>(
    loads: &'a [TargetLoad<'a, P>],
    suits: impl Fn(&TargetLoad<'_, P>) -> bool,
) -> Option<&'a TargetLoad<'a, P>> {
    let loads = loads.iter().filter(|load| load.count > 0 && suits(load));
    loads.min_by(|one, other| one.loss().total_cmp(&other.loss()))
}
