//! What a node says of its functions: to the library's caller and, as JSON, to
//! clients of the admin API.

use std::time::{Duration, SystemTime};

use faasw_abi::wire::FunctionKind;
use faasw_pool::FreezePolicy;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest, limits::Limits, name::FunctionName, registry::FunctionRecord, spelling,
};

/// A function that the node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// Its name.
    pub name: FunctionName,
    /// What it is.
    #[serde(with = "spelling::kind")]
    pub kind: FunctionKind,
    /// Digest of its module.
    pub digest: Digest,
    /// When it was deployed.
    pub deployed: SystemTime,
    /// Memory limit in bytes.
    pub memory: u64,
    /// Wall time limit of a request.
    #[serde(rename = "time_limit_us", with = "spelling::microseconds")]
    pub time_limit: Duration,
    /// Names of its environment variables. Values may be secrets and stay.
    pub environment: Vec<String>,
    /// The freeze policy that was asked for.
    #[serde(with = "spelling::freeze")]
    pub freeze: FreezePolicy,
    /// Whether its seed is frozen after instantiation: the policy in force.
    pub frozen_after_init: bool,
    /// What its instantiation takes.
    #[serde(rename = "instantiation_us", with = "spelling::microseconds")]
    pub instantiation: Duration,
    /// Size of its seed's memory layer in bytes.
    pub layer_bytes: u64,
    /// Whether its seed exists now. After a restart it is made in the
    /// background, or when the first request comes.
    pub ready: bool,
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
        record: &FunctionRecord,
        limits: &Limits,
        ready: bool,
    ) -> Self {
        let options = &record.options;
        Self {
            name: name.clone(),
            kind: record.kind,
            digest: record.digest,
            deployed: record.deployed,
            memory: options.memory_or(limits.memory),
            time_limit: options.time_limit_or(limits.time),
            environment: options
                .environment()
                .iter()
                .map(|(variable, _)| variable.clone())
                .collect(),
            freeze: options.freeze_policy(),
            frozen_after_init: record.freeze.after_init,
            instantiation: record.freeze.instantiation,
            layer_bytes: record.freeze.layer_bytes,
            ready,
        }
    }
}

/// What the freeze policy did that the function's owner would want to know:
/// what was drawn, by which import, what it costs, and what the choice is.
pub(super) fn freeze_notice(record: &FunctionRecord) -> Option<String> {
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

    fn record(policy: FreezePolicy, after_init: bool, drew_entropy: bool) -> FunctionRecord {
        FunctionRecord {
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
        let info = FunctionInfo::of(&name, &record, &Limits::default(), true);
        assert_eq!(info.environment, ["SECRET"]);
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!(json["time_limit_us"], 10_000_000);
        assert_eq!(json["kind"], "http-component");
        assert_eq!(serde_json::from_value::<FunctionInfo>(json).unwrap(), info);
    }
}
