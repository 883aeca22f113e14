//! Distance of a snapshot from an ancestor, and the changes that turn a sandbox that is an image of
//! the ancestor into one of the snapshot.

use std::borrow::Cow;
use std::num::NonZeroU32;

use crate::comparison::{ACTIVATION, FILLED_PAGES};
use crate::difference::Difference;
use crate::layer::Layer;
use crate::limits::{FILLED_MAX, MAPPED_MAX};
use crate::snapshot::Snapshot;

impl<S> Snapshot<S> {
    /// Returns how many steps the snapshot is below the one at this address, which serves as an
    /// identity only. Returns 0 for the snapshot itself, and `None` for a snapshot that is no
    /// ancestor.
    #[must_use]
    pub fn steps_below(&self, ancestor: *const Self) -> Option<usize> {
        self.line().position(|at| std::ptr::eq(at, ancestor))
    }

    /// Returns the layers that are missing in a sandbox that is an image of the ancestor `steps`
    /// above.
    #[must_use]
    pub fn layers_below(&self, steps: usize) -> Vec<&Layer> {
        let mut layers: Vec<&Layer> = self.line().take(steps).map(Self::layer).collect();
        layers.reverse();
        layers
    }

    /// Returns the difference from the ancestor `steps` above.
    ///
    /// A page that differs from the ancestor's differs in at least one of the steps. Its last
    /// content is what is copied or mapped, so once in either set is enough. If the copies of
    /// several steps together exceed the limit of a fork, all is mapped.
    #[must_use]
    pub fn difference_below(&self, steps: usize) -> Cow<'_, Difference> {
        match steps {
            0 => Cow::Owned(Difference::default()),
            1 => Cow::Borrowed(self.difference()),
            _ => {
                let steps = self.line().take(steps).map(Self::difference);
                Cow::Owned(bounded(steps.fold(Difference::default(), joined)))
            }
        }
    }
}

fn joined(one: Difference, other: &Difference) -> Difference {
    Difference {
        filled: one.filled.union(&other.filled),
        mapped: one.mapped.union(&other.mapped),
        // Each changed entry was changed by one of the steps.
        forgets_tables: one.forgets_tables || other.forgets_tables,
        private: one.private.union(&other.private),
        compared: one.compared.saturating_add(other.compared),
    }
}

fn bounded(all: Difference) -> Difference {
    let Difference {
        mut filled,
        mut mapped,
        ..
    } = all;
    if filled.ranges().len() > FILLED_MAX || filled.count() > FILLED_PAGES {
        let activation = ACTIVATION.into();
        mapped = mapped.union(&filled.without(&activation));
        filled = filled.intersection(&activation);
    }
    Difference {
        filled,
        mapped: mapped.coalesced(NonZeroU32::MIN, MAPPED_MAX),
        ..all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use faasw_abi::memory_map::{BOOT_PAGE, DATA, HEAP, PAGE, TABLE_ZONE};
    use faasw_abi::pages::{PageRange, PageSet};

    use super::*;
    use crate::layer::LayerBuilder;

    type Node = Arc<Snapshot<()>>;

    /// Returns a child of `parent` that wrote a word of each of these pages.
    fn child(parent: Option<&Node>, pages: &[u64]) -> Node {
        let builder = LayerBuilder::new("test", 64 << 20).unwrap();
        let depth = parent.map_or(1, |parent| u64::from(parent.depth()) + 2);
        for address in pages {
            builder.write(*address, &depth.to_le_bytes()).unwrap();
        }
        let own = pages.iter().map(|address| page(*address)).collect();
        let layer = builder.freeze_at(own).unwrap();
        Arc::new(Snapshot::new(parent.cloned(), layer, (), 0).unwrap())
    }

    fn page(address: u64) -> PageRange {
        PageRange::of_bytes(address, address + PAGE)
    }

    fn all(pages: &[u64]) -> PageSet {
        pages.iter().map(|address| page(*address)).collect()
    }

    #[test]
    fn a_snapshot_knows_how_far_it_is_below_another() {
        let root = child(None, &[DATA]);
        let middle = child(Some(&root), &[HEAP]);
        let deepest = child(Some(&middle), &[HEAP + PAGE]);
        let aside = child(Some(&root), &[HEAP]);
        for (steps, ancestor) in [&deepest, &middle, &root].into_iter().enumerate() {
            assert_eq!(deepest.steps_below(Arc::as_ptr(ancestor)), Some(steps));
            let layers = deepest.layers_below(steps);
            assert_eq!(layers.len(), steps);
            assert!(
                layers
                    .last()
                    .is_none_or(|own| std::ptr::eq(*own, deepest.layer()))
            );
        }
        assert_eq!(deepest.steps_below(Arc::as_ptr(&aside)), None);
        assert_eq!(middle.steps_below(Arc::as_ptr(&deepest)), None);
    }

    #[test]
    fn differences_of_single_steps_are_united() {
        let root = child(None, &[BOOT_PAGE, TABLE_ZONE, DATA, HEAP]);
        let middle = child(Some(&root), &[BOOT_PAGE, TABLE_ZONE, DATA]);
        let deepest = child(Some(&middle), &[BOOT_PAGE, HEAP]);
        assert!(deepest.difference_below(0).mapped.is_empty());
        assert_eq!(*deepest.difference_below(1), *deepest.difference());
        let both = deepest.difference_below(2);
        assert_eq!(both.filled, all(&[BOOT_PAGE, DATA, HEAP]));
        assert_eq!(both.mapped, all(&[TABLE_ZONE]));
        // The middle snapshot changes an entry that the root has.
        assert!(both.forgets_tables && !deepest.difference().forgets_tables);
    }

    #[test]
    fn a_difference_too_large_to_copy_is_mapped() {
        let mut seed = child(None, &[BOOT_PAGE]);
        let mut changed = Vec::new();
        let steps = 4;
        for step in 0..steps {
            let places =
                (0..FILLED_MAX as u64 / 2).map(|place| HEAP + (64 * place + 2 * step) * PAGE);
            let mut pages: Vec<u64> = places.collect();
            pages.push(BOOT_PAGE);
            seed = child(Some(&seed), &pages);
            changed.extend(pages);
        }
        let difference = seed.difference_below(steps as usize);
        assert_eq!(difference.filled, all(&[BOOT_PAGE]));
        assert!(difference.mapped.ranges().len() <= MAPPED_MAX);
        let covered = difference.mapped.union(&difference.filled);
        assert!(all(&changed).without(&covered).is_empty());
    }
}
