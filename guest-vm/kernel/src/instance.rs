//! Who this guest is right now: clock, entropy, and the platform over them.
//!
//! After every ring the guest may find itself in another VM, forked from a
//! seed. [`Instance::resume`] is the first thing it does then: it takes time
//! base and entropy from the boot page before anything else can ask for them.

use core::time::Duration;

use alloc::vec::Vec;
use faasw_abi::boot::Activation;
use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::{self, LOG_RECORD_HEADER};
use faasw_abi::wire::ResponseHead;
use faasw_runtime::platform::{LogStream, Platform, SendError};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use crate::{cpu, host};

/// A binary point for ticks-to-nanoseconds multiplication.
const FRACTION: u32 = 32;

struct Clock {
    /// Ticks at the last activation.
    base: u64,
    /// Nanoseconds a tick, times 2^[`FRACTION`].
    scale: u64,
    /// Monotonic nanoseconds at the last activation.
    monotonic: u64,
    /// Wall time at the last activation.
    wall: Duration,
}

impl Clock {
    fn since_activation(&self) -> u64 {
        let ticks = cpu::tsc().wrapping_sub(self.base);
        ((u128::from(ticks) * u128::from(self.scale)) >> FRACTION) as u64
    }
}

/// The platform that the runtime runs on, see [`Platform`].
pub struct Instance {
    clock: Clock,
    generator: ChaCha20Rng,
    /// How far the request body has been read.
    body_read: usize,
    body_len: usize,
    /// How far the response body has been written.
    body_sent: usize,
    log_used: usize,
    has_request: bool,
}

impl Instance {
    /// What the first activation makes of this guest.
    pub fn new() -> Self {
        let mut instance = Self {
            clock: Clock {
                base: 0,
                scale: 0,
                monotonic: 0,
                wall: Duration::ZERO,
            },
            generator: ChaCha20Rng::from_seed([0; 32]),
            body_read: 0,
            body_len: 0,
            body_sent: 0,
            log_used: 0,
            has_request: false,
        };
        instance.resume();
        instance
    }

    /// Takes over what the boot page and the mailbox say, if they are new: a
    /// guest that was let go on where it rang keeps its time and its generator.
    pub fn resume(&mut self) {
        let Activation {
            entropy,
            wall_seconds,
            wall_nanoseconds,
            monotonic_nanoseconds,
            tsc_khz,
            ..
        } = host::take_activation();
        if tsc_khz == 0 {
            return;
        }
        self.clock = Clock {
            base: cpu::tsc(),
            scale: (1_000_000 << FRACTION) / tsc_khz,
            monotonic: monotonic_nanoseconds,
            wall: Duration::from_secs(wall_seconds) + Duration::from_nanos(wall_nanoseconds),
        };
        self.generator = ChaCha20Rng::from_seed(entropy);
        self.body_read = 0;
        let header = host::header();
        self.body_len = header.request_body_len as usize;
        self.has_request = header.request_head_len > 0;
        self.body_sent = 0;
        self.log_used = 0;
    }

    /// Nanoseconds since this instance was activated.
    pub fn age(&self) -> u64 {
        self.clock.since_activation()
    }

    /// How many bytes of response body were sent.
    pub fn body_sent(&self) -> usize {
        self.body_sent
    }

    /// Whether a request came with the activation.
    pub fn has_request(&self) -> bool {
        self.has_request
    }

    /// Forgets the message that came with the activation, because it was none.
    pub fn forget_request(&mut self) {
        self.has_request = false;
    }

    fn log_record(&mut self, stream: LogStream, bytes: &[u8]) {
        let mut record = Vec::with_capacity(LOG_RECORD_HEADER + bytes.len());
        record.extend_from_slice(&[stream as u8, 0, 0, 0]);
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(bytes);
        if !host::write_area(mailbox::LOG, self.log_used, &record) {
            host::ring(Ring::LogFull);
            self.log_used = 0;
            host::write_area(mailbox::LOG, 0, &record);
        }
        self.log_used += record.len();
        // At once, so that the log of a guest that is ended is whole.
        host::set_log_len(self.log_used as u32);
    }
}

/// Longest log record, so that one always fits an empty log area.
const LOG_PIECE: usize = 16 << 10;

impl Platform for Instance {
    fn monotonic(&self) -> u64 {
        self.clock
            .monotonic
            .saturating_add(self.clock.since_activation())
    }

    fn wall(&self) -> Duration {
        self.clock.wall + Duration::from_nanos(self.clock.since_activation())
    }

    fn random(&mut self, out: &mut [u8]) {
        self.generator.fill_bytes(out);
    }

    fn wait_until(&mut self, deadline: u64) {
        // The host may come back early, so it is asked until the time has come.
        loop {
            let now = self.monotonic();
            if now >= deadline {
                return;
            }
            host::update_header(|header| header.wait_nanoseconds = deadline - now);
            host::ring(Ring::Wait);
        }
    }

    fn log(&mut self, stream: LogStream, bytes: &[u8]) {
        for piece in bytes.chunks(LOG_PIECE) {
            self.log_record(stream, piece);
        }
    }

    fn read_body(&mut self, out: &mut [u8]) -> usize {
        let left = self.body_len.saturating_sub(self.body_read);
        let count = out.len().min(left);
        let Some(out) = out.get_mut(..count) else {
            return 0;
        };
        let read = host::read_area(mailbox::REQUEST_BODY, self.body_read, out);
        self.body_read += read;
        read
    }

    fn send_body(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        if !host::write_area(mailbox::RESPONSE_BODY, self.body_sent, bytes) {
            return Err(SendError::BodyTooLarge);
        }
        self.body_sent += bytes.len();
        Ok(())
    }

    fn send_head(&mut self, head: &ResponseHead) -> Result<(), SendError> {
        let bytes = head.encode();
        if !host::write_area(mailbox::RESPONSE_HEAD, 0, &bytes) {
            return Err(SendError::HeadTooLarge);
        }
        host::update_header(|header| header.response_head_len = bytes.len() as u32);
        Ok(())
    }
}
