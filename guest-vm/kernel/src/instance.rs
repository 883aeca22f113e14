//! Who this guest is right now: clock, entropy, and the platform over them.
//!
//! After every ring the guest may find itself in another VM, forked from a
//! seed. [`Instance::resume`] is the first thing it does then: it takes time
//! base and entropy from the boot page before anything else can ask for them.

use core::sync::atomic::{Ordering, fence};
use core::time::Duration;

use alloc::vec;
use alloc::vec::Vec;
use faasw_abi::clock::Clock;
use faasw_abi::command::Command;
use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::{self, LOG_RECORD_HEADER, REQUEST_BODY, RESPONSE_BODY};
use faasw_abi::ring;
use faasw_abi::wire::{Pair, ResponseHead, decode_fields, encode_fields};
use faasw_runtime::platform::{Incoming, Interest, LogStream, Platform, SendError};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use crate::host::{HostWord, publish};
use crate::{cpu, host};

/// The platform that the runtime runs on, see [`Platform`].
pub struct Instance {
    clock: Clock,
    generator: ChaCha20Rng,
    /// How far the request body has been read.
    body_read: u64,
    /// How far the node knows that.
    body_read_told: u64,
    /// How far the response body has been written.
    body_sent: u64,
    /// How far the log has been written.
    logged: u64,
    /// Something was published that the node was not told of.
    unseen: bool,
    has_request: bool,
    /// How far the commands have been read.
    commands_read: u64,
    /// How many of them were done.
    commands_done: u32,
}

impl Instance {
    /// What the first activation makes of this guest.
    pub fn new() -> Self {
        let mut instance = Self {
            clock: Clock::stopped(),
            generator: ChaCha20Rng::from_seed([0; 32]),
            body_read: 0,
            body_read_told: 0,
            body_sent: 0,
            logged: 0,
            unseen: false,
            has_request: false,
            commands_read: 0,
            commands_done: 0,
        };
        instance.resume();
        instance
    }

    /// Takes over what the boot page and the mailbox say, if they are new: a
    /// guest that was let go on where it rang keeps its time and its generator.
    pub fn resume(&mut self) {
        let activation = host::take_activation();
        let Some(clock) = Clock::start(&activation, cpu::tsc()) else {
            return;
        };
        self.clock = clock;
        self.generator = ChaCha20Rng::from_seed(activation.entropy);
        self.body_read = 0;
        self.body_read_told = 0;
        self.body_sent = 0;
        self.logged = 0;
        self.unseen = false;
        self.has_request = host::host_says().request_head_len > 0;
        self.commands_read = 0;
        self.commands_done = 0;
    }

    /// The next command that the node has given in this activation, if there is one.
    pub fn next_command(&mut self) -> Option<Command> {
        let written = host::host_counter(HostWord::CommandsWritten);
        if written == self.commands_read {
            return None;
        }
        let length = written.saturating_sub(self.commands_read) as usize;
        let bytes = host::take_area(mailbox::COMMANDS, self.commands_read as usize, length);
        match Command::decode_first(&bytes) {
            Ok((command, length)) => {
                self.commands_read += length as u64;
                Some(command)
            }
            Err(error) => host::fatal(format_args!("a command: {error}")),
        }
    }

    /// A command was done.
    pub fn command_done(&mut self) {
        self.commands_done += 1;
        publish!(commands_done, self.commands_done);
    }

    /// Nanoseconds since this instance was activated.
    pub fn age(&self) -> u64 {
        self.clock.since_activation(cpu::tsc())
    }

    /// Whether a request came with the activation.
    pub fn has_request(&self) -> bool {
        self.has_request
    }

    fn log_record(&mut self, stream: LogStream, bytes: &[u8]) {
        let mut record = Vec::with_capacity(LOG_RECORD_HEADER + bytes.len());
        record.extend_from_slice(&[stream as u8, 0, 0, 0]);
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(bytes);
        while room(mailbox::LOG, self.logged, HostWord::LogRead) < record.len() {
            self.stop(mailbox::WAIT_LOG, None);
        }
        host::write_ring(mailbox::LOG, self.logged, &record);
        self.logged += record.len() as u64;
        publish!(log_written, self.logged);
        self.unseen = true;
    }

    /// Rings for what the node has not seen, if it listens.
    fn tell(&mut self) {
        if self.unseen && host::is_listening() {
            self.unseen = false;
            host::ring_progress();
        }
    }

    /// Stops until the node sees what is waited for, or for `nanoseconds`.
    fn stop(&mut self, wait_for: u32, nanoseconds: Option<u64>) {
        publish!(wait_for, wait_for);
        publish!(wait_nanoseconds, nanoseconds.unwrap_or(u64::MAX));
        // For a time alone the node is not needed, but what it has not seen
        // must not wait that long.
        if wait_for != 0 || self.unseen {
            self.unseen = false;
            host::ring_progress();
        }
        host::ring(Ring::Wait);
        publish!(wait_for, 0);
    }
}

