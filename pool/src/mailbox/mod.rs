//! The node's side of a mailbox.
//!
//! The node never maps one. It copies in and out by `pread` and `pwrite`, so
//! there is no reference to memory that a guest writes at the same time, and a
//! value is looked at only after it was copied. Lengths and counters are the
//! guest's word: each is held against its area before anything is copied.

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use faasw_abi::mailbox::{
    self, Area, GUEST_WORDS, GuestWords, HOST_WORDS, HostWords, LOG_RECORD_HEADER, MAILBOX_BYTES,
    REQUEST_WHOLE,
};
use faasw_abi::ring::{pieces, used};
use faasw_abi::wire::{Pair, ResponseHead, decode_fields, encode_fields};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{InvokeError, PlatformError};
use crate::function::LogStream;

/// How often the guest's words are read until they hold still. A guest writes
/// them far less often than this takes.
const READS: u32 = 16;

/// A mailbox of one instance, and how far the node is with it.
#[derive(Debug)]
pub struct Mailbox {
    file: OwnedFd,
    request_written: u64,
    response_read: u64,
    log_read: u64,
}

/// A piece of log as the guest wrote it.
#[derive(Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its stream.
    pub stream: LogStream,
    /// Its bytes: any part of a line or several.
    pub bytes: Vec<u8>,
}

fn system(error: Errno) -> PlatformError {
    PlatformError::System {
        what: "the mailbox could not be used",
        error,
    }
}

fn lie(what: &str, length: u32, area: Area) -> InvokeError {
    InvokeError::GuestFailed(format!(
        "it announced a {what} of {length} bytes where {} fit",
        area.size
    ))
}

/// How much is in a ring, if the counters can be true.
fn in_ring(what: &str, written: u64, read: u64, ring: Area) -> Result<u64, InvokeError> {
    used(written, read, ring.size).ok_or_else(|| {
        InvokeError::GuestFailed(format!(
            "its {what} cannot be: {written} bytes written and {read} read in a ring of {}",
            ring.size
        ))
    })
}

impl Mailbox {
    /// An empty mailbox of fixed size.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> Result<Self, PlatformError> {
        let file = rustix::fs::memfd_create(
            "faasw-mailbox",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(system)?;
        rustix::fs::ftruncate(&file, MAILBOX_BYTES).map_err(system)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(system)?;
        Ok(Self {
            file,
            request_written: 0,
            response_read: 0,
            log_read: 0,
        })
    }

    /// Takes note that the instance wiped the whole mailbox.
    pub fn was_wiped(&mut self) {
        self.request_written = 0;
        self.response_read = 0;
        self.log_read = 0;
    }

    /// Puts the configuration of a function in, for a guest that is to become it.
    ///
    /// # Errors
    /// `NOSPC` when it does not fit; the system's.
    pub fn put_configuration(
        &self,
        configuration: &[u8],
        ram_bytes: u64,
        code_bytes: u64,
    ) -> Result<(), PlatformError> {
        let area = mailbox::CONFIGURATION;
        let length = configuration.len() as u64;
        if length > area.size {
            return Err(system(Errno::NOSPC));
        }
        self.write(area.offset, configuration)?;
        self.say(offset_of!(HostWords, ram_bytes), &ram_bytes)?;
        self.say(offset_of!(HostWords, code_bytes), &code_bytes)?;
        self.say(offset_of!(HostWords, configuration_len), &length)
    }

    /// Puts a request's head in for the guest. With `tell_end` the guest rings at
    /// its end, before it stops.
    ///
    /// # Errors
    /// [`InvokeError::RequestTooLarge`] when it does not fit; the system's.
    pub fn put_head(&self, head: &[u8], tell_end: bool) -> Result<(), InvokeError> {
        let area = mailbox::REQUEST_HEAD;
        if head.len() as u64 > area.size {
            return Err(InvokeError::RequestTooLarge {
                part: "head",
                size: head.len(),
                limit: area.size,
            });
        }
        self.write(area.offset, head)?;
        // Two words that lie side by side, by one call.
        let words = [head.len() as u32, u32::from(tell_end)];
        Ok(self.say(offset_of!(HostWords, request_head_len), &words)?)
    }

