//! The readiness of a node: whether a load balancer or an orchestrator should send it requests.

use tokio::sync::watch;

/// The phase of a node. It only advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Readiness {
    /// The node accepts no connections yet: it starts, or waits for
    /// [`Node::open`](crate::Node::open).
    Starting,
    /// The node serves requests.
    Ready,
    /// The node is stopping. Until it has stopped, it still serves requests.
    Stopping,
}

impl Readiness {
    /// Returns the word that `/readyz` responds with.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ok",
            Self::Stopping => "stopping",
        }
    }
}

/// The current phase, which tasks can wait on.
#[derive(Debug)]
pub(crate) struct ReadinessState(watch::Sender<Readiness>);

impl Default for ReadinessState {
    fn default() -> Self {
        Self(watch::Sender::new(Readiness::Starting))
    }
}

impl ReadinessState {
    pub(crate) fn now(&self) -> Readiness {
        *self.0.borrow()
    }

    /// Advances to a phase; never goes back.
    pub(crate) fn advance_to(&self, to: Readiness) {
        self.0.send_if_modified(|now| {
            let advances = to > *now;
            *now = to.max(*now);
            advances
        });
    }

    /// Waits until the node reaches a phase or a later one.
    pub(crate) async fn wait_for(&self, wanted: Readiness) -> Readiness {
        let mut now = self.0.subscribe();
        // The wait cannot fail, because the sender is `self`.
        now.wait_for(|now| *now >= wanted)
            .await
            .map_or(Readiness::Stopping, |now| *now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_that_stops_is_never_ready_again() {
        let state = ReadinessState::default();
        assert_eq!(state.now(), Readiness::Starting);
        state.advance_to(Readiness::Ready);
        assert_eq!(state.wait_for(Readiness::Ready).await, Readiness::Ready);
        state.advance_to(Readiness::Stopping);
        state.advance_to(Readiness::Ready);
        assert_eq!(state.now(), Readiness::Stopping);
        assert_eq!(state.wait_for(Readiness::Ready).await, Readiness::Stopping);
    }
}
