//! The labels of the metrics.

use faasw_client::FunctionName;
use std::fmt::{self, Write as _};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// The stages of a request, in order.
pub(super) const STAGES: [&str; 6] = ["queue", "fork", "init", "exec", "run", "reset"];

/// The accounts of held memory: seeds, warm instances, instances at work, and bytes that clients
/// have not read.
pub(super) const HELD: [&str; 4] = ["seeds", "warm", "busy", "undelivered"];
/// The memory budgets.
pub(super) const BUDGETS: [&str; 3] = ["undelivered", "seeds", "function"];

/// The results of outbound calls.
pub(super) const OUTBOUND: [&str; 2] = ["made", "refused"];

/// Converts a count to a gauge's value.
pub(super) fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// A function by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameLabel(FunctionName);

/// The function that a request was for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum FunctionLabel {
    Named(NameLabel),
    /// No function; Prometheus treats an empty label as a missing one.
    Unknown,
}

/// A level of confinement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LevelLabels {
    pub(super) level: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StatusLabels {
    pub(super) function: FunctionLabel,
    pub(super) status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProblemLabels {
    pub(super) function: FunctionLabel,
    pub(super) problem: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TrapLabels {
    pub(super) function: NameLabel,
    pub(super) kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FunctionLabels {
    pub(super) function: NameLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StageLabels {
    pub(super) stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StateLabels {
    pub(super) state: &'static str,
}

/// The minimum, current or maximum number of wanted zygotes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WatermarkLabels {
    pub(super) mark: &'static str,
}

/// The reason why instances are not made ahead of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ShortfallLabels {
    pub(super) why: &'static str,
}

/// The account or budget of an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct MemoryLabels {
    pub(super) of: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ServedLabels {
    pub(super) function: NameLabel,
    pub(super) by: &'static str,
}

/// Outbound calls of a function by result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutboundLabels {
    pub(super) function: NameLabel,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    pub(super) result: &'static str,
}

impl From<&FunctionName> for NameLabel {
    fn from(name: &FunctionName) -> Self {
        Self(name.clone())
    }
}

impl EncodeLabelValue for NameLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.0.as_str())
    }
}

impl EncodeLabelValue for FunctionLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Named(name) => EncodeLabelValue::encode(name, encoder),
            Self::Unknown => Ok(()),
        }
    }
}
