//! Lists keys piece by piece, so that other calls read in between.

use redb::ReadableTable;

use super::{Page, Start, StoreError};

/// A page of keys that is being read.
#[derive(Debug)]
pub(super) struct Listing {
    namespace: String,
    /// The last key that was read. It is empty at first, which is before all keys.
    behind: Vec<u8>,
    /// How many keys are still to be skipped.
    passed: u64,
    most: usize,
    keys: Vec<Vec<u8>>,
    /// Whether more keys follow. `None` until the page is complete.
    has_more: Option<bool>,
}

impl Listing {
    /// Begins a page of at most `most` keys.
    ///
    /// # Errors
    /// Returns [`StoreError::TooFar`] if the page starts behind more keys than are counted.
    pub(super) fn new(namespace: String, start: Start, most: usize) -> Result<Self, StoreError> {
        let passed = start.counted()?;
        let behind = match start {
            Start::Behind(key) => key,
            Start::Number(_) => Vec::new(),
        };
        Ok(Self {
            namespace,
            behind,
            passed,
            most,
            keys: Vec::new(),
            has_more: None,
        })
    }

    /// Reads the next entries, at most `piece`.
    ///
    /// # Errors
    /// Returns the database's error if the table cannot be read.
    pub(super) fn read(
        &mut self,
        pairs: &impl ReadableTable<(&'static str, &'static [u8]), &'static [u8]>,
        piece: usize,
    ) -> Result<(), redb::Error> {
        let behind = std::mem::take(&mut self.behind);
        let mut last = None;
        let mut looked_at = 0;
        for entry in pairs.range((self.namespace.as_str(), behind.as_slice())..)? {
            let (found, _) = entry?;
            let (whose, key) = found.value();
            if whose != self.namespace {
                self.has_more = Some(false);
                return Ok(());
            }
            // No key is empty, so an empty `behind` skips no key.
            if key == behind {
                continue;
            }
            if looked_at == piece {
                self.behind = last.unwrap_or(behind);
                return Ok(());
            }
            looked_at += 1;
            if self.passed > 0 {
                self.passed -= 1;
            } else if self.keys.len() == self.most {
                self.has_more = Some(true);
                return Ok(());
            } else {
                self.keys.push(key.to_vec());
            }
            // Only the last key of a piece needs a copy.
            if looked_at == piece {
                last = Some(key.to_vec());
            }
        }
        self.has_more = Some(false);
        Ok(())
    }

    /// Takes the page out, once it is complete.
    pub(super) fn page(&mut self) -> Option<Page> {
        let has_more = self.has_more?;
        Some((std::mem::take(&mut self.keys), has_more))
    }
}
