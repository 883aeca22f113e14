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
pub(crate) struct State(watch::Sender<Readiness>);

impl Default for State {
    fn default() -> Self {
        Self(watch::Sender::new(Readiness::Starting))
    }
}

impl State {
    pub(crate) fn now(&self) -> Readiness {
        *self.0.borrow()
    }

    /// Advances to a phase; never goes back.
    pub(crate) fn goes_on(&self, to: Readiness) {
        self.0.send_if_modified(|now| {
            let goes_on = to > *now;
            *now = to.max(*now);
            goes_on
        });
    }

    /// Waits until the node reaches a phase or a later one.
    pub(crate) async fn reaches(&self, wanted: Readiness) -> Readiness {
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
        let state = State::default();
        assert_eq!(state.now(), Readiness::Starting);
        state.goes_on(Readiness::Ready);
        assert_eq!(state.reaches(Readiness::Ready).await, Readiness::Ready);
        state.goes_on(Readiness::Stopping);
        state.goes_on(Readiness::Ready);
        assert_eq!(state.now(), Readiness::Stopping);
        assert_eq!(state.reaches(Readiness::Ready).await, Readiness::Stopping);
    }
}