    /// Puts bytes of the request's body in, as many as there is room for; says
    /// how many.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when the guest's counter cannot be true; the system's.
    pub fn put_body(&mut self, guest: &GuestWords, bytes: &[u8]) -> Result<usize, InvokeError> {
        let ring = mailbox::REQUEST_BODY;
        let count = self.request_room(guest)?.min(bytes.len());
        let mut rest = bytes.get(..count).unwrap_or_default();
        for piece in pieces(ring, self.request_written, rest.len()) {
            let (now, later) = rest.split_at(piece.length.min(rest.len()));
            self.write(piece.offset, now)?;
            rest = later;
        }
        if count > 0 {
            self.request_written += count as u64;
            self.say(
                offset_of!(HostWords, request_written),
                &self.request_written,
            )?;
        }
        Ok(count)
    }

    /// Room for bytes of the request's body.
    ///
    /// # Errors
    /// As [`Mailbox::put_body`].
    pub fn request_room(&self, guest: &GuestWords) -> Result<usize, InvokeError> {
        let ring = mailbox::REQUEST_BODY;
        let read = guest.request_read;
        Ok((ring.size - in_ring("request body", self.request_written, read, ring)?) as usize)
    }

    /// Whether there is no trace of a guest: it has published nothing, and so has
    /// taken nothing of the request.
    ///
    /// # Errors
    /// The system's.
    pub fn is_untouched(&self) -> Result<bool, PlatformError> {
        let words = self.guest()?;
        let taken = self.response_read + self.log_read;
        Ok(taken == 0 && words.as_bytes().iter().all(|byte| *byte == 0))
    }

    /// All that was put in of the body of a request that no guest has touched.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when a guest has; the system's.
    pub fn untaken_body(&self) -> Result<Vec<u8>, InvokeError> {
        let ring = mailbox::REQUEST_BODY;
        let count = in_ring("request body", self.request_written, 0, ring)?;
        Ok(self.copy_ring(ring, 0, count as usize)?)
    }

    /// Says that the request's body is whole.
    ///
    /// # Errors
    /// [`InvokeError::RequestTooLarge`] when the trailers do not fit; the system's.
    pub fn end_request(&self, trailers: &[Pair]) -> Result<(), InvokeError> {
        if !trailers.is_empty() {
            let bytes = encode_fields(trailers);
            let area = mailbox::REQUEST_TRAILERS;
            if bytes.len() as u64 > area.size {
                return Err(InvokeError::RequestTooLarge {
                    part: "trailers",
                    size: bytes.len(),
                    limit: area.size,
                });
            }
            self.write(area.offset, &bytes)?;
            let length = bytes.len() as u32;
            self.say(offset_of!(HostWords, request_trailers_len), &length)?;
        }
        Ok(self.say(offset_of!(HostWords, request_end), &REQUEST_WHOLE)?)
    }

    /// Asks the guest to ring for what it flushes from now on.
    ///
    /// # Errors
    /// The system's.
    pub fn listen(&self) -> Result<(), PlatformError> {
        self.say(offset_of!(HostWords, listening), &1_u32)
    }

    /// A copy of the guest's words as they are now.
    ///
    /// # Errors
    /// The system's.
    pub fn guest(&self) -> Result<GuestWords, PlatformError> {
        let mut words = GuestWords::new_zeroed();
        self.read(GUEST_WORDS.offset, words.as_mut_bytes())?;
        // A guest that runs may change a counter in the middle of the copy.
        for _ in 0..READS {
            let mut again = GuestWords::new_zeroed();
            self.read(GUEST_WORDS.offset, again.as_mut_bytes())?;
            let same = again.as_bytes() == words.as_bytes();
            words = again;
            if same {
                break;
            }
        }
        Ok(words)
    }

