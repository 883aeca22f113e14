//! Making seeds: running a guest up to a freeze point, and freezing it there.
//!
//! Level 0 boots in a layer of its own. Every other seed is made by a guest that is forked from its
//! parent and runs the commands of its next step. Its layer contains the pages that it changed
//! (AFaaS §4.3, multi-level fork).

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use faasw_abi::channel::{Channel, ChannelKind, Waits};
use faasw_abi::command::{Command, Commands};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::{
    DRAW_CALL, DRAW_CLOCK, DRAW_ENTROPY, DRAW_INSECURE, DRAW_SECRET, DRAW_STORE, GuestWords,
};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::limits::{ROOT_MAX, WINDOWS_MAX};
use faasw_seedtree::{LayerBuilder, PageSets, overlay_layer};
use std::sync::Arc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::boot_image;
use super::slots::{Priority, SeedPermit};
use crate::error::{InvokeError, PlatformError, SeedError};
use crate::mailbox::{LogLines, Mailbox, RateLimit, fatal, meaningless, outcome};
use crate::sandboxes::{CodePages, Sandbox, SandboxEvent, Zygote, ZygotePool};
use crate::snapshots::{Code, SeedSnapshot};

/// The draws that have to be an instance's own: a seed frozen after one of them would share it
/// between requests.
const UNIQUE_DRAWS: u32 = DRAW_ENTROPY | DRAW_INSECURE | DRAW_STORE | DRAW_CALL | DRAW_SECRET;

/// How often the node observes the CPU time of an initialising guest: a slot that its guest does
/// not use comes back soon, and reading a clock 50 times a second costs nothing.
const OBSERVATION_INTERVAL: Duration = Duration::from_millis(20);

/// The means to make a seed.
#[derive(Clone, Copy, Debug)]
pub struct SeedBuildContext<'a> {
    /// The source of its sandboxes.
    pub zygote_pool: &'a ZygotePool,
    /// The slots of the making.
    pub permit: &'a Arc<SeedPermit>,
}

/// The result of an instantiation.
pub struct InstantiationReport {
    /// Whether it drew random bytes of any kind.
    pub drew_entropy: bool,
    /// Whether it read a clock.
    pub read_clock: bool,
    /// The draws, by import, one line each.
    pub drawn: String,
    /// The duration.
    pub took: Duration,
}

impl InstantiationReport {
    /// Returns what it drew, in one line.
    pub fn describe_draws(&self) -> String {
        self.drawn.trim().lines().collect::<Vec<_>>().join("; ")
    }
}

/// The memory of a guest that is to be frozen.
#[derive(Debug)]
enum GuestMemory {
    /// A layer that the guest fills itself.
    Root(LayerBuilder),
    /// The parent's layers, and pages of its own.
    Child {
        parent: Arc<SeedSnapshot>,
        ram_bytes: u64,
    },
}

/// A bundle of files, a script, or both, that are being sent to a guest.
#[derive(Debug)]
pub struct ScriptUpload {
    bundle: Bytes,
    script: Bytes,
    is_complete: bool,
}

impl ScriptUpload {
    /// Opens the script channel in the mailbox of a guest that is to be forked. The guest receives
    /// the bundle, if it is not empty, and then the script.
    ///
    /// # Errors
    /// Returns the error of writing to the mailbox.
    pub fn open(bundle: Bytes, script: Bytes, mailbox: &mut Mailbox) -> Result<Self, InvokeError> {
        let head = (script.len() as u64).to_le_bytes();
        mailbox.open(ChannelKind::Script, &head, false, false)?;
        let mut upload = Self {
            bundle,
            script,
            is_complete: false,
        };
        // A small script is in the mailbox completely when the guest begins.
        upload.send_some(mailbox, &GuestWords::default())?;
        Ok(upload)
    }

