//! The node's side of a sandbox: the Function Runtime Interface as calls.

mod creation;
#[cfg(test)]
mod fake_sandbox;
mod orders;
mod queue;
mod reports;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use faasw_abi::pages::{PageRange, PageSet};
use faasw_fri::messages::{
    Activate, Forked, FunctionNumber, Image, Origin, Rang, Reset, Resume, Seal, Sealed, Survey,
    Used, VcpuState, WarmReport,
};
use faasw_fri::userfault::Faults;
use faasw_fri::{FriError, Kind, Message, Packet, receive_from_untrusted, send};
use faasw_jail::group::VM_OVERHEAD;
use faasw_seedtree::{LayerBuilder, PageSets, UsedPages};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

#[cfg(test)]
pub use self::fake_sandbox::FakeSandbox;
pub use self::orders::CodePages;
use self::orders::{add_difference, code_set, fork_order, image, replacement_working_set};
#[cfg(feature = "fuzzing")]
pub use self::reports::preparation_error;
pub use self::reports::{RingReport, SandboxCreationTimes, SandboxEvent, failure_text};
use self::reports::{is_by_guest, protocol_error, start_error};
use super::cpu_account::CpuAccount;
use super::process::{Process, ProcessHandle};
use super::progress_doorbell::ProgressDoorbell;
use super::wall_clock::{self, WallClock};
use super::watch::{into_io, send_when_writable};
use crate::error::PlatformError;
use crate::mailbox::Mailbox;
use crate::sink::Effort;
use crate::snapshots::{
    Code, MemoryBases, Pager, PagerRegistration, ParentRef, SeedSnapshot, has_failed,
    is_fully_loaded, wait_fully_loaded,
};

/// A sandbox, in a process or on a thread. Dropping it ends it.
#[derive(Debug)]
pub struct Sandbox {
    process: Process,
    socket: AsyncFd<OwnedFd>,
    progress: ProgressDoorbell,
    wall_clock: WallClock,
    /// The seed that it is specialised for, until it is forked.
    specialised_for: Option<ParentRef>,
    creation_times: SandboxCreationTimes,
    /// The descriptor of its page faults, if they can be answered. The process's account holds it,
    /// too, until the process is reaped.
    faults: Option<Arc<Faults>>,
    /// The registration with the pager of its seed, if pages were missing when it was forked.
    paged: Option<PagerRegistration>,
}

impl Sandbox {
    /// Returns how long the steps of making it took, as spawner and sandbox report.
    #[cfg(feature = "measuring")]
    pub fn creation_times(&self) -> SandboxCreationTimes {
        self.creation_times
    }

    /// Returns the seed that it is specialised for, if it has not been forked yet.
    pub fn specialised_for(&self) -> Option<&ParentRef> {
        self.specialised_for.as_ref()
    }

    /// Runs the guest in `ram` itself: whatever the guest writes stays there.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended.
    pub async fn boot(
        &mut self,
        ram: &LayerBuilder,
        mailbox: &Mailbox,
        state: &VcpuState,
    ) -> Result<(), PlatformError> {
        let order = fork_order(Origin::Shared, Image::empty(ram.bytes(), state));
        // The sandbox is needed now, even if it was made ahead of need.
        self.process()
            .assign(ram.bytes().saturating_add(VM_OVERHEAD), None);
        self.send_order(&*order, &[mailbox.as_fd(), ram.as_fd()])
            .await
    }

