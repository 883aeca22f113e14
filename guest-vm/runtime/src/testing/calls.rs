//! Servers for outbound calls, over plain memory.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faasw_abi::channel::{Channel, ChannelKind, Waits};
use faasw_abi::outgoing::{OutgoingHead, Tail};

use crate::platform::Incoming;

/// Servers for outbound calls. `open` channels are open to them, and each request receives the next
/// of `answers`.
#[derive(Debug)]
pub struct MemoryCalls {
    /// Number of open channels.
    pub open: usize,
    /// Bytes of a request's body that are taken until the function waits for space.
    pub ring: usize,
    /// Answers to requests, in the order in which the requests begin. When none is left, requests
    /// are never answered.
    pub answers: VecDeque<MemoryAnswer>,
    /// The requests so far, in that order.
    pub asked: Vec<MemoryCall>,
    /// Abandoned channels that are not free yet. They become free when the function waits for that.
    freeing: Vec<Channel>,
}

/// An answer, which arrives in parts: one each time that the function waits for it.
#[derive(Clone, Debug, Default)]
pub struct MemoryAnswer {
    /// Number of waits before the first part arrives.
    pub delay: usize,
    /// The head of the answer.
    pub head: Vec<u8>,
    /// The body of the answer, piece by piece.
    pub pieces: VecDeque<Vec<u8>>,
    /// The tail of the answer; `None` for an answer without an end.
    pub tail: Option<Vec<u8>>,
}

/// An outbound request.
#[derive(Debug)]
pub struct MemoryCall {
    /// The head of the request.
    pub head: OutgoingHead,
    /// Whether the head was sent as the complete request.
    pub is_whole: bool,
    /// The body so far.
    pub body: Vec<u8>,
    /// The tail, once the body has ended.
    pub tail: Option<Tail>,
    /// Whether the function has abandoned the request.
    pub is_over: bool,
    channel: Channel,
    answer: Option<MemoryAnswer>,
    has_head: bool,
    came: VecDeque<u8>,
    /// The tail of the answer, once all of its body has arrived.
    end: Option<Vec<u8>>,
    /// Number of bytes of the body that have left the ring.
    drained: usize,
}

impl Default for MemoryCalls {
    /// Returns servers without open channels.
    fn default() -> Self {
        Self {
            open: 0,
            ring: 112 << 10,
            answers: VecDeque::new(),
            asked: Vec::new(),
            freeing: Vec::new(),
        }
    }
}

impl MemoryCall {
    fn advance(&mut self) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        if answer.delay > 0 {
            answer.delay -= 1;
        } else if !self.has_head {
            self.has_head = true;
        } else if let Some(piece) = answer.pieces.pop_front() {
            self.came.extend(piece);
        } else if let Some(tail) = answer.tail.take() {
            self.end = Some(tail);
        }
    }
}

impl MemoryCalls {
    /// Returns the request that is under way on a channel.
    fn on(&self, channel: Channel) -> Option<&MemoryCall> {
        let mut asked = self.asked.iter();
        asked.find(|call| call.channel == channel && !call.is_over)
    }

    fn on_mut(&mut self, channel: Channel) -> Option<&mut MemoryCall> {
        let mut asked = self.asked.iter_mut();
        asked.find(|call| call.channel == channel && !call.is_over)
    }

    pub(super) fn is_open(&self, channel: Channel) -> bool {
        Channel::calls().take(self.open).any(|open| open == channel)
    }

    pub(super) fn is_free(&self, channel: Channel) -> bool {
        self.is_open(channel) && !self.freeing.contains(&channel) && self.on(channel).is_none()
    }

    pub(super) fn abandon_channel(&mut self, channel: Channel) {
        if let Some(call) = self.on_mut(channel) {
            call.is_over = true;
        }
        self.freeing.push(channel);
    }

    /// Handles a wait for events of calls, which then progress. Returns whether there were such
    /// events.
    pub(super) fn wait(&mut self, waits: Waits) -> bool {
        let mut is_of_calls = false;
        for channel in Channel::calls().filter(|channel| waits.has(Waits::of(*channel))) {
            is_of_calls = true;
            self.freeing.retain(|freeing| *freeing != channel);
            if let Some(call) = self.on_mut(channel) {
                if waits.has(Waits::room(channel)) {
                    call.drained = call.body.len();
                }
                if waits.has(Waits::bytes(channel)) {
                    call.advance();
                }
            }
        }
        is_of_calls
    }

    pub(super) fn has_head(&self, channel: Channel) -> bool {
        self.on(channel).is_some_and(|call| call.has_head)
    }

    pub(super) fn head(&self, channel: Channel) -> Vec<u8> {
        let answer = self.on(channel).and_then(|call| call.answer.as_ref());
        answer.map(|answer| answer.head.clone()).unwrap_or_default()
    }

    pub(super) fn incoming(&self, channel: Channel) -> Incoming {
        match self.on(channel) {
            None => Incoming::End,
            Some(call) if !call.came.is_empty() => Incoming::Ready,
            Some(call) if call.end.is_some() => Incoming::End,
            Some(_) => Incoming::Pending,
        }
    }

    pub(super) fn read(&mut self, channel: Channel, out: &mut [u8]) -> usize {
        let Some(call) = self.on_mut(channel) else {
            return 0;
        };
        let count = call.came.len().min(out.len());
        for (to, from) in out.iter_mut().zip(call.came.drain(..count)) {
            *to = from;
        }
        count
    }

    pub(super) fn tail(&self, channel: Channel) -> Vec<u8> {
        let end = self.on(channel).and_then(|call| call.end.clone());
        end.unwrap_or_default()
    }

    pub(super) fn begin(&mut self, channel: Channel, head: &[u8], is_whole: bool) {
        assert!(self.is_free(channel), "a channel that is not free");
        assert_eq!(channel.kind(), Some(ChannelKind::Call));
        self.asked.push(MemoryCall {
            head: OutgoingHead::decode(head).unwrap_or_default(),
            is_whole,
            body: Vec::new(),
            tail: is_whole.then(|| Tail::Trailers(Vec::new())),
            is_over: false,
            channel,
            answer: self.answers.pop_front(),
            has_head: false,
            came: VecDeque::new(),
            end: None,
            drained: 0,
        });
    }

    pub(super) fn room(&self, channel: Channel) -> usize {
        let call = self.on(channel);
        call.map_or(0, |call| {
            (call.drained + self.ring).saturating_sub(call.body.len())
        })
    }

    pub(super) fn send(&mut self, channel: Channel, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room(channel));
        if let Some(call) = self.on_mut(channel) {
            assert_eq!(call.tail, None, "behind the end of a request");
            call.body
                .extend_from_slice(bytes.get(..taken).unwrap_or_default());
        }
        taken
    }

    pub(super) fn finish(&mut self, channel: Channel, tail: &[u8]) {
        if let Some(call) = self.on_mut(channel) {
            assert_eq!(call.tail, None, "a request ends once");
            call.tail = Tail::decode(tail).ok();
        }
    }
}
