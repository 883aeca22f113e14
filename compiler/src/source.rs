//! Recognises an upload: Wasm, text that makes Wasm, or neither.

use std::borrow::Cow;

use crate::protocol::{Refusal, RefusalKind};
use wast::parser::{self, ParseBuffer};

/// The first bytes of every Wasm binary, modules and components alike.
const WASM_MAGIC: &[u8] = b"\0asm";

/// An upload as Wasm.
#[derive(Debug)]
pub struct Source<'a> {
    /// The binary, not validated.
    pub wasm: Cow<'a, [u8]>,
    /// Whether the upload was text.
    pub from_text: bool,
}

/// Recognises `upload`, and converts it to Wasm.
pub fn read(upload: &[u8]) -> Result<Source<'_>, Refusal> {
    if upload.starts_with(WASM_MAGIC) {
        return Ok(Source {
            wasm: Cow::Borrowed(upload),
            from_text: false,
        });
    }
    match std::str::from_utf8(upload) {
        Ok(text) if begins_like_wat(text) => Ok(Source {
            wasm: Cow::Owned(encode(text)?),
            from_text: true,
        }),
        _ => Err(malformed(format!(
            "not WebAssembly: expected a .wasm binary or .wat text{}",
            resemblance(upload)
        ))),
    }
}

/// Returns whether `text` starts with a parenthesis after spaces and line comments. A block comment
/// starts with one, too, and `wast` parses it.
fn begins_like_wat(text: &str) -> bool {
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    while let Some(comment) = rest.strip_prefix(";;") {
        let Some((_, after)) = comment.split_once('\n') else {
            return false;
        };
        rest = after.trim_start();
    }
    rest.starts_with('(')
}

fn encode(text: &str) -> Result<Vec<u8>, Refusal> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let refuse = |error: wast::Error| {
        let (line, column) = error.span().linecol_in(text);
        malformed(format!(
            "the .wat text is wrong at line {}, column {}: {}",
            line + 1,
            column + 1,
            error.message()
        ))
    };
    let buffer = ParseBuffer::new(text).map_err(refuse)?;
    let mut wat = parser::parse::<wast::Wat>(&buffer).map_err(refuse)?;
    wat.encode().map_err(refuse)
}

/// Describes what bytes that are not Wasm look like, if that is known.
fn resemblance(upload: &[u8]) -> &'static str {
    const BEGINNINGS: [(&[u8], &str); 7] = [
        (
            b"\x7fELF",
            " (this is a native executable; build it for a wasm32-wasip1 or wasm32-wasip2 target)",
        ),
        (
            b"\x1f\x8b",
            " (this is compressed with gzip; unpack it first)",
        ),
        (
            b"\x28\xb5\x2f\xfd",
            " (this is compressed with zstd; unpack it first)",
        ),
        (
            b"\xfd7zXZ\0",
            " (this is compressed with xz; unpack it first)",
        ),
        (b"PK\x03\x04", " (this is a zip archive; unpack it first)"),
        (b"#!", " (this is a script)"),
        (
            b"wasm",
            " (this looks like Wasm whose first byte is missing; was it copied in text mode?)",
        ),
    ];
    if upload.is_empty() {
        return ", the file is empty";
    }
    let beginning = BEGINNINGS
        .into_iter()
        .find(|(magic, _)| upload.starts_with(magic));
    match (beginning, std::str::from_utf8(upload)) {
        (Some((_, hint)), _) => hint,
        (None, Ok(text)) => text_resemblance(text),
        (None, Err(_)) => "",
    }
}

fn text_resemblance(text: &str) -> &'static str {
    const JAVASCRIPT: [&str; 7] = [
        "import ",
        "export ",
        "const ",
        "function ",
        "async ",
        "\"use strict\"",
        "addEventListener",
    ];
    let text = text.trim_start();
    let lower = |count| text.chars().take(count).collect::<String>().to_lowercase();
    if lower(9) == "<!doctype" || lower(5) == "<html" {
        " (this is an HTML page; was it downloaded from the wrong address?)"
    } else if JAVASCRIPT.iter().any(|word| text.starts_with(word)) {
        " (this looks like JavaScript)"
    } else {
        " (this is text)"
    }
}

fn malformed(message: String) -> Refusal {
    Refusal::new(RefusalKind::Malformed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(upload: &[u8]) -> String {
        let refusal = read(upload).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Malformed);
        refusal.message
    }

    #[test]
    fn text_is_recognised_behind_space_and_comments() {
        for text in [
            "(module)",
            " \n ;; a comment (with parenthesis\n\t(module)",
            "(; block ;) (module)",
            "\u{feff}(module)",
            "(component)",
        ] {
            let source = read(text.as_bytes()).unwrap();
            assert!(source.from_text);
            assert!(source.wasm.starts_with(WASM_MAGIC));
        }
    }

    #[test]
    fn a_mistake_in_text_is_named_by_line_and_column() {
        let message = refusal(b"(module\n  (fun))");
        assert!(message.contains("line 2, column 4"), "{message}");
    }

    #[test]
    fn other_file_types_are_named() {
        for (upload, word) in [
            (&b""[..], "empty"),
            (b"\x7fELF\x02", "native executable"),
            (b"\x1f\x8b\x08", "gzip"),
            (b"  <!DOCTYPE html>", "HTML"),
            (b"export default {}", "JavaScript"),
            (b"hello", "text"),
            (b";; only a comment", "text"),
        ] {
            let message = refusal(upload);
            assert!(message.contains(word), "{message}");
            assert!(message.contains("expected a .wasm binary or .wat text"));
        }
    }

    #[test]
    fn bytes_of_no_known_kind_are_refused_without_a_guess() {
        assert_eq!(
            refusal(&[0xff, 0xfe, 0x00]),
            "not WebAssembly: expected a .wasm binary or .wat text"
        );
    }
}
