//! A platform over plain memory, for tests of this crate and of its users.

mod calls;

use alloc::collections::VecDeque;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;

use faasw_abi::channel::{Channel, ChannelKind, Waits};
use faasw_abi::wire::{Pair, RequestHead, ResponseHead, decode_trailers, encode_trailers};

pub use self::calls::{MemoryAnswer, MemoryCall, MemoryCalls};
use crate::draws::Draws;
use crate::platform::{Incoming, LogStream, Platform, SendError};

/// A platform over plain memory, with an open channel for the invocation, and for a script, a store
/// and calls if they are set. It has its own time: each read of the clock takes a microsecond, and
/// a wait until a deadline passes that time at once.
#[derive(Debug, Default)]
pub struct MemoryPlatform {
    /// The head of the request, for a function that reaches its entry point.
    pub request_head: RequestHead,
    /// The draws at each call of [`Platform::freeze`].
    pub frozen: Vec<String>,
    /// The present bytes of the request body.
    pub request_body: Vec<u8>,
    /// Number of bytes of the body that were read.
    pub body_read: usize,
    /// The script, and the number of bytes that were read.
    pub script: Option<(Vec<u8>, usize)>,
    /// The answers of a store, as one sequence of records. The store's channel is open if this is
    /// set.
    pub store_answers: Option<VecDeque<u8>>,
    /// The requests to the store.
    pub store_asked: Vec<u8>,
    /// The encoded secrets. Their channel is open if this is set.
    pub secrets: Option<Vec<u8>>,
    /// The servers that the function may call.
    pub calls: MemoryCalls,
    /// Bytes that arrive later: a piece each time that the function waits for it.
    pub arriving: VecDeque<Vec<u8>>,
    /// The trailers behind the body.
    pub request_trailers: Vec<Pair>,
    /// The head of the response, once it was sent.
    pub response_head: Option<ResponseHead>,
    /// The response body so far.
    pub response_body: Vec<u8>,
    /// Bytes of the response body that are taken until the function waits for space.
    pub ring: usize,
    /// Length of the response body at each wait and each flush.
    pub seen: Vec<usize>,
    /// The trailers of the response, once its body was finished.
    pub finished: Option<Vec<Pair>>,
    /// Maximum bytes of encoded trailers.
    pub trailer_limit: usize,
    /// Maximum bytes of an encoded response head.
    pub head_limit: usize,
    /// The log of the function, write by write.
    pub log: Vec<(LogStream, Vec<u8>)>,
    /// The deadlines of all waits, in nanoseconds.
    pub waits: Vec<u64>,
    /// The time that a seed rested: wall time that passed while monotonic time stood still.
    pub rested: Duration,
    now: Cell<u64>,
    random: fastrand::Rng,
    /// Number of bytes of the response body that have left the ring.
    drained: usize,
}

impl MemoryPlatform {
    /// Returns a platform with limits like a mailbox's, whose randomness follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            ring: 1 << 20,
            trailer_limit: 16 << 10,
            head_limit: 64 << 10,
            now: Cell::new(1_000_000_000),
            random: fastrand::Rng::with_seed(seed),
            ..Self::default()
        }
    }

    /// Advances the time.
    pub fn pass(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.now.set(self.now.get().saturating_add(nanoseconds));
    }

    /// Returns everything that was logged to `stream`.
    #[must_use]
    pub fn logged(&self, stream: LogStream) -> Vec<u8> {
        let of_stream = self.log.iter().filter(|(other, _)| *other == stream);
        of_stream.flat_map(|(_, bytes)| bytes).copied().collect()
    }
}

impl Platform for MemoryPlatform {
    fn monotonic(&self) -> u64 {
        self.now.set(self.now.get() + 1_000);
        self.now.get()
    }

    fn wall(&self) -> Duration {
        let running = Duration::from_nanos(self.monotonic());
        Duration::from_secs(1_700_000_000) + running + self.rested
    }

    fn random(&mut self, out: &mut [u8]) {
        self.random.fill(out);
    }

    fn freeze(&mut self, draws: &Draws) {
        self.frozen.push(draws.to_string());
    }

    fn wait(&mut self, waits: Waits, deadline: Option<u64>) {
        self.seen.push(self.response_body.len());
        if waits.has(Waits::bytes(Channel::INVOCATION))
            && let Some(piece) = self.arriving.pop_front()
        {
            self.request_body.extend_from_slice(&piece);
        } else if waits.has(Waits::bytes(Channel::STORE)) {
            assert!(
                self.store_answers
                    .as_ref()
                    .is_none_or(|answers| !answers.is_empty()),
                "nothing answers for the store"
            );
        } else if waits.has(Waits::room(Channel::INVOCATION)) {
            self.drained = self.response_body.len();
        } else if self.calls.wait(waits) {
            // A part of the expected answer is present, or will be the next time.
        } else if let Some(deadline) = deadline {
            self.waits.push(deadline);
            self.now.set(self.now.get().max(deadline));
        }
    }