    /// Makes the sandbox an instance of a seed, with `ram_bytes` of RAM and the code of its
    /// function, if it has one. The pages of the working set are filled before the guest runs,
    /// those that it will write as private pages. A specialised zygote has its mailbox already, and
    /// only does what differs. The code is mapped in the pages that its file has, or in small ones.
    /// The instance shares processors with the other instances of `function`.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended, if it was specialised for a seed that is not an
    /// ancestor of this one, if the seed has more ranges than an order can name, or if the seed's
    /// memory cannot be read completely.
    pub async fn fork(
        &mut self,
        frozen: &SeedSnapshot,
        ram_bytes: u64,
        working_set: &PageSets,
        mailbox: &Mailbox,
        code: Option<(&Code, CodePages)>,
        function: Option<FunctionNumber>,
    ) -> Result<(), PlatformError> {
        let pager = if is_fully_loaded(frozen) {
            None
        } else {
            self.pager(frozen).await?
        };
        let sets = pager.as_ref().map(|pager| present(working_set, pager));
        let working_set = sets.as_ref().unwrap_or(working_set);
        let instead = replacement_working_set(working_set);
        let working_set = instead.as_ref().unwrap_or(working_set);
        let mut order = fork_order(Origin::Private, image(frozen, ram_bytes, working_set)?);
        order.reports_addresses = pager.is_some().into();
        if let Some((code, pages)) = code {
            order.code_bytes = code.mapped_bytes();
            order.code_set = code_set(code, pages, working_set);
            order.has_small_code = (pages == CodePages::Small).into();
        }
        let (attached, layers) = match self.specialised_for.take() {
            None => (Some(mailbox.as_fd()), frozen.layers()),
            Some(parent) => {
                let steps = parent.steps_to(frozen).ok_or_else(|| {
                    protocol_error("a sandbox is specialised for a seed that is not a parent")
                })?;
                order.origin = Origin::Zygote;
                add_difference(&mut order, &frozen.difference_below(steps))?;
                // The sandbox has the other layers already.
                (None, frozen.layers_below(steps))
            }
        };
        // Pages of the seed's holes that the guest touches become the seed's, and are charged to
        // the sandbox.
        let most = ram_bytes.saturating_add(frozen.hole_bytes());
        self.process()
            .assign(most.saturating_add(VM_OVERHEAD), function);
        let fds = attached
            .into_iter()
            .chain(code.map(|(code, _)| code.as_fd()));
        let fds: Vec<_> = fds
            .chain(layers.iter().map(|layer| layer.as_fd()))
            .collect();
        self.send_order(&*order, &fds).await?;
        match pager {
            Some(pager) => self.wait_for_pages(&pager).await,
            None => Ok(()),
        }
    }

    /// Returns the pager that reads the missing memory and code of a seed, for this sandbox to wait
    /// for; `None` if everything is present.
    async fn pager(&self, frozen: &SeedSnapshot) -> Result<Option<Arc<Pager>>, PlatformError> {
        // After a read has failed, there may be no pager any more that reports all missing pages.
        // A guest would touch them, so no instance may be forked.
        if has_failed(frozen) {
            return Err(PlatformError::SeedUnreadable);
        }
        let pager = frozen.state().pager().filter(|pager| {
            // Pages to be copied are read from the layer itself, so they have to be present.
            let steps = self
                .specialised_for
                .as_ref()
                .and_then(|image| image.steps_to(frozen));
            let copied = steps.map(|steps| frozen.difference_below(steps));
            let is_there = |copied: &PageSet| copied.intersection(&pager.missing()).is_empty();
            self.faults.is_some() && copied.is_none_or(|copied| is_there(&copied.filled))
        });
        if pager.is_some() {
            return Ok(pager);
        }
        if wait_fully_loaded(frozen).await {
            Ok(None)
        } else {
            Err(PlatformError::SeedUnreadable)
        }
    }

    /// Makes the guest wait for missing pages, once the sandbox is an instance.
    async fn wait_for_pages(&mut self, pager: &Arc<Pager>) -> Result<(), PlatformError> {
        let packet = self.receive().await?;
        if packet.kind() == Some(Kind::Failed) {
            return Err(start_error(&packet));
        }
        let Forked { ram, code } = packet.message().map_err(protocol_error)?;
        let Some(faults) = self.faults.clone() else {
            return Err(PlatformError::SeedUnreadable);
        };
        let attached = pager.attach(faults, MemoryBases { ram, code }, self.process.ender());
        self.paged = attached.map_err(|error| match error {
            Errno::CANCELED => PlatformError::SeedUnreadable,
            error => PlatformError::System {
                what: "an instance could not be made to wait for its memory",
                error,
            },
        })?;
        Ok(())
    }

