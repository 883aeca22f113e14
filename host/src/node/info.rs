//! Describes functions for callers of the library and, as JSON, for clients of the admin API.

use faasw_abi::store::is_import;
use faasw_client::{
    FilesInfo, FreezePolicy, FunctionBrief, FunctionInfo, FunctionName, Initialisation, SecretName,
};

use super::{
    content::ROOT,
    functions::{makes_requests, reads_configuration},
};
use crate::{limits::Limits, registry::VersionRecord};

/// Where the seed of a version is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeedState {
    pub(super) is_in_memory: bool,
    /// The size of its image on disk, if there is one.
    pub(super) image_bytes: Option<u64>,
}

/// Returns the entry of a function in a list.
pub(super) fn function_brief(
    name: &FunctionName,
    version: u64,
    record: &VersionRecord,
    limits: &Limits,
    is_in_memory: bool,
) -> FunctionBrief {
    let options = &record.options;
    FunctionBrief {
        name: name.clone(),
        version,
        kind: record.kind,
        digest: record.digest,
        engine: record.engine.as_ref().map(|engine| engine.name.clone()),
        deployed: record.deployed,
        memory: options.memory_or(limits.memory),
        timeout: limits.of_request(options).first_byte,
        frozen_after_init: record.freeze.after_init,
        frozen_at_entry: record.freeze.at_entry,
        ready: is_in_memory,
    }
}

/// Returns the description of a version of a function.
pub(super) fn function_info(
    name: &FunctionName,
    version: u64,
    record: &VersionRecord,
    limits: &Limits,
    state: SeedState,
) -> FunctionInfo {
    let options = &record.options;
    FunctionInfo {
        name: name.clone(),
        version,
        kind: record.kind,
        digest: record.digest,
        engine: record.engine.clone(),
        deployed: record.deployed,
        memory: options.memory_or(limits.memory),
        limits: limits.of_request(options),
        environment: options
            .environment()
            .iter()
            .map(|(variable, _)| variable.clone())
            .collect(),
        warm_ups: options.warm_ups().iter().map(ToString::to_string).collect(),
        options: options.without_contents(),
        files: record.files.as_ref().map(|files| FilesInfo {
            at: options.own_files_at().unwrap_or(ROOT).to_owned(),
            digest: files.digest,
            entries: files.entries,
            bytes: files.bytes,
            bundle_bytes: files.bundle_bytes,
        }),
        imports: record.imports.clone(),
        module_bytes: record.module_bytes,
        code_bytes: record.code_bytes,
        init: initialised(record),
        frozen_after_init: record.freeze.after_init,
        frozen_at_entry: record.freeze.at_entry,
        drawn: record.freeze.drawn.clone(),
        instantiation: record.freeze.instantiation,
        layer_bytes: record.freeze.layer_bytes,
        ready: state.is_in_memory,
        image_bytes: state.image_bytes,
    }
}

/// Returns how the version was initialised, if it was.
fn initialised(record: &VersionRecord) -> Option<Initialisation> {
    let before = || {
        Some(Initialisation::InMemory {
            export: record.options.init_export()?.to_owned(),
            reason: "it was deployed when there was no other way".to_owned(),
        })
    };
    record.initialised.clone().or_else(before)
}

/// Returns notices for the function's owner. They cover the initialisation: where it happens, which
/// values it drew, by which import, what it costs and which choice there is. They also cover
/// configuration and stores that the function cannot read, and secrets that are not set yet.
pub(super) fn notice(record: &VersionRecord, unset: &[SecretName]) -> Option<String> {
    let notices = [
        initialisation_notice(record),
        freeze_notice(record),
        configuration_notice(record),
        secrets_notice(record, unset),
        stores_notice(record),
        outbound_notice(record),
    ];
    let notices: Vec<String> = notices.into_iter().flatten().collect();
    (!notices.is_empty()).then(|| notices.join(". "))
}

