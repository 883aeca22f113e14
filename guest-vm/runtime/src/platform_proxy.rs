//! The platform as host functions see it, with support for synthetic requests.
//!
//! A warm-up request does not arrive on the channel of the invocation, and its response is
//! discarded. The same holds for what a command sees of a request before it reaches its entry
//! point. Everything else is the platform's.

use alloc::vec::Vec;
use core::time::Duration;

use faasw_abi::channel::{Channel, HEAD_MAX, TAIL_MAX, Waits};
use faasw_abi::wire::ResponseHead;

use crate::draws::Draws;
use crate::platform::{Incoming, LogStream, Platform, SendError};

/// Bytes of a synthetic request's response that are taken at a time, as in a ring.
const ROOM: usize = 64 << 10;

/// A platform, and the synthetic request, while there is one.
pub(crate) struct PlatformProxy<P> {
    /// The platform behind this one.
    pub(crate) inner: P,
    synthetic: Option<SyntheticRequest>,
}

/// A synthetic request, and the status of its response.
struct SyntheticRequest {
    body: Vec<u8>,
    read: usize,
    status: Option<u16>,
}

impl<P> PlatformProxy<P> {
    pub(crate) fn new(inner: P) -> Self {
        Self {
            inner,
            synthetic: None,
        }
    }

    /// Makes the invocation's channel that of a synthetic request with this body.
    pub(crate) fn begin_synthetic(&mut self, body: Vec<u8>) {
        self.synthetic = Some(SyntheticRequest {
            body,
            read: 0,
            status: None,
        });
    }

    /// Returns the channel to the platform, and returns the status of the response, if there was
    /// one.
    pub(crate) fn end_synthetic(&mut self) -> Option<u16> {
        self.synthetic.take()?.status
    }

    fn of(&self, channel: Channel) -> Option<&SyntheticRequest> {
        self.synthetic
            .as_ref()
            .filter(|_| channel == Channel::INVOCATION)
    }
}

impl<P: Platform> Platform for PlatformProxy<P> {
    fn monotonic(&self) -> u64 {
        self.inner.monotonic()
    }

    fn wall(&self) -> Duration {
        self.inner.wall()
    }

    fn random(&mut self, out: &mut [u8]) {
        self.inner.random(out);
    }

    fn freeze(&mut self, draws: &Draws) {
        self.inner.freeze(draws);
    }

    fn wait(&mut self, waits: Waits, deadline: Option<u64>) {
        // All of the synthetic request is present, and its response always finds space.
        let is_there = waits.has(Waits::bytes(Channel::INVOCATION))
            || waits.has(Waits::room(Channel::INVOCATION));
        if self.synthetic.is_none() || !is_there {
            self.inner.wait(waits, deadline);
        }
    }

    fn log(&mut self, stream: LogStream, bytes: &[u8]) {
        self.inner.log(stream, bytes);
    }

    fn is_open(&self, channel: Channel) -> bool {
        self.inner.is_open(channel)
    }

    fn is_free(&self, channel: Channel) -> bool {
        self.inner.is_free(channel)
    }

    fn abandon_channel(&mut self, channel: Channel) {
        self.inner.abandon_channel(channel);
    }

    fn has_head(&self, channel: Channel) -> bool {
        self.inner.has_head(channel)
    }

    fn head(&mut self, channel: Channel) -> Vec<u8> {
        self.inner.head(channel)
    }

    fn incoming(&self, channel: Channel) -> Incoming {
        match self.of(channel) {
            None => self.inner.incoming(channel),
            Some(synthetic) if synthetic.read < synthetic.body.len() => Incoming::Ready,
            Some(_) => Incoming::End,
        }
    }

    fn read(&mut self, channel: Channel, out: &mut [u8]) -> usize {
        match &mut self.synthetic {
            Some(synthetic) if channel == Channel::INVOCATION => {
                let rest = synthetic.body.get(synthetic.read..).unwrap_or_default();
                let some = rest.get(..out.len()).unwrap_or(rest);
                for (to, from) in out.iter_mut().zip(some) {
                    *to = *from;
                }
                synthetic.read += some.len();
                some.len()
            }
            _ => self.inner.read(channel, out),
        }
    }

    fn tail(&self, channel: Channel) -> Vec<u8> {
        match self.of(channel) {
            Some(_) => Vec::new(),
            None => self.inner.tail(channel),
        }
    }

    fn send_head(
        &mut self,
        channel: Channel,
        head: &[u8],
        is_whole: bool,
    ) -> Result<(), SendError> {
        match &mut self.synthetic {
            Some(_) if channel == Channel::INVOCATION && head.len() as u64 > HEAD_MAX => {
                Err(SendError::HeadTooLarge)
            }
            Some(synthetic) if channel == Channel::INVOCATION => {
                synthetic.status = ResponseHead::decode(head).ok().map(|head| head.status);
                Ok(())
            }
            _ => self.inner.send_head(channel, head, is_whole),
        }
    }

    fn room(&self, channel: Channel) -> usize {
        match self.of(channel) {
            Some(_) => ROOM,
            None => self.inner.room(channel),
        }
    }

    fn send(&mut self, channel: Channel, bytes: &[u8]) -> usize {
        match self.of(channel) {
            Some(_) => bytes.len(),
            None => self.inner.send(channel, bytes),
        }
    }

    fn flush(&mut self) {
        if self.synthetic.is_none() {
            self.inner.flush();
        }
    }

    fn finish(&mut self, channel: Channel, tail: &[u8]) -> Result<(), SendError> {
        match self.of(channel) {
            Some(_) if tail.len() as u64 > TAIL_MAX => Err(SendError::TailTooLarge),
            Some(_) => Ok(()),
            None => self.inner.finish(channel, tail),
        }
    }
}