/// Room in a ring of which `written` bytes were filled.
fn room(ring: mailbox::Area, written: u64, read: HostWord) -> usize {
    let used = ring::used(written, host::host_counter(read), ring.size);
    // A host whose counter cannot be true gets nothing.
    used.map_or(0, |used| (ring.size - used) as usize)
}

/// Longest log record, so that one always fits an empty log area.
const LOG_PIECE: usize = 16 << 10;

impl Platform for Instance {
    fn monotonic(&self) -> u64 {
        self.clock.monotonic(cpu::tsc())
    }

    fn wall(&self) -> Duration {
        self.clock.wall(cpu::tsc())
    }

    fn random(&mut self, out: &mut [u8]) {
        self.generator.fill_bytes(out);
    }

    fn wait(&mut self, interest: Interest, deadline: Option<u64>) {
        let left = match deadline {
            None => None,
            Some(deadline) => {
                let left = deadline.saturating_sub(self.monotonic());
                if left == 0 {
                    return;
                }
                Some(left)
            }
        };
        let mut wait_for = 0;
        if interest.request {
            wait_for |= mailbox::WAIT_REQUEST;
        }
        if interest.room {
            wait_for |= mailbox::WAIT_ROOM;
        }
        self.stop(wait_for, left);
    }

    fn log(&mut self, stream: LogStream, bytes: &[u8]) {
        for piece in bytes.chunks(LOG_PIECE) {
            self.log_record(stream, piece);
        }
        self.tell();
    }

    fn incoming(&self) -> Incoming {
        if !self.has_request {
            return Incoming::End;
        }
        // First the end, then the count: a count read first could be older.
        let end = host::host_says().request_end;
        fence(Ordering::Acquire);
        if host::host_counter(HostWord::RequestWritten) > self.body_read {
            return Incoming::Ready;
        }
        if end == mailbox::REQUEST_WHOLE {
            Incoming::End
        } else {
            Incoming::Pending
        }
    }

    fn read_body(&mut self, out: &mut [u8]) -> usize {
        let written = host::host_counter(HostWord::RequestWritten);
        let there = ring::used(written, self.body_read, REQUEST_BODY.size).unwrap_or(0);
        let count = out.len().min(there as usize);
        let Some(out) = out.get_mut(..count) else {
            return 0;
        };
        host::read_ring(REQUEST_BODY, self.body_read, out);
        self.body_read += count as u64;
        publish!(request_read, self.body_read);
        // Half a ring of room: time for the node to fill it while this goes on.
        if self.body_read - self.body_read_told >= REQUEST_BODY.size / 2 {
            self.body_read_told = self.body_read;
            self.unseen = true;
            self.tell();
        }
        count
    }

    fn request_trailers(&self) -> Vec<Pair> {
        let length = host::host_says().request_trailers_len as usize;
        let mut bytes = vec![0; length.min(mailbox::REQUEST_TRAILERS.size as usize)];
        host::read_area(mailbox::REQUEST_TRAILERS, 0, &mut bytes);
        // The host spells them right; if not, there are none.
        decode_fields(&bytes).unwrap_or_default()
    }

    fn send_head(&mut self, head: &ResponseHead) -> Result<(), SendError> {
        let bytes = head.encode();
        if !host::write_area(mailbox::RESPONSE_HEAD, 0, &bytes) {
            return Err(SendError::HeadTooLarge);
        }
        publish!(response_head_len, bytes.len() as u32);
        self.unseen = true;
        Ok(())
    }

    fn room(&self) -> usize {
        room(RESPONSE_BODY, self.body_sent, HostWord::ResponseRead)
    }

    fn send_body(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        let taken = bytes.get(..count).unwrap_or_default();
        if !taken.is_empty() {
            host::write_ring(RESPONSE_BODY, self.body_sent, taken);
            self.body_sent += count as u64;
            publish!(response_written, self.body_sent);
            self.unseen = true;
            // Half full: time for the node to empty it while this goes on.
            if (self.room() as u64) < RESPONSE_BODY.size / 2 {
                self.tell();
            }
        }
        count
    }

    fn flush(&mut self) {
        self.tell();
    }

    fn finish_body(&mut self, trailers: &[Pair]) -> Result<(), SendError> {
        if !trailers.is_empty() {
            let bytes = encode_fields(trailers);
            if !host::write_area(mailbox::RESPONSE_TRAILERS, 0, &bytes) {
                return Err(SendError::TrailersTooLarge);
            }
            publish!(response_trailers_len, bytes.len() as u32);
        }
        publish!(response_end, 1);
        self.unseen = true;
        self.tell();
        Ok(())
    }
}