/// Explains why the initialisation is not part of the module.
fn initialisation_notice(record: &VersionRecord) -> Option<String> {
    match record.initialised.as_ref()? {
        Initialisation::AsModule { .. } => None,
        Initialisation::InMemory { export, reason } => Some(format!(
            "{export} initialises it whenever its seed is made, instead of once and for all: \
             {reason}"
        )),
    }
}

/// Explains which imports a version lacks to use what it has. A script has those of its engine.
fn lacking(record: &VersionRecord, imports: &str) -> String {
    match &record.engine {
        Some(engine) => format!("its language engine {} imports {imports}", engine.name),
        None => format!("it imports {imports}"),
    }
}

/// Notes a configuration that the version has no import to read.
fn configuration_notice(record: &VersionRecord) -> Option<String> {
    let has_one = !record.options.configuration().is_empty();
    (has_one && !reads_configuration(record)).then(|| {
        let how = lacking(
            record,
            "neither wasi:config/store nor Spin's variables to read it",
        );
        format!(
            "it has a configuration, but {how}; use --env for a function that reads its environment"
        )
    })
}

/// Notes secrets that the version has no import to read, or that have no value yet.
fn secrets_notice(record: &VersionRecord, unset: &[SecretName]) -> Option<String> {
    if record.options.secrets().is_empty() && record.options.bound_secrets().is_empty() {
        return None;
    }
    if !reads_configuration(record) {
        let how = lacking(
            record,
            "neither wasi:config/store nor Spin's variables to read it by",
        );
        return Some(format!("it was given a secret, but {how}"));
    }
    let names: Vec<&str> = unset.iter().map(SecretName::as_str).collect();
    match names.as_slice() {
        [] => None,
        [name] => Some(format!("its secret {name} has no value yet")),
        names => Some(format!(
            "its secrets {} have no value yet",
            names.join(", ")
        )),
    }
}

/// Notes granted stores that the version has no import to use.
fn stores_notice(record: &VersionRecord) -> Option<String> {
    let has_one = !record.options.stores().is_empty();
    let is_used = record.imports.iter().any(|import| is_import(import));
    (has_one && !is_used).then(|| {
        let how = lacking(
            record,
            "neither wasi:keyvalue nor Spin's key-value to use it by",
        );
        format!("it was granted a key-value store, but {how}")
    })
}

/// Notes granted outbound calls that the version has no import to make.
fn outbound_notice(record: &VersionRecord) -> Option<String> {
    let has_one = !record.options.outbound().is_empty();
    (has_one && !makes_requests(record)).then(|| {
        let how = lacking(record, "no wasi:http/outgoing-handler to make them by");
        format!("it has grants for outbound calls, but {how}")
    })
}

