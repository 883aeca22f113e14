//! What a sandbox is told to become.

use faasw_abi::pages::{PageRange, PageSet, Ranges};
use faasw_fri::messages::{Answer, Fork, Image, Origin};
use faasw_seedtree::limits::SET_MAX;
use faasw_seedtree::{Difference, PageSets, Windows};

use crate::ablation::Mechanism;
use crate::error::PlatformError;
use crate::snapshots::{Code, Frozen};

/// An order to become an instance of `image`, without code and difference. Boxed: it is
/// large, and futures hold it.
pub fn fork_order(origin: Origin, image: Image) -> Box<Fork> {
    Box::new(Fork {
        code_bytes: 0,
        origin,
        image,
        filled: Ranges::default(),
        mapped: Ranges::default(),
        forgets_tables: Answer::No,
        code_set: Ranges::default(),
        tells_addresses: Answer::No,
        has_small_code: Answer::No,
    })
}

/// The image of a seed, with what its instances use.
///
/// # Errors
/// When it has more windows than an order has room for.
pub fn image(
    frozen: &Frozen,
    ram_bytes: u64,
    working_set: &PageSets,
) -> Result<Image, PlatformError> {
    let mut image = Image::empty(ram_bytes, frozen.state().vcpu());
    image.windows = Windows::of(frozen.windows()).ok_or_else(too_many)?;
    image.write_set = Ranges::covering(&working_set.written);
    image.read_set = Ranges::covering(&working_set.read);
    Ok(image)
}

/// What a build for measurements is to fill in instead of this, if not this.
pub fn instead_of(working_set: &PageSets) -> Option<PageSets> {
    if Mechanism::Prefill.is_off() {
        return Some(PageSets::default());
    }
    let used = || working_set.written.union(&working_set.read);
    Mechanism::SetSplit.is_off().then(|| PageSets {
        written: PageSet::new(),
        // Joining ranges could take in what is missing.
        read: used().iter().take(SET_MAX).collect(),
        code: working_set.code.clone(),
        generation: working_set.generation,
    })
}

/// In which pages code is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodePages {
    /// Those that its file has.
    AsTheyAre,
    /// Small ones: a survey is to tell which of them are used.
    Small,
}

/// Of which pages of code second-level tables are filled in advance: of all, where that is little
/// because they are large ones. Of small ones only what is used, as far as that is known, or all
/// would count as used at a survey.
pub fn code_set(code: &Code, pages: CodePages, working_set: &PageSets) -> Ranges<SET_MAX> {
    if Mechanism::Prefill.is_off() {
        return Ranges::default();
    }
    let all = PageSet::from(PageRange::around(0, code.mapped_bytes()));
    if code.is_gathered() && pages == CodePages::AsTheyAre {
        Ranges::covering(&all)
    } else {
        // Joining ranges could take in what is missing.
        Ranges::of(&working_set.code.intersection(&all)).unwrap_or_default()
    }
}

/// Puts where a seed differs from what a sandbox is an image of.
///
/// # Errors
/// When that is more than an order has room for: where it was left out, the image's memory
/// would show.
pub fn put_difference(order: &mut Fork, difference: &Difference) -> Result<(), PlatformError> {
    order.filled = Ranges::of(&difference.filled).ok_or_else(too_many)?;
    order.mapped = Ranges::of(&difference.mapped).ok_or_else(too_many)?;
    order.forgets_tables = difference.forgets_tables.into();
    Ok(())
}

fn too_many() -> PlatformError {
    PlatformError::Protocol("a seed has more ranges than an order can name".to_owned())
}
