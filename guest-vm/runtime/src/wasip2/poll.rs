//! `wasi:io/poll`.
//!
//! A function waits for timers, for bytes of the request, and for room for
//! bytes of the response; the platform waits for whichever comes first.

use alloc::vec::Vec;

use wasmtime::Result;
use wasmtime::component::Resource;

use super::bindings::wasi::io::poll;
use crate::http::BodyId;
use crate::platform::{Incoming, Interest, Platform};
use crate::state::State;

/// What a function can wait for.
#[derive(Clone, Copy, Debug)]
pub enum Pollable {
    /// Nothing to wait for.
    Ready,
    /// The monotonic clock reaches this value, in nanoseconds.
    At(u64),
    /// There are bytes of the request body, or it is over.
    Request,
    /// The trailers of the request are there, or never will be.
    Trailers,
    /// The body takes more bytes.
    Writable(BodyId),
    /// Standard output takes more bytes.
    Stdout,
}

/// Ends a wait that no event could end.
const NEVER: &str = "the function waits for something that can never happen: \
                     the body it writes is full until its response is set";

impl<P: Platform> State<P> {
    fn is_ready(&mut self, pollable: Pollable, now: u64) -> bool {
        match pollable {
            Pollable::Ready => true,
            Pollable::At(deadline) => deadline <= now,
            Pollable::Request => self.platform.incoming() != Incoming::Pending,
            Pollable::Trailers => self.rest_of_request() != Incoming::Pending,
            Pollable::Writable(body) => self.exchange.bodies.room(body, &self.platform) > 0,
            Pollable::Stdout => self.stdout_room() > 0,
        }
    }

    /// What the platform can wait for on behalf of a pollable that is not ready.
    fn interest(&self, pollable: Pollable) -> Interest {
        Interest {
            request: matches!(pollable, Pollable::Request | Pollable::Trailers),
            room: match pollable {
                Pollable::Writable(body) => self.exchange.bodies.is_sent(body),
                Pollable::Stdout => true,
                _ => false,
            },
        }
    }

    /// Waits until at least one of `pollables` is ready; the indices of those that are.
    pub(super) fn wait_any(&mut self, pollables: &[Pollable]) -> Result<Vec<u32>> {
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
            let deadlines = pollables.iter().filter_map(|pollable| match pollable {
                Pollable::At(deadline) => Some(*deadline),
                _ => None,
            });
            let deadline = deadlines.min();
            let mut interest = Interest::default();
            for pollable in pollables {
                let wanted = self.interest(*pollable);
                interest.request |= wanted.request;
                interest.room |= wanted.room;
            }
            if deadline.is_none() && interest == Interest::default() {
                wasmtime::bail!("{NEVER}");
            }
            self.platform.wait(interest, deadline);
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
