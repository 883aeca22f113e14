//! The node's side of the spawner: requesting processes, and learning when they end.
//!
//! A request that fails, times out or is dropped leaves no process behind: see [`Process`].

#[cfg(test)]
mod fake_spawner;
mod spawned_process;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use faasw_fri::messages::{
    BackgroundGroupReport, Ended, FunctionNumber, GroupVersion, Introduced, Kill, Limit,
    NO_FUNCTION, SetBackgroundGroup, SetPriority, SpawnEgress, SpawnFailed, SpawnHelper,
    SpawnSandbox, Spawned,
};
use faasw_fri::{FriError, Kind, Message, Packet, receive, send};
use faasw_jail::{ConfinementLevel, Network, Obstacle, Step, egress};
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch as signal};
use tokio::time::{sleep, timeout};

use self::spawned_process::{BackgroundGroupState, SpawnedProcess};
use crate::error::{PlatformError, errno_from_report};
use crate::sandboxes::cpu_account::CpuAccount;
use crate::sandboxes::group_account::GroupAccount;
use crate::sandboxes::launcher::{Launcher, SpawnerProcess};
use crate::sandboxes::process::{Exit, FORBIDDEN_CALL, Process};
use crate::sandboxes::watch::{into_io, send_when_writable, watch};

/// The record of a requested process.
struct ProcessRecord {
    spawned: Option<oneshot::Sender<Result<Spawned, PlatformError>>>,
    ended: Option<oneshot::Sender<Exit>>,
    account: Arc<CpuAccount>,
    background_group: Arc<BackgroundGroupState>,
}

/// An order without an answer. No order is lost: if the socket is full, orders are queued.
enum QueuedOrder {
    Kill(Kill),
    Limit(Limit),
    SetPriority(SetPriority),
    SetBackgroundGroup(SetBackgroundGroup),
}

/// The running spawner.
pub struct Spawner {
    /// The listening task shares it, without keeping the spawner alive.
    socket: Arc<AsyncFd<OwnedFd>>,
    records: Mutex<HashMap<u64, ProcessRecord>>,
    next_token: AtomicU64,
    /// The queue of orders without an answer.
    orders: mpsc::UnboundedSender<QueuedOrder>,
    gone: AtomicBool,
    /// Whether this host has no background group.
    refuses_background_group: AtomicBool,
    /// The number of processes that made a system call that their jail does not allow.
    forbidden_calls: Arc<AtomicU64>,
    /// The use of control groups, as the spawner reports it.
    groups: Arc<GroupAccount>,
    /// Closed when the spawner has been reaped.
    reaped: signal::Receiver<()>,
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Starts a spawner whose jails have this network and level. `launcher` starts it if there is
    /// one, else it is a child of this process. Must be called inside a Tokio runtime.
    /// `forbidden_calls` counts processes that make a system call that their jail does not allow.
    /// `groups` records the use of control groups, and sets how many are kept.
    ///
    /// # Errors
    /// Returns the error of the system if the spawner cannot be started.
    pub fn start(
        launcher: Option<&Launcher>,
        (network, level): (Network, ConfinementLevel),
        forbidden_calls: Arc<AtomicU64>,
        groups: Arc<GroupAccount>,
    ) -> io::Result<Arc<Self>> {
        let (ours, theirs) = faasw_fri::pair()?;
        // The spawner receives this order when it begins.
        send(&ours, &groups.order(), &[], SendFlags::DONTWAIT).map_err(into_io)?;
        let running = SpawnerProcess::start(launcher, network, level, &theirs)?;
        Self::connect(ours, running, forbidden_calls, groups)
    }

