//! `wasi:io/poll`.
//!
//! A function waits for timers, for bytes of the request and of responses to its calls, and for
//! space for bytes of the response and of its calls. The platform waits for the first of these
//! events.

use alloc::vec::Vec;

use faasw_abi::channel::{Channel, Waits};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::bindings::wasi::io::poll;
use crate::invocation::{BodyId, CallId, InvocationNumber};
use crate::platform::{Incoming, Platform};
use crate::state::State;

/// An event that a function can wait for.
#[derive(Clone, Copy, Debug)]
pub enum Pollable {
    /// There is nothing to wait for.
    Ready,
    /// The monotonic clock reaches this value, in nanoseconds.
    At(u64),
    /// There are bytes of the request body, or it is over.
    Request(InvocationNumber),
    /// The trailers of the request are present, or never will be.
    Trailers(InvocationNumber),
    /// There are bytes of the request body that is a command's input, or it is over.
    Stdin,
    /// The response to an outbound call is present, or never will be.
    Answer(CallId),
    /// There are bytes of such a response's body, or it is over.
    AnswerBody(CallId),
    /// The trailers of such a response are present, or never will be.
    AnswerTrailers(CallId),
    /// The body takes more bytes.
    Writable(BodyId),
    /// Standard output takes more bytes.
    Stdout,
}

/// The error that ends a wait for which no event is possible.
const NEVER: &str = "the function waits for something that can never happen: \
                     the body it writes is full until its response is set, or its request sent";

impl<P: Platform> State<P> {
    /// Discards the present part of a body whose trailers are waited for: they follow it, and it is
    /// not read any more.
    fn discard_before(&mut self, pollable: Pollable) {
        match pollable {
            Pollable::Trailers(invocation) if invocation == self.invocation.number => {
                self.discard_rest(Channel::INVOCATION);
            }
            Pollable::AnswerTrailers(call) => {
                if let Some(channel) = self.invocation.calls.channel(call) {
                    self.discard_rest(channel);
                }
            }
            _ => {}
        }
    }

    /// Continues to send bodies of requests, which needs no further call of the function.
    fn send_waiting(&mut self) {
        self.invocation.bodies.send_waiting(&mut self.platform);
    }

    fn is_ready(&self, pollable: Pollable, now: u64) -> bool {
        match pollable {
            Pollable::Ready => true,
            Pollable::At(deadline) => deadline <= now,
            Pollable::Request(invocation) | Pollable::Trailers(invocation)
                if invocation != self.invocation.number =>
            {
                true
            }
            Pollable::Request(_) | Pollable::Trailers(_) | Pollable::Stdin => {
                self.platform.incoming(Channel::INVOCATION) != Incoming::Pending
            }
            Pollable::Answer(call) => {
                let channel = self.invocation.calls.channel(call);
                channel.is_none_or(|channel| self.platform.has_head(channel))
            }
            Pollable::AnswerBody(call) | Pollable::AnswerTrailers(call) => {
                let channel = self.invocation.calls.channel(call);
                channel.is_none_or(|channel| self.platform.incoming(channel) != Incoming::Pending)
            }
            Pollable::Writable(body) => self.invocation.bodies.room(body, &self.platform) > 0,
            Pollable::Stdout => self.stdout_room() > 0,
        }
    }

    /// Returns the events of the platform to wait for, for a pollable that is not ready.
    fn waits(&self, pollable: Pollable) -> Waits {
        match pollable {
            Pollable::Request(_) | Pollable::Trailers(_) | Pollable::Stdin => {
                Waits::bytes(Channel::INVOCATION)
            }
            Pollable::Stdout => Waits::room(Channel::INVOCATION),
            Pollable::Writable(body) => self.invocation.bodies.waits(body),
            Pollable::Answer(call)
            | Pollable::AnswerBody(call)
            | Pollable::AnswerTrailers(call) => {
                let channel = self.invocation.calls.channel(call);
                channel.map_or_else(Waits::default, Waits::bytes)
            }
            Pollable::Ready | Pollable::At(_) => Waits::default(),
        }
    }

    /// Waits until at least one of `pollables` is ready, and returns the indices of the ready ones.
    pub(super) fn wait_any(&mut self, pollables: &[Pollable]) -> Result<Vec<u32>> {
        loop {
            self.send_waiting();
            for pollable in pollables {
                self.discard_before(*pollable);
            }
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
            let unsent = self.invocation.bodies.unsent();
            let waits = pollables
                .iter()
                .fold(unsent, |waits, one| waits.and(self.waits(*one)));
            if deadline.is_none() && waits.is_empty() {
                wasmtime::bail!("{NEVER}");
            }
            self.platform.wait(waits, deadline);
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
        self.send_waiting();
        self.discard_before(pollable);
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