    /// The response's head, if it is there.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when it is none or its length is a lie; the system's.
    pub fn head(&self, guest: &GuestWords) -> Result<Option<ResponseHead>, InvokeError> {
        if guest.response_head_len == 0 {
            return Ok(None);
        }
        let bytes = self.copy(
            "response head",
            guest.response_head_len,
            mailbox::RESPONSE_HEAD,
        )?;
        ResponseHead::decode(&bytes)
            .map(Some)
            .map_err(|error| InvokeError::GuestFailed(format!("its response head: {error}")))
    }

    /// How many bytes of the response's body wait in the ring.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when the guest's counter cannot be true.
    pub fn response_waiting(&self, guest: &GuestWords) -> Result<u64, InvokeError> {
        in_ring(
            "response body",
            guest.response_written,
            self.response_read,
            mailbox::RESPONSE_BODY,
        )
    }

    /// Takes at most `most` bytes of the response's body out.
    ///
    /// # Errors
    /// As [`Mailbox::response_waiting`]; the system's.
    pub fn take_body(&mut self, guest: &GuestWords, most: usize) -> Result<Bytes, InvokeError> {
        let count = (self.response_waiting(guest)? as usize).min(most);
        let bytes = self.copy_ring(mailbox::RESPONSE_BODY, self.response_read, count)?;
        if count > 0 {
            self.response_read += count as u64;
            self.say(offset_of!(HostWords, response_read), &self.response_read)?;
        }
        Ok(bytes.into())
    }

    /// Takes what is left of the response's body, when the guest is done and will
    /// not look any more.
    ///
    /// # Errors
    /// As [`Mailbox::response_waiting`]; the system's.
    pub fn take_rest(&mut self, guest: &GuestWords) -> Result<Bytes, InvokeError> {
        let count = self.response_waiting(guest)?;
        let bytes = self.copy_ring(mailbox::RESPONSE_BODY, self.response_read, count as usize)?;
        self.response_read += count;
        Ok(bytes.into())
    }

    /// The response's trailers; none where there are none.
    ///
    /// # Errors
    /// As [`Mailbox::head`].
    pub fn trailers(&self, guest: &GuestWords) -> Result<Vec<Pair>, InvokeError> {
        if guest.response_trailers_len == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.copy(
            "list of trailers",
            guest.response_trailers_len,
            mailbox::RESPONSE_TRAILERS,
        )?;
        decode_fields(&bytes)
            .map_err(|error| InvokeError::GuestFailed(format!("its response trailers: {error}")))
    }

    /// A copy of the report, as text that is safe to show.
    ///
    /// # Errors
    /// As [`Mailbox::head`].
    pub fn report(&self, guest: &GuestWords) -> Result<String, InvokeError> {
        let bytes = self.copy("report", guest.report_len, mailbox::REPORT)?;
        Ok(String::from_utf8_lossy(&bytes)
            .chars()
            .map(|c| {
                if c.is_control() && c != '\n' {
                    '\u{fffd}'
                } else {
                    c
                }
            })
            .collect())
    }

    /// Takes the log out.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when it is not made of records or the
    /// guest's counter cannot be true; the system's.
    pub fn take_log(&mut self, guest: &GuestWords) -> Result<Vec<LogRecord>, InvokeError> {
        let count = in_ring("log", guest.log_written, self.log_read, mailbox::LOG)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.copy_ring(mailbox::LOG, self.log_read, count as usize)?;
        self.log_read += count;
        self.say(offset_of!(HostWords, log_read), &self.log_read)?;
        log_records(&bytes)
    }

