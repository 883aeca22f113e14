//! The identity of this guest instance: clock, entropy, and the platform on top of them.
//!
//! After every ring the guest may be in another VM, forked from a seed. [`Instance::resume`] is
//! therefore the first call after a ring. It takes time base and entropy from the boot page before
//! any other code can use them.

use core::sync::atomic::{Ordering, compiler_fence, fence};
use core::time::Duration;

use alloc::vec;
use alloc::vec::Vec;
use faasw_abi::channel::{Channel, ChannelWords, HEAD_MAX, PerChannel, TAIL_MAX, Waits};
use faasw_abi::clock::Clock;
use faasw_abi::command::Command;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::{self, LOG_RECORD_HEADER};
use faasw_runtime::draws::Draws;
use faasw_runtime::platform::{Incoming, LogStream, Platform, SendError};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use crate::host::{HostWord, publish, publish_of, read_host_word};
use crate::{cpu, host};

/// The platform that the runtime runs on, see [`Platform`].
pub struct Instance {
    clock: Clock,
    generator: ChaCha20Rng,
    /// The channels that are open.
    open: u32,
    /// The progress of each channel.
    channels: PerChannel<Position>,
    /// Bytes written to the log.
    logged: u64,
    /// Whether bytes were published without a notification of the node.
    unseen: bool,
    /// Bytes read of the commands.
    commands_read: u64,
    /// Number of completed commands.
    commands_done: u32,
    /// Time at which the last command began, as the instance's age in nanoseconds.
    step_begun: u64,
    /// Time at which the function was ready for its request, as the instance's age in nanoseconds.
    begun: u64,
}

/// The progress of a channel, by the guest's own count.
#[derive(Clone, Copy, Default)]
struct Position {
    /// Bytes read of the incoming message, including its head.
    read: u64,
    /// The value of `read` of which the node was notified last.
    read_notified: u64,
    /// Bytes written of the outgoing message.
    written: u64,
    /// How often the channel was used before.
    turn: u64,
}

impl Instance {
    /// Returns the instance of the first activation of this guest.
    pub fn new() -> Self {
        let mut instance = Self {
            clock: Clock::stopped(),
            generator: ChaCha20Rng::from_seed([0; 32]),
            open: 0,
            channels: PerChannel::default(),
            logged: 0,
            unseen: false,
            commands_read: 0,
            commands_done: 0,
            step_begun: 0,
            begun: 0,
        };
        instance.resume();
        instance
    }

    /// Takes the activation from the boot page and the mailbox, if there is a new one. A guest that
    /// continues where it rang keeps its time and its generator.
    pub fn resume(&mut self) {
        let activation = host::take_activation();
        let Some(mut clock) = Clock::start(&activation, cpu::tsc()) else {
            return;
        };
        if activation.poll_ticks != 0 {
            wait_for_request(activation.poll_ticks);
            clock = clock.begun_at(cpu::tsc());
        }
        self.clock = clock;
        self.generator = ChaCha20Rng::from_seed(activation.entropy);
        self.open = read_host_word!(open);
        self.channels = PerChannel::default();
        self.logged = 0;
        self.unseen = false;
        self.commands_read = 0;
        self.commands_done = 0;
        self.step_begun = 0;
    }

