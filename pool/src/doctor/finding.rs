//! Findings about a host, with their assessment.

/// The assessment of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingState {
    /// The host has the property.
    Good,
    /// The node works without the property, but slower or with less protection.
    Poor,
    /// The node does not work without the property.
    Bad,
}

/// A finding about the host.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The examined property.
    pub what: &'static str,
    /// The assessment.
    pub state: FindingState,
    /// The result, and how the node handles it.
    pub detail: String,
}

impl Finding {
    /// Returns a finding about `what`.
    pub(super) fn new(what: &'static str, state: FindingState, detail: impl Into<String>) -> Self {
        Self {
            what,
            state,
            detail: detail.into(),
        }
    }

    /// Returns that the host has the property `what`.
    pub(super) fn good(what: &'static str, detail: impl Into<String>) -> Self {
        Self::new(what, FindingState::Good, detail)
    }

    /// Returns that the node works without the property `what`.
    pub(super) fn poor(what: &'static str, detail: impl Into<String>) -> Self {
        Self::new(what, FindingState::Poor, detail)
    }
}
