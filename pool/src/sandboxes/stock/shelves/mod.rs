//! Which seeds sandboxes are preset for, and which of them gets the next one.
//!
//! A seed that others are forked from has a shelf from the first fork of a child on, and
//! keeps it while that happens often enough ([`UseRate`]). How many sandboxes there are in all
//! is not decided here ([`super::watermarks`]); they go where one more is worth most: a
//! shelf's rate, shared among the sandboxes that it would have then. One that stands elsewhere
//! is ended for that only if the other place is worth twice as much, so that sandboxes are made
//! and ended for a change of habits and not for chance.
//!
//! Two bounds are kept whatever the rates are. A quarter of the sandboxes are for the *base*,
//! which all functions descend from: these serve whoever comes, if by a longer way than a
//! nearer seed's. And no more than half are for seeds that have run a function's code, which
//! serve that function alone: what one function's requests do is not to take everybody's.
//!
//! Nothing here waits, looks at a clock or has a sandbox: [`Shelves::next`] is told which there
//! are, and says one thing to do.

#[cfg(test)]
mod tests;

use std::time::Instant;

use faasw_seedtree::UseRate;

/// Most seeds that have a shelf; of more those that are used most.
const SHELVES_MAX: usize = 32;
/// A shelf of a lower rate is given up.
const RATE_MIN: f64 = 0.5;
/// What the base has above its rate: whoever comes first descends from it.
const BASE_RATE: f64 = 1.0;
/// How often presetting may fail in a row before it is given up: a system that is short of
/// something recovers.
const FAILURES_MAX: u32 = 5;
/// Which part of all sandboxes the base has at least.
const BASE_PART: usize = 4;
/// Which part of all sandboxes functions' own seeds have at most.
const OWN_PART: usize = 2;
/// How many times as much a sandbox has to be worth in another place to be ended for it.
const WORTH_ENDING: f64 = 2.0;

/// What is to be done next to the sandboxes that are ready.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<P> {
    /// The one at this place is to be ended.
    End(usize),
    /// The one at this place is bare, and is to be preset with this.
    Preset(usize, P),
    /// One is to be made, and preset with this if there is anything.
    Make(Option<P>),
    /// All is as it should be.
    Rest,
}

/// The shelves of a stock. `P` names a seed.
#[derive(Debug)]
pub struct Shelves<P> {
    /// The base's is the first, once there is one.
    all: Vec<Shelf<P>>,
}

#[derive(Debug)]
struct Shelf<P> {
    parent: P,
    is_base: bool,
    is_shared: bool,
    /// How often a child was forked.
    rate: UseRate,
    /// How often presetting failed in a row.
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

/// A shelf as it is looked at now.
struct Held<'a, P> {
    shelf: &'a Shelf<P>,
    count: usize,
    rate: f64,
    /// How many sandboxes it has at least.
    floor: usize,
}

impl<P> Held<'_, P> {
    /// What each of its sandboxes is worth when it has one more.
    fn gain(&self) -> f64 {
        if self.count < self.floor {
            f64::INFINITY
        } else {
            self.rate / (self.count as f64 + 1.0)
        }
    }

    /// What each of its sandboxes is worth.
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
    /// Functions descend from `parent`, from now on. It has run nobody's code.
    pub fn set_base(&mut self, parent: P, now: Instant) {
        self.all
            .retain(|shelf| !shelf.is_base && shelf.parent != parent);
        self.all.insert(0, Shelf::new(parent, true, true, now));
    }

    /// A child of `parent` is forked. Unless that `is_shared` it has run a function's code.
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

    /// A sandbox was preset with `parent`, or that failed; whether it is given up now, which
    /// it is when it fails too often in a row.
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

    /// These seeds are not in memory any more.
    pub fn forget(&mut self, is_gone: impl Fn(&P) -> bool) {
        self.all.retain(|shelf| !is_gone(&shelf.parent));
    }

    /// Whether there is a shelf for `parent`.
    pub fn has(&self, parent: &P) -> bool {
        self.all.iter().any(|shelf| shelf.parent == *parent)
    }

    /// Whether any of these sandboxes is worth less by time alone: any but the base's.
    pub fn fade(&self, ready: &[Option<&P>]) -> bool {
        let others = self.all.iter().filter(|shelf| !shelf.is_base);
        let mut others = others.map(|shelf| &shelf.parent);
        others.any(|parent| ready.contains(&Some(parent)))
    }

    /// What to do next so that `wanted` sandboxes are ready, where they should be; `ready` are
    /// those that there are, oldest first, by what they are preset with. When that is done
    /// it is to be asked again.
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
        // Whatever takes a function's own over their bound takes from them.
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

/// The shelf where one more is worth most, the first of several.
fn most<'a, P>(
    held: &'a [Held<'a, P>],
    suits: impl Fn(&Held<'_, P>) -> bool,
) -> Option<&'a Held<'a, P>> {
    let held = held.iter().filter(|held| !held.shelf.is_given_up());
    held.filter(|held| suits(held))
        .min_by(|one, other| other.gain().total_cmp(&one.gain()))
}

/// The shelf with any where one is worth least.
fn least<'a, P>(
    held: &'a [Held<'a, P>],
    suits: impl Fn(&Held<'_, P>) -> bool,
) -> Option<&'a Held<'a, P>> {
    let held = held.iter().filter(|held| held.count > 0 && suits(held));
    held.min_by(|one, other| one.loss().total_cmp(&other.loss()))
}