    /// Returns the next command of this activation, if there is one.
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
                self.step_begun = self.age();
                Some(command)
            }
            Err(error) => host::fatal(format_args!("a command is invalid: {error}")),
        }
    }

    /// Counts a completed command.
    pub fn command_done(&mut self) {
        self.commands_done += 1;
        publish!(commands_done, self.commands_done);
    }

    /// Returns the nanoseconds since this instance was activated.
    pub fn age(&self) -> u64 {
        self.clock.since_activation(cpu::tsc())
    }

    /// Reports the draws of the function so far, and the duration of this step.
    pub fn report_draws(&self, draws: &Draws) {
        let drawn = host::write_report(format_args!("{draws}"));
        publish!(draws, draws.bits());
        publish!(report_len, drawn);
        let took = self.age().saturating_sub(self.step_begun);
        publish!(init_nanoseconds, took);
    }

    /// Records that the function is ready for its request.
    pub fn begin(&mut self) {
        self.begun = self.age();
        publish!(init_nanoseconds, self.begun);
    }

    /// Returns the nanoseconds since [`Instance::begin`].
    pub fn served_for(&self) -> u64 {
        self.age().saturating_sub(self.begun)
    }

    /// Rings at a freeze point, with the current time for a seed that is frozen there.
    pub fn ring_at_freeze_point(&mut self, why: Doorbell) {
        let now = self.monotonic();
        publish!(monotonic_nanoseconds, now);
        host::ring(why);
        self.resume();
    }

    /// Returns whether a request came with the activation.
    pub fn has_request(&self) -> bool {
        self.is_open(Channel::INVOCATION)
    }

    /// Appends to the outgoing message of a channel. The caller must ensure that there is space.
    fn put(&mut self, channel: Channel, bytes: &[u8]) {
        let position = &mut self.channels[channel];
        host::write_ring(channel.to_host(), position.written, bytes);
        position.written += bytes.len() as u64;
        publish_of!(channel, written, position.written);
        self.unseen = true;
    }

    fn log_record(&mut self, stream: LogStream, bytes: &[u8]) {
        let mut record = Vec::with_capacity(LOG_RECORD_HEADER + bytes.len());
        record.extend_from_slice(&[stream as u8, 0, 0, 0]);
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(bytes);
        let free = |logged| {
            let used = mailbox::LOG.used(logged, host::host_counter(HostWord::LogRead));
            used.map_or(0, |used| (mailbox::LOG.size() - used) as usize)
        };
        while free(self.logged) < record.len() {
            self.stop(Waits::LOG, None);
        }
        host::write_ring(mailbox::LOG, self.logged, &record);
        self.logged += record.len() as u64;
        publish!(log_written, self.logged);
        self.unseen = true;
    }

    /// Rings for bytes that the node has not seen, if the host listens.
    fn notify_node(&mut self) {
        if self.unseen && host::is_listening() {
            self.unseen = false;
            host::ring_progress();
        }
    }

    /// Stops until one of the events occurs, or for `nanoseconds`.
    fn stop(&mut self, waits: Waits, nanoseconds: Option<u64>) {
        publish!(wait_for, waits.word());
        publish!(wait_nanoseconds, nanoseconds.unwrap_or(u64::MAX));
        // A wait for time alone does not need the node, but bytes that it has not seen must not
        // wait that long.
        if !waits.is_empty() || self.unseen {
            self.unseen = false;
            host::ring_progress();
        }
        host::ring(Doorbell::Wait);
        publish!(wait_for, 0);
    }
}

/// Maximum bytes of a log record, so that one always fits an empty log area.
const LOG_PIECE: usize = 16 << 10;

