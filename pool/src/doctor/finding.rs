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
