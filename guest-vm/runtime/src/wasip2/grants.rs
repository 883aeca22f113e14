//! `faasw:engine/grants`: the names of what the operator granted, the configuration and the memory
//! limit, for language engines.
//!
//! The names are a part of the function version, like the environment. They are known when the seed
//! is made, and equal for every request, so reading them is no draw.

use alloc::string::String;
use alloc::vec::Vec;

use wasmtime::Result;

use super::bindings::faasw::engine::grants;
use super::cli::text;
use crate::platform::Platform;
use crate::state::State;

impl<P: Platform> grants::Host for State<P> {
    fn secrets(&mut self) -> Result<Vec<String>> {
        Ok(texts(self.secrets.names()))
    }

    fn stores(&mut self) -> Result<Vec<String>> {
        Ok(texts(&self.stores))
    }

    fn configuration(&mut self) -> Result<Vec<(String, String)>> {
        let pairs = self.configuration.iter();
        Ok(pairs.map(|(key, value)| (text(key), text(value))).collect())
    }

    fn files(&mut self) -> Result<Option<String>> {
        let path = self.files.as_ref().and_then(|files| files.mount_path());
        Ok(path.map(String::from))
    }

    fn memory_limit(&mut self) -> Result<u64> {
        Ok(self.memory.limit() as u64)
    }
}

fn texts(names: &[Vec<u8>]) -> Vec<String> {
    names.iter().map(|name| text(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Stdio;
    use crate::testing::MemoryPlatform;
    use alloc::vec;
    use faasw_abi::wire::{FunctionKind, SeedConfig};
    use grants::Host as _;

    fn config(secrets: &[&str], stores: &[&str]) -> SeedConfig {
        let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
        SeedConfig {
            kind: FunctionKind::HttpComponent,
            tells_state: false,
            has_entry: false,
            memory_limit: 1 << 20,
            arguments: Vec::new(),
            environment: Vec::new(),
            configuration: vec![(b"colour".to_vec(), b"blue".to_vec())],
            secrets: names(secrets),
            stores: names(stores),
            files: None,
        }
    }

    #[test]
    fn an_engine_reads_the_names_of_its_scripts_grants_without_a_draw() {
        let platform = MemoryPlatform::new(1);
        let mut state = State::new(config(&[], &[]), Stdio::Log, None, platform);
        assert!(state.secrets().unwrap().is_empty() && state.stores().unwrap().is_empty());
        state
            .become_function(config(&["KEY", "TOKEN"], &["stock"]))
            .unwrap();
        assert_eq!(state.secrets().unwrap(), vec!["KEY", "TOKEN"]);
        assert_eq!(state.stores().unwrap(), vec!["stock"]);
        // Configuration can be read although there are secrets, which cannot be read yet.
        let configuration = vec![("colour".into(), "blue".into())];
        assert_eq!(state.configuration().unwrap(), configuration);
        assert_eq!(state.files().unwrap(), None);
        assert_eq!(state.memory_limit().unwrap(), 1 << 20);
        assert!(state.draws.is_empty());
    }
}