    /// Serves the running spawner at the other end of `socket`.
    fn connect(
        socket: OwnedFd,
        running: SpawnerProcess,
        forbidden_calls: Arc<AtomicU64>,
        groups: Arc<GroupAccount>,
    ) -> io::Result<Arc<Self>> {
        let (reaped_sender, reaped) = signal::channel(());
        let (orders, queued_orders) = mpsc::unbounded_channel();
        let spawner = Arc::new(Self {
            socket: Arc::new(watch(socket)?),
            records: Mutex::new(HashMap::new()),
            next_token: AtomicU64::new(1),
            orders,
            gone: AtomicBool::new(false),
            refuses_background_group: AtomicBool::new(false),
            forbidden_calls,
            groups,
            reaped,
        });
        tokio::spawn(listen(
            Arc::downgrade(&spawner),
            spawner.socket.clone(),
            running,
            reaped_sender,
        ));
        tokio::spawn(forward_orders(Arc::downgrade(&spawner), queued_orders));
        Ok(spawner)
    }

    /// Returns whether the spawner has ended; its processes have then ended too.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Ends the spawner and every process that it made; waits until it is reaped.
    pub async fn stop(&self) {
        self.close_connection();
        // The channel never carries a value; it only closes.
        let _ = self.reaped.clone().changed().await;
    }

    /// Closes the connection: the spawner ends its processes and itself, and the listening task
    /// ends.
    fn close_connection(&self) {
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
    }

    /// Makes a sandbox that communicates over `socket` and whose guest signals `progress`. With
    /// `is_ahead` it runs only when nothing else wants to, until [`Process::assign`] is called.
    ///
    /// # Errors
    /// Returns an error if the spawner is gone or could not fork.
    pub async fn sandbox(
        self: &Arc<Self>,
        socket: &OwnedFd,
        progress: &OwnedFd,
        is_ahead: bool,
    ) -> Result<Process, PlatformError> {
        let token = self.token();
        let order = SpawnSandbox {
            token,
            is_ahead: is_ahead.into(),
        };
        let fds = [socket.as_fd(), progress.as_fd()];
        self.make(token, &order, &fds).await
    }

