//! Deployments under way: how many at once, of which functions, and the stage of each.
//!
//! A deployment holds its module, its files and its compiled code in memory until it is stored. Its
//! slot bounds that memory, and slots are shared fairly between functions. Work on the processors
//! has slots of the pool, so a deployment whose code sleeps or runs long during its initialisation
//! does not delay others.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use faasw_abi::files::upload::FILES_MAX;
use faasw_client::{DeployStage, DeploymentInfo, FunctionName};
use faasw_pool::{FairSlots, QueuePosition, Slot, SlotRequest, SlotRules, Urgency};

use super::state::NodeState;
use crate::error::DeployError;

/// Slots for deployments: 64, as many as the admin API accepts uploads at the same time. One
/// function has at most four of them, and its other deployments wait.
const DEPLOYMENTS: SlotRules = SlotRules {
    total: 64,
    per_owner: 4,
    background: 64,
    background_yields: false,
};

/// Memory for all deployments together, as a number of largest modules, each with the most files in
/// front of it.
const LARGEST: u64 = 2;

/// All deployments under way.
#[derive(Debug)]
pub(crate) struct Deployments {
    slots: Arc<FairSlots<FunctionName>>,
    state: Arc<NodeState>,
    under_way: Mutex<DeploymentList>,
}

#[derive(Debug, Default)]
struct DeploymentList {
    /// The number of the next deployment.
    next: u64,
    /// Deployments by number, and so in the order of their arrival.
    all: BTreeMap<u64, ListedDeployment>,
}

/// A deployment in the list.
#[derive(Clone, Debug)]
struct ListedDeployment {
    function: FunctionName,
    stage: DeployStage,
    /// The position in the queue for a slot, until the deployment has one.
    position: Option<QueuePosition<FunctionName>>,
}

/// The slot of a deployment. Dropping it ends the deployment.
#[derive(Debug)]
#[must_use = "dropping it ends the deployment"]
pub(super) struct DeploymentSlot {
    listing: DeploymentListing,
    _slot: Slot<FunctionName>,
}

/// Keeps a deployment in the list. Dropping it removes the deployment.
#[derive(Debug)]
struct DeploymentListing {
    deployments: Arc<Deployments>,
    number: u64,
}

impl Deployments {
    /// Creates an empty list. `largest` is the limit of a module in bytes.
    pub(super) fn new(largest: usize, state: Arc<NodeState>) -> Arc<Self> {
        let slots = FairSlots::new(DEPLOYMENTS);
        let upload = (largest as u64).saturating_add(FILES_MAX);
        slots.limit_bytes(upload.saturating_mul(LARGEST));
        Arc::new(Self {
            slots,
            state,
            under_way: Mutex::default(),
        })
    }

    /// Waits for a slot for a deployment that holds `bytes` in memory.
    ///
    /// # Errors
    /// Returns [`DeployError::ShuttingDown`] if the node has ended by then.
    pub(super) async fn begin(
        self: &Arc<Self>,
        function: &FunctionName,
        bytes: usize,
    ) -> Result<DeploymentSlot, DeployError> {
        let slot = self.slots.request(SlotRequest {
            owner: function.clone(),
            urgency: Urgency::Foreground,
            bytes: bytes as u64,
        });
        let number = {
            let mut under_way = self.lock();
            let number = under_way.next;
            under_way.next += 1;
            let listed = ListedDeployment {
                function: function.clone(),
                stage: DeployStage::Waiting,
                position: slot.position(),
            };
            under_way.all.insert(number, listed);
            number
        };
        let listing = DeploymentListing {
            deployments: self.clone(),
            number,
        };
        let slot = DeploymentSlot {
            _slot: slot.await,
            listing,
        };
        self.state.check_running()?;
        Ok(slot)
    }

    /// Lists the deployments under way in the order of their arrival. `queued_behind` returns how
    /// many others are ahead of a function's compilation or initialisation.
    pub(super) fn list(
        &self,
        queued_behind: impl Fn(&FunctionName) -> Option<usize>,
    ) -> Vec<DeploymentInfo> {
        let all: Vec<_> = self.lock().all.values().cloned().collect();
        let describe = |listed: ListedDeployment| DeploymentInfo {
            queued_behind: match listed.stage {
                DeployStage::Waiting => listed.position.and_then(|position| position.behind()),
                DeployStage::Compiling | DeployStage::Initialising => {
                    queued_behind(&listed.function)
                }
                DeployStage::Storing => None,
            },
            function: listed.function,
            stage: listed.stage,
        };
        all.into_iter().map(describe).collect()
    }

    fn lock(&self) -> MutexGuard<'_, DeploymentList> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeploymentSlot {
    /// Reports that the deployment enters `stage`.
    pub(super) fn enter(&self, stage: DeployStage) {
        let mut under_way = self.listing.deployments.lock();
        if let Some(listed) = under_way.all.get_mut(&self.listing.number) {
            listed.stage = stage;
            listed.position = None;
        }
    }
}

impl Drop for DeploymentListing {
    fn drop(&mut self) {
        self.deployments.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn now(
        begin: Pin<&mut impl Future<Output = Result<DeploymentSlot, DeployError>>>,
    ) -> Option<DeploymentSlot> {
        match begin.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => Some(slot.unwrap()),
            Poll::Pending => None,
        }
    }

    fn name(name: &str) -> FunctionName {
        FunctionName::new(name).unwrap()
    }

    #[test]
    fn deployments_queue_per_function_only() {
        let deployments = Deployments::new(100, Arc::default());
        let (many, other) = (name("many"), name("other"));
        let held: Vec<_> = (0..4)
            .map(|_| now(pin!(deployments.begin(&many, 0))).unwrap())
            .collect();
        let mut fifth = pin!(deployments.begin(&many, 0));
        assert!(now(fifth.as_mut()).is_none());
        let neighbour = now(pin!(deployments.begin(&other, 0))).unwrap();
        neighbour.enter(DeployStage::Initialising);
        held[0].enter(DeployStage::Compiling);
        let list = deployments.list(|function| (*function == other).then_some(7));
        let told: Vec<_> = list
            .iter()
            .map(|one| (one.stage, one.queued_behind))
            .collect();
        assert_eq!(told[0], (DeployStage::Compiling, None));
        assert_eq!(told[4], (DeployStage::Waiting, Some(0)));
        assert_eq!(told[5], (DeployStage::Initialising, Some(7)));
        drop(held);
        assert!(now(fifth.as_mut()).is_some());
        drop(neighbour);
        assert!(deployments.list(|_| None).is_empty());
    }

    #[test]
    fn an_abandoned_queued_deployment_is_not_listed() {
        let deployments = Deployments::new(0, Arc::default());
        let most = usize::try_from(LARGEST * FILES_MAX).unwrap();
        let (a, b) = (name("a"), name("b"));
        let large = now(pin!(deployments.begin(&a, most))).unwrap();
        {
            let mut waiting = pin!(deployments.begin(&b, 1));
            assert!(now(waiting.as_mut()).is_none());
            assert_eq!(deployments.list(|_| None).len(), 2);
        }
        assert_eq!(deployments.list(|_| None).len(), 1);
        drop(large);
        assert!(now(pin!(deployments.begin(&b, 1))).is_some());
    }
}
