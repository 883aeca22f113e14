//! Options as JSON, the form in which they travel to a node.

use std::collections::{BTreeMap, BTreeSet};

use faasw_common::{options::OPTIONS, text::Json};
use serde::{Deserialize as _, Deserializer, de::IgnoredAny};

use super::FunctionOptions;

/// The header field of a deployment that has the options as JSON.
pub const OPTIONS_FIELD: &str = "x-faasw-options";

/// Maximum size of options as JSON in bytes. A node reads 128 KiB of a request's head; the rest of
/// the head has 16 KiB.
pub const OPTIONS_BYTES: usize = 112 << 10;

/// Members of the JSON that are not in the table of options.
const OTHER_MEMBERS: [&str; 1] = ["source"];

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
    /// occurs twice, or a value is invalid.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        if json.len() > OPTIONS_BYTES {
            let bytes = json.len();
            return Err(format!(
                "options take {OPTIONS_BYTES} bytes of JSON at most, not {bytes}"
            ));
        }
        let refused = |error: serde_json::Error| error.to_string();
        let members: BTreeMap<String, IgnoredAny> =
            serde_json::from_slice(json).map_err(refused)?;
        let is_known = |member: &str| {
            OPTIONS.iter().any(|option| option.member == member) || OTHER_MEMBERS.contains(&member)
        };
        match members.keys().find(|member| !is_known(member)) {
            Some(unknown) => Err(format!("there is no option {unknown:?}")),
            None => serde_json::from_slice(json).map_err(refused),
        }
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
