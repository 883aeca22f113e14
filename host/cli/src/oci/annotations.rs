//! Converts options to an artifact's annotations, and back.
//!
//! Each deployment parameter of the admin API is an annotation with the prefix `dev.faasw.`. The
//! value of a repeatable parameter is a JSON list. So an artifact can state every option in the
//! same words, and the same limits apply.

use std::{borrow::Cow, collections::BTreeMap};

use faasw_client::{
    FunctionOptions,
    query::{option_pairs, options_of},
};

/// The prefix of the annotations.
const PREFIX: &str = "dev.faasw.";

/// Repeatable parameters.
const LISTS: [&str; 9] = [
    "allow-outbound",
    "arg",
    "bind-secret",
    "config",
    "env",
    "host",
    "kv",
    "secret",
    "warmup-request",
];

/// The parameter that only the deploying user may set.
const SOURCE: &str = "source";

/// Maximum size of all options of an artifact in bytes, more than any deployment needs.
const OPTIONS_BYTES_MAX: usize = 256 << 10;

/// Maximum number of characters of a message about the options.
const MESSAGE_MAX: usize = 400;

/// A parameter and a value.
pub type Pair = (String, String);

/// Returns the annotations for options.
pub fn of_options(options: &FunctionOptions) -> BTreeMap<String, String> {
    let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut annotations = BTreeMap::new();
    for (parameter, value) in changed_options(options) {
        if LISTS.contains(&parameter) {
            lists.entry(parameter).or_default().push(value)
        } else {
            annotations.insert(format!("{PREFIX}{parameter}"), value);
        }
    }
    for (parameter, values) in lists {
        let list = serde_json::Value::from(values).to_string();
        annotations.insert(format!("{PREFIX}{parameter}"), list);
    }
    annotations
}

/// Returns the parameters that differ from their defaults.
pub fn changed_options(options: &FunctionOptions) -> impl Iterator<Item = (&'static str, String)> {
    let pairs = option_pairs(options).into_iter();
    pairs.filter(|(parameter, value)| *parameter != "freeze" || value != "auto")
}

/// Returns the options of an artifact as parameters and values. Ignores annotations with other
/// prefixes.
///
/// # Errors
/// Returns a message if an option is unknown to this version or has an invalid value, or if all
/// options together are too large.
pub fn read(annotations: &BTreeMap<String, String>) -> Result<Vec<Pair>, String> {
    let ours = annotations
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)));
    let bytes = ours
        .clone()
        .map(|(parameter, value)| parameter.len() + value.len());
    if bytes.sum::<usize>() > OPTIONS_BYTES_MAX {
        return Err(format!("its options exceed {OPTIONS_BYTES_MAX} bytes"));
    }
    pairs_of(ours).map_err(|why| {
        let why: String = why.chars().take(MESSAGE_MAX).collect();
        format!("its artifact's options: {why}")
    })
}

fn pairs_of<'a>(
    annotations: impl Iterator<Item = (&'a str, &'a String)>,
) -> Result<Vec<Pair>, String> {
    let mut pairs = Vec::new();
    for (parameter, value) in annotations {
        if parameter == SOURCE {
            return Err(format!("an artifact cannot have {PREFIX}{parameter}"));
        }
        if LISTS.contains(&parameter) {
            let values: Vec<String> = serde_json::from_str(value)
                .map_err(|_| format!("{PREFIX}{parameter} is not a JSON list of strings"))?;
            pairs.extend(
                values
                    .into_iter()
                    .map(|value| (parameter.to_owned(), value)),
            );
        } else {
            pairs.push((parameter.to_owned(), value.clone()));
        }
    }
    // The artifact's options have to be valid without those of the command line.
    let options = options_from(&pairs)?;
    options.check().map_err(|why| why.to_string())?;
    Ok(pairs)
}

/// Returns the options for parameters and values.
///
/// # Errors
/// Returns a message if a parameter is unknown or invalid.
pub fn options_from(pairs: &[Pair]) -> Result<FunctionOptions, String> {
    let borrowed = |text: &'_ String| Cow::<'static, str>::from(text.clone());
    options_of(
        pairs
            .iter()
            .map(|(parameter, value)| (borrowed(parameter), borrowed(value))),
    )
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
        let pairs = read(&annotations).unwrap();
        assert_eq!(options_from(&pairs).unwrap(), options);
        assert_eq!(of_options(&FunctionOptions::default()), BTreeMap::new());
    }

    #[test]
    fn every_repeatable_parameter_is_a_list() {
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
        let mut seen: Vec<&str> = Vec::new();
        for (parameter, _) in changed_options(&options) {
            assert!(
                !seen.contains(&parameter) || LISTS.contains(&parameter),
                "{parameter}"
            );
            seen.push(parameter);
        }
        assert_eq!(
            options_from(&read(&of_options(&options)).unwrap()).unwrap(),
            options
        );
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
