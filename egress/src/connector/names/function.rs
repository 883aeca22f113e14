//! State that all workers of a function share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::cache::{CacheLimits, NameCache};

/// How long a server that did not answer comes last.
pub const SILENCE: Duration = Duration::from_secs(30);

/// Most names of a function about which a server's silence is remembered: 128 functions then take
/// about 3 MiB. Beyond that, the entry that expires first is dropped.
const SILENT_NAMES_MAX: usize = 64;

/// A function.
#[derive(Debug)]
pub struct Function {
    /// The number that its permits count for.
    pub number: u64,
    /// The cache of the function.
    pub(super) cache: NameCache,
    /// Servers that did not answer for a name: a bit for each server, and until when it comes last.
    silent: RefCell<HashMap<String, (u32, Instant)>>,
    silences_in_a_row: Cell<u32>,
}

impl Function {
    pub(super) fn new(number: u64, cache: CacheLimits) -> Self {
        Self {
            number,
            cache: NameCache::new(cache),
            silent: RefCell::default(),
            silences_in_a_row: Cell::default(),
        }
    }

    /// Returns how many of the last lookups in a row got no answer at all.
    pub(super) fn silences_in_a_row(&self) -> u32 {
        self.silences_in_a_row.get()
    }

    /// Notes whether a lookup got no answer.
    pub(super) fn note_lookup(&self, is_silent: bool) {
        let silences = if is_silent {
            self.silences_in_a_row.get().saturating_add(1)
        } else {
            0
        };
        self.silences_in_a_row.set(silences);
    }

    /// Returns whether a server, by its place, was silent about a name a moment ago.
    pub(super) fn is_silent(&self, name: &str, server: usize) -> bool {
        let silent = self.silent.borrow();
        let bits = silent
            .get(name)
            .filter(|(_, until)| *until > Instant::now());
        bits.is_some_and(|(bits, _)| bits & bit(server) != 0)
    }

    /// Notes whether a server, by its place, was silent about a name.
    pub(super) fn note_server(&self, name: &str, server: usize, is_silent: bool) {
        let now = Instant::now();
        let mut silent = self.silent.borrow_mut();
        if let Some((bits, until)) = silent.get_mut(name) {
            if *until <= now {
                *bits = 0;
            }
            *bits &= !bit(server);
            if is_silent {
                *bits |= bit(server);
                *until = now + SILENCE;
            }
            if *bits == 0 {
                silent.remove(name);
            }
            return;
        }
        if !is_silent {
            return;
        }
        if silent.len() >= SILENT_NAMES_MAX {
            let first = silent.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(first) = first.map(|(name, _)| name.clone()) {
                silent.remove(&first);
            }
        }
        silent.insert(name.to_owned(), (bit(server), now + SILENCE));
    }

    /// Forgets all answers and silences: they may be another network's.
    pub(super) fn forget(&self) {
        self.cache.clear();
        self.silent.borrow_mut().clear();
        self.silences_in_a_row.set(0);
    }
}

/// Returns the bit of a server, of which there are eight at most.
fn bit(server: usize) -> u32 {
    u32::try_from(server)
        .ok()
        .and_then(|server| 1_u32.checked_shl(server))
        .unwrap_or(0)
}
