//! Decides for which seeds zygotes are specialised (preset), and which seed gets the next one.
//!
//! A seed that others are forked from has a shelf from the first fork of a child on, and keeps it
//! while that happens often enough ([`UseRate`]). The total number of zygotes is not decided here
//! ([`super::watermarks`]). Each goes to the shelf where one more is worth most: the worth is the
//! shelf's rate divided by the number of zygotes that it would have then. A zygote of another shelf
//! is ended for that only if it is worth more than twice as much there, so that zygotes are made
//! and ended for a change of habits and not by chance.
//!
//! Two bounds hold whatever the rates are. A quarter of the zygotes are for the *base*, from which
//! all functions descend: these can serve any function, though with more steps than a nearer
//! seed's. And no more than half are for seeds that have run a function's code, which serve that
//! function alone, so that one function's requests do not take all zygotes.
//!
//! Nothing here waits, reads a clock or holds a sandbox: [`Shelves::next`] receives the zygotes
//! that exist, and returns one action.

#[cfg(test)]
mod tests;

use std::time::Instant;

use faasw_seedtree::UseRate;

/// The maximum number of seeds with a shelf; the least used one loses its shelf first.
const SHELVES_MAX: usize = 32;
/// A shelf with a lower rate is removed.
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
/// How many times as much a zygote has to be worth on another shelf to be ended for it.
const WORTH_ENDING: f64 = 2.0;

/// The next action on the zygotes that are ready.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<P> {
    /// End the zygote at this place.
    End(usize),
    /// Specialise the generic zygote at this place for this seed.
    Preset(usize, P),
    /// Make a zygote, specialised for this seed if there is one.
    Make(Option<P>),
    /// Nothing is to be done.
    Rest,
}

/// The shelves of a stock. `P` names a seed.
#[derive(Debug)]
pub struct Shelves<P> {
    /// The first one is the base's, once there is a base.
    all: Vec<Shelf<P>>,
}

#[derive(Debug)]
struct Shelf<P> {
    parent: P,
    is_base: bool,
    is_shared: bool,
    /// The rate of forks of its children.
    rate: UseRate,
    /// How often specialising for it has failed in a row.
    failures: u32,
}

impl<P> Shelf<P> {
    fn new(parent: P, is_base: bool, is_shared: bool, now: Instant) -> Self {
        Self {
            parent,
            is_base,
            is_shared,
            rate: UseRate::once(now),
            failures: 0,
        }
    }

    fn is_given_up(&self) -> bool {
        self.failures >= FAILURES_MAX
    }
}

/// A shelf with its present numbers.
struct Held<'a, P> {
    shelf: &'a Shelf<P>,
    count: usize,
    rate: f64,
    /// The minimum number of its zygotes.
    floor: usize,
}

impl<P> Held<'_, P> {
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

impl<P> Default for Shelves<P> {
    fn default() -> Self {
        Self { all: Vec::new() }
    }
}

impl<P: Clone + PartialEq> Shelves<P> {
    /// Sets `parent` as the base, from which functions descend from now on. It has run no tenant's
    /// code.
    pub fn set_base(&mut self, parent: P, now: Instant) {
        self.all
            .retain(|shelf| !shelf.is_base && shelf.parent != parent);
        self.all.insert(0, Shelf::new(parent, true, true, now));
    }

