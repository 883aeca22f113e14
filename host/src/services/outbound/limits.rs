//! The limits of simultaneous outbound calls.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that a function may have at the same time however many others have: as many as one
/// invocation can make.
const GUARANTEED_CALLS: usize = 16;

/// The limits of simultaneous outbound calls: of the whole node, and of one function with all its
/// versions. Beyond [`GUARANTEED_CALLS`], a function has no more calls than remain free for others
/// (dynamic thresholds of shared buffers, Choudhury and Hahne 1998).
#[derive(Clone, Debug)]
pub(crate) struct OutboundLimits {
    node: Arc<Semaphore>,
    function: Arc<Semaphore>,
    /// The limit of one function.
    most: usize,
}

impl OutboundLimits {
    /// Creates limits for one function, within the node's limit.
    pub(crate) fn new(node: &Arc<Semaphore>, function: usize) -> Self {
        let most = function.min(Semaphore::MAX_PERMITS);
        Self {
            node: node.clone(),
            function: Arc::new(Semaphore::new(most)),
            most,
        }
    }

    pub(super) fn take(&self) -> Option<CallPermits> {
        let own = self.most.saturating_sub(self.function.available_permits());
        if own >= GUARANTEED_CALLS.max(self.node.available_permits()) {
            return None;
        }
        Some(CallPermits {
            _function: self.function.clone().try_acquire_owned().ok()?,
            _node: self.node.clone().try_acquire_owned().ok()?,
        })
    }
}

/// The permits of a call under the limits of node and function.
#[derive(Debug)]
pub(super) struct CallPermits {
    _function: OwnedSemaphorePermit,
    _node: OwnedSemaphorePermit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_no_more_calls_than_remain_for_others() {
        let node = Arc::new(Semaphore::new(1000));
        let hogs: Vec<_> = (0..4).map(|_| OutboundLimits::new(&node, 1000)).collect();
        let mut held = Vec::new();
        while let Some(permits) = hogs.iter().find_map(OutboundLimits::take) {
            held.push(permits);
        }
        let left = node.available_permits();
        assert!(left >= 1000 / 16, "{left}");
        let modest = OutboundLimits::new(&node, 1000);
        let few: Vec<_> = (0..GUARANTEED_CALLS).map_while(|_| modest.take()).collect();
        assert_eq!(few.len(), GUARANTEED_CALLS);
        drop((held, few));
        assert_eq!(node.available_permits(), 1000);
        let one = OutboundLimits::new(&node, 20);
        let all: Vec<_> = std::iter::from_fn(|| one.take()).collect();
        assert_eq!(all.len(), 20);
    }
}
