//! What becomes of an instance when its request is over: reset and parked for the
//! next one, or ended. The client does not wait for it (early destroy, AFaaS
//! §4.3), but its place is taken until then.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::doorbell::Ring;
use faasw_seedtree::Level;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::error::PlatformError;
use crate::function::{Effort, LogSink};
use crate::instance::Instance;
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
    pub place: Place,
}

/// The place that an instance has until its process is free or gone, among all of
/// the pool and among those of its function.
pub type Place = (OwnedSemaphorePermit, Busy);

impl Retiring {
    /// Does it in the background.
    pub fn start(self) {
        tokio::spawn(self.run());
    }

    async fn run(mut self) {
        // An instance of an ancestor has become the function on its own.
        let is_of_function = self.instance.from.seed.level == Level::Function;
        let coming = (self.is_good && is_of_function)
            .then(|| self.seed.parking().announce(self.instance.uses + 1))
            .flatten();
        let _until_the_end = self.place;
        let stopped = match self.report {
            Some(report) => Ok(report),
            None => stopped(&mut self.instance).await,
        };
        let Ok(report) = stopped else {
            return self.instance.shell.destroy().await;
        };
        let mut effort = Effort {
            exits: report.exits,
            page_faults: report.page_faults,
            reset: None,
        };
        self.seed.count_faults(report.page_faults);
        let from = self.instance.from.clone();
        let Some(coming) = coming else {
            self.sink.retired(self.number, &effort);
            return self.instance.shell.destroy().await;
        };
        let working_set = &from.working_set;
        if working_set.is_wanted()
            && let Ok(Ok(used)) = timeout(PATIENCE, self.instance.shell.survey()).await
        {
            working_set.learn(&used, self.seed.ram_bytes());
        }
        // An instance of an older set would go on missing.
        if self.instance.generation != working_set.current().generation {
            drop(coming);
            self.sink.retired(self.number, &effort);
            return self.instance.shell.destroy().await;
        }
        let reset = timeout(PATIENCE, self.instance.reset())
            .await
            .unwrap_or_else(|_| Err(PlatformError::Protocol("it takes too long".to_owned())));
        match reset {
            Ok(reset) => {
                tracing::trace!(number = self.number, ?reset, "instance reset");
                effort.reset = Some(reset);
                working_set.note(reset.outside);
                coming.park(self.instance);
            }
            Err(error) => {
                tracing::debug!(number = self.number, %error, "an instance was not reset");
                drop(coming);
                self.instance.shell.destroy().await;
            }
        }
        self.sink.retired(self.number, &effort);
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