    /// Records that a child of `parent` is forked. If not `is_shared`, `parent` has run a
    /// function's code.
    pub fn note(&mut self, parent: &P, is_shared: bool, now: Instant) {
        if let Some(shelf) = self.all.iter_mut().find(|shelf| shelf.parent == *parent) {
            return shelf.rate.add(now);
        }
        if self.all.len() >= SHELVES_MAX {
            let rates = self.all.iter().map(|shelf| (shelf, shelf.rate.at(now)));
            let places = rates
                .enumerate()
                .filter(|(_, (shelf, _))| !shelf.is_base)
                .min_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other));
            if let Some(place) = places.map(|(place, _)| place) {
                self.all.remove(place);
            }
        }
        self.all
            .push(Shelf::new(parent.clone(), false, is_shared, now));
    }

    /// Records that a zygote was specialised for `parent`, or that this failed. Returns whether the
    /// pool stops specialising for `parent` now, because it failed too often in a row.
    pub fn note_preset(&mut self, parent: &P, has_failed: bool) -> bool {
        let Some(shelf) = self.all.iter_mut().find(|shelf| shelf.parent == *parent) else {
            return false;
        };
        shelf.failures = if has_failed {
            shelf.failures.saturating_add(1)
        } else {
            0
        };
        shelf.is_given_up()
    }

    /// Removes the shelves of seeds that are no longer in memory.
    pub fn forget(&mut self, is_gone: impl Fn(&P) -> bool) {
        self.all.retain(|shelf| !is_gone(&shelf.parent));
    }

    /// Returns whether there is a shelf for `parent`.
    pub fn has(&self, parent: &P) -> bool {
        self.all.iter().any(|shelf| shelf.parent == *parent)
    }

    /// Returns whether the worth of any of these zygotes falls by time alone, as that of all but
    /// the base's does.
    pub fn fade(&self, ready: &[Option<&P>]) -> bool {
        let others = self.all.iter().filter(|shelf| !shelf.is_base);
        let mut others = others.map(|shelf| &shelf.parent);
        others.any(|parent| ready.contains(&Some(parent)))
    }

    /// Returns the next action so that `wanted` zygotes are ready on the right shelves. `ready` are
    /// the existing ones, oldest first, by the seed that they are specialised for. After the action
    /// it has to be called again.
    pub fn next(&mut self, wanted: usize, ready: &[Option<&P>], now: Instant) -> Step<P> {
        self.all
            .retain(|shelf| shelf.is_base || shelf.rate.at(now) >= RATE_MIN);
        let is_without_shelf = |image: &Option<&P>| image.is_some_and(|image| !self.has(image));
        if let Some(place) = ready.iter().position(is_without_shelf) {
            return Step::End(place);
        }
        let held = self.held(wanted, ready, now);
        let oldest = |held: &Held<'_, P>| {
            let image = Some(&held.shelf.parent);
            ready.iter().position(|ready| *ready == image)
        };
        let bare = ready.iter().position(Option::is_none);
        let own = held.iter().filter(|held| !held.shelf.is_shared);
        let own = own.map(|held| held.count).sum::<usize>();
        let own_most = wanted / OWN_PART;

        if ready.len() > wanted || own > own_most {
            if let Some(place) = bare.filter(|_| own <= own_most) {
                return Step::End(place);
            }
            let least = least(&held, |held| own <= own_most || !held.shelf.is_shared);
            if let Some(place) = least.and_then(oldest) {
                return Step::End(place);
            }
        }
        if ready.len() < wanted {
            let most = most(&held, |held| held.shelf.is_shared || own < own_most);
            return Step::Make(most.map(|held| held.shelf.parent.clone()));
        }
        if let Some(place) = bare
            && let Some(most) = most(&held, |held| held.shelf.is_shared || own < own_most)
        {
            return Step::Preset(place, most.shelf.parent.clone());
        }
        // If functions' own seeds are at their bound, another of them can only grow at their
        // expense.
        let giver = |to: &Held<'_, P>| {
            let from = least(&held, |from| {
                to.shelf.is_shared || own < own_most || !from.shelf.is_shared
            })?;
            (to.gain() > WORTH_ENDING * from.loss()).then_some(from)
        };
        let mut givers = held
            .iter()
            .filter(|to| !to.shelf.is_given_up())
            .filter_map(giver);
        match givers.next().and_then(oldest) {
            Some(place) => Step::End(place),
            None => Step::Rest,
        }
    }

    fn held(&self, wanted: usize, ready: &[Option<&P>], now: Instant) -> Vec<Held<'_, P>> {
        let held = self.all.iter().map(|shelf| {
            let is_its = |image: &&Option<&P>| **image == Some(&shelf.parent);
            let (more, floor) = if shelf.is_base {
                (BASE_RATE, wanted.div_ceil(BASE_PART))
            } else {
                (0.0, 0)
            };
            Held {
                shelf,
                count: ready.iter().filter(is_its).count(),
                rate: shelf.rate.at(now) + more,
                floor,
            }
        });
        held.collect()
    }
}

/// Returns the shelf where one more is worth most, the first of several.
fn most<'a, P>(
    held: &'a [Held<'a, P>],
    suits: impl Fn(&Held<'_, P>) -> bool,
) -> Option<&'a Held<'a, P>> {
    let held = held.iter().filter(|held| !held.shelf.is_given_up());
    held.filter(|held| suits(held))
        .min_by(|one, other| other.gain().total_cmp(&one.gain()))
}

/// Returns the shelf with any zygotes where one is worth least.
fn least<'a, P>(
    held: &'a [Held<'a, P>],
    suits: impl Fn(&Held<'_, P>) -> bool,
) -> Option<&'a Held<'a, P>> {
    let held = held.iter().filter(|held| held.count > 0 && suits(held));
    held.min_by(|one, other| one.loss().total_cmp(&other.loss()))
}
