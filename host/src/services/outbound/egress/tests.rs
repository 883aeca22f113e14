//! Which functions have a worker, and which workers give way to others.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering},
};

use faasw_abi::outgoing::{FailureCode, OutgoingHead};
use faasw_egress::client::{Call, Part};
use faasw_egress_policy::Destination;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{
    super::{system::NameFiles, worker_slot::WorkerSlot},
    *,
};
use crate::backend::BackendFuture;

/// Processes that never send anything, and the open ends of their sockets.
#[derive(Debug, Default)]
struct Silent {
    ends: Mutex<Vec<OwnedFd>>,
    looked: AtomicUsize,
}

impl Silent {
    fn pair(&self, kind: SocketType) -> io::Result<OwnedFd> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        self.ends.lock().unwrap().push(theirs);
        Ok(ours)
    }
}

impl EgressProcesses for Silent {
    fn connector(&self) -> BackendFuture<'_, io::Result<NewConnector>> {
        Box::pin(async {
            Ok(NewConnector {
                process: Box::new(()),
                socket: self.pair(SocketType::SEQPACKET)?,
            })
        })
    }

    fn worker(&self) -> BackendFuture<'_, io::Result<NewWorker>> {
        Box::pin(async {
            Ok(NewWorker {
                process: Box::new(()),
                socket: self.pair(SocketType::STREAM)?,
                passing: self.pair(SocketType::SEQPACKET)?,
            })
        })
    }

    fn names(&self) -> BackendFuture<'_, io::Result<NameFiles>> {
        self.looked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(NameFiles::default()) })
    }
}

fn egress(workers: usize) -> (Arc<Egress>, Arc<Silent>) {
    let silent = Arc::new(Silent::default());
    let options = ConnectorOptions::default();
    let egress = Egress::new(
        workers,
        silent.clone(),
        options,
        NameResolution::default(),
        vec![],
    );
    (egress, silent)
}

async fn calls(slot: &Arc<WorkerSlot>) -> Call {
    let head = OutgoingHead {
        method: b"GET".to_vec(),
        scheme: b"http".to_vec(),
        authority: b"a.example".to_vec(),
        ..OutgoingHead::default()
    };
    let destination = Destination::of_request(&head.scheme, &head.authority).unwrap();
    let worker = slot.clone().start().await.unwrap();
    worker.begin(&head, destination).unwrap()
}

#[tokio::test]
async fn a_hanging_worker_is_ended_and_its_calls_fail() {
    let (egress, _silent) = egress(2);
    let [one, two, three] = [(); 3].map(|()| WorkerSlot::new(&egress));
    let mut hangs = calls(&one).await;
    let _other = calls(&two).await;
    let failed = three.clone().start().await.unwrap_err();
    assert_eq!(failed.code, FailureCode::ConnectionLimitReached);
    let later = Instant::now() + HANGS;
    assert!(egress.acquire_worker_permit(later).is_some());
    let told = hangs.receiver.next().await;
    assert!(matches!(told, Some(Part::Failed(_))), "{told:?}");
    // The next worker got its place, and no other function's call has ended.
    assert!(one.worker().is_none() && two.worker().is_some());
    let _mine = calls(&three).await;
}

#[tokio::test]
async fn a_function_with_many_workers_loses_one_at_once() {
    let (egress, _silent) = egress(4);
    let [oldest, old, new, other, mine, more] = [(); 6].map(|()| WorkerSlot::new(&egress));
    new.join_function_of(&old);
    oldest.join_function_of(&new);
    let first = [calls(&other).await, calls(&oldest).await];
    let _calls = [calls(&old).await, calls(&new).await];
    let _mine = calls(&mine).await;
    assert!(oldest.worker().is_none());
    let stay = [&old, &new, &other];
    assert!(stay.iter().all(|slot| slot.worker().is_some()));
    // Two workers are what a change of versions takes.
    assert!(more.start().await.is_err());
    assert!(stay.iter().all(|slot| slot.worker().is_some()));
    drop(first);
}

#[tokio::test]
async fn an_unused_worker_is_ended_first() {
    let (egress, _silent) = egress(4);
    let [oldest, old, new, unused, mine] = [(); 5].map(|()| WorkerSlot::new(&egress));
    new.join_function_of(&old);
    oldest.join_function_of(&old);
    let stay = [&oldest, &old, &new];
    let _calls = [
        calls(stay[0]).await,
        calls(stay[1]).await,
        calls(stay[2]).await,
    ];
    drop(calls(&unused).await);
    let _mine = calls(&mine).await;
    assert!(unused.worker().is_none());
    assert!(stay.iter().all(|slot| slot.worker().is_some()));
}

#[tokio::test]
async fn name_configuration_is_checked_by_requests_but_not_by_each() {
    let (egress, silent) = egress(1);
    let slot = WorkerSlot::new(&egress);
    assert!(egress.is_name_config_stale());
    let _calls = [calls(&slot).await, calls(&slot).await];
    assert_eq!(silent.looked.load(Ordering::SeqCst), 1);
    assert!(!egress.is_name_config_stale() && slot.worker().is_some());
}
