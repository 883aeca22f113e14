//! The pieces of an artifact, whose digests identify it.

use faasw_abi::memory_map::PAGE;
use faasw_seedtree::limits::CODE_UNIT;
use sha2::{Digest as _, Sha256};

/// The size in bytes of each piece of an artifact, except the last.
pub const PIECE: usize = CODE_UNIT.get() as usize * PAGE as usize;

/// The identity of code: a digest of its size and of its pieces' digests.
pub type CodeDigest = [u8; 32];

/// The digests of an artifact's pieces, in order. Each piece is verified by its own digest while it
/// is read, so that several can be read at once and none has to be read twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces(Vec<[u8; 32]>);

impl Pieces {
    /// Computes the pieces of an artifact.
    #[must_use]
    pub fn of(artifact: &[u8]) -> Self {
        Self(artifact.chunks(PIECE).map(digest).collect())
    }

    /// Returns the pieces with these digests.
    #[must_use]
    pub fn known(digests: Vec<[u8; 32]>) -> Self {
        Self(digests)
    }

    /// Returns the digests.
    #[must_use]
    pub fn digests(&self) -> &[[u8; 32]] {
        &self.0
    }

    /// Returns whether their number matches an artifact of `bytes` bytes.
    #[must_use]
    pub fn are_of(&self, bytes: u64) -> bool {
        bytes.div_ceil(PIECE as u64) == self.0.len() as u64
    }

    /// Returns the identity of code with these pieces and `bytes` bytes.
    #[must_use]
    pub fn digest(&self, bytes: u64) -> CodeDigest {
        let mut hash = Sha256::new();
        hash.update(bytes.to_le_bytes());
        for piece in &self.0 {
            hash.update(piece);
        }
        hash.finalize().into()
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.0.push(digest(piece));
    }
}

/// Returns the SHA-256, for which current processors have instructions: it takes half of the time
/// of reading from a disk.
pub(super) fn digest(piece: &[u8]) -> [u8; 32] {
    Sha256::digest(piece).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_covers_all_bytes_and_their_number() {
        let mut artifact: Vec<u8> = (0..PIECE * 2 + 17).map(|at| at as u8).collect();
        let of = |artifact: &[u8]| Pieces::of(artifact).digest(artifact.len() as u64);
        let pieces = Pieces::of(&artifact);
        assert!(pieces.are_of(artifact.len() as u64) && pieces.digests().len() == 3);
        assert!(!pieces.are_of(PIECE as u64 * 2) && !pieces.are_of(PIECE as u64 * 3 + 1));
        let known = of(&artifact);
        for at in [0, PIECE - 1, PIECE, PIECE * 2 + 16] {
            artifact[at] ^= 1;
            assert_ne!(of(&artifact), known, "{at}");
            artifact[at] ^= 1;
        }
        assert_eq!(of(&artifact), known);
        assert_ne!(of(&artifact[..PIECE * 2]), known);
        assert_ne!(pieces.digest(artifact.len() as u64 - 1), known);
    }
}