/// Polls for a request until there is one. Polling is worthwhile for as long as an exit to the
/// host, and the way back, would cost more. The guest rings [`Doorbell::Unasked`] each time that
/// `ticks` of the time-stamp counter have passed.
fn wait_for_request(ticks: u64) {
    loop {
        let begun = cpu::tsc();
        while cpu::tsc().wrapping_sub(begun) < ticks {
            if read_host_word!(go) != 0 {
                // Bytes that the host wrote before this word are visible from here on.
                compiler_fence(Ordering::Acquire);
                return;
            }
            core::hint::spin_loop();
        }
        host::ring(Doorbell::Unasked);
    }
}

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

    fn freeze(&mut self, draws: &Draws) {
        if !self.has_request() {
            self.report_draws(draws);
            self.ring_at_freeze_point(Doorbell::Entry);
            self.begin();
        }
    }

    fn wait(&mut self, waits: Waits, deadline: Option<u64>) {
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
        self.stop(waits, left);
    }

    fn log(&mut self, stream: LogStream, bytes: &[u8]) {
        for piece in bytes.chunks(LOG_PIECE) {
            self.log_record(stream, piece);
        }
        self.notify_node();
    }

    fn is_open(&self, channel: Channel) -> bool {
        channel.kind().is_some() && self.open & channel.bit() != 0
    }

    fn is_free(&self, channel: Channel) -> bool {
        let said = host::host_channel_words(channel);
        self.is_open(channel) && said.turn == self.channels[channel].turn && said.is_untouched()
    }

    fn abandon_channel(&mut self, channel: Channel) {
        let turn = self.channels[channel].turn + 1;
        self.channels[channel] = Position {
            turn,
            ..Position::default()
        };
        // The turn is changed first: a reader that sees the old and new words mixed then knows that
        // they are changing.
        publish_of!(channel, turn, turn);
        publish_of!(channel, written, 0);
        publish_of!(channel, read, 0);
        publish_of!(channel, head, 0);
        publish_of!(channel, end, 0);
        self.unseen = true;
        self.notify_node();
    }

    fn has_head(&self, channel: Channel) -> bool {
        self.is_open(channel) && host::host_channel_words(channel).head != 0
    }

    fn head(&mut self, channel: Channel) -> Vec<u8> {
        if !self.is_open(channel) {
            return Vec::new();
        }
        let length = u64::from(host::host_channel_words(channel).head);
        fence(Ordering::Acquire);
        let mut head = vec![0; length.min(HEAD_MAX) as usize];
        host::read_ring(channel.to_guest(), 0, &mut head);
        self.channels[channel].read = length;
        publish_of!(channel, read, length);
        head
    }

    fn incoming(&self, channel: Channel) -> Incoming {
        if !self.is_open(channel) {
            return Incoming::End;
        }
        // The end is read before the count, because a count that is read first could be older.
        let end = host::host_channel_words(channel).end;
        fence(Ordering::Acquire);
        if host::host_counter(HostWord::Written(channel)) > self.channels[channel].read {
            Incoming::Ready
        } else if end != 0 {
            Incoming::End
        } else {
            Incoming::Pending
        }
    }

    fn read(&mut self, channel: Channel, out: &mut [u8]) -> usize {
        let ring = channel.to_guest();
        let written = host::host_counter(HostWord::Written(channel));
        let position = &mut self.channels[channel];
        let there = ring.used(written, position.read).unwrap_or(0);
        let count = out.len().min(there as usize);
        let Some(out) = out.get_mut(..count) else {
            return 0;
        };
        host::read_ring(ring, position.read, out);
        position.read += count as u64;
        publish_of!(channel, read, position.read);
        // Half of the ring is free: the node has time to fill it while this guest continues.
        if position.read - position.read_notified >= ring.size() / 2 {
            position.read_notified = position.read;
            self.unseen = true;
            self.notify_node();
        }
        count
    }

    fn tail(&self, channel: Channel) -> Vec<u8> {
        let words = host::host_channel_words(channel);
        let length = u64::from(words.tail().unwrap_or(0));
        let mut tail = vec![0; length.min(TAIL_MAX) as usize];
        host::read_ring(channel.to_guest(), words.written, &mut tail);
        tail
    }

    fn send_head(
        &mut self,
        channel: Channel,
        head: &[u8],
        is_whole: bool,
    ) -> Result<(), SendError> {
        if head.len() as u64 > HEAD_MAX {
            return Err(SendError::HeadTooLarge);
        }
        self.put(channel, head);
        if is_whole {
            publish_of!(channel, end, ChannelWords::end_with(0));
        }
        publish_of!(channel, head, head.len() as u32);
        Ok(())
    }

    fn room(&self, channel: Channel) -> usize {
        let ring = channel.to_host();
        let read = host::host_counter(HostWord::Read(channel));
        // A host whose counter cannot be true receives nothing.
        let used = ring.used(self.channels[channel].written, read);
        let free = ring.size() - used.unwrap_or(ring.size());
        // The body never uses the space that a tail needs.
        free.saturating_sub(TAIL_MAX) as usize
    }

    fn send(&mut self, channel: Channel, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room(channel));
        let taken = bytes.get(..count).unwrap_or_default();
        if !taken.is_empty() {
            self.put(channel, taken);
            // Half of the ring is full: the node has time to empty it while this guest continues.
            if (self.room(channel) as u64) < channel.to_host().size() / 2 {
                self.notify_node();
            }
        }
        count
    }

    fn flush(&mut self) {
        self.notify_node();
    }

    fn finish(&mut self, channel: Channel, tail: &[u8]) -> Result<(), SendError> {
        if tail.len() as u64 > TAIL_MAX {
            return Err(SendError::TailTooLarge);
        }
        host::write_ring(channel.to_host(), self.channels[channel].written, tail);
        publish_of!(channel, end, ChannelWords::end_with(tail.len() as u32));
        self.unseen = true;
        self.notify_node();
        Ok(())
    }
}