    /// Sends the guest as much as fits. Returns whether the guest waits for that.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's words are inconsistent, or the error of
    /// the mailbox.
    fn send_some(
        &mut self,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<bool, InvokeError> {
        for part in [&mut self.bundle, &mut self.script] {
            let put = mailbox.put(Channel::SCRIPT, guest, part)?;
            part.advance(put);
            if !part.is_empty() {
                break;
            }
        }
        if self.bundle.is_empty() && self.script.is_empty() && !self.is_complete {
            mailbox.finish(Channel::SCRIPT, &[])?;
            self.is_complete = true;
        }
        let waits = Waits::from_word(guest.wait_for).has(Waits::bytes(Channel::SCRIPT));
        Ok(waits && (self.is_complete || mailbox.untaken_bytes(Channel::SCRIPT, guest)? > 0))
    }
}

/// A guest that runs up to a freeze point.
#[derive(Debug)]
pub struct SeedBuild {
    sandbox: Sandbox,
    mailbox: Mailbox,
    memory: GuestMemory,
    log: LogLines,
    upload: Option<ScriptUpload>,
    permit: Arc<SeedPermit>,
    /// The priority that its sandbox runs at.
    priority: Priority,
}

fn function(error: InvokeError) -> SeedError {
    match error {
        InvokeError::Platform(error) => SeedError::Platform(error),
        other => SeedError::Function(other),
    }
}

fn guest_failed(why: String) -> SeedError {
    SeedError::Function(InvokeError::GuestFailed(why))
}

fn system(error: rustix::io::Errno) -> PlatformError {
    PlatformError::System {
        what: "a seed's memory could not be made",
        error,
    }
}

/// Returns a timer for observing a guest's CPU time.
fn observation_timer() -> Interval {
    let mut ticks = interval_at(Instant::now() + OBSERVATION_INTERVAL, OBSERVATION_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl SeedBuild {
    /// Waits until the guest, which has no request, has stopped. Meanwhile the node empties its
    /// log, sends its script, and adjusts its CPU slot to what it does.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest breaks a rule or reports that it failed,
    /// or an error of the platform.
    async fn next_stop(&mut self) -> Result<Doorbell, InvokeError> {
        let mut rate_limit = RateLimit::new();
        let mut ticks = observation_timer();
        // The sandbox may differ from that of the last observation.
        self.observe();
        loop {
            let is_observed = self.permit.is_to_be_observed();
            let Self {
                sandbox,
                mailbox,
                log,
                upload,
                ..
            } = self;
            let event = tokio::select! {
                // First, so that a guest that signals without end is observed, too.
                biased;
                _ = ticks.tick(), if is_observed => {
                    self.observe();
                    continue;
                }
                event = sandbox.next_event(rate_limit.limited_until()) => event?,
            };
            let report = match event {
                SandboxEvent::Progress => {
                    let guest = mailbox.guest()?;
                    let records = mailbox.take_log(&guest)?;
                    rate_limit.count_look(&records);
                    log.take(&records);
                    let has_uploaded = match upload {
                        Some(upload) => upload.send_some(mailbox, &guest)?,
                        None => false,
                    };
                    if has_uploaded || Waits::from_word(guest.wait_for).has(Waits::LOG) {
                        sandbox.wake()?;
                    }
                    continue;
                }
                SandboxEvent::Rang(report) => report,
                SandboxEvent::Failed(why) => return Err(InvokeError::GuestFailed(why)),
            };
            let guest = mailbox.guest()?;
            log.take(&mailbox.take_log(&guest)?);
            return match report.doorbell {
                Some(Doorbell::Fatal) => Err(fatal(mailbox)),
                Some(ring) => Ok(ring),
                None => Err(meaningless()),
            };
        }
    }

    /// Adjusts its CPU slot and the priority of its sandbox to what the guest does.
    fn observe(&mut self) {
        let cpu = self.sandbox.cpu_time().ok();
        let priority = self.permit.observe(Instant::now(), cpu);
        if priority != self.priority {
            self.priority = priority;
            self.sandbox
                .process()
                .set_background(priority == Priority::Background);
        }
    }

    /// Boots a guest.
    ///
    /// # Errors
    /// Returns an error if the platform fails.
    pub async fn boot(
        context: SeedBuildContext<'_>,
        ram_bytes: u64,
        log: LogLines,
    ) -> Result<Self, PlatformError> {
        let ram = LayerBuilder::new("faasw-level-0", ram_bytes).map_err(system)?;
        let state = boot_image::write(&ram).map_err(system)?;
        let Zygote {
            mut sandbox,
            mailbox,
        } = context.zygote_pool.take_generic().await?;
        sandbox.boot(&ram, &mailbox, &state).await?;
        sandbox.activate(0, 0).await?;
        Ok(Self {
            sandbox,
            mailbox,
            memory: GuestMemory::Root(ram),
            log,
            upload: None,
            permit: context.permit.clone(),
            priority: Priority::Usual,
        })
    }

    /// Forks a guest of `parent` that is to become a seed. It begins with the commands in its
    /// `mailbox`.
    ///
    /// # Errors
    /// Returns an error if the platform fails.
    pub async fn fork(
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
        ram_bytes: u64,
        mailbox: Mailbox,
        code: Option<&Code>,
        log: LogLines,
    ) -> Result<Self, PlatformError> {
        // The pages of a specialised zygote would count as the seed's own.
        let Zygote { mut sandbox, .. } = context.zygote_pool.take_generic().await?;
        parent.count_fork();
        sandbox
            .fork(
                parent,
                ram_bytes,
                &PageSets::default(),
                &mailbox,
                code.map(|code| (code, CodePages::AsStored)),
                None,
            )
            .await?;
        sandbox.activate(0, parent.monotonic_nanoseconds()).await?;
        Ok(Self {
            sandbox,
            mailbox,
            memory: GuestMemory::Child {
                parent: parent.clone(),
                ram_bytes,
            },
            log,
            upload: None,
            permit: context.permit.clone(),
            priority: Priority::Usual,
        })
    }

    /// Attaches the script or files that its mailbox was opened for.
    pub fn with_upload(mut self, upload: ScriptUpload) -> Self {
        self.upload = Some(upload);
        self
    }

    /// Runs the guest until it has done all its commands and stands at a freeze point.
    ///
    /// # Errors
    /// Returns the reason why the guest failed or stopped too early.
    pub async fn reach(&mut self, wanted: Doorbell) -> Result<(), SeedError> {
        let ring = self.stop(&[wanted]).await?;
        self.ensure_done(ring, self.mailbox.commands())
    }

    fn ensure_done(&self, ring: Doorbell, expected: u32) -> Result<(), SeedError> {
        match self.mailbox.guest()?.commands_done {
            done if done == expected => Ok(()),
            done => Err(guest_failed(format!(
                "it rang {ring:?} with {done} commands done instead of {expected}"
            ))),
        }
    }

    /// Runs the guest until it rings one of these.
    async fn stop(&mut self, wanted: &[Doorbell]) -> Result<Doorbell, SeedError> {
        let ring = self.next_stop().await.map_err(function)?;
        if wanted.contains(&ring) {
            return Ok(ring);
        }
        let guest = self.mailbox.guest()?;
        // A guest that is already done reports why its function failed.
        Err(match (ring, outcome(&self.mailbox, &guest)) {
            (Doorbell::Done, Err(error)) => function(error),
            _ => {
                let wanted: Vec<_> = wanted.iter().map(|ring| format!("{ring:?}")).collect();
                let wanted = wanted.join(" or ");
                guest_failed(format!("it rang {ring:?} instead of {wanted}"))
            }
        })
    }

    /// Continues from a freeze point with some commands, up to the freeze point that they lead to.
    ///
    /// # Errors
    /// Returns the reason why the guest failed.
    pub async fn run_commands(
        &mut self,
        commands: &[Command],
        to: Doorbell,
    ) -> Result<(), SeedError> {
        self.mailbox.put_commands(&Commands::of(commands))?;
        self.sandbox.resume().await?;
        self.reach(to).await
    }

    /// Continues from a freeze point with a command. Returns whether the function reached its entry
    /// point during that, instead of the freeze point that the command leads to.
    ///
    /// # Errors
    /// Returns the reason why the guest failed.
    pub async fn run_or_enter(
        &mut self,
        command: Command,
        to: Doorbell,
    ) -> Result<bool, SeedError> {
        self.mailbox.put_commands(&Commands::of(&[command]))?;
        self.sandbox.resume().await?;
        let ring = self.stop(&[to, Doorbell::Entry]).await?;
        let has_entered = ring == Doorbell::Entry;
        let commands = self.mailbox.commands();
        self.ensure_done(ring, commands.saturating_sub(u32::from(has_entered)))?;
        Ok(has_entered)
    }

    /// Continues from the early freeze point of a function to the late one.
    ///
    /// # Errors
    /// Returns the reason why the function failed.
    pub async fn instantiate(&mut self) -> Result<InstantiationReport, SeedError> {
        self.run_commands(&[Command::Instantiate], Doorbell::Ready)
            .await?;
        self.drawn()
    }

    /// As [`SeedBuild::instantiate`], for a function that may reach its entry point during that and
    /// stops there. Returns whether it does.
    ///
    /// # Errors
    /// Returns the reason why the function failed.
    pub async fn instantiate_or_enter(&mut self) -> Result<(InstantiationReport, bool), SeedError> {
        let has_entered = self
            .run_or_enter(Command::Instantiate, Doorbell::Ready)
            .await?;
        Ok((self.drawn()?, has_entered))
    }

    /// Returns what an instantiated function drew so far, and the duration of its last step.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's words are inconsistent, or the error of
    /// the mailbox.
    pub fn drawn(&self) -> Result<InstantiationReport, SeedError> {
        let guest = self.mailbox.guest()?;
        Ok(InstantiationReport {
            drew_entropy: guest.draws & UNIQUE_DRAWS != 0,
            read_clock: guest.draws & DRAW_CLOCK != 0,
            drawn: self.mailbox.report(&guest).map_err(function)?,
            took: Duration::from_nanos(guest.init_nanoseconds),
        })
    }

    /// Freezes the guest in its present state.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if no seed can be made of the guest's state, or an
    /// error of the platform.
    pub async fn freeze(self) -> Result<SeedSnapshot, SeedError> {
        let monotonic_nanoseconds = self.mailbox.guest()?.monotonic_nanoseconds;
        let (layer, state, parent) = match self.memory {
            GuestMemory::Root(ram) => {
                let (state, _) = self.sandbox.seal(None).await?.map_err(guest_failed)?;
                (ram.freeze(ROOT_MAX).map_err(system)?, state, None)
            }
            GuestMemory::Child { parent, ram_bytes } => {
                let name = format!("faasw-level-{}", parent.depth() + 1);
                let ram = LayerBuilder::new(&name, ram_bytes).map_err(system)?;
                let sealed = self.sandbox.seal(Some(&ram)).await?;
                let (state, ranges) = sealed.map_err(guest_failed)?;
                let all = PageRange::around(0, ram_bytes);
                let own = PageSet::from_reported(&ranges, all);
                // A seed with more windows could never be forked.
                let own =
                    own.filter(|own| overlay_layer(parent.windows(), own, 0).len() <= WINDOWS_MAX);
                let own = own.ok_or_else(|| {
                    let what = "a new layer's pages are invalid";
                    PlatformError::Protocol(what.to_owned())
                })?;
                let layer = ram.freeze_at(own).map_err(system)?;
                (layer, state, Some(parent))
            }
        };
        let frozen = SeedSnapshot::new(parent, layer, state.into(), monotonic_nanoseconds);
        Ok(frozen.map_err(system)?)
    }
}
