//! `Math.random`, and random bytes of the system.

use std::cell::{Cell, RefCell};

use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use rquickjs::{Ctx, TypedArray};

use crate::bindings::{faasw::engine::fresh, wasi::random::random::get_random_bytes};

thread_local! {
    static GENERATOR: RefCell<Option<Xoshiro256PlusPlus>> = const { RefCell::new(None) };
    static IS_STALE: Cell<bool> = const { Cell::new(true) };
}

/// Marks the generator as stale, so that its next use seeds it anew. A generator that was seeded
/// before a fork would be the same in all forks.
pub(crate) fn reseed() {
    IS_STALE.set(true);
}

/// Returns a number from 0 to less than 1.
pub(crate) fn random() -> f64 {
    GENERATOR.with_borrow_mut(|generator| {
        if IS_STALE.replace(false) {
            *generator = None;
        }
        let generator = generator.get_or_insert_with(|| {
            let (a, b, c, d) = fresh::seed();
            let mut seed = [0; 32];
            for (to, from) in seed.chunks_exact_mut(8).zip([a, b, c, d]) {
                to.copy_from_slice(&from.to_le_bytes());
            }
            Xoshiro256PlusPlus::from_seed(seed)
        });
        (generator.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    })
}

/// Returns cryptographically secure random bytes.
pub(crate) fn entropy(ctx: Ctx<'_>, count: u32) -> rquickjs::Result<TypedArray<'_, u8>> {
    TypedArray::new(ctx, get_random_bytes(u64::from(count)))
}
