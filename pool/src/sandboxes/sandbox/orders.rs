//! The orders that make a sandbox an instance.

use faasw_abi::pages::{PageRange, PageSet, Ranges};
use faasw_fri::messages::{Answer, Fork, Image, Origin};
use faasw_seedtree::limits::SET_MAX;
use faasw_seedtree::{Difference, PageSets, Windows};

use crate::ablation::Mechanism;
use crate::error::PlatformError;
use crate::snapshots::{Code, SeedSnapshot};

/// Returns an order to become an instance of `image`, without code and difference. It is boxed
/// because it is large and futures hold it.
pub fn fork_order(origin: Origin, image: Image) -> Box<Fork> {
    Box::new(Fork {
        code_bytes: 0,
        origin,
        image,
        filled: Ranges::default(),
        mapped: Ranges::default(),
        forgets_tables: Answer::No,
        code_set: Ranges::default(),
        reports_addresses: Answer::No,
        has_small_code: Answer::No,
    })
}

/// Returns the image of a seed, with the pages that its instances use.
///
/// # Errors
/// Returns an error if it has more windows than an order can name.
pub fn image(
    frozen: &SeedSnapshot,
    ram_bytes: u64,
    working_set: &PageSets,
) -> Result<Image, PlatformError> {
    let mut image = Image::empty(ram_bytes, frozen.state().vcpu());
    image.windows = Windows::of(frozen.windows()).ok_or_else(too_many)?;
    image.write_set = Ranges::covering(&working_set.written);
    image.read_set = Ranges::covering(&working_set.read);
    Ok(image)
}

/// Returns the working set that a build for measurements fills instead, if it differs.
pub fn replacement_working_set(working_set: &PageSets) -> Option<PageSets> {
    if Mechanism::Prefill.is_off() {
        return Some(PageSets::default());
    }
    let used = || working_set.written.union(&working_set.read);
    Mechanism::SetSplit.is_off().then(|| PageSets {
        written: PageSet::new(),
        // Joining ranges could include missing pages.
        read: used().iter().take(SET_MAX).collect(),
        code: working_set.code.clone(),
        generation: working_set.generation,
    })
}

/// The size of the pages in which code is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodePages {
    /// The pages that its file has.
    AsStored,
    /// Small pages, so that a survey can determine which of them are used.
    Small,
}

/// Returns the pages of code whose second-level page tables are filled in advance. For large pages
/// these are all, because the tables are small. For small pages these are only the used ones, as
/// far as known, because all would count as used in a survey.
pub fn code_set(code: &Code, pages: CodePages, working_set: &PageSets) -> Ranges<SET_MAX> {
    if Mechanism::Prefill.is_off() {
        return Ranges::default();
    }
    let all = PageSet::from(PageRange::around(0, code.mapped_bytes()));
    if code.is_gathered() && pages == CodePages::AsStored {
        Ranges::covering(&all)
    } else {
        // Joining ranges could include missing pages.
        Ranges::of(&working_set.code.intersection(&all)).unwrap_or_default()
    }
}

/// Adds the difference between a seed and the seed that a sandbox is specialised for.
///
/// # Errors
/// Returns an error if it has more ranges than an order can name: in pages left out, the image's
/// memory would be visible.
pub fn add_difference(order: &mut Fork, difference: &Difference) -> Result<(), PlatformError> {
    order.filled = Ranges::of(&difference.filled).ok_or_else(too_many)?;
    order.mapped = Ranges::of(&difference.mapped).ok_or_else(too_many)?;
    order.forgets_tables = difference.forgets_tables.into();
    Ok(())
}

fn too_many() -> PlatformError {
    PlatformError::Protocol("a seed has more ranges than an order can name".to_owned())
}
