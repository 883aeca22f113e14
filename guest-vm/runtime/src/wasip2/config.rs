//! A function's configuration: the drafts of `wasi:config/store`, and Spin's variables.
//!
//! Configuration is a part of the function version, like the environment. It is known when the seed
//! is made, and equal for every request, so reading it is no draw. Secrets are read through the
//! same interfaces, but arrive with a request: reading one before that is a draw.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use faasw_abi::configuration::{CONFIG_STORES, SPIN_VARIABLES};
use wasmtime::Result;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};

use super::Caller;
use super::cli::text;
use crate::draws::Kind;
use crate::platform::Platform;
use crate::secrets::SecretsNotReady;
use crate::state::State;

/// `wasi:config/store.error`. Configuration is in memory, so only reads of secrets before a request
/// fail.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum StoreError {
    #[component(name = "upstream")]
    Upstream(String),
    #[component(name = "io")]
    Io(String),
}

/// `fermyon:spin/variables.error`. `provider` is for secrets only.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum VariableError {
    #[component(name = "invalid-name")]
    InvalidName(String),
    #[component(name = "undefined")]
    Undefined(String),
    #[component(name = "provider")]
    Provider(String),
    #[component(name = "other")]
    Other(String),
}

/// The error text for a function that reads a secret before its request.
const NOT_YET: &str = "secrets are available only while a request is answered";

impl From<SecretsNotReady> for StoreError {
    fn from(_: SecretsNotReady) -> Self {
        Self::Upstream(NOT_YET.to_string())
    }
}

/// Returns whether Spin accepts this name for a variable: letters, digits and single underscores
/// between them, and a letter first. This only selects one of two errors: a configured key is found
/// in any case.
fn is_variable_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let mut bytes = word.bytes();
        !word.is_empty() && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.split('_').all(is_word)
}

impl<P: Platform> State<P> {
    /// Returns the value of a configured key or a secret, which the function reads through
    /// `import`.
    fn configured(
        &mut self,
        import: &'static str,
        key: &str,
    ) -> Result<Option<String>, SecretsNotReady> {
        let name = key.as_bytes();
        if self.secrets.has(name) {
            self.draws.record(Kind::Secret, import, 0);
            let value = self.secrets.value(name, &mut self.platform)?;
            return Ok(value.map(text));
        }
        self.draws.record(Kind::Environment, import, 0);
        let mut pairs = self.configuration.iter();
        let found = pairs.find(|(other, _)| other == name);
        Ok(found.map(|(_, value)| text(value)))
    }

    /// Returns all configured pairs in their order, followed by the secrets.
    fn all_configured(&mut self) -> Result<Vec<(String, String)>, SecretsNotReady> {
        let import = "wasi:config/store#get-all";
        let kind = if self.secrets.is_empty() {
            Kind::Environment
        } else {
            Kind::Secret
        };
        self.draws.record(kind, import, 0);
        let secrets = if self.secrets.is_empty() {
            &[]
        } else {
            self.secrets.all(&mut self.platform)?
        };
        let pairs = self.configuration.iter().chain(secrets);
        Ok(pairs.map(|(key, value)| (text(key), text(value))).collect())
    }
}

/// Adds all interfaces of this module.
///
/// # Errors
/// Returns Wasmtime's error if memory runs out; the names are distinct.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    for interface in CONFIG_STORES {
        let mut instance = linker.instance(interface)?;
        instance.func_wrap("get", |mut store: Caller<'_, P>, (key,): (String,)| {
            let state = store.data_mut();
            let found = state.configured("wasi:config/store#get", &key);
            Ok((found.map_err(StoreError::from),))
        })?;
        instance.func_wrap("get-all", |mut store: Caller<'_, P>, (): ()| {
            let all = store.data_mut().all_configured();
            Ok((all.map_err(StoreError::from),))
        })?;
    }
    let mut variables = linker.instance(SPIN_VARIABLES)?;
    variables.func_wrap("get", |mut store: Caller<'_, P>, (name,): (String,)| {
        let import = "fermyon:spin/variables#get";
        let found = match store.data_mut().configured(import, &name) {
            Ok(Some(value)) => Ok(value),
            Ok(None) if is_variable_name(&name) => Err(VariableError::Undefined(name)),
            Ok(None) => Err(VariableError::InvalidName(name)),
            Err(SecretsNotReady) => Err(VariableError::Provider(NOT_YET.to_string())),
        };
        Ok((found,))
    })
}

#[cfg(test)]
mod tests {
    use super::is_variable_name;

    #[test]
    fn variables_are_named_as_spin_names_them() {
        for name in ["a", "a1", "api_key", "a_1"] {
            assert!(is_variable_name(name), "{name}");
        }
        for name in ["", "_a", "a_", "a__b", "1a", "A", "a-b", "a.b", "\u{e9}"] {
            assert!(!is_variable_name(name), "{name}");
        }
    }
}
