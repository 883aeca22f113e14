//! A mailbox, as the node reads it in the course of an exchange while its guest writes
//! whatever it likes.
//!
//! Input: rounds of the guest's words and of bytes for places in its areas.

use std::os::fd::AsFd as _;

use faasw_abi::mailbox::{
    Area, GUEST_WORDS, GuestWords, HOST_WORDS, HostWords, LOG, REPORT, REQUEST_BODY, RESPONSE_BODY,
    RESPONSE_HEAD, RESPONSE_TRAILERS,
};
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

/// Areas that a guest writes.
pub const AREAS: [Area; 5] = [RESPONSE_HEAD, REPORT, LOG, RESPONSE_TRAILERS, RESPONSE_BODY];

/// What the node asks of one part at most.
const PART: usize = 64 << 10;

struct Exchange {
    mailbox: Mailbox,
    /// What the node has taken and put, by its own count.
    response_read: u64,
    request_written: u64,
    log_read: u64,
}

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let mailbox = Mailbox::new().unwrap_or_else(|error| panic!("{error}"));
    let mut exchange = Exchange {
        mailbox,
        response_read: 0,
        request_written: 0,
        log_read: 0,
    };
    while !input.is_over() {
        exchange.guest_writes(&mut input);
        match exchange.node_reads() {
            Ok(()) => {}
            // The instance ends, and nothing of it is looked at any more.
            Err(InvokeError::GuestFailed(_)) => return false,
            Err(error) => panic!("not the guest's fault? {error}"),
        }
    }
    true
}

impl Exchange {
    fn put(&self, offset: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.mailbox, bytes, offset), Ok(bytes.len()));
    }

    fn guest_writes(&self, input: &mut Input<'_>) {
        self.put(
            GUEST_WORDS.offset,
            &input.array::<{ size_of::<GuestWords>() }>(),
        );
        for _ in 0..input.byte() % 8 {
            let area = AREAS.get(usize::from(input.byte()) % AREAS.len());
            let area = area.copied().unwrap_or(LOG);
            let (at, length) = (u64::from(input.short()) % area.size, input.short());
            let room = usize::try_from(area.size - at).unwrap_or(0);
            self.put(area.offset + at, input.take(usize::from(length).min(room)));
        }
    }

    fn node_reads(&mut self) -> Result<(), InvokeError> {
        let words = self.mailbox.guest()?;
        self.log(&words)?;
        if let Some(head) = self.mailbox.head(&words)? {
            let size = head.headers.iter().map(|(a, b)| a.len() + b.len());
            assert!(size.sum::<usize>() as u64 <= RESPONSE_HEAD.size);
        }
        self.request(&words)?;
        self.part_of_response(&words)?;
        let trailers = self.mailbox.trailers(&words)?;
        let size = trailers.iter().map(|(a, b)| a.len() + b.len());
        assert!(size.sum::<usize>() as u64 <= RESPONSE_TRAILERS.size);
        let report = self.mailbox.report(&words)?;
        // A control character becomes six, such as `\u{1b}`.
        assert!(report.len() as u64 <= 6 * REPORT.size);
        assert!(!report.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')));
        // Whatever it says is an error or none, in as many words.
        if let Err(error) = outcome(&self.mailbox, &words) {
            assert!(error.to_string().len() as u64 <= 6 * REPORT.size + 200);
        }
        self.host_words_are_true();
        Ok(())
    }

    fn log(&mut self, words: &GuestWords) -> Result<(), InvokeError> {
        let records = self.mailbox.take_log(words)?;
        let size: usize = records.iter().map(|record| 8 + record.bytes.len()).sum();
        assert_eq!(size as u64, words.log_written - self.log_read);
        assert!(size as u64 <= LOG.size);
        self.log_read = words.log_written;
        Ok(())
    }

    fn request(&mut self, words: &GuestWords) -> Result<(), InvokeError> {
        let room = self.mailbox.request_room(words)?;
        let put = self.mailbox.put_body(words, &[7; 3000])?;
        assert_eq!(put, room.min(3000));
        self.request_written += put as u64;
        // Nothing is overwritten that the guest says it has not read.
        assert!(self.request_written - words.request_read <= REQUEST_BODY.size);
        Ok(())
    }

    fn part_of_response(&mut self, words: &GuestWords) -> Result<(), InvokeError> {
        let waiting = self.mailbox.response_waiting(words)?;
        assert!(waiting <= RESPONSE_BODY.size);
        let at = self.response_read;
        let part = match words.response_end {
            0 => self.mailbox.take_body(words, PART)?,
            _ => self.mailbox.take_rest(words)?,
        };
        self.response_read += part.len() as u64;
        assert!(part.len() as u64 <= waiting && part.is_empty() == (waiting == 0));
        // Byte for byte what lies where its number says.
        let mut ring = vec![0; RESPONSE_BODY.size as usize];
        let whole = pread(&self.mailbox, ring.as_mut_slice(), RESPONSE_BODY.offset);
        assert_eq!(whole, Ok(ring.len()));
        ring.rotate_left((at % RESPONSE_BODY.size) as usize);
        assert!(ring.starts_with(&part));
        // What the end took is told by nobody, since nobody looks; here, it goes on.
        if words.response_end != 0 {
            let offset = std::mem::offset_of!(HostWords, response_read) as u64;
            self.put(HOST_WORDS.offset + offset, self.response_read.as_bytes());
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
        assert_eq!(
            (words.response_read, words.request_written, words.log_read),
            (self.response_read, self.request_written, self.log_read)
        );
    }
}
