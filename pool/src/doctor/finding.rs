//! What is found out about a host, and how good that is.

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// It works without, slower or with less protection.
    Poor,
    /// It does not work without.
    Bad,
}

/// Something found out about the host.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// How good it is.
    pub state: State,
    /// What was found, and what is done about it.
    pub detail: String,
}
