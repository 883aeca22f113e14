//! The node's side of the spawner: asking for processes, and knowing when they end.
//!
//! Whatever becomes of a request for a process (an error, a timeout, a dropped
//! future), the process goes with it: see [`Process`].

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use faasw_cell::Step;
use faasw_fri::messages::{
    Ended, Introduced, KeepGroups, Kill, Limit, SpawnFailed, SpawnHelper, SpawnShell, Spawned,
};
use faasw_fri::{FriError, Kind, Message, Packet, receive_from_untrusted, send};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::PidfdFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch as signal};
use tokio::time::timeout;

#[cfg(feature = "ablation")]
use crate::ablation::Mechanism;
use crate::error::{PlatformError, errno_told};
use crate::executable;
use crate::groups::Groups;
use crate::process::{Exit, FORBIDDEN_CALL, Process};
use crate::watch::{into_io, watch};

/// What is known of a process that was asked for.
struct Expected {
    spawned: Option<oneshot::Sender<Result<Spawned, PlatformError>>>,
    ended: Option<oneshot::Sender<Exit>>,
}

/// An order without an answer. None is lost: where the socket is full, they wait in
/// line.
enum Order {
    Kill(Kill),
    Limit(Limit),
}

/// The running spawner.
pub struct Spawner {
    socket: AsyncFd<OwnedFd>,
    expected: Mutex<HashMap<u64, Expected>>,
    next_token: AtomicU64,
    /// What nobody waits for.
    orders: mpsc::UnboundedSender<Order>,
    gone: AtomicBool,
    /// Processes that made a call that their cell does not allow.
    forbidden_calls: Arc<AtomicU64>,
    /// What it tells of control groups.
    groups: Arc<Groups>,
    /// Closed when the spawner was reaped.
    reaped: signal::Receiver<()>,
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Starts one. Must be called inside a tokio runtime. Processes that make a system
    /// call that their cell does not allow are counted in `forbidden_calls`; how control
    /// groups are used is told to `groups`, which says how many are to be kept.
    ///
    /// # Errors
    /// The system's.
    pub fn start(forbidden_calls: Arc<AtomicU64>, groups: Arc<Groups>) -> io::Result<Arc<Self>> {
        let (program, argument) = program()?;
        let helper = executable::prepare("faasw-compiler", faasw_parts::COMPILER)?;
        let (ours, theirs) = faasw_fri::pair()?;
        let keep = KeepGroups {
            free_max: groups.free_max(),
        };
        // It finds this when it begins.
        send(&ours, &keep, &[], SendFlags::DONTWAIT).map_err(into_io)?;
        let child = start_program(&program, argument, &theirs, &helper)?;
        drop(theirs);
        let (reaped_sender, reaped) = signal::channel(());
        let (orders, to_give) = mpsc::unbounded_channel();
        let spawner = Arc::new(Self {
            socket: watch(ours)?,
            expected: Mutex::new(HashMap::new()),
            next_token: AtomicU64::new(1),
            orders,
            gone: AtomicBool::new(false),
            forbidden_calls,
            groups,
            reaped,
        });
        tokio::spawn(listen(Arc::downgrade(&spawner), child, reaped_sender));
        tokio::spawn(give(Arc::downgrade(&spawner), to_give));
        Ok(spawner)
    }

    /// Whether it has ended; its processes have then ended too.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Ends it, and with it every process that it made; waits until it is reaped.
    pub async fn stop(&self) {
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
        // The channel never changes; it closes.
        let _ = self.reaped.clone().changed().await;
    }

    /// Makes a shell that talks over `socket` and whose guest signals `progress`; with
    /// `is_ahead` when nothing else wants to run.
    ///
    /// # Errors
    /// When the spawner is gone or could not fork.
    pub async fn shell(
        self: &Arc<Self>,
        socket: &OwnedFd,
        progress: &OwnedFd,
        is_ahead: bool,
    ) -> Result<Process, PlatformError> {
        let token = self.token();
        let order = SpawnShell {
            token,
            is_ahead: u64::from(is_ahead),
        };
        let fds = [socket.as_fd(), progress.as_fd()];
        self.make(token, &order, &fds).await
    }

