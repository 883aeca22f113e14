//! The node's side of a mailbox.
//!
//! The node copies data by `pread` and `pwrite`, except for single words of a hot mailbox. So it
//! has no reference to memory that a guest writes at the same time, and it examines a value only
//! after copying it. Lengths and counters are the guest's word: each is checked against its area
//! before anything is copied.

mod hot;
#[cfg(test)]
mod tests;

use std::fmt;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use faasw_abi::channel::{Channel, ChannelWords};
use faasw_abi::command::Commands;
use faasw_abi::mailbox::{self, GUEST_WORDS, GuestWords, HOST_WORDS, HostWords, LOG};
use faasw_abi::ring::RingBuffer;
use faasw_common::text::Lines;
use faasw_fri::control::FILE_BYTES;
use faasw_seedtree::{memory_file, read_at, write_at};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use self::hot::MappedPages;
use super::log_record::{LogRecord, parse as parse_log};
use crate::error::{InvokeError, PlatformError};

/// The guest's words are read again at most this many times, until two readings agree. A guest
/// writes them at intervals that are far longer than a reading.
const READS: u32 = 16;

/// The mailbox of one instance, and the node's progress in it.
#[derive(Debug)]
pub struct Mailbox {
    file: OwnedFd,
    /// The node's words in the mailbox, including how far it has read. The node never reads them
    /// back.
    pub(crate) host_words: HostWords,
    commands: u32,
    /// Set once the instance was to be hot.
    mapped: Option<MappedPages>,
}

pub(super) fn system(error: Errno) -> PlatformError {
    PlatformError::System {
        what: "the mailbox could not be used",
        error,
    }
}

pub(super) fn impossible_length(what: &dyn fmt::Display, length: u64, most: u64) -> InvokeError {
    InvokeError::GuestFailed(format!(
        "it announced a {what} of {length} bytes where {most} fit"
    ))
}

/// Returns how much is in a ring, if the counters are possible.
pub(super) fn in_ring(
    what: &dyn fmt::Display,
    written: u64,
    read: u64,
    ring: RingBuffer,
) -> Result<u64, InvokeError> {
    ring.used(written, read).ok_or_else(|| {
        InvokeError::GuestFailed(format!(
            "its {what} cannot be: {written} bytes written and {read} read in a ring of {}",
            ring.size()
        ))
    })
}

/// Returns how many bytes of the guest's words describe these channels and everything that belongs
/// to no channel.
fn words_of(open: u32) -> usize {
    offset_of!(GuestWords, channels) + channels_to(open) * size_of::<ChannelWords>()
}

/// Returns the number of channels up to the last of these.
fn channels_to(open: u32) -> usize {
    (u32::BITS - open.leading_zeros()) as usize
}

impl Mailbox {
    /// Creates an empty mailbox of fixed size.
    ///
    /// # Errors
    /// Returns the error of the system if the file cannot be made.
    pub fn new() -> Result<Self, PlatformError> {
        let file = memory_file("faasw-mailbox").map_err(system)?;
        rustix::fs::ftruncate(&file, FILE_BYTES).map_err(system)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(system)?;
        Ok(Self {
            file,
            host_words: HostWords::new_zeroed(),
            commands: 0,
            mapped: None,
        })
    }

    /// Records that the sandbox wiped the whole mailbox.
    pub fn note_wiped(&mut self) {
        self.host_words = HostWords::new_zeroed();
        self.commands = 0;
    }

    /// Appends commands for the guest to run when it is activated or continues.
    ///
    /// # Errors
    /// Returns `NOSPC` if they do not fit, or the error of writing to the mailbox.
    pub fn put_commands(&mut self, commands: &Commands) -> Result<(), PlatformError> {
        let area = mailbox::COMMANDS;
        let at = self.host_words.commands_written;
        let end = at + commands.bytes().len() as u64;
        if end > area.size {
            return Err(system(Errno::NOSPC));
        }
        self.write(area.offset + at, commands.bytes())?;
        self.host_words.commands_written = end;
        self.commands += commands.count();
        self.publish(offset_of!(HostWords, commands_written), &end)
    }

    /// Returns how many commands the guest received in this activation.
    pub fn commands(&self) -> u32 {
        self.commands
    }

    /// Returns whether the guest was requested to ring at its end, before it stops.
    pub fn has_requested_end_ring(&self) -> bool {
        self.host_words.tell_end != 0
    }

    /// Returns whether there is no trace of a guest: it has published nothing, and so has taken
    /// nothing of the request.
    ///
    /// # Errors
    /// Returns the error of reading the mailbox.
    pub fn is_untouched(&self) -> Result<bool, PlatformError> {
        let words = self.guest()?;
        let read = self
            .host_words
            .channels
            .0
            .iter()
            .map(|channel| channel.read);
        let taken = read.chain([self.host_words.log_read]).any(|read| read != 0);
        Ok(!taken && words.as_bytes().iter().all(|byte| *byte == 0))
    }

