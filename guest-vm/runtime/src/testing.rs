//! A platform over plain memory, for tests of this crate and of its users.

use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;

use faasw_abi::wire::ResponseHead;

use crate::platform::{LogStream, Platform, SendError};

/// A platform over plain memory. Its time is its own: each look at the clock
/// takes a microsecond, and waiting takes as long as it says, at once.
#[derive(Debug)]
pub struct MemoryPlatform {
    /// What the function may read.
    pub request_body: Vec<u8>,
    /// How much of it was read.
    pub body_read: usize,
    /// The head of the response, once it was sent.
    pub response_head: Option<ResponseHead>,
    /// The response body so far.
    pub response_body: Vec<u8>,
    /// Most bytes of the response body.
    pub body_limit: usize,
    /// Most bytes of an encoded response head.
    pub head_limit: usize,
    /// What the function logged, write by write.
    pub log: Vec<(LogStream, Vec<u8>)>,
    /// The deadlines that were waited for, in nanoseconds.
    pub waits: Vec<u64>,
    now: Cell<u64>,
    random_state: u64,
}

impl MemoryPlatform {
    /// A platform with limits like a mailbox's, whose randomness follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            request_body: Vec::new(),
            body_read: 0,
            response_head: None,
            response_body: Vec::new(),
            body_limit: 1 << 20,
            head_limit: 64 << 10,
            log: Vec::new(),
            waits: Vec::new(),
            now: Cell::new(1_000_000_000),
            random_state: seed,
        }
    }

    /// Everything logged to `stream`.
    #[must_use]
    pub fn logged(&self, stream: LogStream) -> Vec<u8> {
        let of_stream = self.log.iter().filter(|(other, _)| *other == stream);
        of_stream.flat_map(|(_, bytes)| bytes).copied().collect()
    }

    /// SplitMix64: good enough to tell draws apart.
    fn next_random(&mut self) -> u64 {
        self.random_state = self.random_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random_state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Platform for MemoryPlatform {
    fn monotonic(&self) -> u64 {
        self.now.set(self.now.get() + 1_000);
        self.now.get()
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + Duration::from_nanos(self.monotonic())
    }

    fn random(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_random().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }

    fn wait_until(&mut self, deadline: u64) {
        self.waits.push(deadline);
        self.now.set(self.now.get().max(deadline));
    }

    fn log(&mut self, stream: LogStream, bytes: &[u8]) {
        self.log.push((stream, bytes.to_vec()));
    }

    fn read_body(&mut self, out: &mut [u8]) -> usize {
        let rest = self.request_body.get(self.body_read..).unwrap_or_default();
        let count = rest.len().min(out.len());
        for (to, from) in out.iter_mut().zip(rest) {
            *to = *from;
        }
        self.body_read += count;
        count
    }

    fn send_body(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        if bytes.len() > self.body_limit - self.response_body.len() {
            return Err(SendError::BodyTooLarge);
        }
        self.response_body.extend_from_slice(bytes);
        Ok(())
    }

    fn send_head(&mut self, head: &ResponseHead) -> Result<(), SendError> {
        if head.encode().len() > self.head_limit {
            return Err(SendError::HeadTooLarge);
        }
        self.response_head = Some(head.clone());
        Ok(())
    }
}
