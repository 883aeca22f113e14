//! How a run of a function can end.

use zerocopy::{IntoBytes, TryFromBytes};

/// How a run ended, as the guest reports it.
///
/// The host does not trust this value: it only decides which error the client receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum Outcome {
    /// Nothing was reported. A mailbox holds this value before the guest has run.
    Unset = 0,
    /// A complete response is in the mailbox.
    Response = 1,
    /// The function returned without a response.
    NoResponse = 2,
    /// A Wasm trap; the report names it and the function.
    Trap = 3,
    /// The function exited with a code other than 0, or before its response.
    Exit = 4,
    /// The response, its head or its headers are larger than the mailbox allows.
    ResponseTooLarge = 5,
    /// The function answered with an error code of its own (`wasi:http` `error-code`).
    FunctionError = 6,
    /// The output of the function is not a CGI response.
    BadResponse = 7,
    /// The compiled function could not be loaded or instantiated.
    LoadFailed = 8,
    /// The guest kernel or runtime failed.
    GuestFailed = 9,
}

impl Outcome {
    /// Returns the outcome that a number in the mailbox stands for.
    #[must_use]
    pub fn from_u32(value: u32) -> Option<Self> {
        Self::try_read_from_bytes(value.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_survives_the_mailbox_and_nothing_else_does() {
        for value in 0..=9 {
            assert_eq!(Outcome::from_u32(value).unwrap() as u32, value);
        }
        assert_eq!(Outcome::from_u32(10), None);
    }
}
