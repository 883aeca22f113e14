//! The random number generator of the system.

use std::convert::Infallible;

use rand_xoshiro::rand_core::{TryCryptoRng, TryRng};

use crate::bindings::wasi::random::random::{get_random_bytes, get_random_u64};

/// Asks the host at each use, so that forks share nothing.
pub(crate) struct SystemRandom;

impl TryRng for SystemRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(get_random_u64() as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(get_random_u64())
    }

    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), Infallible> {
        into.copy_from_slice(&get_random_bytes(into.len() as u64));
        Ok(())
    }
}

impl TryCryptoRng for SystemRandom {}
