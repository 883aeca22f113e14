//! The node's side of a sandbox: the Function Runtime Interface as calls.

mod making;
mod orders;
mod queue;
#[cfg(test)]
mod stand_in;
mod told;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use faasw_abi::pages::{PageRange, PageSet};
use faasw_fri::messages::{
    Activate, Forked, Image, Origin, Parked, Rang, Reset, Resume, Seal, Sealed, Survey, Used,
    VcpuState,
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

pub use self::orders::CodePages;
use self::orders::{code_set, fork_order, image, instead_of, put_difference};
#[cfg(test)]
pub use self::stand_in::StandIn;
#[cfg(feature = "fuzzing")]
pub use self::told::not_prepared;
pub use self::told::{Event, Parts, Report, failure};
use self::told::{is_by_guest, not_begun, protocol};
use super::account::Account;
use super::process::Process;
use super::progress::Progress;
use super::wall_clock::{self, WallClock};
use super::watch::{into_io, send_when_there_is_room};
use crate::error::PlatformError;
use crate::mailbox::Mailbox;
use crate::seeds::FunctionNumber;
use crate::sink::Effort;
use crate::snapshots::{Bases, Code, Frozen, Paged, Pager, Parent, has_failed, is_whole, whole};

/// A sandbox, in a process or on a thread. Dropping it ends it.
#[derive(Debug)]
pub struct Sandbox {
    process: Process,
    socket: AsyncFd<OwnedFd>,
    progress: Progress,
    wall_clock: WallClock,
    /// The seed that it is an image of, from when it was preset until it is forked.
    image: Option<Parent>,
    parts: Parts,
    /// Its page faults, where they can be answered. The process's account has them, too, until it
    /// is reaped.
    faults: Option<Arc<Faults>>,
    /// It waits for pages of its seed, as long as some are missing.
    paged: Option<Paged>,
}

impl Sandbox {
    /// What it took to make it, as spawner and sandbox tell.
    #[cfg(feature = "measuring")]
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// The seed that it was preset with, and has not been forked from yet.
    pub fn image(&self) -> Option<&Parent> {
        self.image.as_ref()
    }

    /// Makes the sandbox run in `ram` itself: whatever the guest writes stays there.
    ///
    /// # Errors
    /// When the sandbox is gone.
    pub async fn boot(
        &mut self,
        ram: &LayerBuilder,
        mailbox: &Mailbox,
        state: &VcpuState,
    ) -> Result<(), PlatformError> {
        let order = fork_order(Origin::Shared, Image::empty(ram.bytes(), state));
        // It is wanted now, whenever it was made.
        self.process
            .assign(ram.bytes().saturating_add(VM_OVERHEAD), None);
        self.tell(&*order, &[mailbox.as_fd(), ram.as_fd()]).await
    }

    /// Makes the sandbox an instance of a seed, with `ram_bytes` of RAM and the code
    /// of its function, if it has one. The pages of the working set are filled in
    /// before the guest runs, those that it will write as private ones. A sandbox that
    /// was preset has its mailbox already, and does what differs. Its code is in the pages that its
    /// file has, or in small ones. The instance shares processors with the others of `function`.
    ///
    /// # Errors
    /// When the sandbox is gone, or was preset with what the seed does not descend from.
    pub async fn fork(
        &mut self,
        frozen: &Frozen,
        ram_bytes: u64,
        working_set: &PageSets,
        mailbox: &Mailbox,
        code: Option<(&Code, CodePages)>,
        function: Option<FunctionNumber>,
    ) -> Result<(), PlatformError> {
        let pager = if is_whole(frozen) {
            None
        } else {
            self.pager(frozen).await?
        };
        let sets = pager.as_ref().map(|pager| present(working_set, pager));
        let working_set = sets.as_ref().unwrap_or(working_set);
        let instead = instead_of(working_set);
        let working_set = instead.as_ref().unwrap_or(working_set);
        let mut order = fork_order(Origin::Private, image(frozen, ram_bytes, working_set)?);
        order.tells_addresses = pager.is_some().into();
        if let Some((code, pages)) = code {
            order.code_bytes = code.mapped_bytes();
            order.code_set = code_set(code, pages, working_set);
            order.has_small_code = (pages == CodePages::Small).into();
        }
        let (attached, layers) = match self.image.take() {
            None => (Some(mailbox.as_fd()), frozen.layers()),
            Some(parent) => {
                let steps = parent.steps_to(frozen).ok_or_else(|| {
                    protocol("a sandbox was preset with what a seed does not descend from")
                })?;
                order.origin = Origin::Preset;
                put_difference(&mut order, &frozen.difference_below(steps))?;
                // It has the others.
                (None, frozen.layers_below(steps))
            }
        };
        // What it touches of its seed's holes becomes the seed's, and is charged to it.
        let most = ram_bytes.saturating_add(frozen.hole_bytes());
        self.process
            .assign(most.saturating_add(VM_OVERHEAD), function);
        let fds = attached
            .into_iter()
            .chain(code.map(|(code, _)| code.as_fd()));
        let fds: Vec<_> = fds
            .chain(layers.iter().map(|layer| layer.as_fd()))
            .collect();
        self.tell(&*order, &fds).await?;
        match pager {
            Some(pager) => self.wait_for_pages(&pager).await,
            None => Ok(()),
        }
    }

    /// Who brings what is missing of a seed's memory and code, for this sandbox to wait for; nobody
    /// where all of it is there by now.
    async fn pager(&self, frozen: &Frozen) -> Result<Option<Arc<Pager>>, PlatformError> {
        // What will never be there nobody may bring, or know to be missing: a guest would touch it.
        if has_failed(frozen) {
            return Err(PlatformError::SeedUnreadable);
        }
        let pager = frozen.state().pager().filter(|pager| {
            // What is copied is read from the layer itself.
            let steps = self.image.as_ref().and_then(|image| image.steps_to(frozen));
            let copied = steps.map(|steps| frozen.difference_below(steps));
            let is_there = |copied: &PageSet| copied.intersection(&pager.missing()).is_empty();
            self.faults.is_some() && copied.is_none_or(|copied| is_there(&copied.filled))
        });
        if pager.is_some() {
            return Ok(pager);
        }
        if whole(frozen).await {
            Ok(None)
        } else {
            Err(PlatformError::SeedUnreadable)
        }
    }

    /// Has the guest wait for what is not there, once the sandbox is an instance.
    async fn wait_for_pages(&mut self, pager: &Arc<Pager>) -> Result<(), PlatformError> {
        let packet = self.receive().await?;
        if packet.kind() == Some(Kind::Failed) {
            return Err(not_begun(&packet));
        }
        let Forked { ram, code } = packet.message().map_err(protocol)?;
        let Some(faults) = self.faults.clone() else {
            return Err(PlatformError::SeedUnreadable);
        };
        let attached = pager.attach(faults, Bases { ram, code }, self.process.ending());
        self.paged = attached.map_err(|error| match error {
            Errno::CANCELED => PlatformError::SeedUnreadable,
            error => PlatformError::System {
                what: "an instance could not be had to wait for its memory",
                error,
            },
        })?;
        Ok(())
    }

    /// Whether its guest may have had to wait for memory: it began before all of that was there.
    pub fn was_paged(&self) -> bool {
        self.paged.is_some()
    }

    /// Lets go of its page faults, if none was ever to be answered: it is an instance, whose memory
    /// was all there. Takes a lock of the process's memory, so not while its guest runs.
    pub fn let_go_of_faults(&mut self) {
        if self.paged.is_none() && self.faults.take().is_some() {
            self.process.account().let_go();
        }
    }

    /// Whether its page faults can be answered.
    pub fn tells_faults(&self) -> bool {
        self.faults.is_some()
    }

    /// Lets the guest run as instance number `instance`; its monotonic time continues
    /// from `monotonic_nanoseconds`, its wall time is that of now.
    ///
    /// # Errors
    /// When the sandbox is gone.
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
        self.tell(&order, &[]).await
    }

    /// Lets the guest go on after a ring.
    ///
    /// # Errors
    /// When the sandbox is gone.
    pub async fn resume(&mut self) -> Result<(), PlatformError> {
        self.tell(&Resume { reserved: 0 }, &[]).await
    }

    /// Ends the guest's wait, if it is in one.
    ///
    /// # Errors
    /// The system's.
    pub fn wake(&self) -> Result<(), PlatformError> {
        let socket = self.socket.get_ref();
        match queue::wake(socket) {
            Ok(()) | Err(FriError::System(Errno::AGAIN)) => Ok(()),
            // Whoever listens to it learns that, and why.
            Err(FriError::Closed) => Ok(()),
            Err(error) => Err(PlatformError::SandboxEnded(error.to_string())),
        }
    }

    /// CPU time that the sandbox and its guest have used.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        self.process.cpu_time()
    }

    /// Whom its CPU time is charged to.
    pub fn account(&self) -> &Account {
        self.process.account()
    }

    /// Orders that an instance that is done, or has said that it will be in a moment, be
    /// brought back to its seed's state; [`Sandbox::reset_news`] says what comes of it. Its
    /// mailbox is wiped. With `count_unused` the sandbox counts what of the write set was
    /// not used ([`Sandbox::reset_order`]).
    ///
    /// # Errors
    /// When the sandbox is gone.
    pub async fn order_reset(&mut self, order: &Reset) -> Result<(), PlatformError> {
        self.tell(order, &[]).await
    }

    /// What is ordered by it: whether the sandbox counts what of the write set was not used, and
    /// for how long its guest looks for the next request by itself then.
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

    /// Has it run at the background priority, or at the usual one.
    pub fn set_background(&self, background: bool) {
        self.process.set_background(background);
    }

    /// Has all that wants a processor come before it, or not any more; [`Sandbox::is_aside`] says
    /// when that is so, on a host that can have it.
    pub fn step_aside(&self, aside: bool) {
        self.process.step_aside(aside);
    }

    /// Whether all that wants a processor comes before it.
    pub fn is_aside(&self) -> bool {
        self.process.is_aside()
    }

    /// Whether it does, or may at any moment.
    pub fn may_be_aside(&self) -> bool {
        self.process.may_be_aside()
    }

    /// Waits for what comes of an instance that is brought back; or for a ring of a guest that
    /// still runs, which says nothing, and is not heard before `until`. Each thing that the sandbox
    /// says counts: it could say some of them without end. May be dropped at any point without
    /// losing anything.
    ///
    /// # Errors
    /// When the sandbox has ended without a word, or says what makes no sense.
    pub async fn reset_news(
        &mut self,
        until: Option<Instant>,
    ) -> Result<Option<Reached>, PlatformError> {
        let Some(packet) = self.packet_while_resting(until).await? else {
            return Ok(None);
        };
        Ok(Some(match packet.kind() {
            Some(Kind::Failed) => Reached::Failed {
                why: failure(&packet),
                by_guest: is_by_guest(&packet),
            },
            Some(Kind::Rang) => Reached::Stopped,
            _ => {
                let parked: Parked = packet.message().map_err(protocol)?;
                let polled = Duration::from_nanos(parked.polled_nanoseconds);
                if parked.is_offered.is_yes() {
                    Reached::Offered
                } else {
                    Reached::Parked(parked.into(), polled)
                }
            }
        }))
    }

    /// Takes the ring with which the guest's last run ended, if that was sent and not heard: of an
    /// instance that was brought back since, and goes on without a message.
    ///
    /// # Errors
    /// When it has sent anything else.
    pub fn forget_ring(&mut self) -> Result<(), PlatformError> {
        match receive_from_untrusted(self.socket.get_ref(), RecvFlags::DONTWAIT) {
            Ok(packet) if packet.kind() == Some(Kind::Rang) => Ok(()),
            Ok(packet) if packet.kind() == Some(Kind::Failed) => {
                Err(PlatformError::SandboxEnded(failure(&packet)))
            }
            Err(FriError::System(Errno::AGAIN)) => Ok(()),
            _ => Err(protocol("the sandbox said what it may not say now")),
        }
    }

    /// Whether there is an order that the sandbox has not taken. While its guest runs it
    /// takes none, so after an order to reset this says whether the guest stands still,
    /// by the system's word.
    ///
    /// # Errors
    /// The system's.
    pub fn has_untaken_order(&self) -> Result<bool, PlatformError> {
        let untaken = queue::untaken_bytes(self.socket.get_ref());
        Ok(untaken.map_err(protocol)? > 0)
    }

    /// Looks whether the process is still there, as far as is known without waiting.
    pub fn check_alive(&mut self) -> bool {
        self.process.check_alive()
    }

    /// What the instance has used. Its guest must stand still. It is the sandbox's
    /// word.
    ///
    /// # Errors
    /// When the sandbox fails or says anything else.
    pub async fn survey(&mut self) -> Result<UsedPages, PlatformError> {
        self.tell(&Survey { reserved: 0 }, &[]).await?;
        let used: Used = self.receive().await?.message().map_err(protocol)?;
        Ok(used.into())
    }

    /// Takes the vCPU's state, and ends the sandbox, so that nobody has its memory
    /// mapped any more. What a forked instance changed is written to `layer`; says
    /// where. It is the sandbox's word. The inner error says why nothing can be made of what
    /// its guest has become.
    ///
    /// # Errors
    /// When the sandbox is gone or says anything else.
    pub async fn seal(
        mut self,
        layer: Option<&LayerBuilder>,
    ) -> Result<Result<(Box<VcpuState>, Vec<PageRange>), String>, PlatformError> {
        let fds: Vec<_> = layer.iter().map(|layer| layer.as_fd()).collect();
        self.tell(&Seal { reserved: 0 }, &fds).await?;
        let packet = self.receive().await?;
        if packet.kind() == Some(Kind::Failed) {
            return Ok(Err(failure(&packet)));
        }
        let (state, own) = {
            let sealed: Sealed = packet.message().map_err(protocol)?;
            (Box::new(sealed.state), sealed.own.told().to_vec())
        };
        self.process.ended().await?;
        Ok(Ok((state, own)))
    }

    /// Waits for the sandbox or its guest to say something; progress is not heard before
    /// `until`. May be dropped at any point without losing anything.
    ///
    /// # Errors
    /// When it ends instead, or says what makes no sense.
    pub async fn event_while_resting(
        &mut self,
        until: Option<Instant>,
    ) -> Result<Event, PlatformError> {
        let Some(packet) = self.packet_while_resting(until).await? else {
            return Ok(Event::Progress);
        };
        match packet.kind() {
            Some(Kind::Rang) => {
                let rang: Rang = packet.message().map_err(protocol)?;
                Ok(Event::Rang(rang.into()))
            }
            Some(Kind::Failed) => Ok(Event::Failed(failure(&packet))),
            _ => Err(protocol("the sandbox said what it may not say now")),
        }
    }

    /// A packet of the sandbox, or nothing where the guest rang.
    async fn packet_while_resting(
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
            // A guest that stands still is the more urgent news.
            biased;
            packet = receive(socket, process) => packet.map(Some),
            () = progress.rung(until) => Ok(None),
        }
    }

    /// Asks for its end and waits until it has come.
    pub async fn destroy(mut self) {
        self.end().await;
    }

    /// As [`Sandbox::destroy`], where what belongs to the sandbox is still looked at.
    pub async fn end(&mut self) {
        self.process.kill();
        // An error says that the spawner is gone, and its sandboxes with it.
        let _ = self.process.ended().await;
    }

    async fn tell<M: Message>(
        &mut self,
        message: &M,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), PlatformError> {
        let sent = send_when_there_is_room(&self.socket, |socket| {
            send(socket, message, fds, SendFlags::empty()).map_err(into_io)
        })
        .await;
        match sent {
            Ok(()) => Ok(()),
            // Why it has ended says more.
            Err(error) if is_end(&error) => Err(self.process.ended().await?.into()),
            Err(error) => Err(PlatformError::SandboxEnded(error.to_string())),
        }
    }

    async fn receive(&mut self) -> Result<Packet, PlatformError> {
        receive(&self.socket, &mut self.process).await
    }
}

