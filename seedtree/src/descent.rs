//! How far a snapshot is below another, and what forking it takes in a sandbox that is an
//! image of that one.

use std::borrow::Cow;
use std::num::NonZeroU32;

use crate::comparison::{ACTIVATION, FILLED_PAGES};
use crate::difference::Difference;
use crate::layer::Layer;
use crate::limits::{FILLED_MAX, MAPPED_MAX};
use crate::snapshot::Snapshot;

impl<S> Snapshot<S> {
    /// How many steps it is below the snapshot at this address, which only says which one it
    /// is; 0 if it is that one itself, nothing if it does not descend from it.
    #[must_use]
    pub fn steps_below(&self, ancestor: *const Self) -> Option<usize> {
        self.line().position(|at| std::ptr::eq(at, ancestor))
    }

    /// The layers that a sandbox has not which is an image of the ancestor `steps` above.
    #[must_use]
    pub fn layers_below(&self, steps: usize) -> Vec<&Layer> {
        let mut layers: Vec<&Layer> = self.line().take(steps).map(Self::layer).collect();
        layers.reverse();
        layers
    }

    /// Where it differs from the ancestor `steps` above.
    ///
    /// A page that differs from there differs in one of the steps; what is copied or mapped
    /// of it is what it has last, so once in either is enough. Where the copies of several
    /// steps are more than a fork may make, all is mapped.
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

    /// Itself, its parent, and so on.
    fn line(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |at| at.parent().map(|parent| &**parent))
    }
}

fn joined(one: Difference, other: &Difference) -> Difference {
    Difference {
        filled: one.filled.union(&other.filled),
        mapped: one.mapped.union(&other.mapped),
        // Each entry that is another one was so from one step to the next.
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

    /// A child of `parent` that wrote a word of each of these pages.
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
    fn what_differs_in_any_step_differs_in_all_of_them() {
        let root = child(None, &[BOOT_PAGE, TABLE_ZONE, DATA, HEAP]);
        let middle = child(Some(&root), &[BOOT_PAGE, TABLE_ZONE, DATA]);
        let deepest = child(Some(&middle), &[BOOT_PAGE, HEAP]);
        assert!(deepest.difference_below(0).mapped.is_empty());
        assert_eq!(*deepest.difference_below(1), *deepest.difference());
        let both = deepest.difference_below(2);
        assert_eq!(both.filled, all(&[BOOT_PAGE, DATA, HEAP]));
        assert_eq!(both.mapped, all(&[TABLE_ZONE]));
        // The middle one has another entry where the root has one.
        assert!(both.forgets_tables && !deepest.difference().forgets_tables);
    }

    #[test]
    fn what_is_too_much_to_copy_at_once_is_mapped() {
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