    fn copy(&self, what: &str, length: u32, area: Area) -> Result<Vec<u8>, InvokeError> {
        if u64::from(length) > area.size {
            return Err(lie(what, length, area));
        }
        let mut bytes = vec![0; length as usize];
        self.read(area.offset, &mut bytes)?;
        Ok(bytes)
    }

    fn copy_ring(&self, ring: Area, at: u64, count: usize) -> Result<Vec<u8>, PlatformError> {
        let mut bytes = vec![0; count];
        let mut rest = bytes.as_mut_slice();
        for piece in pieces(ring, at, count) {
            let (now, later) = rest.split_at_mut(piece.length.min(rest.len()));
            self.read(piece.offset, now)?;
            rest = later;
        }
        Ok(bytes)
    }

    /// Changes a word of the host's.
    fn say(&self, offset: usize, value: &impl WordValue) -> Result<(), PlatformError> {
        self.write(HOST_WORDS.offset + offset as u64, value.as_bytes())
    }

    fn write(&self, mut offset: u64, mut bytes: &[u8]) -> Result<(), PlatformError> {
        while !bytes.is_empty() {
            let written = rustix::io::pwrite(&self.file, bytes, offset).map_err(system)?;
            bytes = bytes.get(written..).unwrap_or_default();
            offset += written as u64;
        }
        Ok(())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), PlatformError> {
        let mut read = 0;
        while let Some(rest) = out.get_mut(read..)
            && !rest.is_empty()
        {
            match rustix::io::pread(&self.file, rest, offset + read as u64).map_err(system)? {
                0 => return Err(system(Errno::IO)),
                count => read += count,
            }
        }
        Ok(())
    }
}

