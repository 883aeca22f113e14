//! Limits what a function allocates: the sum of its linear memories, tables, and written files.

use alloc::format;
use alloc::string::String;
use core::fmt;

use wasmtime::{ResourceLimiter, Result};

use crate::files::{FileError, MemoryBudget};

/// Bytes that Wasmtime needs for one table element.
const TABLE_ELEMENT_BYTES: usize = size_of::<usize>();

/// Maximum number of core module instances in one function. Components made of many libraries have
/// some dozens.
const MAX_INSTANCES: usize = 1_000;
/// Maximum number of tables in one function.
const MAX_TABLES: usize = 1_000;
/// Maximum number of linear memories in one function; each reserves gigabytes of addresses.
const MAX_MEMORIES: usize = 100;

/// Counts and limits the bytes of all linear memories, tables and written files together.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    limit: usize,
    used: usize,
    /// The bytes that the last permitted growth added, in case it then fails.
    added: usize,
    denied: bool,
    starting: bool,
}

/// The error of a function that requests more memory at its start than it may have.
#[derive(Debug)]
pub(crate) struct StartMemoryTooLarge {
    asked: usize,
    limit: usize,
}

impl fmt::Display for StartMemoryTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the function needs {} at start; its memory limit is {}",
            size(self.asked),
            size(self.limit)
        )
    }
}

impl core::error::Error for StartMemoryTooLarge {}

impl MemoryLimit {
    /// Returns a limit of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            used: 0,
            added: 0,
            denied: false,
            starting: true,
        }
    }

    /// Records that the function is instantiated: from now on a refusal is the function's to
    /// handle.
    pub(crate) fn started(&mut self) {
        self.starting = false;
    }

    /// Permits `bytes` more than before, for memory that the function did not request.
    pub(crate) fn allow_more(&mut self, bytes: usize) {
        self.limit = self.limit.saturating_add(bytes);
    }

    /// Sets the limit to `limit` bytes, unless more is used already.
    ///
    /// # Errors
    /// Returns the used bytes and the limit if more is used.
    pub(crate) fn become_at_most(&mut self, limit: u64) -> Result<(), StartMemoryTooLarge> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if self.used > limit {
            let asked = self.used;
            return Err(StartMemoryTooLarge { asked, limit });
        }
        self.limit = limit;
        Ok(())
    }

    /// Returns whether a growth was refused.
    pub(crate) fn denied(&self) -> bool {
        self.denied
    }

    /// Returns the limit in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Formats the limit for people.
    pub(crate) fn limit_text(&self) -> String {
        size(self.limit)
    }

    fn grow(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        self.added = 0;
        if maximum.is_some_and(|maximum| desired > maximum) {
            // The function's own maximum; Wasmtime would refuse the growth as well.
            return Ok(false);
        }
        let added = desired.saturating_sub(current);
        let total = self.used.saturating_add(added);
        if total > self.limit {
            self.denied = true;
            if self.starting && current == 0 {
                return Err(StartMemoryTooLarge {
                    asked: total,
                    limit: self.limit,
                }
                .into());
            }
            return Ok(false);
        }
        self.used = total;
        self.added = added;
        Ok(true)
    }

    /// Reverts the last permitted growth, because the platform had no pages.
    fn undo(&mut self) {
        self.used -= self.added;
        self.denied |= self.added > 0;
        self.added = 0;
    }
}

impl MemoryBudget for MemoryLimit {
    fn take(&mut self, bytes: usize) -> core::result::Result<(), FileError> {
        let total = self.used.saturating_add(bytes);
        if total > self.limit {
            self.denied = true;
            return Err(FileError::NoSpace);
        }
        self.used = total;
        Ok(())
    }

    fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        self.grow(current, desired, maximum)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> Result<()> {
        self.undo();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        let bytes = |elements: usize| elements.saturating_mul(TABLE_ELEMENT_BYTES);
        self.grow(bytes(current), bytes(desired), maximum.map(bytes))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> Result<()> {
        self.undo();
        Ok(())
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}

/// Formats a number of bytes for people.
fn size(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    const KIB: usize = 1 << 10;
    if bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else if bytes >= 10 * MIB {
        format!("{}.{} MiB", bytes / MIB, bytes % MIB * 10 / MIB)
    } else {
        format!("{} KiB", bytes.div_ceil(KIB))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const PAGE: usize = 64 << 10;

    #[test]
    fn the_sum_of_all_memories_is_bounded() {
        let mut limit = MemoryLimit::new(4 * PAGE as u64);
        limit.started();
        assert!(limit.memory_growing(0, 2 * PAGE, None).unwrap());
        assert!(limit.memory_growing(0, 2 * PAGE, None).unwrap());
        assert!(!limit.denied());
        assert!(!limit.memory_growing(2 * PAGE, 3 * PAGE, None).unwrap());
        assert!(limit.denied());
    }

    #[test]
    fn tables_count_in_bytes() {
        let mut limit = MemoryLimit::new(PAGE as u64);
        limit.started();
        assert!(limit.table_growing(0, PAGE / 8, None).unwrap());
        assert!(!limit.table_growing(PAGE / 8, PAGE / 8 + 1, None).unwrap());
    }

    #[test]
    fn a_growth_that_failed_does_not_count() {
        let mut limit = MemoryLimit::new(4 * PAGE as u64);
        limit.started();
        assert!(limit.memory_growing(0, 4 * PAGE, None).unwrap());
        limit
            .memory_grow_failed(wasmtime::Error::msg("no pages"))
            .unwrap();
        assert!(limit.denied());
        assert!(limit.memory_growing(0, 4 * PAGE, None).unwrap());
    }

    #[test]
    fn the_functions_own_maximum_is_no_denial() {
        let mut limit = MemoryLimit::new(4 * PAGE as u64);
        assert!(
            !limit
                .memory_growing(PAGE, 3 * PAGE, Some(2 * PAGE))
                .unwrap()
        );
        assert!(!limit.denied());
    }

    #[test]
    fn too_much_at_start_names_both_sizes() {
        let mut limit = MemoryLimit::new(128 << 20);
        let error = limit.memory_growing(0, 256 << 20, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the function needs 256 MiB at start; its memory limit is 128 MiB"
        );
    }

    #[test]
    fn another_limit_holds_from_then_on_unless_it_is_passed_already() {
        let mut limit = MemoryLimit::new(4 * PAGE as u64);
        assert!(limit.memory_growing(0, 2 * PAGE, None).unwrap());
        limit.started();
        assert!(limit.become_at_most(PAGE as u64).is_err());
        limit.become_at_most(3 * PAGE as u64).unwrap();
        assert!(!limit.memory_growing(2 * PAGE, 4 * PAGE, None).unwrap());
        assert!(limit.memory_growing(2 * PAGE, 3 * PAGE, None).unwrap());
    }

    #[test]
    fn sizes_print_in_a_suitable_unit() {
        assert_eq!(size(1), "1 KiB");
        assert_eq!(size(64 << 10), "64 KiB");
        assert_eq!(size(128 << 20), "128 MiB");
        assert_eq!(size((10 << 20) + (512 << 10)), "10.5 MiB");
    }
}
