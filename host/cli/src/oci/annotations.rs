//! Converts options to an artifact's annotations, and back.
//!
//! Each option of the table [`faasw_common::options`] is an annotation with the prefix
//! `dev.faasw.`. The value of a repeatable option is a JSON list. So an artifact can state every
//! option in the words of the command line, and the same limits apply.

use std::collections::BTreeMap;

use faasw_client::{FunctionOptions, OptionValue};
use faasw_common::options;

/// The prefix of the annotations.
const PREFIX: &str = "dev.faasw.";

/// Maximum size of all options of an artifact in bytes, more than any deployment needs.
const OPTIONS_BYTES_MAX: usize = 256 << 10;

/// Maximum number of characters of a message about the options.
const MESSAGE_MAX: usize = 400;

/// Returns the annotations for options.
pub fn of_options(options: &FunctionOptions) -> BTreeMap<String, String> {
    let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut annotations = BTreeMap::new();
    for OptionValue { definition, text } in options.values() {
        if definition.form.is_repeatable() {
            lists.entry(definition.name).or_default().push(text)
        } else {
            annotations.insert(format!("{PREFIX}{}", definition.name), text);
        }
    }
    for (name, texts) in lists {
        let list = serde_json::Value::from(texts).to_string();
        annotations.insert(format!("{PREFIX}{name}"), list);
    }
    annotations
}

/// Returns the options of an artifact. Ignores annotations with other prefixes.
///
/// # Errors
/// Returns a message if an option is unknown to this version or has an invalid value, or if all
/// options together are too large.
pub fn read(annotations: &BTreeMap<String, String>) -> Result<Vec<OptionValue>, String> {
    let ours = annotations
        .iter()
        .filter_map(|(key, text)| Some((key.strip_prefix(PREFIX)?, text)));
    let bytes = ours.clone().map(|(name, text)| name.len() + text.len());
    if bytes.sum::<usize>() > OPTIONS_BYTES_MAX {
        return Err(format!("its options exceed {OPTIONS_BYTES_MAX} bytes"));
    }
    values_of(ours).map_err(|why| {
        let why: String = why.chars().take(MESSAGE_MAX).collect();
        format!("its artifact's options: {why}")
    })
}

fn values_of<'a>(
    annotations: impl Iterator<Item = (&'a str, &'a String)>,
) -> Result<Vec<OptionValue>, String> {
    let mut values = Vec::new();
    for (name, text) in annotations {
        let texts = match options::find(name) {
            Some(option) if option.form.is_repeatable() => serde_json::from_str(text)
                .map_err(|_| format!("{PREFIX}{name} is not a JSON list of strings"))?,
            _ => vec![text.clone()],
        };
        for text in texts {
            values.push(OptionValue::new(name, text)?);
        }
    }
    // The artifact's options have to be valid without those of the command line.
    let options = FunctionOptions::from_values(&values)?;
    options.check().map_err(|why| why.to_string())?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use faasw_client::{FreezePolicy, Outbound};

    #[test]
    fn options_survive_annotations() {
        let options = FunctionOptions::default()
            .env("A", "b=\"c\"\n\u{e9}")
            .env("B", "")
            .config("k", "[1]")
            .memory(64 << 20)
            .first_byte(Duration::from_millis(1500))
            .concurrency(3)
            .argument("--x")
            .freeze(FreezePolicy::AfterInit)
            .allow_outbound(Outbound::new("https://a.test").unwrap());
        let annotations = of_options(&options);
        assert_eq!(annotations["dev.faasw.memory"], "67108864");
        assert_eq!(annotations["dev.faasw.timeout"], "1s 500ms");
        assert_eq!(
            annotations["dev.faasw.allow-outbound"],
            r#"["https://a.test"]"#
        );
        let values = read(&annotations).unwrap();
        assert_eq!(FunctionOptions::from_values(&values).unwrap(), options);
        assert_eq!(of_options(&FunctionOptions::default()), BTreeMap::new());
    }

    #[test]
    fn every_repeatable_option_is_a_list() {
        let mut options = FunctionOptions::default()
            .argument("a")
            .argument("b")
            .env("A", "b")
            .env("C", "d");
        for text in ["https://a.test", "https://b.test"] {
            let host = Outbound::new(text).unwrap();
            options = options.allow_outbound(host.clone());
            options = options.bind_secret(faasw_client::SecretName::new("s").unwrap(), host);
        }
        let annotations = of_options(&options);
        assert_eq!(annotations.len(), 4);
        let is_list = |text: &String| serde_json::from_str::<Vec<String>>(text).is_ok();
        assert!(annotations.values().all(is_list), "{annotations:?}");
        let values = read(&annotations).unwrap();
        assert_eq!(FunctionOptions::from_values(&values).unwrap(), options);
    }

    #[test]
    fn invalid_artifact_options_are_rejected() {
        let read = |key: &str, value: &str| read(&[(key.to_owned(), value.to_owned())].into());
        assert_eq!(read("org.opencontainers.image.title", "x"), Ok(Vec::new()));
        for (key, value, why) in [
            ("dev.faasw.source", "oci://a", "source"),
            ("dev.faasw.env", "A=b", "JSON"),
            ("dev.faasw.env", "[1]", "JSON"),
            ("dev.faasw.env", r#"["A"]"#, "NAME=VALUE"),
            ("dev.faasw.env", r#"["A\u0000=b"]"#, "environment"),
            ("dev.faasw.memory", "1", "memory"),
            ("dev.faasw.memory", "many", "many"),
            ("dev.faasw.something-new", "x", "something-new"),
            (
                "dev.faasw.allow-outbound",
                r#"["everything"]"#,
                "everything",
            ),
        ] {
            let error = read(key, value).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let long = read(&format!("{PREFIX}{}", "x".repeat(100_000)), "").unwrap_err();
        assert!(long.len() < 1000, "{}", long.len());
        let much = read("dev.faasw.memory", &"1".repeat(OPTIONS_BYTES_MAX)).unwrap_err();
        assert!(much.contains("exceed"), "{much}");
    }
}
