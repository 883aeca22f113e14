//! The options of a deployment.

mod access;
mod error;
mod freeze;
mod inputs;
mod json;
mod limits;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use faasw_common::FreezePolicy;
use serde::{Deserialize, Serialize};

pub(crate) use self::inputs::is_key;
pub use self::{
    error::OptionsError,
    inputs::CONFIGURATION_BYTES,
    json::{OPTIONS_BYTES, OPTIONS_FIELD},
    values::OptionValue,
};
use crate::{HostName, Outbound, SecretName, StoreName, TimeLimit, WarmUpRequest, spelling};

/// Maximum length of a source in bytes.
const LONGEST_SOURCE: usize = 1024;

/// The options of one function. The node's defaults apply to options that are not set. The table
/// [`faasw_common::options`] has an entry for each field.
///
/// ```
/// use std::time::Duration;
/// use faasw_client::FunctionOptions;
///
/// let options = FunctionOptions::default()
///     .env("GREETING", "hello")
///     .memory(64 << 20)
///     .first_byte(Duration::from_millis(500))
///     .concurrency(20);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionOptions {
    #[serde(
        deserialize_with = "json::variables",
        skip_serializing_if = "Vec::is_empty"
    )]
    environment: Vec<(String, String)>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    configuration: BTreeMap<String, String>,
    /// In bytes.
    memory: Option<u64>,
    /// In microseconds.
    times_us: BTreeMap<TimeLimit, u64>,
    #[serde(with = "spelling::freeze")]
    freeze: FreezePolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    init: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warm_ups: Vec<WarmUpRequest>,
    concurrency: Option<usize>,
    /// In microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_us: Option<u64>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    hosts: BTreeSet<HostName>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    stores: BTreeSet<StoreName>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    outbound: BTreeSet<Outbound>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    secrets: BTreeSet<SecretName>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    bound_secrets: BTreeMap<SecretName, BTreeSet<Outbound>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<String>,
    /// The path of the files, unless it is `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    files_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freeze_at: Option<String>,
    /// For display only.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

impl FunctionOptions {
    /// Sets an option to each of these values in turn: an optional value, or those of a list.
    ///
    /// ```
    /// use faasw_client::FunctionOptions;
    ///
    /// let arguments = ["-v", "--port=80"];
    /// let options = FunctionOptions::default()
    ///     .with(Some(64 << 20), FunctionOptions::memory)
    ///     .with(arguments, FunctionOptions::argument);
    /// ```
    #[must_use]
    pub fn with<T>(
        self,
        values: impl IntoIterator<Item = T>,
        set: impl FnMut(Self, T) -> Self,
    ) -> Self {
        values.into_iter().fold(self, set)
    }

    /// Sets the origin of the deployed artifact, for example a reference to it. It is stored and
    /// shown with the version and has no other effect.
    #[must_use]
    pub fn source(mut self, text: impl Into<String>) -> Self {
        self.source = Some(text.into());
        self
    }

    /// Returns the origin of the deployed artifact, if it is set.
    #[must_use]
    pub fn own_source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Returns the options without the values that may be secret: the environment, and header
    /// fields and bodies of warm-up requests.
    #[must_use]
    pub fn without_contents(&self) -> Self {
        Self {
            environment: Vec::new(),
            warm_ups: Vec::new(),
            ..self.clone()
        }
    }

    /// Checks constraints that the types do not express.
    ///
    /// # Errors
    /// Returns [`OptionsError`] for the first invalid option.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.check_given()?;
        self.check_reach()?;
        self.check_limits()?;
        self.check_freezing()?;
        if let Some(source) = &self.source {
            let is_long = source.is_empty() || source.len() > LONGEST_SOURCE;
            if is_long || source.contains(char::is_control) {
                return Err(OptionsError::Source);
            }
        }
        Ok(())
    }
}