    fn log(&mut self, stream: LogStream, bytes: &[u8]) {
        self.log.push((stream, bytes.to_vec()));
    }

    fn is_open(&self, channel: Channel) -> bool {
        match channel.kind() {
            Some(ChannelKind::Invocation) => true,
            Some(ChannelKind::Script) => self.script.is_some(),
            Some(ChannelKind::Store) => self.store_answers.is_some(),
            Some(ChannelKind::Secrets) => self.secrets.is_some(),
            Some(ChannelKind::Call) => self.calls.is_open(channel),
            None => false,
        }
    }

    fn is_free(&self, channel: Channel) -> bool {
        self.calls.is_free(channel)
    }

    fn abandon_channel(&mut self, channel: Channel) {
        self.calls.abandon_channel(channel);
    }

    fn has_head(&self, channel: Channel) -> bool {
        self.calls.has_head(channel)
    }

    fn head(&mut self, channel: Channel) -> Vec<u8> {
        match (channel.kind(), &self.script) {
            (Some(ChannelKind::Call), _) => self.calls.head(channel),
            (Some(ChannelKind::Script), Some((script, _))) => {
                (script.len() as u64).to_le_bytes().to_vec()
            }
            (Some(ChannelKind::Invocation), _) => self.request_head.encode(),
            (Some(ChannelKind::Secrets), _) => self.secrets.clone().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn incoming(&self, channel: Channel) -> Incoming {
        if channel.kind() == Some(ChannelKind::Call) {
            self.calls.incoming(channel)
        } else if channel == Channel::SCRIPT
            && let Some((script, read)) = &self.script
            && *read < script.len()
        {
            Incoming::Ready
        } else if channel == Channel::STORE
            && self.store_answers.as_ref().is_some_and(VecDeque::is_empty)
        {
            Incoming::Pending
        } else if channel == Channel::STORE && self.store_answers.is_some() {
            Incoming::Ready
        } else if channel != Channel::INVOCATION {
            Incoming::End
        } else if self.body_read < self.request_body.len() {
            Incoming::Ready
        } else if !self.arriving.is_empty() {
            Incoming::Pending
        } else {
            Incoming::End
        }
    }

    fn tail(&self, channel: Channel) -> Vec<u8> {
        match channel {
            Channel::INVOCATION => encode_trailers(&self.request_trailers),
            _ if channel.kind() == Some(ChannelKind::Call) => self.calls.tail(channel),
            _ => Vec::new(),
        }
    }

    fn read(&mut self, channel: Channel, out: &mut [u8]) -> usize {
        if channel.kind() == Some(ChannelKind::Call) {
            return self.calls.read(channel, out);
        }
        if let (Channel::STORE, Some(answers)) = (channel, &mut self.store_answers) {
            let count = answers.len().min(out.len());
            for (to, from) in out.iter_mut().zip(answers.drain(..count)) {
                *to = from;
            }
            return count;
        }
        let (body, read) = match (channel, &mut self.script) {
            (Channel::INVOCATION, _) => (&self.request_body, &mut self.body_read),
            (Channel::SCRIPT, Some((script, read))) => (&*script, read),
            _ => return 0,
        };
        let rest = body.get(*read..).unwrap_or_default();
        let count = rest.len().min(out.len());
        for (to, from) in out.iter_mut().zip(rest) {
            *to = *from;
        }
        *read += count;
        count
    }

    fn room(&self, channel: Channel) -> usize {
        match channel {
            Channel::INVOCATION => {
                (self.drained + self.ring).saturating_sub(self.response_body.len())
            }
            Channel::STORE => self.ring,
            _ => self.calls.room(channel),
        }
    }

    fn send(&mut self, channel: Channel, bytes: &[u8]) -> usize {
        if channel.kind() == Some(ChannelKind::Call) {
            return self.calls.send(channel, bytes);
        }
        let taken = bytes.len().min(self.room(channel));
        let sent = match channel {
            Channel::STORE => &mut self.store_asked,
            _ => &mut self.response_body,
        };
        sent.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        taken
    }

    fn flush(&mut self) {
        self.seen.push(self.response_body.len());
    }

    fn finish(&mut self, channel: Channel, tail: &[u8]) -> Result<(), SendError> {
        if tail.len() > self.trailer_limit {
            return Err(SendError::TailTooLarge);
        }
        if channel.kind() == Some(ChannelKind::Call) {
            self.calls.finish(channel, tail);
            return Ok(());
        }
        self.finished = Some(decode_trailers(tail).unwrap_or_default());
        Ok(())
    }

    fn send_head(
        &mut self,
        channel: Channel,
        head: &[u8],
        is_whole: bool,
    ) -> Result<(), SendError> {
        if head.len() > self.head_limit {
            return Err(SendError::HeadTooLarge);
        }
        if channel.kind() == Some(ChannelKind::Call) {
            self.calls.begin(channel, head, is_whole);
            return Ok(());
        }
        self.response_head = ResponseHead::decode(head).ok();
        Ok(())
    }
}
