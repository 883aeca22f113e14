//! Makes the specification of a version's seed from its record.

use std::sync::Arc;

use faasw_abi::{entry::is_entry, wire::Pair};
use faasw_client::{FunctionName, FunctionOptions, Initialisation};
use faasw_pool::{FunctionSpec, Script};

use super::{VersionFactory, warm_up::warm_ups};
use crate::{
    log::{Event, FunctionLog},
    node::content::SeedContent,
    registry::VersionRecord,
};

/// The variable with the path at which the node serves a function.
const BASE_PATH: &[u8] = b"FAASW_BASE_PATH";

impl VersionFactory {
    /// Returns the specification of a seed that is made now, and notifies the observer.
    pub(crate) fn spec(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        content: SeedContent,
        log: &Arc<FunctionLog>,
    ) -> FunctionSpec {
        self.observer.notify(Event::MakingSeed { function: name });
        let init = match &record.initialised {
            Some(Initialisation::InMemory { export, .. }) => Some(export.clone()),
            Some(Initialisation::AsModule { .. }) => None,
            // If the options name an export, the record is of a version of faasw that had only this
            // kind of initialisation.
            None => record.options.init_export().map(ToOwned::to_owned),
        };
        let engine = record.engine.as_ref().map(|engine| engine.name.to_string());
        let script = engine.zip(content.script);
        FunctionSpec {
            script: script.map(|(engine, files)| Script {
                engine,
                bytes: record.module_bytes,
                files,
            }),
            has_entry: record.options.own_freeze_at().is_some()
                || record.imports.iter().any(|import| is_entry(import)),
            image: Some(record.image(name)),
            files: content.files,
            ..self.spec_of(name, &record.options, init, log)
        }
    }

    /// Returns the specification of a function with these options, which the export `init`
    /// initialises.
    pub(crate) fn spec_of(
        &self,
        name: &FunctionName,
        options: &FunctionOptions,
        init: Option<String>,
        log: &Arc<FunctionLog>,
    ) -> FunctionSpec {
        FunctionSpec {
            name: name.as_str().into(),
            memory_limit: options.memory_or(self.limits.memory),
            environment: environment(name, options),
            configuration: options
                .configuration()
                .iter()
                .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect(),
            secrets: options
                .secrets()
                .iter()
                .chain(options.bound_secrets().keys())
                .map(|name| name.as_str().as_bytes().to_vec())
                .collect(),
            stores: options
                .stores()
                .iter()
                .map(|name| name.as_str().as_bytes().to_vec())
                .collect(),
            freeze: options.freeze_policy(),
            poll: options.own_poll(),
            init,
            script: None,
            arguments: options
                .arguments()
                .iter()
                .map(|argument| argument.as_bytes().to_vec())
                .collect(),
            files: None,
            warm_ups: warm_ups(name, options),
            has_entry: false,
            image: None,
            log: log.clone(),
        }
    }
}

/// Returns the function's environment: its own variables, and the path at which the node serves it,
/// for code that builds links before it has a request.
fn environment(name: &FunctionName, options: &FunctionOptions) -> Vec<Pair> {
    let own = options.environment().iter();
    let mut all: Vec<Pair> = own
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect();
    if !all.iter().any(|(name, _)| name == BASE_PATH) {
        all.push((BASE_PATH.to_vec(), format!("/{name}").into_bytes()));
    }
    all
}
