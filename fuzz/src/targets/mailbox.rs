//! A mailbox that the node reads in the course of an invocation, while its guest writes arbitrary
//! bytes to it.
//!
//! Input: rounds of the guest's words and of bytes for places in its areas.

use std::mem::offset_of;
use std::os::fd::AsFd as _;

use faasw_abi::channel::{Channel, ChannelKind, ChannelWords, HEAD_MAX, TAIL_MAX};
use faasw_abi::mailbox::{Area, GUEST_WORDS, GuestWords, HOST_WORDS, HostWords, LOG, REPORT};
use faasw_abi::ring::RingBuffer;
use faasw_pool::InvokeError;
use faasw_pool::fuzzing::{Mailbox, outcome};
use rustix::io::{pread, pwrite};
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::Target;
use crate::input::Input;

/// The ring of a body is copied as a whole at most.
pub const TARGET: Target = Target {
    name: "mailbox",
    read,
    memory: 4 << 20,
    per_byte: 0,
    executions: 20_000,
};

const REQUEST: RingBuffer = Channel::INVOCATION.to_guest();
const RESPONSE: RingBuffer = Channel::INVOCATION.to_host();

/// Areas that a guest writes.
pub const AREAS: [Area; 3] = [RESPONSE.area, REPORT, LOG.area];

/// Bytes of the guest's words that the node reads while one channel is open.
pub const WORDS: usize = offset_of!(GuestWords, channels) + size_of::<ChannelWords>();

/// The most bytes that the node takes at once.
const PART: usize = 64 << 10;

struct Invocation {
    mailbox: Mailbox,
    /// How many bytes of the response the node has taken, by its own count.
    response_read: u64,
    /// How many of them the node has acknowledged in its words.
    told_read: u64,
    request_written: u64,
    log_read: u64,
}

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let mut mailbox = Mailbox::new().unwrap_or_else(|error| panic!("{error}"));
    let head = b"a head";
    let opened = mailbox.open(ChannelKind::Invocation, head, false, true);
    opened.unwrap_or_else(|error| panic!("{error}"));
    let mut invocation = Invocation {
        mailbox,
        response_read: 0,
        told_read: 0,
        request_written: head.len() as u64,
        log_read: 0,
    };
    while !input.is_over() {
        invocation.guest_writes(&mut input);
        match invocation.node_reads() {
            Ok(()) => {}
            // The instance ends, and the node reads nothing more of it.
            Err(InvokeError::GuestFailed(_)) => return false,
            Err(error) => panic!("not the guest's fault? {error}"),
        }
    }
    true
}

/// Returns the guest's words of the channel.
fn told(words: &GuestWords) -> ChannelWords {
    words.channels[Channel::INVOCATION]
}

