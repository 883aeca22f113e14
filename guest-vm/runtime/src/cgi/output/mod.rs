//! The output of a command as a response (RFC 3875, section 6).
//!
//! Output is collected until the header block ends or is known to be none. Then the head and the
//! rest go to the platform as they are written. Output without a header block is the body of a
//! plain-text response.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use faasw_abi::channel::Channel;
use faasw_abi::outcome::Outcome;
use faasw_abi::wire::{Pair, ResponseHead};

use crate::failure::Failure;
use crate::headers;
use crate::platform::{Platform, SendError, send_whole};

/// Maximum bytes of a header block. Longer output that is no block so far counts as a body.
const MAX_BLOCK: usize = 64 << 10;

/// Maximum bytes of a field name.
const MAX_NAME: usize = 256;

/// The output of a command so far.
#[derive(Debug)]
pub(crate) enum Output {
    /// The header block may not be complete yet.
    Block { bytes: Vec<u8>, seen: ScannedPrefix },
    /// The head was sent; the body is being sent.
    Body {
        /// Whether the status reports a failure.
        reports_failure: bool,
    },
    /// There is a header block with invalid contents.
    Bad(String),
}

impl Default for Output {
    fn default() -> Self {
        Self::Block {
            bytes: Vec::new(),
            seen: ScannedPrefix::default(),
        }
    }
}

impl Output {
    /// Returns whether nothing was written yet.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Block { bytes, .. } if bytes.is_empty())
    }

    /// Returns whether the command has reported a failure to its client, by a status of 400 or
    /// more.
    pub(crate) fn reports_failure(&self) -> bool {
        matches!(
            self,
            Self::Body {
                reports_failure: true
            }
        )
    }

    /// Takes the next bytes, and waits until the platform has space for them. If `is_head` is set,
    /// the body is discarded.
    ///
    /// # Errors
    /// Returns the [`SendError`] of a platform that refuses the head.
    pub(crate) fn write(
        &mut self,
        new: &[u8],
        is_head: bool,
        platform: &mut impl Platform,
    ) -> Result<(), SendError> {
        match self {
            Self::Block { bytes, seen } => {
                bytes.extend_from_slice(new);
                let decision = match scan(bytes, seen) {
                    Scan::More if bytes.len() <= MAX_BLOCK => return Ok(()),
                    // Sent as a body, the block would reveal headers that were meant for the
                    // client's program only.
                    Scan::More if has_cgi_field(bytes.get(..seen.fields).unwrap_or_default()) => {
                        *self = Self::Bad(format!(
                            "the function's header block is longer than {MAX_BLOCK} bytes"
                        ));
                        return Ok(());
                    }
                    Scan::More | Scan::NoBlock => None,
                    Scan::Block { end } => Some(end),
                };
                let bytes = mem::take(bytes);
                self.begin_body(&bytes, decision, is_head, platform)
            }
            Self::Body { .. } => {
                if !is_head {
                    send_whole(platform, Channel::INVOCATION, new);
                }
                Ok(())
            }
            Self::Bad(_) => Ok(()),
        }
    }

    /// Finishes the response of a command that ended well.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no response, or an incomplete one.
    pub(crate) fn finish(
        mut self,
        is_head: bool,
        platform: &mut impl Platform,
    ) -> Result<(), Failure> {
        if let Self::Block { bytes, .. } = &mut self {
            let bytes = mem::take(bytes);
            if bytes.is_empty() {
                return Err(Failure::new(
                    Outcome::NoResponse,
                    "the function wrote nothing to its standard output",
                ));
            }
            self.begin_body(&bytes, None, is_head, platform)
                .map_err(Failure::refused)?;
        }
        match self {
            Self::Body { .. } => platform
                .finish(Channel::INVOCATION, &[])
                .map_err(Failure::refused),
            Self::Bad(report) => Err(Failure::new(Outcome::BadResponse, report)),
            // `begin_body` has left this state.
            Self::Block { .. } => Ok(()),
        }
    }

    /// Leaves the header block, which ends at `block_end` if there is one.
    fn begin_body(
        &mut self,
        bytes: &[u8],
        block_end: Option<usize>,
        is_head: bool,
        platform: &mut impl Platform,
    ) -> Result<(), SendError> {
        let (block, body) = bytes
            .split_at_checked(block_end.unwrap_or(0))
            .unwrap_or((&[], bytes));
        let head = if block.is_empty() {
            Ok(plain_text())
        } else {
            head(block)
        };
        let mut head = match head {
            Ok(head) => head,
            Err(report) => {
                *self = Self::Bad(report);
                return Ok(());
            }
        };
        drop_false_content_length(&mut head);
        platform.send_head(Channel::INVOCATION, &head.encode(), false)?;
        *self = Self::Body {
            reports_failure: head.status >= 400,
        };
        self.write(body, is_head, platform)
    }
}