/// What becomes of an instance that is brought back.
#[derive(Debug)]
pub enum Reached {
    /// Its guest had stopped before the order came.
    Stopped,
    /// It can be claimed, if its guest looks for a request still.
    Offered,
    /// It is parked: what that took, and for how long its guest has looked for a request in vain.
    Parked(Effort, Duration),
    /// It cannot be brought back, and its sandbox has ended; whether its guest did something that
    /// no guest of ours does.
    Failed { why: String, by_guest: bool },
}

/// Whether an error of a socket says that the other side has ended.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// A packet from the sandbox. It may send no descriptors: there is no room for them.
async fn receive(
    socket: &AsyncFd<OwnedFd>,
    process: &mut Process,
) -> Result<Packet, PlatformError> {
    receive_by(socket, process, |socket, flags| {
        receive_from_untrusted(socket, flags)
    })
    .await
}

/// A packet from the sandbox, as `receive` takes it.
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
        Ok(None) => Err(protocol("the sandbox sent what is no packet")),
        Err(_) => Err(process.ended().await?.into()),
    }
}

/// Of a working set what is there: what is missing is not to be touched before it is waited for.
fn present(working_set: &PageSets, pager: &Pager) -> PageSets {
    let missing = pager.missing();
    PageSets {
        written: working_set.written.without(&missing),
        read: working_set.read.without(&missing),
        code: working_set.code.without(&pager.missing_code()),
        generation: working_set.generation,
    }
}
