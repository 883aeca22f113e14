//! The labels of the metrics.

use faasw_client::FunctionName;
use std::fmt::{self, Write as _};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// The stages of a request, in their order.
pub(super) const STAGES: [&str; 6] = ["queue", "fork", "init", "exec", "run", "reset"];

/// What memory is held for: seeds, parked instances, instances at work, and what clients
/// have not taken.
pub(super) const HELD: [&str; 4] = ["seeds", "parked", "busy", "undelivered"];
/// What memory has a budget for.
pub(super) const BUDGETS: [&str; 3] = ["undelivered", "seeds", "function"];

/// What becomes of a function's own requests.
pub(super) const OUTBOUND: [&str; 2] = ["made", "refused"];

/// A count as a gauge takes it.
pub(super) fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// A function by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(FunctionName);

/// Whose request it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Function {
    Named(Name),
    /// Nobody's; Prometheus takes an empty label for none.
    Unknown,
}

/// A level of confinement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Level {
    pub(super) level: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Status {
    pub(super) function: Function,
    pub(super) status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProblemOf {
    pub(super) function: Function,
    pub(super) problem: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TrapOf {
    pub(super) function: Name,
    pub(super) kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfFunction {
    pub(super) function: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Stage {
    pub(super) stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct State {
    pub(super) state: &'static str,
}

/// The least, the present or the largest number of what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Watermark {
    pub(super) mark: &'static str,
}

/// What keeps instances from being made ahead of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LackOf {
    pub(super) why: &'static str,
}

/// Memory of all seeds, of all parked instances, or of one function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct MemoryOf {
    pub(super) of: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ServedOf {
    pub(super) function: Name,
    pub(super) by: &'static str,
}

/// A function's own requests, by what became of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutboundOf {
    pub(super) function: Name,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Outcome {
    pub(super) result: &'static str,
}

impl From<&FunctionName> for Name {
    fn from(name: &FunctionName) -> Self {
        Self(name.clone())
    }
}

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.0.as_str())
    }
}

impl EncodeLabelValue for Function {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Named(name) => EncodeLabelValue::encode(name, encoder),
            Self::Unknown => Ok(()),
        }
    }
}
