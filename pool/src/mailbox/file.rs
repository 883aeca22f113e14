//! The node's side of a mailbox.
//!
//! The node never maps one. It copies in and out by `pread` and `pwrite`, so
//! there is no reference to memory that a guest writes at the same time, and a
//! value is looked at only after it was copied. Lengths and counters are the
//! guest's word: each is held against its area before anything is copied.

#[cfg(test)]
mod tests;

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use faasw_abi::command::Commands;
use faasw_abi::mailbox::{
    self, Area, GUEST_WORDS, GuestWords, HOST_WORDS, HostWords, MAILBOX_BYTES, REQUEST_WHOLE,
};
use faasw_abi::ring::{pieces, used};
use faasw_abi::wire::{Pair, ResponseHead, decode_fields, encode_fields};
use faasw_seedtree::memory_file;
use faasw_text::Lines;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use super::log_record::{LogRecord, parse as parse_log};
use crate::error::{InvokeError, PlatformError};

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
    commands_written: u64,
    commands: u32,
    /// The guest was asked to ring at its end.
    asked_for_end: bool,
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
        let file = memory_file("faasw-mailbox").map_err(system)?;
        rustix::fs::ftruncate(&file, MAILBOX_BYTES).map_err(system)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(system)?;
        Ok(Self {
            file,
            request_written: 0,
            response_read: 0,
            log_read: 0,
            commands_written: 0,
            commands: 0,
            asked_for_end: false,
        })
    }

    /// Takes note that the instance wiped the whole mailbox.
    pub fn note_wiped(&mut self) {
        self.request_written = 0;
        self.response_read = 0;
        self.log_read = 0;
        self.commands_written = 0;
        self.commands = 0;
        self.asked_for_end = false;
    }

    /// Appends to what the guest is to do, when it is activated or goes on.
    ///
    /// # Errors
    /// `NOSPC` when they do not fit; the system's.
    pub fn put_commands(&mut self, commands: &Commands) -> Result<(), PlatformError> {
        let area = mailbox::COMMANDS;
        let end = self.commands_written + commands.bytes().len() as u64;
        if end > area.size {
            return Err(system(Errno::NOSPC));
        }
        self.write(area.offset + self.commands_written, commands.bytes())?;
        self.commands_written = end;
        self.commands += commands.count();
        self.say(offset_of!(HostWords, commands_written), &end)
    }

    /// How many commands the guest was given in this activation.
    pub fn commands(&self) -> u32 {
        self.commands
    }

    /// Puts a request's head in for the guest. With `tell_end` the guest rings at
    /// its end, before it stops.
    ///
    /// # Errors
    /// [`InvokeError::RequestTooLarge`] when it does not fit; the system's.
    pub fn put_head(
        &mut self,
        head: &[u8],
        tell_end: bool,
        is_whole: bool,
    ) -> Result<(), InvokeError> {
        let area = mailbox::REQUEST_HEAD;
        if head.len() as u64 > area.size {
            return Err(InvokeError::RequestTooLarge {
                part: "head",
                size: head.len(),
                limit: area.size,
            });
        }
        self.write(area.offset, head)?;
        // Words that lie side by side, by one call; none of the others was said yet.
        let words = HostWords {
            request_head_len: head.len() as u32,
            tell_end: u32::from(tell_end),
            request_end: if is_whole { REQUEST_WHOLE } else { 0 },
            ..HostWords::new_zeroed()
        };
        let said = match is_whole {
            true => offset_of!(HostWords, request_trailers_len),
            false => offset_of!(HostWords, listening),
        };
        self.write(
            HOST_WORDS.offset,
            words.as_bytes().get(..said).unwrap_or_default(),
        )?;
        self.asked_for_end = tell_end;
        Ok(())
    }

    /// Whether the guest was asked to ring at its end, before it stops.
    pub fn has_asked_for_end(&self) -> bool {
        self.asked_for_end
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

    /// A copy of the report, escaped but for its line breaks.
    ///
    /// # Errors
    /// As [`Mailbox::head`].
    pub fn report(&self, guest: &GuestWords) -> Result<String, InvokeError> {
        let bytes = self.copy("report", guest.report_len, mailbox::REPORT)?;
        Ok(Lines(String::from_utf8_lossy(&bytes)).to_string())
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
        parse_log(&bytes)
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
