//! Content codings of responses (RFC 9110, section 8.4.1), for `outbound.rs`.
//!
//! A decoder returns at most [`PIECE`] bytes a call, and reads no input that it does not need. A
//! small body that decodes to a large one therefore fills no memory before the script reads it.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};

/// The most output of one call, in bytes.
const PIECE: usize = 64 << 10;

/// The most codings of one body. Each multiplies what a server can make the function decode.
const CODINGS: usize = 3;

const WINDOW_BITS: u8 = 15;

/// The first byte of a gzip member.
const GZIP_MAGIC: u8 = 0x1f;

/// The outcome of decoding.
#[derive(Debug, PartialEq)]
pub(crate) enum Decoded {
    /// Some bytes.
    Piece(Vec<u8>),
    /// More input is needed.
    NeedsInput,
    /// The body is complete.
    End,
}

/// The decoder of a body, for all its codings.
pub(crate) struct Decoder {
    /// The first stage reads what the server sends, each other stage the output of the one before.
    stages: Vec<Stage>,
}

struct Stage {
    codec: Codec,
    input: Vec<u8>,
    /// How many bytes of the input were decoded.
    read: usize,
    /// Whether any input has come.
    has_begun: bool,
    /// Whether no more input comes.
    is_last: bool,
    /// Whether the coded data has ended.
    is_complete: bool,
}

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

enum Codec {
    Gzip(Decompress),
    /// The decoder is chosen when two bytes are there.
    Deflate(Option<Decompress>),
    Brotli(Box<Brotli>),
}

impl Decoder {
    /// Returns the decoder for the value of a field `content-encoding`. Returns `None` if there is
    /// nothing to decode, or if a coding is unknown: the body then stays as it is.
    pub(crate) fn of(value: &str) -> Option<Self> {
        let mut stages = Vec::new();
        // The last coding was applied last.
        for name in value.rsplit(',') {
            let codec = match name.trim().to_ascii_lowercase().as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Codec::Gzip(Decompress::new_gzip(WINDOW_BITS)),
                "deflate" => Codec::Deflate(None),
                "br" => Codec::Brotli(Box::new(new_brotli())),
                _ => return None,
            };
            stages.push(Stage::new(codec));
        }
        (1..=CODINGS)
            .contains(&stages.len())
            .then_some(Self { stages })
    }

    /// Adds input.
    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        if let Some(first) = self.stages.first_mut() {
            first.put(bytes);
        }
    }

    /// Notes that no more input comes.
    pub(crate) fn finish(&mut self) {
        if let Some(first) = self.stages.first_mut() {
            first.is_last = true;
        }
    }

    /// Returns the next piece of the body.
    ///
    /// # Errors
    ///
    /// Returns the reason if the coded data is invalid or incomplete.
    pub(crate) fn next(&mut self) -> Result<Decoded, &'static str> {
        next_of(&mut self.stages)
    }
}

/// Returns whether a client accepts a body with these codings, by its fields `accept-encoding`
/// (RFC 9110, section 12.5.3). A client without that field is taken to accept none: most of those
/// cannot decode.
pub(crate) fn accepts(accepted: &str, codings: &str) -> bool {
    codings
        .split(',')
        .map(canonical)
        .filter(|coding| !matches!(coding.as_str(), "" | "identity"))
        .all(|coding| accepts_one(accepted, &coding))
}

fn accepts_one(accepted: &str, coding: &str) -> bool {
    let mut any = false;
    for item in accepted.split(',') {
        let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
        let weight = parameters.trim().to_ascii_lowercase();
        let is_refused = weight
            .strip_prefix("q=")
            .is_some_and(|value| value.trim().parse() == Ok(0.0_f32));
        let name = canonical(name);
        if name == coding {
            return !is_refused;
        }
        any |= name == "*" && !is_refused;
    }
    any
}

/// Returns the name of a coding without its alias.
fn canonical(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    name.strip_prefix("x-")
        .filter(|rest| *rest == "gzip")
        .map_or(name.clone(), str::to_owned)
}

fn next_of(stages: &mut [Stage]) -> Result<Decoded, &'static str> {
    let Some((last, before)) = stages.split_last_mut() else {
        return Ok(Decoded::NeedsInput);
    };
    loop {
        match last.next()? {
            Decoded::NeedsInput => match next_of(before)? {
                Decoded::Piece(piece) => last.put(piece),
                Decoded::End => last.is_last = true,
                Decoded::NeedsInput => return Ok(Decoded::NeedsInput),
            },
            other => return Ok(other),
        }
    }
}

