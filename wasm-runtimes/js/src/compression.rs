//! gzip, zlib and raw deflate, for `web/compression.js`.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use rquickjs::{
    Class, Ctx, Exception, JsLifetime, Result, TypedArray, Value,
    class::{JsClass, Trace, Tracer, Writable},
};

/// The most output of one call, in bytes. The stream hands each piece on before it asks for more.
const PIECE: usize = 64 << 10;

const WINDOW_BITS: u8 = 15;

enum Direction {
    Compress(Compress),
    Decompress(Decompress),
}

/// A compressor or decompressor with the input that it has not read yet.
pub(crate) struct Codec {
    direction: Direction,
    input: Vec<u8>,
    read: usize,
    has_ended: bool,
}

impl<'js> Trace<'js> for Codec {
    fn trace<'a>(&self, _: Tracer<'a, 'js>) {}
}

// SAFETY: a codec holds no values of JavaScript.
unsafe impl JsLifetime<'_> for Codec {
    type Changed<'to> = Codec;
}

impl<'js> JsClass<'js> for Codec {
    const NAME: &'static str = "Codec";
    type Mutable = Writable;

    fn constructor(_: &Ctx<'js>) -> Result<Option<rquickjs::function::Constructor<'js>>> {
        Ok(None)
    }
}

/// Returns a new codec. The format is one of the Compression Standard.
pub(crate) fn codec<'js>(
    ctx: Ctx<'js>,
    format: String,
    compresses: bool,
) -> Result<Class<'js, Codec>> {
    let level = Compression::default();
    let direction = match (format.as_str(), compresses) {
        ("gzip", true) => Direction::Compress(Compress::new_gzip(level, WINDOW_BITS)),
        ("gzip", false) => Direction::Decompress(Decompress::new_gzip(WINDOW_BITS)),
        ("deflate" | "deflate-raw", true) => {
            Direction::Compress(Compress::new(level, format == "deflate"))
        }
        ("deflate" | "deflate-raw", false) => {
            Direction::Decompress(Decompress::new(format == "deflate"))
        }
        _ => {
            let what =
                format!("{format:?} is not a supported format: gzip, deflate and deflate-raw are");
            return Err(Exception::throw_type(&ctx, &what));
        }
    };
    let codec = Codec {
        direction,
        input: Vec::new(),
        read: 0,
        has_ended: false,
    };
    Class::instance(ctx, codec)
}

/// Gives the codec its next input. It has read the one before.
pub(crate) fn put<'js>(codec: Class<'js, Codec>, bytes: &[u8]) {
    let mut codec = codec.borrow_mut();
    codec.input = bytes.to_vec();
    codec.read = 0;
}

/// Returns the next piece of output: at most [`PIECE`] bytes, or undefined if the codec needs more
/// input first. `is_last`: the input that it has is the last.
///
/// # Errors
///
/// Throws a `TypeError` if the compressed data is invalid, incomplete, or followed by other data.
pub(crate) fn take<'js>(
    ctx: Ctx<'js>,
    codec: Class<'js, Codec>,
    is_last: bool,
) -> Result<Value<'js>> {
    let output = match codec.borrow_mut().next(is_last) {
        Ok(output) => output,
        Err(why) => return Err(Exception::throw_type(&ctx, why)),
    };
    match output {
        Some(output) => Ok(TypedArray::new(ctx, output)?.into_value()),
        None => Ok(Value::new_undefined(ctx)),
    }
}

impl Codec {
    fn next(&mut self, is_last: bool) -> std::result::Result<Option<Vec<u8>>, &'static str> {
        let mut output = Vec::with_capacity(PIECE);
        while !self.has_ended && output.len() < PIECE {
            let input = self.input.get(self.read..).unwrap_or_default();
            let (status, read) = match &mut self.direction {
                Direction::Compress(compress) => {
                    let before = compress.total_in();
                    let flush = match is_last {
                        true => FlushCompress::Finish,
                        false => FlushCompress::None,
                    };
                    let status = compress
                        .compress_vec(input, &mut output, flush)
                        .map_err(|_| "the data cannot be compressed")?;
                    (status, compress.total_in() - before)
                }
                Direction::Decompress(decompress) => {
                    let before = decompress.total_in();
                    let status = decompress
                        .decompress_vec(input, &mut output, FlushDecompress::None)
                        .map_err(|_| "the compressed data is invalid")?;
                    (status, decompress.total_in() - before)
                }
            };
            self.read = self
                .read
                .saturating_add(usize::try_from(read).unwrap_or(usize::MAX));
            match status {
                Status::StreamEnd => self.has_ended = true,
                // Without progress more input is needed.
                Status::BufError => break,
                Status::Ok if self.read == self.input.len() && !is_last && output.len() < PIECE => {
                    break;
                }
                Status::Ok => {}
            }
        }
        let decompresses = matches!(self.direction, Direction::Decompress(_));
        if output.is_empty() && decompresses {
            if self.has_ended && self.read < self.input.len() {
                return Err("other data follows the compressed data");
            }
            if is_last && !self.has_ended {
                return Err("the compressed data is incomplete");
            }
        }
        Ok((!output.is_empty()).then_some(output))
    }
}
