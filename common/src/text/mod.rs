//! Untrusted text from a guest, a client or an upload, escaped for display.
//!
//! A line break in a function's name fakes a line of a log. A terminal obeys control characters. A
//! bidirectional control displays text in another order than it has. This module alone decides
//! which characters may be shown unchanged ([`is_plain`]), and how the others are spelled: as in
//! Rust (`\n`, `\u{202e}`), or as in JSON. Code that writes such text to a log, a terminal, a
//! problem body or a metric's label must use one of the wrappers below.
//!
//! Escaping is idempotent: text that the pool has escaped can be escaped again where it is printed.
//! A backslash stays as it is, so the original cannot always be recovered from the result, which is
//! for reading only.

use std::fmt::{self, Display, Formatter, Write};

/// Text as one line: line breaks and tabs are escaped, too.
#[derive(Clone, Copy, Debug)]
pub struct Line<T>(pub T);

/// Text as one line of a log of its own. Tabs stay.
#[derive(Clone, Copy, Debug)]
pub struct TabbedLine<T>(pub T);

/// Text with its line breaks and tabs: for places where it stands alone.
#[derive(Clone, Copy, Debug)]
pub struct Lines<T>(pub T);

/// Text with its line breaks and tabs, and with each line but the first indented, so that none of
/// them can pass for a line of its own.
#[derive(Clone, Copy, Debug)]
pub struct Indented<T>(pub T);

/// Bytes that need not be text, for a terminal. Valid text is shown as by [`Lines`], each other
/// byte as `\xNN`.
#[derive(Clone, Copy, Debug)]
pub struct ByteLines<'a>(pub &'a [u8]);

/// A complete JSON document. Its strings are unchanged for a parser.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// The indentation of each line of [`Indented`] except the first.
pub const INDENT: &str = "  ";

/// Returns whether a character may be shown unchanged: it is visible or a space, does not move or
/// reorder other characters, and does not end a line.
#[must_use]
pub fn is_plain(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\0'..='\u{9f}' => false,
        // Unicode classifies these as letters and marks, but they are invisible: fillers, joiners,
        // and selectors that can carry a whole hidden text.
        '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{3164}'
        | '\u{ffa0}'
        | '\u{e0000}'..='\u{e0fff}' => false,
        other => is_printable(other),
    }
}

/// Returns whether the standard library prints a character unescaped. It has Unicode's table of
/// categories: controls, formats, separators, private and unassigned characters are not printable.
fn is_printable(character: char) -> bool {
    // The character is tested after a letter, because a combining mark is escaped only at the
    // beginning of a text.
    let mut behind_a = [b'a'; 5];
    let Some((_, room)) = behind_a.split_first_mut() else {
        return false;
    };
    let length = 1 + character.encode_utf8(room).len();
    let text = behind_a.get(..length).map(std::str::from_utf8);
    matches!(text, Some(Ok(text)) if text.escape_debug().count() == 2)
}

/// A writer that escapes characters that may not be shown, and passes the others on.
struct Escaping<'a, 'b> {
    out: &'a mut Formatter<'b>,
    spell: fn(&mut Formatter<'_>, char) -> fmt::Result,
}

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        // Plain stretches are written at once; most text is one such stretch.
        while let Some(at) = rest.find(|character| !is_plain(character)) {
            let (plain, other) = rest.split_at(at);
            self.out.write_str(plain)?;
            let mut characters = other.chars();
            if let Some(character) = characters.next() {
                (self.spell)(self.out, character)?;
            }
            rest = characters.as_str();
        }
        self.out.write_str(rest)
    }
}

/// Displays a text; `spell` displays the characters that may not be shown unchanged.
fn escape(
    out: &mut Formatter<'_>,
    text: &impl Display,
    spell: fn(&mut Formatter<'_>, char) -> fmt::Result,
) -> fmt::Result {
    write!(Escaping { out, spell }, "{text}")
}

fn spelled(out: &mut Formatter<'_>, character: char) -> fmt::Result {
    write!(out, "{}", character.escape_default())
}

impl<T: Display> Display for Line<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        escape(f, &self.0, spelled)
    }
}

impl<T: Display> Display for TabbedLine<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        escape(f, &self.0, |out, character| match character {
            '\t' => out.write_char('\t'),
            other => spelled(out, other),
        })
    }
}

impl<T: Display> Display for Lines<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        escape(f, &self.0, |out, character| match character {
            '\t' | '\n' => out.write_char(character),
            other => spelled(out, other),
        })
    }
}

impl<T: Display> Display for Indented<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        escape(f, &self.0, |out, character| match character {
            '\t' => out.write_char('\t'),
            '\n' => {
                out.write_char('\n')?;
                out.write_str(INDENT)
            }
            other => spelled(out, other),
        })
    }
}

impl Display for ByteLines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            write!(f, "{}", Lines(chunk.valid()))?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl<T: Display> Display for Json<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        escape(f, &self.0, |out, character| match character {
            // Whitespace between values. Within strings, JSON has escaped these already.
            '\t' | '\n' | '\r' => out.write_char(character),
            other => {
                let mut units = [0; 2];
                let units = other.encode_utf16(&mut units);
                let mut units = units.iter();
                units.try_for_each(|unit| write!(out, "\\u{unit:04x}"))
            }
        })
    }
}

#[cfg(test)]
mod tests;
