//! What becomes of an instance when its request is over: reset and parked for the
//! next one, or ended. The client does not wait for it (early destroy, AFaaS
//! §4.3), but its place is taken until then.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::doorbell::Ring;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::error::PlatformError;
use crate::function::{Effort, LogSink};
use crate::instance::Instance;
use crate::seed::Seed;
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
    pub room: OwnedSemaphorePermit,
}

impl Retiring {
    /// Does it in the background.
    pub fn start(self) {
        tokio::spawn(self.run());
    }

    async fn run(mut self) {
        let coming = self
            .is_good
            .then(|| self.seed.parking().announce(self.instance.uses + 1))
            .flatten();
        let _room = self.room;
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
        let working_set = self.seed.working_set();
        if self.is_good
            && working_set.is_wanted()
            && let Ok(Ok(used)) = timeout(PATIENCE, self.instance.shell.survey()).await
        {
            working_set.learn(&used, self.seed.layer().bytes());
        }
        // An instance of an older set would go on missing.
        let is_current = self.instance.generation == working_set.current().generation;
        let Some(coming) = coming.filter(|_| is_current) else {
            self.sink.retired(self.number, &effort);
            return self.instance.shell.destroy().await;
        };
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