impl Invocation {
    fn put(&self, offset: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.mailbox, bytes, offset), Ok(bytes.len()));
    }

    fn guest_writes(&self, input: &mut Input<'_>) {
        self.put(GUEST_WORDS.offset, &input.array::<WORDS>());
        for _ in 0..input.byte() % 8 {
            let area = AREAS.get(usize::from(input.byte()) % AREAS.len());
            let area = area.copied().unwrap_or(LOG.area);
            let (at, length) = (u64::from(input.short()) % area.size, input.short());
            let room = usize::try_from(area.size - at).unwrap_or(0);
            self.put(area.offset + at, input.take(usize::from(length).min(room)));
        }
    }

    fn node_reads(&mut self) -> Result<(), InvokeError> {
        let words = self.mailbox.guest()?;
        self.log(&words)?;
        self.head(&words)?;
        self.request(&words)?;
        if self.mailbox.has_taken_head(Channel::INVOCATION) {
            self.part_of_response(&words)?;
        }
        let report = self.mailbox.report(&words)?;
        // A control character becomes six characters, such as `\u{1b}`.
        assert!(report.len() as u64 <= 6 * REPORT.size);
        assert!(!report.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')));
        // Any report leads to an error or none, whose text is bounded, too.
        if let Err(error) = outcome(&self.mailbox, &words) {
            assert!(error.to_string().len() as u64 <= 6 * REPORT.size + 200);
        }
        self.host_words_are_true();
        Ok(())
    }

    fn head(&mut self, words: &GuestWords) -> Result<(), InvokeError> {
        let was_taken = self.mailbox.has_taken_head(Channel::INVOCATION);
        let head = self.mailbox.take_head(Channel::INVOCATION, words)?;
        let is_there = told(words).head != 0;
        assert_eq!(head.is_some(), !was_taken && is_there);
        if let Some(head) = head {
            assert!(head.len() as u64 <= HEAD_MAX.min(told(words).written));
            self.is_of_ring(0, &head);
            self.response_read = head.len() as u64;
        }
        Ok(())
    }

    /// Checks that `bytes` are exactly the bytes of the ring from position `at` on.
    fn is_of_ring(&self, at: u64, bytes: &[u8]) {
        let mut ring = vec![0; RESPONSE.size() as usize];
        let whole = pread(&self.mailbox, ring.as_mut_slice(), RESPONSE.area.offset);
        assert_eq!(whole, Ok(ring.len()));
        ring.rotate_left((at % RESPONSE.size()) as usize);
        assert!(ring.starts_with(bytes));
    }

    fn log(&mut self, words: &GuestWords) -> Result<(), InvokeError> {
        let records = self.mailbox.take_log(words)?;
        let size: usize = records.iter().map(|record| 8 + record.bytes.len()).sum();
        assert_eq!(size as u64, words.log_written - self.log_read);
        assert!(size as u64 <= LOG.size());
        self.log_read = words.log_written;
        Ok(())
    }

    fn request(&mut self, words: &GuestWords) -> Result<(), InvokeError> {
        let room = self.mailbox.room(Channel::INVOCATION, words)?;
        let put = self.mailbox.put(Channel::INVOCATION, words, &[7; 3000])?;
        assert_eq!(put, room.min(3000));
        self.request_written += put as u64;
        if put > 0 {
            self.told_read = self.response_read;
        }
        // The node overwrites nothing that the guest has not read yet, and leaves space for a tail.
        let untaken = self.request_written - told(words).read;
        assert!(put == 0 || untaken <= REQUEST.size() - TAIL_MAX);
        Ok(())
    }

    fn part_of_response(&mut self, words: &GuestWords) -> Result<(), InvokeError> {
        let waiting = self.mailbox.waiting(Channel::INVOCATION, words)?;
        assert!(waiting <= RESPONSE.size());
        let at = self.response_read;
        let tail = self.mailbox.tail(Channel::INVOCATION, words)?;
        assert_eq!(tail.is_some(), told(words).end != 0);
        let part = match &tail {
            None => self.mailbox.take(Channel::INVOCATION, words, PART)?,
            Some(_) => self
                .mailbox
                .take_rest(Channel::INVOCATION, words)?
                .map(|left| left.body)
                .unwrap_or_default(),
        };
        self.response_read += part.len() as u64;
        if !part.is_empty() {
            self.told_read = self.response_read;
        }
        assert!(part.len() as u64 <= waiting && part.is_empty() == (waiting == 0));
        self.is_of_ring(at, &part);
        if let Some(tail) = tail {
            assert!(tail.len() as u64 <= TAIL_MAX);
            self.is_of_ring(told(words).written, &tail);
            // The node does not acknowledge what it takes at the end, because the guest no longer
            // reads that. Here the invocation goes on, so the target acknowledges it.
            self.put(READ, self.response_read.as_bytes());
            self.told_read = self.response_read;
        }
        Ok(())
    }

    fn host_words_are_true(&self) {
        let mut words = HostWords::new_zeroed();
        let read = pread(
            self.mailbox.as_fd(),
            words.as_mut_bytes(),
            HOST_WORDS.offset,
        );
        assert_eq!(read, Ok(size_of::<HostWords>()));
        let said = words.channels[Channel::INVOCATION];
        assert_eq!(
            (said.written, said.read, words.log_read),
            (self.request_written, self.told_read, self.log_read)
        );
    }
}

/// Offset of the word in which the node acknowledges how much of the response it has taken.
const READ: u64 =
    HOST_WORDS.offset + (offset_of!(HostWords, channels) + offset_of!(ChannelWords, read)) as u64;