    /// Returns whether its guest may have had to wait for memory, because it started before all of
    /// it was present.
    pub fn was_paged(&self) -> bool {
        self.paged.is_some()
    }

    /// Closes its page-fault descriptor if no fault will ever have to be answered, because all
    /// memory of the instance was present. Takes a lock of the process's address space, so it must
    /// not be called while the guest runs.
    pub fn release_faults(&mut self) {
        if self.paged.is_none() && self.faults.take().is_some() {
            self.process.account().release_faults();
        }
    }

    /// Returns whether its page faults can be answered.
    pub fn reports_faults(&self) -> bool {
        self.faults.is_some()
    }

    /// Runs the guest as instance number `instance`. Its monotonic time continues from
    /// `monotonic_nanoseconds`; its wall time is the current one.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended.
    pub async fn activate(
        &mut self,
        instance: u64,
        monotonic_nanoseconds: u64,
    ) -> Result<(), PlatformError> {
        let order = Activate {
            instance,
            monotonic_nanoseconds,
            wall_epoch_nanoseconds: wall_clock::epoch_nanoseconds(self.wall_clock),
        };
        self.send_order(&order, &[]).await
    }

    /// Continues the guest after a ring.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended.
    pub async fn resume(&mut self) -> Result<(), PlatformError> {
        self.send_order(&Resume { reserved: 0 }, &[]).await
    }

    /// Ends the guest's wait, if it is waiting.
    ///
    /// # Errors
    /// Returns [`PlatformError::SandboxEnded`] if the message cannot be sent for another reason
    /// than the end of the sandbox.
    pub fn wake(&self) -> Result<(), PlatformError> {
        let socket = self.socket.get_ref();
        match queue::wake(socket) {
            Ok(()) | Err(FriError::System(Errno::AGAIN)) => Ok(()),
            // The receiver of its messages learns of the end and its cause.
            Err(FriError::Closed) => Ok(()),
            Err(error) => Err(PlatformError::SandboxEnded(error.to_string())),
        }
    }

    /// Returns the handle of its process, which sets its priority.
    pub fn process(&self) -> &dyn ProcessHandle {
        self.process.handle()
    }

