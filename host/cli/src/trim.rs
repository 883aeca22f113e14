//! Returns free memory to the system.
//!
//! The memory of thousands of connections is free after they are closed, but glibc keeps it: a heap
//! shrinks only from its end, where one small block may stay for long. Without this module, a node
//! that was attacked keeps half of that memory for ever.

use std::time::Duration;

/// Interval of the checks of the node's memory.
const PERIOD: Duration = Duration::from_secs(3);
/// Growth in pages that is worth the work: 8 MiB.
const GROWTH_MIN: u64 = 2048;

/// Returns memory to the system whenever much of it may be free, for as long as it is polled.
pub async fn run() {
    // This runs before there is any load. Later values do not show what the node needs.
    let mut least = resident_pages().unwrap_or(0);
    loop {
        tokio::time::sleep(PERIOD).await;
        // A check takes microseconds. Waking another thread for it would cost an idle node more.
        let now = resident_pages();
        if now.is_some_and(|pages| pages <= least.saturating_add(GROWTH_MIN)) {
            least = now.map_or(least, |pages| pages.min(least));
            continue;
        }
        // Trimming takes milliseconds, and holds the heap's locks.
        if let Ok(pages) = tokio::task::spawn_blocking(move || trim_above(least)).await {
            least = pages;
        }
    }
}

/// Returns all free memory once, after work that does not recur.
pub fn trim_once() {
    trim_above(0);
}

/// Returns memory to the system if the node holds much more than `least` pages, the least that it
/// has held so far. Returns the new least number. The heap does not report how much memory is free.
fn trim_above(least: u64) -> u64 {
    let now = resident_pages();
    if now.is_none_or(|pages| pages > least.saturating_add(GROWTH_MIN)) {
        #[cfg(target_env = "gnu")]
        // SAFETY: the call takes the heap's own locks, and touches free memory only.
        unsafe {
            libc::malloc_trim(0);
        }
    }
    resident_pages().map_or(least, |pages| pages.min(least))
}

/// Returns the number of pages of this process that are in memory.
fn resident_pages() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_env = "gnu")]
    fn memory_below_a_live_block_is_returned_to_the_system() {
        let before = resident_pages().unwrap();
        // Small blocks come from the heap, and the last one keeps it from shrinking.
        let mut pieces: Vec<Vec<u8>> = (0..4000).map(|_| vec![1; 16 << 10]).collect();
        let last = pieces.pop();
        let most = resident_pages().unwrap();
        assert!(most >= before + 4 * GROWTH_MIN, "{before} {most}");
        drop(pieces);
        assert!(trim_above(before) <= before);
        let kept = resident_pages().unwrap();
        assert!(kept < most - 4 * GROWTH_MIN, "{before} {most} {kept}");
        drop(last);
    }
}