/// What a word of the host's can be.
trait WordValue: IntoBytes + zerocopy::Immutable {}
impl WordValue for u32 {}
impl WordValue for u64 {}
impl WordValue for [u32; 2] {}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Takes the log area apart.
fn log_records(mut bytes: &[u8]) -> Result<Vec<LogRecord>, InvokeError> {
    let broken = || InvokeError::GuestFailed("its log is not made of records".to_owned());
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes
            .split_first_chunk::<LOG_RECORD_HEADER>()
            .ok_or_else(broken)?;
        let [stream, _, _, _, length @ ..] = *head;
        let length = u32::from_le_bytes(length) as usize;
        let (content, rest) = rest.split_at_checked(length).ok_or_else(broken)?;
        records.push(LogRecord {
            stream: match stream {
                1 => LogStream::Out,
                2 => LogStream::Err,
                _ => return Err(broken()),
            },
            bytes: content.to_vec(),
        });
        bytes = rest;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a guest would write.
    fn forge(mailbox: &Mailbox, change: impl FnOnce(&mut GuestWords)) -> GuestWords {
        let mut words = mailbox.guest().unwrap();
        change(&mut words);
        mailbox.write(GUEST_WORDS.offset, words.as_bytes()).unwrap();
        mailbox.guest().unwrap()
    }

    fn host(mailbox: &Mailbox) -> HostWords {
        let mut words = HostWords::new_zeroed();
        mailbox
            .read(HOST_WORDS.offset, words.as_mut_bytes())
            .unwrap();
        words
    }

    fn record(stream: u8, bytes: &[u8]) -> Vec<u8> {
        let mut record = vec![stream, 0, 0, 0];
        record.extend((bytes.len() as u32).to_le_bytes());
        record.extend(bytes);
        record
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let mailbox = Mailbox::new().unwrap();
        let large = vec![0; (64 << 10) + 1];
        assert!(matches!(
            mailbox.put_head(&large, false),
            Err(InvokeError::RequestTooLarge { part: "head", .. })
        ));
        mailbox.put_head(&large[1..], true).unwrap();
        assert!(matches!(
            mailbox.end_request(&[(large, Vec::new())]),
            Err(InvokeError::RequestTooLarge {
                part: "trailers",
                ..
            })
        ));
        assert_eq!(host(&mailbox).request_end, mailbox::REQUEST_OPEN);
    }

    #[test]
    fn bodies_of_any_size_pass_through_the_rings() {
        let mut mailbox = Mailbox::new().unwrap();
        let (mut sent, mut received) = (0_u64, 0_u64);
        let byte = |number: u64| (number * 7 % 251) as u8;
        let mut step = 1_usize;
        while received < 5 << 20 {
            step = step * 31 % 700_001 + 1;
            let guest = mailbox.guest().unwrap();
            let bytes: Vec<u8> = (sent..).take(step).map(byte).collect();
            sent += mailbox.put_body(&guest, &bytes).unwrap() as u64;
            assert_eq!(host(&mailbox).request_written, sent);
            // A guest that echoes what it finds.
            let there = (sent - guest.request_read) as usize;
            let echoed = mailbox
                .copy_ring(mailbox::REQUEST_BODY, guest.request_read, there)
                .unwrap();
            let mut rest = echoed.as_slice();
            for piece in pieces(mailbox::RESPONSE_BODY, guest.response_written, there) {
                let (now, later) = rest.split_at(piece.length);
                mailbox.write(piece.offset, now).unwrap();
                rest = later;
            }
            let guest = forge(&mailbox, |guest| {
                guest.request_read += there as u64;
                guest.response_written += there as u64;
            });
            let taken = mailbox.take_body(&guest, usize::MAX).unwrap();
            assert!(
                taken
                    .iter()
                    .copied()
                    .eq((received..).take(taken.len()).map(byte))
            );
            received += taken.len() as u64;
            assert_eq!(host(&mailbox).response_read, received);
        }
        assert_eq!(sent, received);
    }

    #[test]
    fn what_no_guest_has_touched_can_be_taken_back() {
        let mut mailbox = Mailbox::new().unwrap();
        assert!(mailbox.is_untouched().unwrap());
        assert!(mailbox.untaken_body().unwrap().is_empty());
        let guest = mailbox.guest().unwrap();
        let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
        mailbox.put_head(b"head", true).unwrap();
        let put = mailbox.put_body(&guest, &bytes[..5]).unwrap();
        assert_eq!(mailbox.untaken_body().unwrap(), bytes[..5]);
        let put = put + mailbox.put_body(&guest, &bytes[5..]).unwrap();
        assert_eq!(mailbox.untaken_body().unwrap(), bytes[..put]);
        assert!(mailbox.is_untouched().unwrap());

        let guest = forge(&mailbox, |guest| guest.request_read = 10);
        assert!(!mailbox.is_untouched().unwrap());
        mailbox.put_body(&guest, &bytes[put..]).unwrap();
        // A guest that goes back on its word has touched it still.
        forge(&mailbox, |guest| guest.request_read = 0);
        assert!(mailbox.untaken_body().is_err());
    }

    #[test]
    fn a_log_that_was_taken_is_a_trace() {
        let mut mailbox = Mailbox::new().unwrap();
        let log = record(1, b"begun\n");
        mailbox.write(mailbox::LOG.offset, &log).unwrap();
        let guest = forge(&mailbox, |guest| guest.log_written = log.len() as u64);
        mailbox.take_log(&guest).unwrap();
        forge(&mailbox, |guest| guest.log_written = 0);
        assert!(!mailbox.is_untouched().unwrap());
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let mut mailbox = Mailbox::new().unwrap();
        let guest = mailbox.guest().unwrap();
        let large = vec![1; 3 << 20];
        assert_eq!(mailbox.put_body(&guest, &large).unwrap(), 1 << 20);
        assert_eq!(mailbox.put_body(&guest, &large).unwrap(), 0);
        let guest = forge(&mailbox, |guest| guest.request_read = 10);
        assert_eq!(mailbox.put_body(&guest, &large).unwrap(), 10);
    }

    #[test]
    fn lengths_and_counters_that_cannot_be_are_the_guests_fault() {
        let mut mailbox = Mailbox::new().unwrap();
        let guest = forge(&mailbox, |guest| {
            guest.response_head_len = u32::MAX;
            guest.response_trailers_len = u32::MAX;
            guest.response_written = (1 << 20) + 1;
            guest.request_read = 1;
            guest.report_len = 4097;
            guest.log_written = (128 << 10) + 1;
        });
        for lie in [
            mailbox.head(&guest).map(|_| ()),
            mailbox.trailers(&guest).map(|_| ()),
            mailbox.take_body(&guest, 1).map(|_| ()),
            mailbox.put_body(&guest, b"x").map(|_| ()),
            mailbox.report(&guest).map(|_| ()),
            mailbox.take_log(&guest).map(|_| ()),
        ] {
            assert!(matches!(lie, Err(InvokeError::GuestFailed(_))));
        }
        // Going back is a lie, too.
        let guest = forge(&mailbox, |guest| guest.response_written = 5);
        mailbox.take_body(&guest, 5).unwrap();
        let guest = forge(&mailbox, |guest| guest.response_written = 4);
        assert!(mailbox.take_body(&guest, 5).is_err());
    }

    #[test]
    fn the_log_comes_out_once() {
        let mut mailbox = Mailbox::new().unwrap();
        let mut log = record(1, b"hello\n");
        log.extend(record(2, b""));
        mailbox.write(mailbox::LOG.offset, &log).unwrap();
        let guest = forge(&mailbox, |guest| guest.log_written = log.len() as u64);
        let records = mailbox.take_log(&guest).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].stream, LogStream::Out);
        assert_eq!(records[0].bytes, b"hello\n");
        assert_eq!(host(&mailbox).log_read, log.len() as u64);
        assert_eq!(mailbox.take_log(&guest).unwrap(), []);
    }

    #[test]
    fn a_head_and_trailers_that_spell_nothing_are_refused() {
        let mailbox = Mailbox::new().unwrap();
        mailbox
            .write(mailbox::RESPONSE_HEAD.offset, &[200, 0, 255, 255])
            .unwrap();
        mailbox
            .write(mailbox::RESPONSE_TRAILERS.offset, &[1, 0, 0, 0, 9])
            .unwrap();
        let guest = forge(&mailbox, |guest| {
            guest.response_head_len = 4;
            guest.response_trailers_len = 5;
        });
        assert!(mailbox.head(&guest).is_err());
        assert!(mailbox.trailers(&guest).is_err());
        let none = forge(&mailbox, |guest| {
            guest.response_head_len = 0;
            guest.response_trailers_len = 0;
        });
        assert_eq!(mailbox.head(&none).unwrap(), None);
        assert_eq!(mailbox.trailers(&none).unwrap(), []);
    }

    #[test]
    fn a_log_that_is_not_made_of_records_is_refused() {
        let mut overlong = record(1, b"x");
        overlong[4] = 200;
        for bytes in [&b"abc"[..], &record(7, b"x"), &overlong] {
            assert!(log_records(bytes).is_err());
        }
    }

    #[test]
    fn control_characters_do_not_reach_whoever_reads_a_report() {
        let mailbox = Mailbox::new().unwrap();
        let text = b"a\x1b[31m\nb\xff";
        mailbox.write(mailbox::REPORT.offset, text).unwrap();
        let guest = forge(&mailbox, |guest| guest.report_len = text.len() as u32);
        let report = mailbox.report(&guest).unwrap();
        assert_eq!(report, "a\u{fffd}[31m\nb\u{fffd}");
    }

    #[test]
    fn a_mailbox_cannot_be_resized() {
        let mailbox = Mailbox::new().unwrap();
        assert!(rustix::fs::ftruncate(&mailbox.file, 0).is_err());
        assert!(rustix::fs::ftruncate(&mailbox.file, MAILBOX_BYTES * 2).is_err());
    }
}
