extern crate std;

use std::string::{String, ToString as _};

use super::*;

/// Characters that must never be shown. Each is named by its number in the standard, so that this
/// list depends on no table.
const HOSTILE: [char; 34] = [
    '\0',
    '\u{1}',
    '\u{7}',
    '\u{8}',
    '\n',
    '\u{b}',
    '\u{c}',
    '\r',
    '\u{1b}',
    '\u{7f}',
    '\u{80}',
    '\u{85}',
    '\u{9b}',
    '\u{9f}',
    '\u{ad}',
    '\u{61c}',
    '\u{180e}',
    '\u{200b}',
    '\u{200d}',
    '\u{200e}',
    '\u{200f}',
    '\u{2028}',
    '\u{2029}',
    '\u{202a}',
    '\u{202d}',
    '\u{202e}',
    '\u{2060}',
    '\u{2066}',
    '\u{2069}',
    '\u{feff}',
    '\u{fff9}',
    '\u{e0001}',
    '\u{e0041}',
    '\u{e0100}',
];

/// Random text: hostile characters, ordinary ones, and any at all.
fn text(chance: &mut fastrand::Rng) -> String {
    let length = chance.usize(..60);
    (0..length)
        .map(|_| match chance.u8(..4) {
            0 => HOSTILE[chance.usize(..HOSTILE.len())],
            1 => chance.char('a'..='z'),
            2 => chance.char('\0'..='\u{3000}'),
            _ => chance.char(..),
        })
        .collect()
}

/// Texts of a seed that is printed, so that a failure can be repeated.
fn texts() -> impl Iterator<Item = String> {
    let seed = std::env::var("FAASW_TEST_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    std::println!("FAASW_TEST_SEED={seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    (0..20_000).map(move |_| text(&mut chance))
}

/// Returns whether `text` has no hostile characters except those in `kept`.
fn is_safe(text: &str, kept: &[char]) -> bool {
    text.chars().all(|character| {
        kept.contains(&character) || !(character.is_control() || HOSTILE.contains(&character))
    })
}

#[test]
fn escaped_text_is_never_hostile() {
    for text in texts() {
        let line = Line(&text).to_string();
        assert!(is_safe(&line, &[]), "{text:?}: {line:?}");
        assert_eq!(line.lines().count(), usize::from(!line.is_empty()));
        let tabbed = TabbedLine(&text).to_string();
        assert!(is_safe(&tabbed, &['\t']), "{text:?}: {tabbed:?}");
        let lines = Lines(&text).to_string();
        assert!(is_safe(&lines, &['\t', '\n']), "{text:?}: {lines:?}");
        let indented = Indented(&text).to_string();
        assert!(is_safe(&indented, &['\t', '\n']), "{text:?}: {indented:?}");
        assert!(
            indented
                .split('\n')
                .skip(1)
                .all(|line| line.starts_with(INDENT)),
            "{indented:?}"
        );
    }
}

#[test]
fn escaping_twice_changes_nothing() {
    for text in texts() {
        let line = Line(&text).to_string();
        assert_eq!(Line(&line).to_string(), line);
        let lines = Lines(&text).to_string();
        assert_eq!(Lines(&lines).to_string(), lines);
    }
}

#[test]
fn escaped_json_parses_to_the_same_value() {
    for text in texts() {
        let json = serde_json::to_string(&text).unwrap();
        let escaped = Json(&json).to_string();
        assert!(is_safe(&escaped, &[]), "{text:?}: {escaped:?}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
    }
    let document = serde_json::json!({"a": ["\u{2028}", 1]});
    let pretty = serde_json::to_string_pretty(&document).unwrap();
    let escaped = Json(&pretty).to_string();
    assert_eq!(escaped.lines().count(), pretty.lines().count());
    let parsed: serde_json::Value = serde_json::from_str(&escaped).unwrap();
    assert_eq!(parsed, document);
}

#[test]
fn ordinary_text_is_unchanged() {
    for text in [
        "it's a \"path\" C:\\x",
        "Grüße, Ελλάδα, русский, 日本語, हिन्दी, עברית, العربية",
        "e\u{301}",
        "…–“”€✓ 🦀 ❤\u{fe0f}",
    ] {
        assert_eq!(Line(text).to_string(), text);
    }
}

#[test]
fn hostile_characters_are_escaped() {
    assert_eq!(
        Line("a\r\nb\tc\u{1b}[2J\u{2028}\u{202e}\u{85}").to_string(),
        "a\\r\\nb\\tc\\u{1b}[2J\\u{2028}\\u{202e}\\u{85}"
    );
    assert_eq!(Indented("a\nb\u{9b}\tc").to_string(), "a\n  b\\u{9b}\tc");
    assert_eq!(
        Json("\"\u{e0001}\u{2028}\"").to_string(),
        "\"\\udb40\\udc01\\u2028\""
    );
}

#[test]
fn bytes_that_are_no_text_are_spelled_and_text_among_them_is_escaped() {
    for (bytes, shown) in [
        (&b"plain\ttext\n"[..], "plain\ttext\n"),
        (b"\x1b[2J\x07", "\\u{1b}[2J\\u{7}"),
        (b"a\xff\xfeb", "a\\xff\\xfeb"),
        // The first bytes of a character, and a C1 control character as a single byte.
        (b"\xe2\x80", "\\xe2\\x80"),
        (b"\x9b31m", "\\x9b31m"),
        ("\u{202e}\u{9b}".as_bytes(), "\\u{202e}\\u{9b}"),
        (b"", ""),
    ] {
        assert_eq!(ByteLines(bytes).to_string(), shown);
    }
}
