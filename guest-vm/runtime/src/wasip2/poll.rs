//! `wasi:io/poll`.
//!
//! Bodies are whole before the function runs and written without waiting, so
//! nearly every pollable is ready at once; only timers make a function wait.

use alloc::vec::Vec;

use wasmtime::Result;
use wasmtime::component::Resource;

use super::bindings::wasi::io::poll;
use crate::http::BodyId;
use crate::platform::Platform;
use crate::state::State;

/// What a function can wait for.
#[derive(Clone, Copy, Debug)]
pub enum Pollable {
    /// Nothing to wait for.
    Ready,
    /// The monotonic clock reaches this value, in nanoseconds.
    At(u64),
    /// The body takes more bytes.
    Writable(BodyId),
}

/// Ends a wait that no event could end.
pub(super) const NEVER: &str = "the function waits for something that can never happen: \
                     the body it writes is full until its response is set";

impl<P: Platform> State<P> {
    fn is_ready(&self, pollable: Pollable, now: u64) -> bool {
        match pollable {
            Pollable::Ready => true,
            Pollable::At(deadline) => deadline <= now,
            Pollable::Writable(body) => self.exchange.bodies.room(body) > 0,
        }
    }

    /// Waits until at least one of `pollables` is ready; the indices of those that are.
    fn wait_any(&mut self, pollables: &[Pollable]) -> Result<Vec<u32>> {
        loop {
            let now = self.platform.monotonic();
            let ready: Vec<u32> = (0u32..)
                .zip(pollables)
                .filter(|(_, pollable)| self.is_ready(**pollable, now))
                .map(|(index, _)| index)
                .collect();
            if !ready.is_empty() {
                return Ok(ready);
            }
            let earliest = pollables.iter().filter_map(|pollable| match pollable {
                Pollable::At(deadline) => Some(*deadline),
                Pollable::Ready | Pollable::Writable(_) => None,
            });
            match earliest.min() {
                Some(deadline) => self.platform.wait_until(deadline),
                None => wasmtime::bail!("{NEVER}"),
            }
        }
    }
}

impl<P: Platform> poll::Host for State<P> {
    fn poll(&mut self, pollables: Vec<Resource<Pollable>>) -> Result<Vec<u32>> {
        if pollables.is_empty() {
            wasmtime::bail!("wasi:io/poll#poll: the list of pollables is empty");
        }
        let mut known = Vec::new();
        for pollable in &pollables {
            known.push(*self.table.get(pollable)?);
        }
        self.wait_any(&known)
    }
}

impl<P: Platform> poll::HostPollable for State<P> {
    fn ready(&mut self, pollable: Resource<Pollable>) -> Result<bool> {
        let pollable = *self.table.get(&pollable)?;
        Ok(self.is_ready(pollable, self.platform.monotonic()))
    }

    fn block(&mut self, pollable: Resource<Pollable>) -> Result<()> {
        let pollable = *self.table.get(&pollable)?;
        self.wait_any(&[pollable])?;
        Ok(())
    }

    fn drop(&mut self, pollable: Resource<Pollable>) -> Result<()> {
        self.table.delete(pollable)?;
        Ok(())
    }
}
