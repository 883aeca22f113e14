//! Bounds that both sides apply to a report.
//!
//! Names come from a tenant's binary and reach terminals and logs. Therefore they are cut and
//! cleaned in one place, when a report is sent and again when it is read.

use faasw_common::text::{Line, Lines};

/// Most bytes of a whole report.
pub const REPORT_MAX: usize = 64 << 10;
/// Most imports of a report. Real functions use about a hundred.
pub const IMPORTS_MAX: usize = 512;
/// Most bytes of an import's name.
pub const NAME_MAX: usize = 200;
/// Most bytes of a message: room for a hundred names of [`NAME_MAX`], and small
/// enough that JSON escapes cannot push it beyond [`REPORT_MAX`].
pub const MESSAGE_MAX: usize = 24 << 10;

/// Most bytes of a function's name, as in DNS labels.
const FUNCTION_NAME_MAX: usize = 63;

/// Appended to text that was cut.
const CUT: char = '…';

const _: () = assert!(
    MESSAGE_MAX * 2 + 1024 <= REPORT_MAX,
    "a message of nothing but escapes must leave room for the rest of a report"
);

/// Keeps the first [`IMPORTS_MAX`] names, each escaped to one line and cut to [`NAME_MAX`].
pub fn bound_names(names: &mut Vec<String>) {
    names.truncate(IMPORTS_MAX);
    for name in names {
        *name = Line(&name).to_string();
        cut(name, NAME_MAX);
    }
}

/// Escapes characters that are unsafe on a terminal or in a log, except line breaks, then cuts
/// `text` to `limit` bytes.
pub fn bound_text(text: &mut String, limit: usize) {
    *text = Lines(&text).to_string();
    cut(text, limit);
}

fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - CUT.len_utf8()));
        text.push(CUT);
    }
}

/// Converts `text` to a function name (`[a-z0-9-]{1,63}`). Returns `None` if no character is left.
pub fn function_name(text: &str) -> Option<String> {
    let text = text.strip_suffix(".wasm").unwrap_or(text);
    let dashed: String = text
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(FUNCTION_NAME_MAX)
        .collect();
    let name = dashed.trim_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters_and_marked() {
        let mut text = "é".repeat(200);
        bound_text(&mut text, 100);
        assert!(text.len() <= 100 && text.ends_with("é…"), "{text}");
    }

    #[test]
    fn any_name_becomes_a_function_name_or_none() {
        assert_eq!(function_name("Hello_World.wasm").unwrap(), "hello-world");
        assert_eq!(function_name("../é"), None);
        assert_eq!(function_name(""), None);
        assert_eq!(function_name(&"x".repeat(100)).unwrap().len(), 63);
    }
}
