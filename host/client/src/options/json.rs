//! Options as JSON, the form in which they travel to a node.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use faasw_common::{options::OPTIONS, text::Json};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::FunctionOptions;

/// The header field of a deployment that has the options as JSON.
pub const OPTIONS_FIELD: &str = "x-faasw-options";

/// Maximum size of options as JSON in bytes. A node reads 128 KiB of a request's head; the rest of
/// the head has 16 KiB.
pub const OPTIONS_BYTES: usize = 112 << 10;

/// Members of the JSON that are not in the table of options.
const OTHER_MEMBERS: [&str; 1] = ["source"];

/// Members whose values are not repeated in error messages: they are secret, or a secret can be in
/// them by mistake.
const PRIVATE_MEMBERS: [&str; 4] = ["environment", "warm_ups", "bound_secrets", "secrets"];

/// Maximum length of an error message in characters. The client sent what the message repeats.
pub(super) const MESSAGE_CHARACTERS: usize = 300;

impl FunctionOptions {
    /// Returns the options as JSON without control characters.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Options can always be written as JSON: the keys of all maps are texts.
        Json(serde_json::to_string(self).unwrap_or_default()).to_string()
    }

    /// Returns the options for JSON that a client sends. Each member is optional. Memory is in
    /// bytes, times are in microseconds. Unlike a stored record, the JSON must not have unknown
    /// members: the client would rely on an option without effect.
    ///
    /// ```
    /// let options = br#"{
    ///     "memory": 67108864,
    ///     "times_us": {"cpu-time": 1000000, "timeout": 500000, "total-time": 60000000},
    ///     "concurrency": 20,
    ///     "poll_us": 0,
    ///     "environment": [["LEVEL", "info"]],
    ///     "configuration": {"colour": "red"},
    ///     "arguments": ["-v"],
    ///     "files_at": "/site",
    ///     "hosts": ["shop.example.com"],
    ///     "stores": ["users"],
    ///     "outbound": ["https://api.example.com"],
    ///     "secrets": ["password"],
    ///     "bound_secrets": {"api_key": ["https://api.example.com"]},
    ///     "freeze": "auto",
    ///     "freeze_at": "/site/request",
    ///     "init": "setup",
    ///     "warm_ups": ["/", "POST /items\n\n{}"],
    ///     "source": "where the module comes from, for display only"
    /// }"#;
    /// let options = faasw_client::FunctionOptions::from_json(options)?;
    /// options.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns a sentence that names the mistake if the JSON is too large, an option is unknown or
    /// occurs twice, or a value is invalid. The sentence never repeats values of the environment,
    /// of warm-up requests, and of secrets and their bindings.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        if json.len() > OPTIONS_BYTES {
            let bytes = json.len();
            return Err(format!(
                "options take {OPTIONS_BYTES} bytes of JSON at most, not {bytes}"
            ));
        }
        let Members(members) = serde_json::from_slice(json).map_err(shortened)?;
        let is_known = |member: &str| {
            OPTIONS.iter().any(|option| option.member == member) || OTHER_MEMBERS.contains(&member)
        };
        if let Some(unknown) = members.keys().find(|member| !is_known(member)) {
            return Err(shortened(format_args!("there is no option {unknown:?}")));
        }
        serde_json::from_slice(json).map_err(|error| {
            let is_invalid = |member: &&str| {
                let value = members.get(*member);
                value.is_some_and(|value| !is_valid(member, value))
            };
            match PRIVATE_MEMBERS.iter().copied().find(is_invalid) {
                Some(member) => format!("{member} is invalid; its values are not repeated here"),
                None => shortened(error),
            }
        })
    }
}

/// Returns whether options can have this value of a member.
fn is_valid(member: &str, value: &RawValue) -> bool {
    let options = serde_json::to_string(&BTreeMap::from([(member, value)]));
    options.is_ok_and(|json| serde_json::from_str::<FunctionOptions>(&json).is_ok())
}

fn shortened(message: impl fmt::Display) -> String {
    let mut message = message.to_string();
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARACTERS) {
        message.truncate(end);
        message.push('\u{2026}');
    }
    message
}

/// The members of an object, each of which occurs once.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((member, value)) = map.next_entry::<String, &RawValue>()? {
            if members.contains_key(&member) {
                return Err(A::Error::custom(format_args!("duplicate field `{member}`")));
            }
            members.insert(member, value);
        }
        Ok(Members(members))
    }
}

/// Reads variables. The last value of a name counts.
pub(super) fn variables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, String)>, D::Error> {
    let mut variables = Vec::<(String, String)>::deserialize(deserializer)?;
    let mut names = BTreeSet::new();
    variables.reverse();
    variables.retain(|(name, _)| names.insert(name.clone()));
    variables.reverse();
    Ok(variables)
}