    /// Runs the compile helper; sets `order.token`.
    ///
    /// # Errors
    /// Returns an error if the spawner is gone or could not fork.
    pub async fn helper(
        self: &Arc<Self>,
        order: SpawnHelper,
        fds: [BorrowedFd<'_>; 3],
    ) -> Result<Process, PlatformError> {
        let token = self.token();
        self.make(token, &SpawnHelper { token, ..order }, &fds)
            .await
    }

    /// Runs the connector or an egress worker with these sockets.
    ///
    /// # Errors
    /// Returns an error if the spawner is gone, could not fork, or is in another network.
    pub async fn egress(
        self: &Arc<Self>,
        kind: egress::EgressRole,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Process, PlatformError> {
        let token = self.token();
        self.make(token, &SpawnEgress { token, kind }, fds).await
    }

    /// Sets the memory limit of a process's group, and the function that the process serves.
    pub fn assign(&self, token: u64, memory_bytes: u64, function: Option<FunctionNumber>) {
        let _ = self.orders.send(QueuedOrder::Limit(Limit {
            token,
            function: function.unwrap_or(NO_FUNCTION),
            memory_bytes,
        }));
    }

    fn token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    async fn make<M: Message>(
        self: &Arc<Self>,
        token: u64,
        message: &M,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Process, PlatformError> {
        let (spawned_sender, spawned) = oneshot::channel();
        let (ended_sender, ended) = oneshot::channel();
        let account = Arc::<CpuAccount>::default();
        let background_group = Arc::<BackgroundGroupState>::default();
        self.records().insert(
            token,
            ProcessRecord {
                spawned: Some(spawned_sender),
                ended: Some(ended_sender),
                account: account.clone(),
                background_group: background_group.clone(),
            },
        );
        let unsent = UnsentRequest {
            spawner: self,
            token,
        };
        // From here on, dropping this ends a process that the request has made.
        let process_handle = Arc::new(SpawnedProcess {
            spawner: self.clone(),
            token,
            background_group,
            spawned: OnceLock::new(),
        });
        let mut process = Process::new(process_handle.clone(), account, ended);
        self.send_order(message, fds).await?;
        std::mem::forget(unsent);
        match spawned.await {
            Ok(Ok(spawned)) => {
                tracing::trace!(token, pid = spawned.pid, "process made");
                process_handle.record_spawned(&spawned);
                Ok(process)
            }
            Ok(Err(error)) => {
                process.mark_never_spawned();
                Err(error)
            }
            Err(_) => Err(PlatformError::SpawnerGone),
        }
    }

    async fn send_order<M: Message>(
        &self,
        message: &M,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), PlatformError> {
        if self.is_gone() {
            return Err(PlatformError::SpawnerGone);
        }
        send_when_writable(&self.socket, |socket| {
            send(socket, message, fds, SendFlags::empty()).map_err(into_io)
        })
        .await
        .map_err(|_| PlatformError::SpawnerGone)
    }

    async fn send_queued(&self, order: &QueuedOrder) -> Result<(), PlatformError> {
        match order {
            QueuedOrder::Kill(order) => self.send_order(order, &[]).await,
            QueuedOrder::Limit(order) => self.send_order(order, &[]).await,
            QueuedOrder::SetPriority(order) => self.send_order(order, &[]).await,
            QueuedOrder::SetBackgroundGroup(order) => self.send_order(order, &[]).await,
        }
    }

    /// Orders the end of a process, without waiting.
    pub fn kill(&self, token: u64) {
        // Fails if the receiving task has ended, and then the spawner is ending.
        let _ = self.orders.send(QueuedOrder::Kill(Kill { token }));
    }

    fn records(&self) -> MutexGuard<'_, HashMap<u64, ProcessRecord>> {
        // The map is consistent between any two statements.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a message of the spawner.
    fn handle_message(&self, packet: &mut Packet) -> Result<(), FriError> {
        match packet.kind() {
            Some(Kind::Spawned) => {
                let spawned: Spawned = packet.message()?;
                self.groups.record_report(spawned.groups);
                if let Some(waiting) = self.spawned_sender(spawned.token) {
                    let _ = waiting.send(Ok(spawned));
                }
            }
            Some(Kind::BackgroundGroupReport) => {
                let BackgroundGroupReport {
                    token,
                    background,
                    refused,
                } = packet.message()?;
                if refused.is_yes() {
                    self.refuses_background_group.store(true, Ordering::Relaxed);
                }
                if let Some(record) = self.records().get(&token) {
                    let is_in_effect = &record.background_group.is_in_effect;
                    is_in_effect.store(background.is_yes(), Ordering::Release);
                }
            }
            Some(Kind::Introduced) => {
                let Introduced { own_users, groups } = packet.message()?;
                let [usage, ..] = packet.take_fds();
                self.groups.record_introduction(usage);
                if !own_users.is_yes() {
                    tracing::warn!("without root all jails share one user, which protects less");
                }
                match groups {
                    GroupVersion::None => tracing::warn!(
                        "no control groups: the kernel neither enforces memory limits of jails nor \
                             shares processors by function"
                    ),
                    GroupVersion::One | GroupVersion::Two => {
                        tracing::debug!(version = groups as u64, "jails have control groups");
                    }
                }
            }
            Some(Kind::SpawnFailed) => {
                let SpawnFailed {
                    token,
                    errno,
                    step,
                    obstacle,
                } = packet.message()?;
                if let Some(waiting) = self.spawned_sender(token) {
                    let errno = errno_from_report(errno);
                    let _ = waiting.send(Err(match step {
                        Step::Fork if obstacle == Obstacle::Unknown => PlatformError::System {
                            what: "a process could not be made",
                            error: errno,
                        },
                        step => PlatformError::Jail {
                            error: step.failed()(errno),
                            obstacle,
                        },
                    }));
                }
                self.records().remove(&token);
            }
            Some(Kind::Ended) => {
                let Ended {
                    token,
                    signal,
                    code,
                    out_of_memory,
                    cpu_nanoseconds,
                    groups,
                } = packet.message()?;
                self.groups.record_report(groups);
                let out_of_memory = out_of_memory.is_yes();
                if out_of_memory {
                    self.groups.count_oom_kill();
                    let memory = self.groups.memory();
                    tracing::warn!(
                        token,
                        used = memory.used,
                        max = memory.max,
                        "the kernel ended a process for lack of memory"
                    );
                }
                if signal == FORBIDDEN_CALL {
                    self.forbidden_calls.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(
                        token,
                        "a process made a forbidden system call and was ended: an attacker may \
                         have broken out of a microVM, or compromised the compile helper, the \
                         connector or an egress worker"
                    );
                }
                let record = self.records().remove(&token);
                if let Some(ProcessRecord { ended, account, .. }) = record {
                    account.close(Duration::from_nanos(cpu_nanoseconds));
                    if let Some(waiting) = ended {
                        let _ = waiting.send(Exit {
                            signal,
                            code,
                            out_of_memory,
                        });
                    }
                }
            }
            _ => return Err(FriError::Malformed),
        }
        Ok(())
    }

    fn spawned_sender(
        &self,
        token: u64,
    ) -> Option<oneshot::Sender<Result<Spawned, PlatformError>>> {
        self.records().get_mut(&token)?.spawned.take()
    }

    /// Ends the spawner if it has not ended, and records its end: all waiters learn of it because
    /// their channels close. Returns the accounts of processes that end with the spawner but are
    /// not gone yet.
    fn end(&self) -> Vec<Arc<CpuAccount>> {
        self.close_connection();
        self.groups.record_spawner_end();
        self.gone.store(true, Ordering::Release);
        let records = std::mem::take(&mut *self.records());
        records.into_values().map(|record| record.account).collect()
    }
}

/// Ends a spawner that is no longer used. It may have no processes, and would then never send
/// anything again: the listening task would wait forever.
impl Drop for Spawner {
    fn drop(&mut self) {
        self.close_connection();
    }
}

/// Removes the record of a request that the spawner has not received, because no message will.
struct UnsentRequest<'a> {
    spawner: &'a Spawner,
    token: u64,
}

impl Drop for UnsentRequest<'_> {
    fn drop(&mut self) {
        self.spawner.records().remove(&self.token);
    }
}

/// Forwards orders as long as the spawner is used and lives. An order that cannot be sent for now,
/// because this process has no free descriptor to wait for a full socket, is sent again: a process
/// that is not killed would stay.
async fn forward_orders(spawner: Weak<Spawner>, mut orders: mpsc::UnboundedReceiver<QueuedOrder>) {
    while let Some(order) = orders.recv().await {
        loop {
            let Some(spawner) = spawner.upgrade() else {
                return;
            };
            if spawner.send_queued(&order).await.is_ok() {
                break;
            }
            if spawner.is_gone() {
                return;
            }
            drop(spawner);
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// Receives the spawner's messages until it ends, then reaps it.
async fn listen(
    spawner: Weak<Spawner>,
    socket: Arc<AsyncFd<OwnedFd>>,
    running: SpawnerProcess,
    _reaped: signal::Sender<()>,
) {
    // The accounts are kept until all processes are gone.
    let mut accounts = Vec::new();
    loop {
        let handled = socket
            .async_io(Interest::READABLE, |socket| {
                receive(socket, RecvFlags::DONTWAIT).map_err(into_io)
            })
            .await;
        let Some(listening) = spawner.upgrade() else {
            break;
        };
        let handled = handled.map_err(|error| error.to_string());
        let handled = handled.and_then(|mut packet| {
            let handled = listening.handle_message(&mut packet);
            handled.map_err(|error| error.to_string())
        });
        if let Err(error) = handled {
            tracing::debug!(%error, "the spawner has ended");
            accounts = listening.end();
            break;
        }
    }
    drop(socket);
    // The socket is closed, so the spawner ends its processes, cleans up after them and ends.
    let _ = timeout(SHUTDOWN_TIMEOUT, running.ended()).await;
    running.reap().await;
    drop(accounts);
}

/// 30 s: the time that a spawner may take to end once it is no longer used.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// 100 ms: the pause before an order is sent again, much shorter than the time for which a process
/// may outlive its use.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
