//! Whether requests should be sent to a node: what a load balancer or an orchestrator asks.

use tokio::sync::watch;

/// How far a node is. It only ever goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Readiness {
    /// It cannot be connected to yet: it starts, or waits for [`Node::open`](crate::Node::open).
    Starting,
    /// It serves.
    Ready,
    /// It has been told to stop. Until it does it still serves what comes.
    Stopping,
}

impl Readiness {
    /// In a word, as `/readyz` has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ok",
            Self::Stopping => "stopping",
        }
    }
}

/// How far a node is, and who waits for more.
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

    /// Takes the next step; never one back.
    pub(crate) fn goes_on(&self, to: Readiness) {
        self.0.send_if_modified(|now| {
            let goes_on = to > *now;
            *now = to.max(*now);
            goes_on
        });
    }

    /// Waits until it is there, or further.
    pub(crate) async fn reaches(&self, wanted: Readiness) -> Readiness {
        let mut now = self.0.subscribe();
        // It cannot fail: the sender is here.
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
