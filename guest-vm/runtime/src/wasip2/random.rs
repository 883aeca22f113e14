//! `wasi:random`, and draws of engines. The insecure kinds are as good as the secure one, and as
//! fresh: nothing is generated in advance, so no seed can freeze it.

use alloc::vec::Vec;

use wasmtime::Result;

use super::bindings::faasw::engine::fresh;
use super::bindings::wasi::random::{insecure, insecure_seed, random};
use crate::draws::Kind;
use crate::platform::Platform;
use crate::state::State;

impl<P: Platform> random::Host for State<P> {
    fn get_random_bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.random(Kind::Entropy, "wasi:random/random#get-random-bytes", len)
    }

    fn get_random_u64(&mut self) -> Result<u64> {
        Ok(self.random_u64(Kind::Entropy, "wasi:random/random#get-random-u64"))
    }
}

impl<P: Platform> insecure::Host for State<P> {
    fn get_insecure_random_bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.random(
            Kind::Insecure,
            "wasi:random/insecure#get-insecure-random-bytes",
            len,
        )
    }

    fn get_insecure_random_u64(&mut self) -> Result<u64> {
        Ok(self.random_u64(
            Kind::Insecure,
            "wasi:random/insecure#get-insecure-random-u64",
        ))
    }
}

impl<P: Platform> insecure_seed::Host for State<P> {
    fn insecure_seed(&mut self) -> Result<(u64, u64)> {
        const IMPORT: &str = "wasi:random/insecure-seed#insecure-seed";
        Ok((
            self.random_u64(Kind::Insecure, IMPORT),
            self.random_u64(Kind::Insecure, IMPORT),
        ))
    }
}

/// An engine makes its generators before any request, and seeds them anew in each request. Its own
/// draws are therefore not shared between requests.
impl<P: Platform> fresh::Host for State<P> {
    fn seed(&mut self) -> Result<(u64, u64, u64, u64)> {
        let mut number = || {
            let mut bytes = [0; size_of::<u64>()];
            self.platform.random(&mut bytes);
            u64::from_le_bytes(bytes)
        };
        Ok((number(), number(), number(), number()))
    }
}