/// Returns a decoder of Brotli as RFC 7932 defines it: the window has at most 16 MiB.
fn new_brotli() -> Brotli {
    BrotliState::new_strict(
        StandardAlloc::default(),
        StandardAlloc::default(),
        StandardAlloc::default(),
    )
}

impl Stage {
    fn new(codec: Codec) -> Self {
        Self {
            codec,
            input: Vec::new(),
            read: 0,
            has_begun: false,
            is_last: false,
            is_complete: false,
        }
    }

    fn put(&mut self, bytes: Vec<u8>) {
        self.has_begun |= !bytes.is_empty();
        if self.read >= self.input.len() {
            self.input = bytes;
        } else {
            self.input.drain(..self.read);
            self.input.extend_from_slice(&bytes);
        }
        self.read = 0;
    }

    fn next(&mut self) -> Result<Decoded, &'static str> {
        loop {
            let rest = self.input.get(self.read..).unwrap_or_default();
            if self.is_complete && rest.first() == Some(&GZIP_MAGIC) && self.codec.has_members() {
                self.codec = Codec::Gzip(Decompress::new_gzip(WINDOW_BITS));
                self.is_complete = false;
            }
            if self.is_complete {
                // Other bytes behind the coded data are ignored, as browsers do.
                self.read = self.input.len();
            }
            if self.is_complete || !self.has_begun {
                return Ok(if self.is_last {
                    Decoded::End
                } else {
                    Decoded::NeedsInput
                });
            }
            let needs_two = matches!(self.codec, Codec::Deflate(None));
            if needs_two && rest.len() < 2 && !self.is_last {
                return Ok(Decoded::NeedsInput);
            }
            let (output, read, is_complete) = self.codec.decode(rest)?;
            let is_all_read = read == rest.len();
            self.read += read;
            self.is_complete = is_complete;
            if !output.is_empty() {
                return Ok(Decoded::Piece(output));
            }
            if is_complete {
                continue;
            }
            return match (is_all_read, self.is_last) {
                (false, _) if read > 0 => continue,
                (false, _) => Err("the data is invalid"),
                (true, false) => Ok(Decoded::NeedsInput),
                (true, true) => Err("the data is incomplete"),
            };
        }
    }
}

impl Codec {
    /// Returns whether further coded data may follow the first.
    fn has_members(&self) -> bool {
        matches!(self, Self::Gzip(_))
    }

    /// Returns some output, how much of the input was read for it, and whether the coded data has
    /// ended.
    fn decode(&mut self, input: &[u8]) -> Result<(Vec<u8>, usize, bool), &'static str> {
        let decompress = match self {
            Self::Gzip(decompress) | Self::Deflate(Some(decompress)) => decompress,
            // The coding is zlib's format, but some servers send deflate without it.
            Self::Deflate(chosen) => chosen.insert(Decompress::new(is_zlib(input))),
            Self::Brotli(state) => return decode_brotli(state, input),
        };
        let mut output = Vec::with_capacity(PIECE);
        let before = decompress.total_in();
        let status = decompress
            .decompress_vec(input, &mut output, FlushDecompress::None)
            .map_err(|_| "the data is invalid")?;
        let read = usize::try_from(decompress.total_in() - before).unwrap_or(usize::MAX);
        output.shrink_to_fit();
        Ok((output, read, status == Status::StreamEnd))
    }
}

/// Returns whether data begins with the head of zlib's format (RFC 1950).
fn is_zlib(input: &[u8]) -> bool {
    match input {
        [first, second, ..] => {
            first & 0x0f == 8 && u16::from_be_bytes([*first, *second]).is_multiple_of(31)
        }
        _ => true,
    }
}

fn decode_brotli(state: &mut Brotli, input: &[u8]) -> Result<(Vec<u8>, usize, bool), &'static str> {
    let mut output = vec![0; PIECE];
    let (mut available, mut read) = (input.len(), 0);
    let (mut room, mut written, mut total) = (output.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut available,
        &mut read,
        input,
        &mut room,
        &mut written,
        &mut output,
        &mut total,
        state,
    );
    output.truncate(written);
    output.shrink_to_fit();
    match result {
        BrotliResult::ResultFailure => Err("the data is invalid"),
        BrotliResult::ResultSuccess => Ok((output, read, true)),
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok((output, read, false)),
    }
}
