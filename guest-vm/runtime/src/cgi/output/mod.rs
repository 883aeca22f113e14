//! What a command writes, as a response (RFC 3875, section 6).
//!
//! The header block is looked for until it ends or is seen to be none; then
//! the head and the rest go to the platform as they are written. Output without
//! a header block is the body of a plain-text response.

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

/// Most bytes of a header block. What is longer and none so far is taken for a body.
const MAX_BLOCK: usize = 64 << 10;

/// Most bytes of a field name.
const MAX_NAME: usize = 256;

/// What a command has written so far.
#[derive(Debug)]
pub(crate) enum Output {
    /// The header block may not be complete yet.
    Block { bytes: Vec<u8>, seen: Seen },
    /// The head was sent; the body is being sent.
    Body {
        /// Its status says that the request has failed.
        tells_failure: bool,
    },
    /// There is a header block, and it says something that cannot be.
    Bad(String),
}

impl Default for Output {
    fn default() -> Self {
        Self::Block {
            bytes: Vec::new(),
            seen: Seen::default(),
        }
    }
}

impl Output {
    /// Whether nothing was written yet.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Block { bytes, .. } if bytes.is_empty())
    }

    /// Whether the command has told its client of a failure: by a status of 400 or more.
    pub(crate) fn tells_failure(&self) -> bool {
        matches!(
            self,
            Self::Body {
                tells_failure: true
            }
        )
    }

    /// Takes the next bytes; waits until the platform has room for them. Where
    /// `is_head` says so, the body is thrown away.
    ///
    /// # Errors
    /// When the platform does not take the head.
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
                    // As a body it would show what only its client's program was to see.
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

    /// The command ended well: finishes its response.
    ///
    /// # Errors
    /// When there is no response, or not a whole one.
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
            // begin_body left this state.
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
            tells_failure: head.status >= 400,
        };
        self.write(body, is_head, platform)
    }
}

/// Takes a length away that is no number or contradicts another: it could only
/// break the framing. Whether it is the body's the gateway sees.
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

/// What is known about the front of the output.
enum Scan {
    /// It may still become a header block.
    More,
    /// It is none.
    NoBlock,
    /// It is one, with its blank line `end` bytes long.
    Block { end: usize },
}

/// How much of the output was looked at already, so that a command that writes
/// byte by byte is not looked at from the front each time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// One past the last line that is a well-formed field.
    fields: usize,
    /// One past the last byte known to be no line end.
    bytes: usize,
}

/// Looks at what was not seen yet.
fn scan(bytes: &[u8], seen: &mut Seen) -> Scan {
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

/// Whether the front of a line can be the front of a field or of a blank line.
/// Lets text, markup and JSON through at once instead of gathering them.
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

/// A block has at least one of these (RFC 3875, section 6.2); without the rule
/// any text that begins with `word: …` and a blank line would be one.
fn has_cgi_field(block: &[u8]) -> bool {
    fields(block).any(|(name, _)| {
        [b"content-type".as_slice(), b"location", b"status"].contains(&name.as_slice())
    })
}

fn trim_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The field that a line spells, its name in lower case.
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

/// The head that a header block spells, or what is wrong with it.
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

/// The code of a `Status` field: three digits, and a phrase that is not used.
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

/// The head of output that has none.
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
