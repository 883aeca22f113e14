//! Grants of outbound requests.

use std::{cmp::Ordering, fmt};

use faasw_egress_policy::{Grant, GrantError};
use serde::{Deserialize, Serialize};

/// A grant of outbound requests by scheme, host and port, for example `https://api.example.com` or
/// `http://*.internal:8080`. The addresses to which a host resolves are filtered in addition.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Outbound(Grant);

impl Outbound {
    /// Parses a grant.
    ///
    /// # Errors
    /// Returns [`GrantError`] if the text grants nothing, or could grant something other than its
    /// author expects.
    pub fn new(text: impl AsRef<str>) -> Result<Self, GrantError> {
        text.as_ref().parse().map(Self)
    }

    /// Returns the parsed grant.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.0
    }
}

impl fmt::Display for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.to_string(), f)
    }
}

/// Orders grants by their text.
impl Ord for Outbound {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.to_string().cmp(&other.0.to_string())
    }
}

impl PartialOrd for Outbound {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl TryFrom<String> for Outbound {
    type Error = GrantError;

    fn try_from(text: String) -> Result<Self, GrantError> {
        Self::new(text)
    }
}

impl From<Outbound> for String {
    fn from(grant: Outbound) -> Self {
        grant.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_shown_in_its_canonical_form() {
        let grant = Outbound::new("HTTPS://Api.Example.com:443").unwrap();
        let json = serde_json::to_string(&grant).unwrap();
        assert_eq!(json, "\"https://api.example.com\"");
        assert_eq!(serde_json::from_str::<Outbound>(&json).unwrap(), grant);
        for wrong in ["\"https://\"", "\"https://a.test/path\"", "\"a b\""] {
            assert!(serde_json::from_str::<Outbound>(wrong).is_err(), "{wrong}");
        }
    }
}
