//! What becomes of an instance when its request is over: reset and parked for the
//! next one, or ended. The client does not wait for it (early destroy, AFaaS
//! §4.3), but its place is taken until then.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::doorbell::Ring;
use faasw_abi::memory_map::PAGE;
use faasw_seedtree::Level;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::error::PlatformError;
use crate::function::{Effort, LogSink};
use crate::instance::Instance;
use crate::parking::Coming;
use crate::seed::{Busy, Seed};
use crate::shell::{Event, Report};

/// How long a guest that said it is done may take to stand still, and each step after.
const PATIENCE: Duration = Duration::from_secs(2);

/// An instance whose request is over.
pub struct Retiring {
    /// The instance. Everything was taken out of its mailbox.
    pub instance: Instance,
    /// What it came from.
    pub seed: Seed,
    /// What the shell said when the guest stopped; nothing while it has not.
    pub report: Option<Report>,
    /// It did nothing that speaks against using it again.
    pub is_good: bool,
    /// Who is told what it took, and its number.
    pub sink: Arc<dyn LogSink>,
    /// The number it had in this request.
    pub number: u64,
    /// Given back at the end.
    #[expect(dead_code, reason = "it is held, not used")]
    pub place: Place,
}

/// The place that an instance has until its process is free or gone, among all of
/// the pool and among those of its function.
pub type Place = (OwnedSemaphorePermit, Busy);

impl Retiring {
    /// Does it in the background.
    pub fn start(self) {
        let seed = self.seed.clone();
        tokio::spawn(async move {
            self.run().await;
            // One more may be parked now, or a seed free that was in use.
            seed.holding().fit();
        });
    }

    async fn run(mut self) {
        // Its place is given back with the rest of it, at the end.
        // An instance of an ancestor has become the function on its own.
        let is_of_function = self.instance.from.seed.level == Level::Function;
        let coming = (self.is_good && is_of_function)
            .then(|| self.seed.parking().announce(self.instance.uses + 1))
            .flatten();
        let from = self.instance.from.clone();
        let working_set = &from.working_set;
        // An instance of an older set would go on missing, or fill what nobody uses;
        // and what it has of its own is what that set says.
        let is_current = self.instance.is_current();
        let is_asked = self.is_good && is_of_function && is_current && working_set.is_wanted();
        if !is_asked
            && is_current
            && let Some(coming) = coming
        {
            return self.park(coming).await;
        }
        drop(coming);
        let stopped = match self.report {
            Some(report) => Ok(report),
            None => stopped(&mut self.instance).await,
        };
        if let Ok(report) = stopped {
            if is_asked && let Ok(Ok(used)) = timeout(PATIENCE, self.instance.shell.survey()).await
            {
                let generation = self.instance.generation;
                working_set.learn(generation, &used, self.seed.ram_bytes());
            }
            // Last, so that whoever waits for it finds what was learnt.
            self.tell(&Effort {
                exits: report.exits,
                page_faults: report.page_faults,
                reset: None,
            });
        }
        self.instance.shell.destroy().await;
    }

    /// Resets the instance, without waiting for the guest to stand still: the shell
    /// finds the order when it does.
    async fn park(mut self, coming: Coming) {
        let from = self.instance.from.clone();
        let count_unused = from.working_set.is_count_due();
        let reset = timeout(PATIENCE, self.instance.reset(count_unused))
            .await
            .unwrap_or_else(|_| Err(PlatformError::Protocol("it takes too long".to_owned())));
        match reset {
            Ok(effort) => {
                tracing::trace!(number = self.number, ?effort, "instance reset");
                let reset = effort.reset.unwrap_or_default();
                from.working_set.note(self.instance.generation, &reset);
                self.tell(&effort);
                if self.instance.is_current() {
                    // The shell's word, which no sum is to trip over.
                    let filled = reset.filled.saturating_mul(PAGE);
                    return coming.park(self.instance, filled.min(self.seed.ram_bytes()));
                }
                // That was what made the set be forgotten.
                drop(coming);
                self.instance.shell.destroy().await;
            }
            Err(error) => {
                tracing::debug!(number = self.number, %error, "an instance was not reset");
                drop(coming);
                self.instance.shell.destroy().await;
            }
        }
    }

    fn tell(&self, effort: &Effort) {
        self.seed.count_faults(effort.page_faults);
        self.sink.retired(self.number, effort);
    }
}

/// Waits until a guest that has said that it is done stands still.
async fn stopped(instance: &mut Instance) -> Result<Report, PlatformError> {
    let wait = async {
        loop {
            match instance.shell.event().await? {
                Event::Progress => {}
                Event::Rang(report) if report.ring == Some(Ring::Done) => return Ok(report),
                Event::Rang(_) => return Err(PlatformError::Protocol("it went on".to_owned())),
                Event::Failed(why) => return Err(PlatformError::ShellEnded(why)),
            }
        }
    };
    timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| Err(PlatformError::Protocol("it does not stop".to_owned())))
}