    /// Requests that the guest ring for data that it flushes from now on.
    ///
    /// # Errors
    /// Returns the error of writing to the mailbox.
    pub fn listen(&mut self) -> Result<(), PlatformError> {
        self.host_words.listening = 1;
        self.publish(offset_of!(HostWords, listening), &1_u32)
    }

    /// Returns a copy of the guest's present words. The words of channels that are not open are
    /// zero, whatever the guest has written there.
    ///
    /// # Errors
    /// Returns the error of reading the mailbox.
    pub fn guest(&self) -> Result<GuestWords, PlatformError> {
        let length = words_of(self.host_words.open);
        let read = |words: &mut GuestWords| {
            let words = words.as_mut_bytes().get_mut(..length);
            self.read(GUEST_WORDS.offset, words.unwrap_or_default())
        };
        let mut words = GuestWords::new_zeroed();
        read(&mut words)?;
        // A running guest may change a counter during the copy.
        for _ in 0..READS {
            let mut again = GuestWords::new_zeroed();
            read(&mut again)?;
            let same = again.as_bytes() == words.as_bytes();
            words = again;
            if same {
                break;
            }
        }
        let channels = words
            .channels
            .0
            .iter_mut()
            .enumerate()
            .take(channels_to(self.host_words.open));
        for (number, channel) in channels {
            if self.host_words.open & 1 << number == 0 {
                *channel = ChannelWords::default();
            }
        }
        Ok(words)
    }

    /// Returns a copy of the report, escaped except for its line breaks.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if its length is impossible, or the error of reading
    /// the mailbox.
    pub fn report(&self, guest: &GuestWords) -> Result<String, InvokeError> {
        let area = mailbox::REPORT;
        let length = u64::from(guest.report_len);
        if length > area.size {
            return Err(impossible_length(&"report", length, area.size));
        }
        let mut bytes = vec![0; length as usize];
        self.read(area.offset, &mut bytes)?;
        Ok(Lines(String::from_utf8_lossy(&bytes)).to_string())
    }

    /// Takes the log.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if it does not consist of records or the guest's
    /// counter is impossible, or the error of accessing the mailbox.
    pub fn take_log(&mut self, guest: &GuestWords) -> Result<Vec<LogRecord>, InvokeError> {
        let read = self.host_words.log_read;
        let count = in_ring(&"log", guest.log_written, read, LOG)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.copy_ring(LOG, read, count as usize)?;
        self.host_words.log_read += count;
        self.publish(offset_of!(HostWords, log_read), &self.host_words.log_read)?;
        parse_log(&bytes)
    }

    /// Writes bytes to a ring, from byte number `at` on.
    pub(crate) fn put_ring(
        &self,
        ring: RingBuffer,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), PlatformError> {
        let mut rest = bytes;
        for piece in ring.pieces(at, bytes.len()) {
            let (now, later) = rest.split_at(piece.length.min(rest.len()));
            self.write(piece.offset, now)?;
            rest = later;
        }
        Ok(())
    }

    /// Returns a copy of the bytes of a ring from byte number `at` on.
    pub(crate) fn copy_ring(
        &self,
        ring: RingBuffer,
        at: u64,
        count: usize,
    ) -> Result<Vec<u8>, PlatformError> {
        let mut bytes = vec![0; count];
        let mut rest = bytes.as_mut_slice();
        for piece in ring.pieces(at, count) {
            let (now, later) = rest.split_at_mut(piece.length.min(rest.len()));
            self.read(piece.offset, now)?;
            rest = later;
        }
        Ok(bytes)
    }

    /// Publishes the words of a channel to a guest that may run. The guest draws conclusions from
    /// the written count and the end together, and could see them change in any order. So only one
    /// of the two may have changed.
    pub(super) fn publish_channel(&self, channel: Channel) -> Result<(), PlatformError> {
        let within = channel.number() * size_of::<ChannelWords>();
        let at = offset_of!(HostWords, channels) + within;
        self.publish(at, &self.host_words.channels[channel])
    }

    /// Publishes the words of the channels up to this one, and everything before them, to a guest
    /// that does not run.
    pub(super) fn publish_up_to(&self, channel: Channel) -> Result<(), PlatformError> {
        let channels = (channel.number() + 1) * size_of::<ChannelWords>();
        let words = self.host_words.as_bytes();
        let words = words.get(..offset_of!(HostWords, channels) + channels);
        self.write(HOST_WORDS.offset, words.unwrap_or_default())
    }

    /// Changes a word of the node's.
    pub(super) fn publish(
        &self,
        offset: usize,
        value: &impl WordValue,
    ) -> Result<(), PlatformError> {
        self.write(HOST_WORDS.offset + offset as u64, value.as_bytes())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), PlatformError> {
        write_at(&self.file, offset, bytes).map_err(system)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), PlatformError> {
        read_at(&self.file, offset, out).map_err(system)
    }
}

/// The types of the node's words.
pub(super) trait WordValue: IntoBytes + zerocopy::Immutable {}
impl WordValue for u32 {}
impl WordValue for u64 {}
impl WordValue for ChannelWords {}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
