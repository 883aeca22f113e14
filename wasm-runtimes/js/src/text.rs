//! Text encodings (Encoding Standard), for `web/text.js`.

use std::cell::RefCell;

use encoding_rs::{Decoder, DecoderResult, Encoding, UTF_8};
use rquickjs::{Ctx, Exception, Result};

thread_local! {
    /// Decoders in the middle of a stream, by their numbers. The decoder of a stream that never
    /// ends stays as long as the instance.
    static DECODERS: RefCell<Vec<Option<(Decoder, bool)>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the name of the encoding with this label.
pub(crate) fn encoding_of(label: &str) -> Option<String> {
    let encoding = Encoding::for_label_no_replacement(label.as_bytes())?;
    Some(encoding.name().to_ascii_lowercase())
}

fn encoding(name: &str) -> &'static Encoding {
    Encoding::for_label(name.as_bytes()).unwrap_or(UTF_8)
}

fn malformed(ctx: &Ctx<'_>) -> rquickjs::Error {
    Exception::throw_type(ctx, "the bytes are no text in this encoding")
}

/// Decodes a whole text at once.
pub(crate) fn decode(
    ctx: &Ctx<'_>,
    bytes: &[u8],
    name: &str,
    fatal: bool,
    keeps_bom: bool,
) -> Result<String> {
    let encoding = encoding(name);
    if !fatal {
        let (text, _) = if keeps_bom {
            encoding.decode_without_bom_handling(bytes)
        } else {
            encoding.decode_with_bom_removal(bytes)
        };
        return Ok(text.into_owned());
    }
    let bytes = match Encoding::for_bom(bytes) {
        Some((of_bom, length)) if of_bom == encoding && !keeps_bom => &bytes[length..],
        _ => bytes,
    };
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes);
    text.map(|text| text.into_owned())
        .ok_or_else(|| malformed(ctx))
}

/// Decodes a complete body as UTF-8.
pub(crate) fn of_body(ctx: &Ctx<'_>, bytes: Vec<u8>) -> Result<String> {
    // Nearly all bodies are valid UTF-8 and become text without a copy.
    match String::from_utf8(bytes) {
        Ok(text) if !text.starts_with('\u{feff}') => Ok(text),
        Ok(text) => Ok(text['\u{feff}'.len_utf8()..].to_owned()),
        Err(error) => decode(ctx, error.as_bytes(), "utf-8", false, false),
    }
}

/// Begins a stream and returns its number.
pub(crate) fn decoder(name: &str, fatal: bool, keeps_bom: bool) -> u32 {
    let encoding = encoding(name);
    let decoder = if keeps_bom {
        encoding.new_decoder_without_bom_handling()
    } else {
        encoding.new_decoder_with_bom_removal()
    };
    DECODERS.with_borrow_mut(|decoders| {
        let free = decoders
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                decoders.push(None);
                decoders.len() - 1
            });
        decoders[free] = Some((decoder, fatal));
        free as u32
    })
}

/// Decodes the next piece of a stream.
pub(crate) fn decode_more(
    ctx: &Ctx<'_>,
    number: u32,
    bytes: &[u8],
    is_last: bool,
) -> Result<String> {
    let place = number as usize;
    let decoded = DECODERS.with_borrow_mut(|decoders| {
        let (decoder, fatal) = decoders.get_mut(place)?.as_mut()?;
        let mut text = String::new();
        let mut rest = bytes;
        loop {
            text.reserve(
                decoder
                    .max_utf8_buffer_length(rest.len())
                    .unwrap_or(rest.len()),
            );
            if *fatal {
                let (result, _) =
                    decoder.decode_to_string_without_replacement(rest, &mut text, is_last);
                break (result == DecoderResult::InputEmpty).then_some(text);
            }
            let (result, read, _) = decoder.decode_to_string(rest, &mut text, is_last);
            rest = &rest[read..];
            if result == encoding_rs::CoderResult::InputEmpty {
                break Some(text);
            }
        }
    });
    if is_last || decoded.is_none() {
        DECODERS.with_borrow_mut(|decoders| {
            if let Some(decoder) = decoders.get_mut(place) {
                *decoder = None;
            }
        });
    }
    decoded.ok_or_else(|| malformed(ctx))
}