    /// Runs the compile helper; `order.token` is filled in here.
    ///
    /// # Errors
    /// When the spawner is gone or could not fork.
    pub async fn helper(
        self: &Arc<Self>,
        order: SpawnHelper,
        fds: [BorrowedFd<'_>; 3],
    ) -> Result<Process, PlatformError> {
        let token = self.token();
        self.make(token, &SpawnHelper { token, ..order }, &fds)
            .await
    }

    /// Sets what a process may have of memory, by the kernel's account.
    pub fn limit(&self, token: u64, memory_bytes: u64) {
        let _ = self.orders.send(Order::Limit(Limit {
            token,
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
        self.expected().insert(
            token,
            Expected {
                spawned: Some(spawned_sender),
                ended: Some(ended_sender),
            },
        );
        // From here on dropping this ends whatever was made of the request.
        let mut process = Process::spawned(self.clone(), token, ended);
        self.tell(message, fds).await?;
        match spawned.await {
            Ok(Ok(spawned)) => {
                tracing::trace!(token, pid = spawned.pid, "process made");
                process.was_spawned(&spawned);
                Ok(process)
            }
            Ok(Err(error)) => {
                process.never_was();
                Err(error)
            }
            Err(_) => Err(PlatformError::SpawnerGone),
        }
    }

    async fn tell<M: Message>(
        &self,
        message: &M,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), PlatformError> {
        if self.is_gone() {
            return Err(PlatformError::SpawnerGone);
        }
        self.socket
            .async_io(Interest::WRITABLE, |socket| {
                send(socket, message, fds, SendFlags::empty()).map_err(into_io)
            })
            .await
            .map_err(|_| PlatformError::SpawnerGone)
    }

    /// Asks for a process's end, without waiting.
    pub fn kill(&self, token: u64) {
        // Fails when nobody listens any more, and then the spawner is ending.
        let _ = self.orders.send(Order::Kill(Kill { token }));
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<u64, Expected>> {
        // The map is whole between any two statements.
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the spawner said.
    fn hear(&self, packet: &Packet) -> Result<(), FriError> {
        match packet.kind() {
            Some(Kind::Spawned) => {
                let spawned: Spawned = packet.message()?;
                self.groups.told(spawned.groups);
                if let Some(waiting) = self.spawned_sender(spawned.token) {
                    let _ = waiting.send(Ok(spawned));
                }
            }
            Some(Kind::Introduced) => {
                let Introduced { own_users, groups } = packet.message()?;
                if own_users == 0 {
                    tracing::warn!(
                        "without root all cells share this user: one kind of protection less"
                    );
                }
                match groups {
                    0 => tracing::warn!(
                        "no control groups: the kernel does not hold cells to limits of memory and processors"
                    ),
                    version => tracing::debug!(version, "cells have control groups"),
                }
            }
            Some(Kind::SpawnFailed) => {
                let SpawnFailed { token, errno, step } = packet.message()?;
                if let Some(waiting) = self.spawned_sender(token) {
                    let errno = errno_told(errno);
                    let _ = waiting.send(Err(match Step::from_u64(step) {
                        Some(step) => PlatformError::Cell(step.failed()(errno)),
                        None => PlatformError::System {
                            what: "a process could not be made",
                            error: errno,
                        },
                    }));
                }
                self.expected().remove(&token);
            }
            Some(Kind::Ended) => {
                let Ended {
                    token,
                    signal,
                    code,
                    groups,
                } = packet.message()?;
                self.groups.told(groups);
                if signal == FORBIDDEN_CALL {
                    self.forbidden_calls.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(
                        token,
                        "a process made a system call that its cell does not allow, and was ended: somebody broke out of a microVM or of the compiler"
                    );
                }
                let expected = self.expected().remove(&token);
                if let Some(waiting) = expected.and_then(|expected| expected.ended) {
                    let _ = waiting.send(Exit { signal, code });
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
        self.expected().get_mut(&token)?.spawned.take()
    }

    /// Notes the end of the spawner: everyone who waits for it learns by the
    /// end of their channel.
    fn end(&self) {
        self.groups.spawner_ended();
        self.gone.store(true, Ordering::Release);
        self.expected().clear();
    }
}

/// Passes orders on for as long as the spawner is used.
async fn give(spawner: Weak<Spawner>, mut orders: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        let Some(spawner) = spawner.upgrade() else {
            return;
        };
        let given = match &order {
            Order::Kill(kill) => spawner.tell(kill, &[]).await,
            Order::Limit(limit) => spawner.tell(limit, &[]).await,
        };
        if given.is_err() {
            return;
        }
    }
}

/// Listens to the spawner until it ends, then reaps it.
async fn listen(spawner: Weak<Spawner>, mut child: Child, _reaped: signal::Sender<()>) {
    loop {
        let Some(listening) = spawner.upgrade() else {
            break;
        };
        let heard = listening
            .socket
            .async_io(Interest::READABLE, |socket| {
                receive_from_untrusted(socket, RecvFlags::DONTWAIT).map_err(into_io)
            })
            .await
            .map_err(|error| error.to_string())
            .and_then(|packet| listening.hear(&packet).map_err(|error| error.to_string()));
        if let Err(error) = heard {
            tracing::debug!(%error, "the spawner is gone");
            listening.end();
            break;
        }
    }
    // Its socket is closed, so it ends its processes, clears up after them and ends.
    let _ = timeout(CLEARING_UP, ended(&child)).await;
    let _ = tokio::task::spawn_blocking(move || {
        let _ = child.kill();
        child.wait()
    })
    .await;
}

/// How long a spawner may take to end once nobody wants it any more.
const CLEARING_UP: Duration = Duration::from_secs(5);

/// Waits until a child has ended, without reaping it.
async fn ended(child: &Child) -> io::Result<()> {
    let number = i32::try_from(child.id()).map_err(io::Error::other)?;
    let number = rustix::process::Pid::from_raw(number).ok_or(io::ErrorKind::NotFound)?;
    let process = rustix::process::pidfd_open(number, PidfdFlags::NONBLOCK)?;
    watch(process)?.readable().await.map(|_| ())
}

/// The spawner's program, and what it is started with.
fn program() -> io::Result<(OwnedFd, Option<String>)> {
    #[cfg(feature = "trial")]
    if let Some((program, argument)) = crate::trial::spawner()? {
        return Ok((program, Some(argument)));
    }
    let program = executable::prepare("faasw-shell", faasw_parts::SHELL)?;
    #[cfg(feature = "ablation")]
    if Mechanism::Cell.is_off() {
        return Ok((program, Some(faasw_cell::WITHOUT_CELL.to_owned())));
    }
    Ok((program, None))
}

#[expect(
    unsafe_code,
    reason = "the child's descriptors must be at fixed numbers before exec"
)]
fn start_program(
    program: &OwnedFd,
    argument: Option<String>,
    socket: &OwnedFd,
    helper: &OwnedFd,
) -> io::Result<Child> {
    /// Where the spawner looks for its socket; the helper's program is next to it.
    const FIRST_FD: i32 = 3;
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    // Numbers that the moves below cannot overwrite.
    let socket = rustix::io::fcntl_dupfd_cloexec(socket, FIRST_FD + 10)?;
    let helper = rustix::io::fcntl_dupfd_cloexec(helper, FIRST_FD + 10)?;
    let sources = [socket.as_raw_fd(), helper.as_raw_fd()];
    let mut command = Command::new(path);
    command
        .arg0("faasw-spawner")
        .args(argument)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // SAFETY: between fork and exec only dup2 is called, which is safe there.
    unsafe {
        command.pre_exec(move || {
            for (number, source) in (FIRST_FD..).zip(sources) {
                if libc::dup2(source, number) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn()
}
