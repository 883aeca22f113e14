//! The reads of a function before the freeze, recorded so that the node can report what requests
//! would share through a seed made after instantiation.
//!
//! Host functions record each read of entropy, clock, environment and secrets, each access to a
//! store and each outbound call. The record is closed when the first request begins.

use alloc::vec::Vec;
use core::fmt;

use faasw_abi::mailbox::{
    DRAW_CALL, DRAW_CLOCK, DRAW_ENTROPY, DRAW_INSECURE, DRAW_SECRET, DRAW_STORE,
};

/// The kind of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Entropy,
    Insecure,
    Clock,
    Environment,
    Store,
    Call,
    Secret,
}

impl Kind {
    fn bit(self) -> u32 {
        match self {
            Self::Entropy => DRAW_ENTROPY,
            Self::Insecure => DRAW_INSECURE,
            Self::Clock => DRAW_CLOCK,
            // A function version has one environment, which its requests share anyway.
            Self::Environment => 0,
            Self::Store => DRAW_STORE,
            Self::Call => DRAW_CALL,
            Self::Secret => DRAW_SECRET,
        }
    }
}

/// All reads through one import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Draw {
    import: &'static str,
    kind: Kind,
    count: u64,
    bytes: u64,
}

/// The reads of a function before the freeze.
///
/// The `Display` output has one line for each import, in the order of their first use:
/// `wasi:random/random#get-random-bytes: 32 bytes`.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    draws: Vec<Draw>,
    closed: bool,
}

impl Draws {
    /// Returns the kinds of reads that a freeze depends on, as `DRAW_*` bits of
    /// [`faasw_abi::mailbox`].
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.draws
            .iter()
            .fold(0, |bits, draw| bits | draw.kind.bit())
    }

    /// Returns whether nothing was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.draws.is_empty()
    }

    /// Records a read of `bytes` bytes (0 if bytes do not apply) through `import`.
    pub(crate) fn record(&mut self, kind: Kind, import: &'static str, bytes: usize) {
        if self.closed {
            return;
        }
        let bytes = bytes as u64;
        match self.draws.iter_mut().find(|draw| draw.import == import) {
            Some(draw) => {
                draw.count += 1;
                draw.bytes = draw.bytes.saturating_add(bytes);
            }
            None => self.draws.push(Draw {
                import,
                kind,
                count: 1,
                bytes,
            }),
        }
    }

    /// Closes the record at the start of the first request, because later reads are the request's
    /// own.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Returns whether the record is closed: whether the function answers a request.
    pub(crate) fn are_closed(&self) -> bool {
        self.closed
    }
}

impl fmt::Display for Draws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, draw) in self.draws.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let (number, unit) = match draw.kind {
                Kind::Entropy | Kind::Insecure => (draw.bytes, "byte"),
                Kind::Clock | Kind::Environment | Kind::Secret => (draw.count, "read"),
                Kind::Store | Kind::Call => (draw.count, "call"),
            };
            let plural = if number == 1 { "" } else { "s" };
            write!(f, "{}: {number} {unit}{plural}", draw.import)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn reads_add_up_by_import_until_the_first_request() {
        let mut draws = Draws::default();
        assert!(draws.is_empty());
        draws.record(Kind::Entropy, "a#bytes", 32);
        draws.record(Kind::Clock, "b#now", 0);
        draws.record(Kind::Clock, "b#now", 0);
        draws.record(Kind::Entropy, "a#bytes", 8);
        draws.close();
        draws.record(Kind::Environment, "c#get", 0);
        assert_eq!(draws.to_string(), "a#bytes: 40 bytes\nb#now: 2 reads");
        assert_eq!(draws.bits(), DRAW_ENTROPY | DRAW_CLOCK);
    }
}
