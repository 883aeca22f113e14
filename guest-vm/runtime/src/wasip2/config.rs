//! A function's configuration: the drafts of `wasi:config/store`, and Spin's variables.
//!
//! It is a part of the version, as its environment is: known when the seed is made, the same for
//! every request, and so no draw.

use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::configuration::{CONFIG_STORES, SPIN_VARIABLES};
use wasmtime::component::{ComponentType, Lift, Linker, Lower};
use wasmtime::{Result, StoreContextMut};

use super::cli::text;
use crate::draws::Kind;
use crate::platform::Platform;
use crate::state::State;

/// `wasi:config/store.error`. What there is, is in memory: it never fails.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum StoreError {
    #[component(name = "upstream")]
    Upstream(String),
    #[component(name = "io")]
    Io(String),
}

/// `fermyon:spin/variables.error`. There is no provider that could fail.
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

/// Whether Spin lets a variable have this name: letters, digits and single underscores between
/// them, and a letter first. Only to tell its two errors apart: a key that is configured is found.
fn is_variable_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let mut bytes = word.bytes();
        !word.is_empty() && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.split('_').all(is_word)
}

impl<P: Platform> State<P> {
    /// The configured value of a key, asked for through `import`.
    fn configured(&mut self, import: &'static str, key: &str) -> Option<String> {
        self.draws.record(Kind::Environment, import, 0);
        let mut pairs = self.configuration.iter();
        let (_, value) = pairs.find(|(other, _)| other == key.as_bytes())?;
        Some(text(value))
    }

    /// All that is configured, in its order.
    fn all_configured(&mut self) -> Vec<(String, String)> {
        let import = "wasi:config/store#get-all";
        self.draws.record(Kind::Environment, import, 0);
        let pairs = self.configuration.iter();
        pairs.map(|(key, value)| (text(key), text(value))).collect()
    }
}

/// Adds all interfaces of this module.
///
/// # Errors
/// When memory runs out; the names are distinct.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    for interface in CONFIG_STORES {
        let mut instance = linker.instance(interface)?;
        instance.func_wrap(
            "get",
            |mut store: StoreContextMut<'_, State<P>>, (key,): (String,)| {
                let state = store.data_mut();
                let found: Result<_, StoreError> =
                    Ok(state.configured("wasi:config/store#get", &key));
                Ok((found,))
            },
        )?;
        instance.func_wrap(
            "get-all",
            |mut store: StoreContextMut<'_, State<P>>, (): ()| {
                let all: Result<_, StoreError> = Ok(store.data_mut().all_configured());
                Ok((all,))
            },
        )?;
    }
    let mut variables = linker.instance(SPIN_VARIABLES)?;
    variables.func_wrap(
        "get",
        |mut store: StoreContextMut<'_, State<P>>, (name,): (String,)| {
            let import = "fermyon:spin/variables#get";
            let found = store.data_mut().configured(import, &name);
            Ok((found.ok_or_else(|| match is_variable_name(&name) {
                true => VariableError::Undefined(name),
                false => VariableError::InvalidName(name),
            }),))
        },
    )
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