/// Removes a length that is no number or contradicts another, because it could only break the
/// framing. The gateway checks the remaining length against the body.
fn drop_false_content_length(head: &mut ResponseHead) {
    let mut lengths = head
        .headers
        .iter()
        .filter(|(name, _)| name == b"content-length")
        .map(|(_, value)| headers::content_length(value));
    let first = lengths.next().flatten();
    let mut keep = first.is_some() && lengths.all(|other| other == first);
    head.headers
        .retain(|(name, _)| name != b"content-length" || mem::take(&mut keep));
}

/// The classification of the start of the output.
enum Scan {
    /// The output may still become a header block.
    More,
    /// The output begins with no header block.
    NoBlock,
    /// The output begins with a header block of `end` bytes, including its blank line.
    Block { end: usize },
}

/// The part of the output that was scanned already, so that the output of a command that writes
/// byte by byte is not scanned from the start each time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScannedPrefix {
    /// One past the last line that is a well-formed field.
    fields: usize,
    /// Offset after the last byte that is known to be no line end.
    bytes: usize,
}

/// Scans the new part of the output.
fn scan(bytes: &[u8], seen: &mut ScannedPrefix) -> Scan {
    loop {
        let new = bytes.get(seen.bytes..).unwrap_or_default();
        let Some(length) = new.iter().position(|byte| *byte == b'\n') else {
            seen.bytes = bytes.len();
            let line = bytes.get(seen.fields..).unwrap_or_default();
            return if may_become_field(line) {
                Scan::More
            } else {
                Scan::NoBlock
            };
        };
        let end = seen.bytes + length;
        let line = trim_end(bytes.get(seen.fields..end).unwrap_or_default());
        seen.fields = end + 1;
        seen.bytes = end + 1;
        if line.is_empty() {
            let block = bytes.get(..seen.fields).unwrap_or_default();
            return if has_cgi_field(block) {
                Scan::Block { end: seen.fields }
            } else {
                Scan::NoBlock
            };
        }
        if field(line).is_none() {
            return Scan::NoBlock;
        }
    }
}

/// Returns whether the start of a line can be the start of a field or of a blank line. Text, markup
/// and JSON are thereby passed on at once instead of being collected.
fn may_become_field(front: &[u8]) -> bool {
    let name = front
        .iter()
        .take(MAX_NAME)
        .position(|byte| !headers::is_token_byte(*byte));
    match name.and_then(|end| front.split_at_checked(end)) {
        Some((name, after)) => {
            (!name.is_empty() && after.starts_with(b":")) || (name.is_empty() && after == b"\r")
        }
        None => front.len() < MAX_NAME,
    }
}

/// Returns whether a block has at least one of these fields (RFC 3875, section 6.2). Without the
/// rule, any text that begins with `word: …` and a blank line would be a block.
fn has_cgi_field(block: &[u8]) -> bool {
    fields(block).any(|(name, _)| {
        [b"content-type".as_slice(), b"location", b"status"].contains(&name.as_slice())
    })
}

fn trim_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Parses a line as a field, with its name in lower case.
fn field(line: &[u8]) -> Option<Pair> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    let value = value.get(1..)?.trim_ascii();
    (headers::is_name(name) && headers::is_value(value))
        .then(|| (name.to_ascii_lowercase(), value.to_vec()))
}

fn fields(block: &[u8]) -> impl Iterator<Item = Pair> {
    block
        .split(|byte| *byte == b'\n')
        .filter_map(|line| field(trim_end(line)))
}

/// Parses a header block as a head, or returns an error text.
fn head(block: &[u8]) -> Result<ResponseHead, String> {
    let mut head = ResponseHead::default();
    let mut status = None;
    for (name, value) in fields(block) {
        if name == b"status" {
            status = Some(parse_status(&value)?);
        } else if !headers::is_forbidden(&name) {
            head.headers.push((name, value));
        }
    }
    let redirects = head.headers.iter().any(|(name, _)| name == b"location");
    head.status = status.unwrap_or(if redirects { 302 } else { 200 });
    Ok(head)
}

/// Parses the code of a `Status` field: three digits, and a phrase that is ignored.
fn parse_status(value: &[u8]) -> Result<u16, String> {
    let code = value.split(|byte| *byte == b' ').next().unwrap_or_default();
    str::from_utf8(code)
        .ok()
        .filter(|code| code.len() == 3)
        .and_then(|code| code.parse().ok())
        .filter(|code| (200..1000).contains(code))
        .ok_or_else(|| {
            format!(
                "the function's Status field is '{}'; it must begin with a code from 200 to 999",
                String::from_utf8_lossy(value)
            )
        })
}

/// Returns the head for output without one.
fn plain_text() -> ResponseHead {
    ResponseHead {
        status: 200,
        headers: vec![(
            b"content-type".to_vec(),
            b"text/plain; charset=utf-8".to_vec(),
        )],
    }
}

#[cfg(test)]
mod tests;
