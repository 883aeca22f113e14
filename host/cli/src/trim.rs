//! Giving memory that is free back to the system.
//!
//! What thousands of connections held is free once they are gone, but glibc keeps it: a
//! heap only shrinks from its end, where one small piece may stay for long. Without this
//! a node that was attacked holds half of what that took for ever.

use std::time::Duration;

/// How often the node's memory is looked at.
const PERIOD: Duration = Duration::from_secs(3);
/// Pages that are worth the work when the node holds so many more than it did: 8 MiB.
const WORTH_IT: u64 = 2048;

/// Gives memory back whenever there may be much of it, for as long as it is polled.
pub async fn follow() {
    // Before there is any load: nothing later is a measure of what the node needs.
    let mut least = resident().unwrap_or(0);
    loop {
        tokio::time::sleep(PERIOD).await;
        // A look costs microseconds; a thread that is woken for it costs a node that idles more.
        let now = resident();
        if now.is_some_and(|pages| pages <= least.saturating_add(WORTH_IT)) {
            least = now.map_or(least, |pages| pages.min(least));
            continue;
        }
        // It takes milliseconds, and the heap's locks.
        if let Ok(pages) = tokio::task::spawn_blocking(move || give_back(least)).await {
            least = pages;
        }
    }
}

/// Gives back all that is free, once: what took memory was work that does not come again.
pub fn at_once() {
    give_back(0);
}

/// Gives memory back if the node holds much more than `least` pages, the least that it
/// held so far; the least with that. How much of it is free cannot be seen from outside
/// the heap.
fn give_back(least: u64) -> u64 {
    let now = resident();
    if now.is_none_or(|pages| pages > least.saturating_add(WORTH_IT)) {
        #[cfg(target_env = "gnu")]
        // SAFETY: it takes the heap's own locks, and touches free memory only.
        unsafe {
            libc::malloc_trim(0);
        }
    }
    resident().map_or(least, |pages| pages.min(least))
}

/// Pages of this process that are in memory.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_was_freed_behind_something_kept_is_given_back() {
        let before = resident().unwrap();
        // Small pieces come from the heap, and the last keeps it from shrinking.
        let mut pieces: Vec<Vec<u8>> = (0..4000).map(|_| vec![1; 16 << 10]).collect();
        let last = pieces.pop();
        let most = resident().unwrap();
        assert!(most >= before + 4 * WORTH_IT, "{before} {most}");
        drop(pieces);
        assert!(give_back(before) <= before);
        let kept = resident().unwrap();
        assert!(kept < most - 4 * WORTH_IT, "{before} {most} {kept}");
        drop(last);
    }
}
