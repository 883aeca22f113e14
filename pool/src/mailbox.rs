//! The node's side of a mailbox.
//!
//! The node never maps one. It copies in and out by `pread` and `pwrite`, so
//! there is no reference to memory that a guest writes at the same time, and a
//! value is looked at only after it was copied. Lengths in the header are the
//! guest's word: each is held against its area before anything is copied.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use faasw_abi::mailbox::{self, Area, Header, LOG_RECORD_HEADER, MAILBOX_BYTES};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{InvokeError, PlatformError};
use crate::function::LogStream;

/// A mailbox of one instance.
#[derive(Debug)]
pub struct Mailbox {
    file: OwnedFd,
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
        Ok(Self { file })
    }

    /// Puts a message in for the guest: a request, or a seed's configuration.
    ///
    /// # Errors
    /// [`InvokeError::RequestTooLarge`] when it does not fit; the system's.
    pub fn put(&self, head: &[u8], body: &[u8]) -> Result<(), InvokeError> {
        for (part, bytes, area) in [
            ("head", head, mailbox::REQUEST_HEAD),
            ("body", body, mailbox::REQUEST_BODY),
        ] {
            if bytes.len() as u64 > area.size {
                return Err(InvokeError::RequestTooLarge {
                    part,
                    size: bytes.len(),
                    limit: area.size,
                });
            }
            self.write(area.offset, bytes)?;
        }
        let header = Header {
            request_head_len: head.len() as u32,
            request_body_len: body.len() as u32,
            ..Header::default()
        };
        Ok(self.write(0, header.as_bytes())?)
    }

    /// A copy of the header as it is now.
    ///
    /// # Errors
    /// The system's.
    pub fn header(&self) -> Result<Header, PlatformError> {
        let mut header = Header::new_zeroed();
        self.read(0, header.as_mut_bytes())?;
        Ok(header)
    }

    /// A copy of the response head.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when its length is a lie; the system's.
    pub fn response_head(&self, header: &Header) -> Result<Vec<u8>, InvokeError> {
        self.copy(
            "response head",
            header.response_head_len,
            mailbox::RESPONSE_HEAD,
        )
    }

    /// A copy of the response body.
    ///
    /// # Errors
    /// As [`Mailbox::response_head`].
    pub fn response_body(&self, header: &Header) -> Result<Bytes, InvokeError> {
        self.copy(
            "response body",
            header.response_body_len,
            mailbox::RESPONSE_BODY,
        )
        .map(Bytes::from)
    }

    /// A copy of the report, as text that is safe to show.
    ///
    /// # Errors
    /// As [`Mailbox::response_head`].
    pub fn report(&self, header: &Header) -> Result<String, InvokeError> {
        let bytes = self.copy("report", header.report_len, mailbox::REPORT)?;
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

    /// Takes the log out and tells the guest that there is room again.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when it is not made of records; the system's.
    pub fn drain_log(&self) -> Result<Vec<LogRecord>, InvokeError> {
        let length = self.header()?.log_len;
        let bytes = self.copy("log", length, mailbox::LOG)?;
        let offset = std::mem::offset_of!(Header, log_len) as u64;
        self.write(offset, &0_u32.to_ne_bytes())?;
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

    fn forge(mailbox: &Mailbox, change: impl FnOnce(&mut Header)) -> Header {
        let mut header = mailbox.header().unwrap();
        change(&mut header);
        mailbox.write(0, header.as_bytes()).unwrap();
        header
    }

    fn record(stream: u8, bytes: &[u8]) -> Vec<u8> {
        let mut record = vec![stream, 0, 0, 0];
        record.extend((bytes.len() as u32).to_le_bytes());
        record.extend(bytes);
        record
    }

    #[test]
    fn a_request_that_does_not_fit_is_refused_by_name() {
        let mailbox = Mailbox::new().unwrap();
        let large = vec![0; (1 << 20) + 1];
        assert!(matches!(
            mailbox.put(b"", &large),
            Err(InvokeError::RequestTooLarge {
                part: "body",
                limit: 0x10_0000,
                ..
            })
        ));
        assert!(matches!(
            mailbox.put(&large, b""),
            Err(InvokeError::RequestTooLarge { part: "head", .. })
        ));
        mailbox.put(&large[..64 << 10], &large[..1 << 20]).unwrap();
    }

    #[test]
    fn lengths_that_exceed_their_areas_are_the_guests_fault() {
        let mailbox = Mailbox::new().unwrap();
        let header = forge(&mailbox, |header| {
            header.response_head_len = u32::MAX;
            header.response_body_len = (1 << 20) + 1;
            header.report_len = 4097;
            header.log_len = (128 << 10) + 1;
        });
        for lie in [
            mailbox.response_head(&header).map(|_| ()),
            mailbox.response_body(&header).map(|_| ()),
            mailbox.report(&header).map(|_| ()),
            mailbox.drain_log().map(|_| ()),
        ] {
            assert!(matches!(lie, Err(InvokeError::GuestFailed(_))));
        }
    }

    #[test]
    fn the_log_comes_out_once() {
        let mailbox = Mailbox::new().unwrap();
        let mut log = record(1, b"hello\n");
        log.extend(record(2, b""));
        mailbox.write(mailbox::LOG.offset, &log).unwrap();
        forge(&mailbox, |header| header.log_len = log.len() as u32);
        let records = mailbox.drain_log().unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].stream, LogStream::Out);
        assert_eq!(records[0].bytes, b"hello\n");
        assert_eq!(mailbox.drain_log().unwrap(), []);
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
        let header = forge(&mailbox, |header| header.report_len = text.len() as u32);
        let report = mailbox.report(&header).unwrap();
        assert_eq!(report, "a\u{fffd}[31m\nb\u{fffd}");
    }

    #[test]
    fn a_mailbox_cannot_be_resized() {
        let mailbox = Mailbox::new().unwrap();
        assert!(rustix::fs::ftruncate(&mailbox.file, 0).is_err());
        assert!(rustix::fs::ftruncate(&mailbox.file, MAILBOX_BYTES * 2).is_err());
    }
}
