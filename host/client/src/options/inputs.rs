//! Options for a function's inputs: environment, configuration, arguments, and the place of its
//! files.

use std::collections::BTreeMap;

use faasw_abi::files::is_mount;

use super::{FunctionOptions, OptionsError, json::MESSAGE_CHARACTERS};

/// Maximum length of a key of a configuration in bytes.
pub(super) const LONGEST_KEY: usize = 256;

/// Maximum size of a configuration's keys and values together in bytes.
pub const CONFIGURATION_BYTES: usize = 16 << 10;

/// Maximum number of arguments of a function.
pub(super) const MOST_ARGUMENTS: usize = 64;

/// Maximum size of all arguments together in bytes.
pub(super) const ARGUMENT_BYTES: usize = 8 << 10;

/// Returns whether a text is a valid key of a configuration.
pub(crate) fn is_key(text: &str) -> bool {
    let is_long = text.len() > LONGEST_KEY;
    !text.is_empty() && !is_long && !text.contains(|c: char| c == '=' || c.is_control())
}

/// Returns the beginning of a text for an error message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(MESSAGE_CHARACTERS).collect()
}

impl FunctionOptions {
    /// Adds an environment variable, or replaces the one of the same name.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.environment.retain(|(other, _)| *other != name);
        self.environment.push((name, value.into()));
        self
    }

    /// Returns the environment variables in their order.
    #[must_use]
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// Sets a value of the function's configuration, or replaces the one of the same key. The
    /// function reads it by `wasi:config/store` or Spin's `variables`. Every client of the admin
    /// API can see the configuration, so it must not contain secrets (see
    /// [`FunctionOptions::secret`]).
    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.configuration.insert(key.into(), value.into());
        self
    }

    /// Returns the configuration by key.
    #[must_use]
    pub fn configuration(&self) -> &BTreeMap<String, String> {
        &self.configuration
    }

    /// Appends a program argument. The first argument is always the function's name.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Returns the program arguments, without the function's name.
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Sets the absolute path at which the function sees its files, instead of `/`.
    #[must_use]
    pub fn files_at(mut self, path: impl Into<String>) -> Self {
        self.files_at = Some(path.into());
        self
    }

    /// Returns the path of the files, unless it is `/`.
    #[must_use]
    pub fn own_files_at(&self) -> Option<&str> {
        self.files_at.as_deref()
    }

    /// Checks constraints that the types do not express.
    pub(super) fn check_given(&self) -> Result<(), OptionsError> {
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                // The text behind = is probably a value, which may be secret.
                let without_value = name.split('=').next().unwrap_or_default();
                return Err(OptionsError::Environment(excerpt(without_value)));
            }
        }
        for key in self.configuration.keys() {
            if !is_key(key) {
                return Err(OptionsError::Key(excerpt(key)));
            }
        }
        let pairs = self.configuration.iter();
        let bytes = pairs.map(|(key, value)| key.len() + value.len()).sum();
        if bytes > CONFIGURATION_BYTES {
            return Err(OptionsError::Configuration(bytes));
        }
        if let Some(argument) = self.arguments.iter().find(|one| one.contains('\0')) {
            return Err(OptionsError::Argument(excerpt(argument)));
        }
        let argument_bytes = self.arguments.iter().map(String::len).sum();
        if self.arguments.len() > MOST_ARGUMENTS || argument_bytes > ARGUMENT_BYTES {
            let count = self.arguments.len();
            return Err(OptionsError::Arguments(count, argument_bytes));
        }
        if let Some(path) = self.files_at.as_ref().filter(|path| !is_mount(path)) {
            return Err(OptionsError::FilesAt(excerpt(path)));
        }
        Ok(())
    }
}