fn freeze_notice(record: &VersionRecord) -> Option<String> {
    let freeze = &record.freeze;
    if !freeze.drew_entropy {
        return None;
    }
    let drawn = freeze.drawn.trim().lines().collect::<Vec<_>>().join("; ");
    // A store's answer, like a random number, must not be the same for all requests.
    let what = if freeze.drawn.contains("key-value#") || freeze.drawn.contains("wasi:keyvalue/") {
        "answers of a key-value store"
    } else {
        "entropy"
    };
    let cost = freeze.instantiation.as_secs_f64() * 1e3;
    match (record.options.freeze_policy(), freeze.after_init) {
        (FreezePolicy::Auto, false) => Some(format!(
            "its initialisation uses {what} ({drawn}). Therefore its seed is frozen before that, \
             and each request initialises again, which takes {cost:.3} ms; --freeze after-init \
             avoids this, but all requests share the values"
        )),
        (FreezePolicy::AfterInit, true) => {
            let why = match record.initialised {
                Some(Initialisation::AsModule { .. }) => "it is part of its module",
                _ => "its seed is frozen after that",
            };
            Some(format!(
                "its initialisation uses {what} ({drawn}); as configured, all requests share the \
                 values because {why}"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::FreezeRecord;
    use faasw_client::{Digest, FunctionKind, FunctionOptions, WarmUpRequest};
    use std::time::{Duration, SystemTime};

    fn record(policy: FreezePolicy, after_init: bool, drew_entropy: bool) -> VersionRecord {
        VersionRecord {
            digest: Digest::of(b""),
            engine: None,
            files: None,
            initialised: None,
            kind: FunctionKind::HttpComponent,
            options: FunctionOptions::default().env("SECRET", "x").freeze(policy),
            deployed: SystemTime::UNIX_EPOCH,
            imaged: None,
            freeze: FreezeRecord {
                after_init,
                at_entry: false,
                drew_entropy,
                drawn: "wasi:random/random get-random-bytes: 32 bytes\n".into(),
                instantiation: Duration::from_micros(1500),
                layer_bytes: 0,
            },
            imports: vec!["wasi:random/random@0.2.0".into()],
            module_bytes: 1,
            code_bytes: 2,
        }
    }

    #[test]
    fn the_notice_names_draws_costs_and_alternatives() {
        let notice = freeze_notice(&record(FreezePolicy::Auto, false, true)).unwrap();
        for part in [
            "get-random-bytes: 32 bytes)",
            "1.500 ms",
            "--freeze after-init",
        ] {
            assert!(notice.contains(part), "{notice}");
        }
        let shared = freeze_notice(&record(FreezePolicy::AfterInit, true, true)).unwrap();
        assert!(shared.contains("all requests share"), "{shared}");
    }

    #[test]
    fn a_function_without_draws_has_no_notice() {
        assert_eq!(
            freeze_notice(&record(FreezePolicy::Auto, true, false)),
            None
        );
        assert_eq!(
            freeze_notice(&record(FreezePolicy::BeforeInit, false, true)),
            None
        );
    }

    #[test]
    fn an_unread_configuration_is_noticed() {
        let mut record = record(FreezePolicy::Auto, true, false);
        assert_eq!(notice(&record, &[]), None);
        record.options = record.options.config("a", "b");
        let told = notice(&record, &[]).unwrap();
        assert!(told.contains("wasi:config/store"), "{told}");
        record
            .imports
            .push("wasi:config/store@0.2.0-rc.1#get".into());
        assert_eq!(notice(&record, &[]), None);
    }

    #[test]
    fn list_entries_are_bounded_whatever_the_options() {
        let name = FunctionName::new("f").unwrap();
        let listed = |record: &VersionRecord| {
            let brief = function_brief(&name, 3, record, &Limits::default(), true);
            serde_json::to_string(&brief).unwrap()
        };
        let mut record = record(FreezePolicy::Auto, true, true);
        let before = listed(&record);
        let long = "x".repeat(10_000);
        record.options = record.options.config("key", &*long).env("NAME", &*long);
        record.options = record.options.argument(&*long).source(&*long);
        record.imports.push(long.clone());
        record.freeze.drawn = long;
        assert_eq!(listed(&record), before);
        assert!(
            before.len() < 400 && before.contains("\"timeout_us\":10000000"),
            "{before}"
        );
    }

    #[test]
    fn function_info_never_contains_environment_values() {
        let mut record = record(FreezePolicy::Auto, true, false);
        let warm_up = WarmUpRequest::new("/\nx-key: hidden\n\nhidden").unwrap();
        record.options = record.options.config("a", "b").env("SECRET", "hidden");
        record.options = record.options.warm_up(warm_up);
        let name = FunctionName::new("f").unwrap();
        let state = SeedState {
            is_in_memory: true,
            image_bytes: Some(5),
        };
        let info = function_info(&name, 3, &record, &Limits::default(), state);
        assert!(info.ready && info.image_bytes == Some(5));
        assert_eq!(info.environment, ["SECRET"]);
        assert_eq!(info.warm_ups, ["POST /"]);
        assert_eq!(info.options.configuration()["a"], "b");
        let json = serde_json::to_value(&info).unwrap();
        let text = json.to_string();
        assert!(!text.contains("hidden"), "{text}");
        assert_eq!(json["limits"]["first_byte_us"], 10_000_000);
        assert_eq!(json["kind"], "http-component");
        assert_eq!(serde_json::from_value::<FunctionInfo>(json).unwrap(), info);
    }
}
