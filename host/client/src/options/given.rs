//! What a function is given to read: environment, configuration, arguments, and where its files
//! are.

use std::collections::BTreeMap;

use faasw_abi::files::is_mount;

use super::{FunctionOptions, OptionsError};

/// Longest key of a configuration, in bytes.
pub(super) const LONGEST_KEY: usize = 256;

/// Most bytes of a configuration's keys and values together. The line of the request that deploys
/// it takes fewer of some, as it spells them: short keys, each with a name of the parameter, and
/// letters that it spells as three bytes for one. There a client says so
/// ([`ClientError::TooLong`](crate::ClientError::TooLong)).
pub const CONFIGURATION_BYTES: usize = 16 << 10;

/// Most arguments of a function.
pub(super) const MOST_ARGUMENTS: usize = 64;

/// Most bytes of all of them together.
pub(super) const ARGUMENT_BYTES: usize = 8 << 10;

/// Whether a text can be a key of a configuration.
pub(crate) fn is_key(text: &str) -> bool {
    let is_long = text.len() > LONGEST_KEY;
    !text.is_empty() && !is_long && !text.contains(|c: char| c == '=' || c.is_control())
}

impl FunctionOptions {
    /// Adds an environment variable; a later one of the same name replaces it.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.environment.retain(|(other, _)| *other != name);
        self.environment.push((name, value.into()));
        self
    }

    /// The environment, in its order.
    #[must_use]
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// Sets a value of the function's configuration; a later one of the same key replaces it. The
    /// function reads it by `wasi:config/store` or Spin's `variables`. Whoever may ask the node
    /// about its functions sees it: that is no place for secrets ([`FunctionOptions::secret`]).
    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.configuration.insert(key.into(), value.into());
        self
    }

    /// The configuration, by its keys.
    #[must_use]
    pub fn configuration(&self) -> &BTreeMap<String, String> {
        &self.configuration
    }

    /// Adds a program argument, behind those given before; the first is the function's name in any
    /// case.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Its program arguments, but for its name.
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Says where the function finds the files that it is deployed with: an absolute path instead
    /// of `/`.
    #[must_use]
    pub fn files_at(mut self, path: impl Into<String>) -> Self {
        self.files_at = Some(path.into());
        self
    }

    /// Where its files are to be, unless that is `/`.
    #[must_use]
    pub fn own_files_at(&self) -> Option<&str> {
        self.files_at.as_deref()
    }

    /// Checks what the types cannot.
    pub(super) fn check_given(&self) -> Result<(), OptionsError> {
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(OptionsError::Environment(name.clone()));
            }
        }
        for key in self.configuration.keys() {
            if !is_key(key) {
                return Err(OptionsError::Key(key.clone()));
            }
        }
        let pairs = self.configuration.iter();
        let bytes = pairs.map(|(key, value)| key.len() + value.len()).sum();
        if bytes > CONFIGURATION_BYTES {
            return Err(OptionsError::Configuration(bytes));
        }
        if let Some(argument) = self.arguments.iter().find(|one| one.contains('\0')) {
            return Err(OptionsError::Argument(argument.clone()));
        }
        let argument_bytes = self.arguments.iter().map(String::len).sum();
        if self.arguments.len() > MOST_ARGUMENTS || argument_bytes > ARGUMENT_BYTES {
            let count = self.arguments.len();
            return Err(OptionsError::Arguments(count, argument_bytes));
        }
        if let Some(path) = self.files_at.as_ref().filter(|path| !is_mount(path)) {
            return Err(OptionsError::FilesAt(path.clone()));
        }
        Ok(())
    }
}
