//! What a node says of its functions: to the library's caller and, as JSON, to
//! clients of the admin API.

use std::time::{Duration, SystemTime};

use faasw_abi::wire::FunctionKind;
use faasw_pool::FreezePolicy;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    host_name::HostName,
    limits::{Limits, RequestLimits},
    name::FunctionName,
    registry::VersionRecord,
    spelling,
};

/// A version of a function that the node has; in lists, the current one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// Its name.
    pub name: FunctionName,
    /// Number of the version: 1 is the first that was deployed under the name.
    pub version: u64,
    /// What it is.
    #[serde(with = "spelling::kind")]
    pub kind: FunctionKind,
    /// Digest of its module.
    pub digest: Digest,
    /// When it was deployed.
    pub deployed: SystemTime,
    /// Memory limit in bytes.
    pub memory: u64,
    /// The times that hold for its requests.
    pub limits: RequestLimits,
    /// Most requests at once; nothing where only the node's limit holds.
    pub concurrency: Option<usize>,
    /// Hosts that are its own, but for the one in the node's domain.
    #[serde(default)]
    pub hosts: Vec<HostName>,
    /// Names of its environment variables. Values may be secrets and stay.
    pub environment: Vec<String>,
    /// Full names of its module's imports.
    pub imports: Vec<String>,
    /// Size of its module in bytes.
    pub module_bytes: u64,
    /// Size of its compiled code in bytes.
    pub code_bytes: u64,
    /// The freeze policy that was asked for.
    #[serde(with = "spelling::freeze")]
    pub freeze: FreezePolicy,
    /// Whether its seed is frozen after instantiation: the policy in force.
    pub frozen_after_init: bool,
    /// What instantiating it drew, by import, one line each; empty when nothing.
    pub drawn: String,
    /// What its instantiation takes.
    #[serde(rename = "instantiation_us", with = "spelling::microseconds")]
    pub instantiation: Duration,
    /// Size of its seed's memory layer in bytes.
    pub layer_bytes: u64,
    /// Whether its seed exists now. After a restart it is made in the background, or
    /// when a request comes, which is served from what all functions share meanwhile.
    pub ready: bool,
}

/// A function and the versions of it that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FunctionDetails {
    /// The version that serves.
    pub function: FunctionInfo,
    /// Requests that are under way now, on whatever version.
    pub under_way: usize,
    /// Versions that can be gone back to, and the current one; newest first.
    pub versions: Vec<FunctionInfo>,
}

/// A deployment that went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Deployed {
    /// The function.
    pub function: FunctionInfo,
    /// What compiling took; nothing when the code was there already.
    #[serde(rename = "compile_us", with = "spelling::optional_microseconds")]
    pub compile_time: Option<Duration>,
    /// What making the seed took.
    #[serde(rename = "seed_us", with = "spelling::microseconds")]
    pub seed_time: Duration,
    /// What its owner should know about the freeze, if anything.
    pub notice: Option<String>,
}

impl FunctionInfo {
    pub(super) fn of(
        name: &FunctionName,
        version: u64,
        record: &VersionRecord,
        limits: &Limits,
        ready: bool,
    ) -> Self {
        let options = &record.options;
        Self {
            name: name.clone(),
            version,
            kind: record.kind,
            digest: record.digest,
            deployed: record.deployed,
            memory: options.memory_or(limits.memory),
            limits: options.request_limits(limits),
            concurrency: options.own_concurrency(),
            hosts: options.hosts().iter().cloned().collect(),
            environment: options
                .environment()
                .iter()
                .map(|(variable, _)| variable.clone())
                .collect(),
            imports: record.imports.clone(),
            module_bytes: record.module_bytes,
            code_bytes: record.code_bytes,
            freeze: options.freeze_policy(),
            frozen_after_init: record.freeze.after_init,
            drawn: record.freeze.drawn.clone(),
            instantiation: record.freeze.instantiation,
            layer_bytes: record.freeze.layer_bytes,
            ready,
        }
    }
}

/// What the freeze policy did that the function's owner would want to know:
/// what was drawn, by which import, what it costs, and what the choice is.
pub(super) fn freeze_notice(record: &VersionRecord) -> Option<String> {
    let freeze = &record.freeze;
    if !freeze.drew_entropy {
        return None;
    }
    let drawn = freeze.drawn.trim().lines().collect::<Vec<_>>().join("; ");
    let cost = freeze.instantiation.as_secs_f64() * 1e3;
    match (record.options.freeze_policy(), freeze.after_init) {
        (FreezePolicy::Auto, false) => Some(format!(
            "initialising it draws entropy ({drawn}), so its seed is frozen before that and each request initialises anew, which takes {cost:.3} ms; --freeze after-init saves that and shares what was drawn between all requests"
        )),
        (FreezePolicy::AfterInit, true) => Some(format!(
            "initialising it draws entropy ({drawn}), which all requests share because its seed is frozen after that, as asked"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{options::FunctionOptions, registry::FreezeRecord};

    fn record(policy: FreezePolicy, after_init: bool, drew_entropy: bool) -> VersionRecord {
        VersionRecord {
            digest: Digest::of(b""),
            kind: FunctionKind::HttpComponent,
            options: FunctionOptions::default().env("SECRET", "x").freeze(policy),
            deployed: SystemTime::UNIX_EPOCH,
            freeze: FreezeRecord {
                after_init,
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
    fn the_owner_learns_what_was_drawn_what_it_costs_and_the_choice() {
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
    fn there_is_nothing_to_say_about_a_function_that_draws_nothing() {
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
    fn values_of_the_environment_are_not_told() {
        let record = record(FreezePolicy::Auto, true, false);
        let name = FunctionName::new("f").unwrap();
        let info = FunctionInfo::of(&name, 3, &record, &Limits::default(), true);
        assert_eq!(info.environment, ["SECRET"]);
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!(json["limits"]["first_byte_us"], 10_000_000);
        assert_eq!(json["kind"], "http-component");
        assert_eq!(serde_json::from_value::<FunctionInfo>(json).unwrap(), info);
    }
}