    /// Returns the CPU time that the sandbox and its guest have used.
    ///
    /// # Errors
    /// Returns an error of the system if the process is gone.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        self.process.cpu_time()
    }

    /// Returns the account that its CPU time is charged to.
    pub fn account(&self) -> &CpuAccount {
        self.process.account()
    }

    /// Orders the reset of an instance that is done, or has reported that it will be in a moment.
    /// [`Sandbox::next_reset_event`] returns the result. The mailbox is wiped.
    /// [`Sandbox::reset_order`] makes the order.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended.
    pub async fn order_reset(&mut self, order: &Reset) -> Result<(), PlatformError> {
        self.send_order(order, &[]).await
    }

    /// Returns an order to reset. With `count_unused` the sandbox counts the pages of the write set
    /// that were not used. Afterwards its guest polls for the next request for the time `poll`.
    pub fn reset_order(&self, count_unused: bool, poll: Duration) -> Reset {
        Reset {
            count_unused: count_unused.into(),
            poll_nanoseconds: u64::try_from(poll.as_nanos()).unwrap_or(u64::MAX),
            wall_epoch_nanoseconds: if poll.is_zero() {
                0
            } else {
                wall_clock::epoch_nanoseconds(self.wall_clock)
            },
        }
    }

    /// Waits for the result of a reset, or for a ring of a guest that still runs. Such a ring
    /// carries no message, and is not received before `until`. The caller has to count what the
    /// sandbox reports, because a sandbox could send some reports without end. Cancel-safe.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended without a report, or sends a message that is not
    /// valid here.
    pub async fn next_reset_event(
        &mut self,
        until: Option<Instant>,
    ) -> Result<Option<ResetProgress>, PlatformError> {
        let Some(packet) = self.next_packet(until).await? else {
            return Ok(None);
        };
        Ok(Some(match packet.kind() {
            Some(Kind::Failed) => ResetProgress::Failed {
                why: failure_text(&packet),
                by_guest: is_by_guest(&packet),
            },
            Some(Kind::Rang) => ResetProgress::Stopped,
            _ => {
                let warm: WarmReport = packet.message().map_err(protocol_error)?;
                let polled = Duration::from_nanos(warm.polled_nanoseconds);
                if warm.is_offered.is_yes() {
                    ResetProgress::Offered
                } else {
                    ResetProgress::Warm(warm.into(), polled)
                }
            }
        }))
    }

    /// Discards the ring with which the guest's last run ended, if it was sent but not received.
    /// This is for an instance that was reset since, and continues without a message.
    ///
    /// # Errors
    /// Returns an error if the sandbox has sent anything else.
    pub fn discard_ring(&mut self) -> Result<(), PlatformError> {
        match receive_from_untrusted(self.socket.get_ref(), RecvFlags::DONTWAIT) {
            Ok(packet) if packet.kind() == Some(Kind::Rang) => Ok(()),
            Ok(packet) if packet.kind() == Some(Kind::Failed) => {
                Err(PlatformError::SandboxEnded(failure_text(&packet)))
            }
            Err(FriError::System(Errno::AGAIN)) => Ok(()),
            _ => Err(protocol_error("the sandbox sent a message out of order")),
        }
    }

    /// Returns whether the sandbox has not yet received an order. While its guest runs it receives
    /// none. So after an order to reset, this shows whether the guest has stopped, by the kernel's
    /// account.
    ///
    /// # Errors
    /// Returns an error if the socket's queue cannot be examined.
    pub fn has_untaken_order(&self) -> Result<bool, PlatformError> {
        let untaken = queue::unreceived_bytes(self.socket.get_ref());
        Ok(untaken.map_err(protocol_error)? > 0)
    }

    /// Returns whether the process still exists, as far as that is known without waiting.
    pub fn check_alive(&mut self) -> bool {
        self.process.check_alive()
    }

    /// Returns the pages that the instance has used, as the sandbox reports them. Its guest must
    /// have stopped.
    ///
    /// # Errors
    /// Returns an error if the sandbox fails or sends another message.
    pub async fn survey(&mut self) -> Result<UsedPages, PlatformError> {
        self.send_order(&Survey { reserved: 0 }, &[]).await?;
        let used: Used = self.receive().await?.message().map_err(protocol_error)?;
        Ok(used.into())
    }

    /// Returns the state of the vCPU, and ends the sandbox, so that its memory is no longer mapped
    /// by any process. The pages that a forked instance changed are written to `layer`; the result
    /// contains their ranges. Both are the sandbox's word. The inner error is the reason why no
    /// seed can be made of the guest.
    ///
    /// # Errors
    /// Returns an error if the sandbox has ended or sends another message.
    pub async fn seal(
        mut self,
        layer: Option<&LayerBuilder>,
    ) -> Result<Result<(Box<VcpuState>, Vec<PageRange>), String>, PlatformError> {
        let fds: Vec<_> = layer.iter().map(|layer| layer.as_fd()).collect();
        self.send_order(&Seal { reserved: 0 }, &fds).await?;
        let packet = self.receive().await?;
        if packet.kind() == Some(Kind::Failed) {
            return Ok(Err(failure_text(&packet)));
        }
        let (state, own) = {
            let sealed: Sealed = packet.message().map_err(protocol_error)?;
            (Box::new(sealed.state), sealed.own.as_slice().to_vec())
        };
        self.process.ended().await?;
        Ok(Ok((state, own)))
    }

    /// Waits for a message of the sandbox or a signal of its guest; progress is not received before
    /// `until`. Cancel-safe.
    ///
    /// # Errors
    /// Returns an error if the sandbox ends, or sends a message that is not valid here.
    pub async fn next_event(
        &mut self,
        until: Option<Instant>,
    ) -> Result<SandboxEvent, PlatformError> {
        let Some(packet) = self.next_packet(until).await? else {
            return Ok(SandboxEvent::Progress);
        };
        match packet.kind() {
            Some(Kind::Rang) => {
                let rang: Rang = packet.message().map_err(protocol_error)?;
                Ok(SandboxEvent::Rang(rang.into()))
            }
            Some(Kind::Failed) => Ok(SandboxEvent::Failed(failure_text(&packet))),
            _ => Err(protocol_error("the sandbox sent a message out of order")),
        }
    }

    /// Receives a packet of the sandbox; `None` if the guest rang.
    async fn next_packet(
        &mut self,
        until: Option<Instant>,
    ) -> Result<Option<Packet>, PlatformError> {
        let Self {
            process,
            socket,
            progress,
            ..
        } = self;
        tokio::select! {
            // A guest that has stopped is more urgent.
            biased;
            packet = receive(socket, process) => packet.map(Some),
            () = progress.wait_for_ring(until) => Ok(None),
        }
    }

    /// Kills the sandbox and waits until it has ended.
    pub async fn destroy(mut self) {
        self.end().await;
    }

    /// As [`Sandbox::destroy`], for a caller that still needs the sandbox's data.
    pub async fn end(&mut self) {
        self.process.kill();
        // An error means that the spawner is gone, and its sandboxes with it.
        let _ = self.process.ended().await;
    }

    async fn send_order<M: Message>(
        &mut self,
        message: &M,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), PlatformError> {
        let sent = send_when_writable(&self.socket, |socket| {
            send(socket, message, fds, SendFlags::empty()).map_err(into_io)
        })
        .await;
        match sent {
            Ok(()) => Ok(()),
            // The cause of its end is more informative.
            Err(error) if is_end(&error) => Err(self.process.closed().await?.into()),
            Err(error) => Err(PlatformError::SandboxEnded(error.to_string())),
        }
    }

    async fn receive(&mut self) -> Result<Packet, PlatformError> {
        receive(&self.socket, &mut self.process).await
    }
}

