//! A file with a function's configuration or environment: a table of strings, as TOML or JSON.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use faasw_client::CONFIGURATION_BYTES;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

/// Maximum size of a file in bytes: enough for a configuration or an environment, with comments and
/// escapes.
const FILE_BYTES: usize = 8 * CONFIGURATION_BYTES;

/// The keys and values of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFile(pub BTreeMap<String, String>);

/// Reads a file. The extension determines its format.
pub fn read(path: &str) -> Result<TableFile, String> {
    let text = text_of(Path::new(path)).map_err(|error| error.to_string())?;
    match Path::new(path).extension().and_then(|end| end.to_str()) {
        Some("toml") => toml::from_str(&text).map_err(|error| error.to_string()),
        Some("json") => serde_json::from_str(&text).map_err(|error| error.to_string()),
        _ => Err("its name must end in .toml or .json".to_owned()),
    }
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > FILE_BYTES {
        let error = format!("it exceeds {} KiB", FILE_BYTES >> 10);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

impl<'de> Deserialize<'de> for TableFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = TableFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TableFile, A::Error> {
        let mut pairs = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            let Value::String(value) = value else {
                return Err(A::Error::custom(format_args!(
                    "the value of {key:?} is not a string: use quotes"
                )));
            };
            if pairs.contains_key(&key) {
                return Err(A::Error::custom(format_args!("{key:?} occurs twice")));
            }
            pairs.insert(key, value);
        }
        Ok(TableFile(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_as(name: &str, text: &str) -> Result<TableFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        read(path.to_str().unwrap())
    }

    #[test]
    fn both_formats_say_the_same() {
        let toml = "# where it is\nurl = \"http://a\"\n\"a.b\" = 'x'\n";
        let json = r#"{"url": "http://a", "a.b": "x"}"#;
        let pairs = [("url", "http://a"), ("a.b", "x")];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let expected = Ok(TableFile(pairs.into()));
        assert_eq!(read_as("c.toml", toml), expected);
        assert_eq!(read_as("c.json", json), expected);
        assert_eq!(read_as("c.toml", ""), Ok(TableFile(BTreeMap::new())));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (name, text, word) in [
            ("c.toml", "port = 80", "\"port\""),
            ("c.toml", "day = 2026-01-02", "\"day\""),
            ("c.toml", "[database]\nurl = \"x\"", "\"database\""),
            ("c.toml", "a.b = \"x\"", "\"a\""),
            ("c.toml", "a = \"1\"\na = \"2\"", "duplicate"),
            ("c.toml", "a = ", "line 1"),
            ("c.json", r#"{"port": null}"#, "\"port\""),
            ("c.json", r#"{"a": "1", "a": "2"}"#, "twice"),
            ("c.json", "[]", "table of strings"),
            ("c.json", "{} {}", "trailing"),
            ("c.yaml", "a: b", ".toml"),
            ("c", "", ".toml"),
        ] {
            let error = read_as(name, text).unwrap_err();
            assert!(error.contains(word), "{name} {text:?}: {error}");
        }
        let large = format!("a = \"{}\"", "\u{e9}".repeat(FILE_BYTES));
        assert!(read_as("c.toml", &large).unwrap_err().contains("128 KiB"));
        assert!(
            read("/nowhere/c.toml")
                .unwrap_err()
                .contains("No such file")
        );
    }
}