/// The state of an instance that is being reset.
#[derive(Debug)]
pub enum ResetProgress {
    /// The guest had stopped before the order arrived.
    Stopped,
    /// The instance can be claimed if its guest still polls for a request.
    Offered,
    /// The instance is warm. The fields are the effort of the reset, and for how long its guest
    /// has polled in vain.
    Warm(Effort, Duration),
    /// The reset failed, and its sandbox has ended; `by_guest` if the guest did something that no
    /// intact guest does.
    Failed { why: String, by_guest: bool },
}

/// Returns whether an error of a socket means that the other side has ended.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Receives a packet from the sandbox. The packet cannot carry descriptors: there is no buffer for
/// them.
async fn receive(
    socket: &AsyncFd<OwnedFd>,
    process: &mut Process,
) -> Result<Packet, PlatformError> {
    receive_by(socket, process, |socket, flags| {
        receive_from_untrusted(socket, flags)
    })
    .await
}

/// Receives a packet from the sandbox with the function `receive`.
async fn receive_by(
    socket: &AsyncFd<OwnedFd>,
    process: &mut Process,
    receive: fn(&OwnedFd, RecvFlags) -> Result<Packet, FriError>,
) -> Result<Packet, PlatformError> {
    let received = socket
        .async_io(Interest::READABLE, |socket| {
            match receive(socket, RecvFlags::DONTWAIT) {
                Err(FriError::Malformed) => Ok(None),
                received => received.map(Some).map_err(into_io),
            }
        })
        .await;
    match received {
        Ok(Some(packet)) => Ok(packet),
        Ok(None) => Err(protocol_error("the sandbox sent an invalid packet")),
        Err(_) => Err(process.closed().await?.into()),
    }
}

/// Returns the part of a working set that is present. A guest must not touch missing pages before
/// it waits for them.
fn present(working_set: &PageSets, pager: &Pager) -> PageSets {
    let missing = pager.missing();
    PageSets {
        written: working_set.written.without(&missing),
        read: working_set.read.without(&missing),
        code: working_set.code.without(&pager.missing_code()),
        generation: working_set.generation,
    }
}
