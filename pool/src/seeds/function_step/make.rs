//! Making the seed of a function version: the steps from its parent to its freeze point.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::command::Command;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::wire::FunctionKind;
use faasw_common::text::Line;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::seed_build::{InstantiationReport, ScriptUpload, SeedBuild, SeedBuildContext};
use super::super::spec::FreezePolicy;
use super::{FunctionStep, timeout_error};
use crate::error::SeedError;
use crate::fault::Fault;
use crate::mailbox::{LogLines, Mailbox};
use crate::snapshots::SeedSnapshot;

/// The time limit for the warm-up requests while requests wait for a seed that is made again.
const WARM_AGAIN_TIMEOUT: Duration = Duration::from_secs(5);

impl FunctionStep {
    /// Makes its seed. If that succeeded before and the warm-up requests fail now, the seed is made
    /// without them.
    ///
    /// # Errors
    /// Returns an error if the function fails to load, to initialise or to warm up in time, if it
    /// draws values that its freeze policy does not allow, or if the platform fails.
    pub async fn make(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<SeedSnapshot, SeedError> {
        let mut making = self.in_time(self.initialised(context, parent)).await?;
        let (was_made, is_cold) = {
            let record = self.record.lock();
            (record.was_made, record.is_cold)
        };
        if !self.warm_ups.is_empty() && !is_cold {
            let limit = if was_made {
                WARM_AGAIN_TIMEOUT.min(self.time_limit)
            } else {
                self.time_limit
            };
            match self.warm_up(&mut making, limit).await {
                Ok(()) => {}
                Err(error) if !was_made || error.fault().0 == Fault::Platform => return Err(error),
                Err(error) => {
                    let (function, error) = (self.name(), Line(&error));
                    tracing::warn!(function, %error, "warm-up requests fail; seeds are made \
                         without them");
                    self.record.lock().is_cold = true;
                    making = self.in_time(self.initialised(context, parent)).await?;
                }
            }
        }
        let frozen = self.in_time(making.freeze()).await?;
        let mut record = self.record.lock();
        record.was_made = true;
        record.is_restored = false;
        Ok(frozen)
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, SeedError>>,
    ) -> Result<T, SeedError> {
        let done = timeout(self.time_limit, work).await;
        done.unwrap_or_else(|_| Err(timeout_error(self.time_limit)))
    }

    /// Returns a guest that is ready, or only loaded if it is to be frozen before initialisation.
    async fn initialised(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<SeedBuild, SeedError> {
        if self.spec.has_entry && self.spec.freeze != FreezePolicy::BeforeInit {
            let making = self.enter(context, parent).await?;
            if let Some(making) = making {
                return Ok(making);
            }
        }
        match (&self.spec.script, &self.spec.init) {
            (Some(_), _) => self.load_script(context, parent).await,
            (None, Some(export)) => {
                let mut making = self.load(context, parent).await?;
                self.initialise(&mut making, export).await?;
                Ok(making)
            }
            (None, None) if self.warm_ups.is_empty() => self.by_policy(context, parent).await,
            (None, None) => {
                let mut making = self.load(context, parent).await?;
                let report = making.instantiate().await?;
                self.record_instantiation(&report, true);
                Ok(making)
            }
        }
    }

    /// Returns a guest whose function has reached its entry point (func-entry point, Catalyzer §2.2
    /// and §5), or `None` if it does not get there before a request. Entropy drawn before that
    /// would be shared by all requests. Reading clocks is allowed, because many functions read them
    /// to no effect.
    async fn enter(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<Option<SeedBuild>, SeedError> {
        let mut making = self.load(context, parent).await?;
        let (report, mut has_entered) = making.instantiate_or_enter().await?;
        let mut took = report.took;
        if let Some(export) = self.spec.init.clone() {
            if has_entered {
                return Err(SeedError::EnteredBefore(format!(
                    "{export:?} initialises it"
                )));
            }
            let evaluate = Command::Evaluate { export };
            has_entered = making.run_or_enter(evaluate, Doorbell::Ready).await?;
            took += making.drawn()?.took;
        }
        if !has_entered && self.kind == FunctionKind::HttpComponent {
            return Ok(None);
        }
        if !self.warm_ups.is_empty() {
            let what = "requests warm it up".to_owned();
            return Err(SeedError::EnteredBefore(what));
        }
        if !has_entered {
            making.run_or_enter(Command::Run, Doorbell::Entry).await?;
            took += making.drawn()?.took;
        }
        let report = making.drawn()?;
        if report.drew_entropy && self.spec.freeze != FreezePolicy::AfterInit {
            return Err(SeedError::EntryDrew(report.describe_draws()));
        }
        self.record_instantiation(&InstantiationReport { took, ..report }, true);
        self.record.lock().has_entered = true;
        Ok(Some(making))
    }

    /// Returns a guest with the instantiated function, or with the loaded one if its seed is to be
    /// frozen before instantiation: by its freeze policy, or because instantiation draws entropy.
    async fn by_policy(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<SeedBuild, SeedError> {
        let mut making = self.load(context, parent).await?;
        if self.after_init() != Some(false) {
            let report = if self.spec.has_entry {
                making.instantiate_or_enter().await?.0
            } else {
                making.instantiate().await?
            };
            let after_init = match self.spec.freeze {
                FreezePolicy::AfterInit => true,
                FreezePolicy::BeforeInit => false,
                FreezePolicy::Auto => !report.drew_entropy,
            };
            self.record_instantiation(&report, after_init);
            if self.after_init() == Some(false) {
                // The instantiation has shown that the function can be instantiated and what that
                // draws. A seed without instantiation takes another guest.
                making = self.load(context, parent).await?;
            }
        }
        Ok(making)
    }

    /// Sends the function its warm-up requests. Entropy drawn by them would be shared by all
    /// requests. Reading clocks is allowed, because nearly all functions read them for the request
    /// at hand.
    async fn warm_up(&self, making: &mut SeedBuild, limit: Duration) -> Result<(), SeedError> {
        let until = Instant::now() + limit;
        for (command, request) in self.warm_ups.iter().zip(&self.spec.warm_ups) {
            let done = timeout_at(
                until,
                making.run_commands(slice::from_ref(command), Doorbell::Ready),
            )
            .await;
            done.unwrap_or_else(|_| Err(timeout_error(limit)))
                .map_err(|error| match error {
                    SeedError::Function(error) => SeedError::WarmUp {
                        request: request.describe(),
                        error,
                    },
                    other => other,
                })?;
        }
        let report = making.drawn()?;
        if report.drew_entropy && self.spec.freeze != FreezePolicy::AfterInit {
            return Err(SeedError::WarmUpDrew(report.describe_draws()));
        }
        // An instance of an ancestor is not warmed up, so the recorded duration stays that of the
        // instantiation.
        let took = self.instantiation();
        self.record_instantiation(&InstantiationReport { took, ..report }, true);
        Ok(())
    }

    /// Loads a script into its engine. Entropy drawn by that would be shared by all requests.
    /// Reading clocks is allowed, because many scripts read them to no effect.
    async fn load_script(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<SeedBuild, SeedError> {
        let making = self.fork(context, parent, Doorbell::Ready).await?;
        let report = making.drawn()?;
        if report.drew_entropy && self.spec.freeze != FreezePolicy::AfterInit {
            return Err(SeedError::ScriptDrew(report.describe_draws()));
        }
        self.record_instantiation(&report, true);
        Ok(making)
    }

    /// Initialises the function by calling an export. What that draws would be shared by all
    /// requests.
    async fn initialise(&self, making: &mut SeedBuild, export: &str) -> Result<(), SeedError> {
        let instantiated = making.instantiate().await?;
        let export = export.to_owned();
        let evaluate = Command::Evaluate {
            export: export.clone(),
        };
        making.run_commands(&[evaluate], Doorbell::Ready).await?;
        let mut report = making.drawn()?;
        // Many functions, for example Go's, read clocks during instantiation to no effect.
        let draws = report.drew_entropy || report.read_clock && !instantiated.read_clock;
        if draws && self.spec.freeze != FreezePolicy::AfterInit {
            return Err(SeedError::InitDrew {
                export,
                drawn: report.describe_draws(),
            });
        }
        report.took += instantiated.took;
        self.record_instantiation(&report, true);
        Ok(())
    }

    fn record_instantiation(&self, report: &InstantiationReport, after_init: bool) {
        let mut record = self.record.lock();
        record.after_init = Some(after_init);
        record.instantiation = report.took;
        record.drew_entropy = report.drew_entropy;
        record.drawn.clone_from(&report.drawn);
    }

    /// Returns a guest at the early freeze point.
    async fn load(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<SeedBuild, SeedError> {
        self.fork(context, parent, Doorbell::Loaded).await
    }

    /// Returns a guest that was forked from `parent`, and has loaded the function or script and
    /// received its files.
    async fn fork(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
        to: Doorbell,
    ) -> Result<SeedBuild, SeedError> {
        let log = LogLines::new(self.spec.log.clone(), 0);
        let mut mailbox = Mailbox::new()?;
        let code = self.code.get().await?;
        mailbox.put_commands(&self.commands_to_load(code.bytes()))?;
        let bundle = match &self.spec.files {
            Some(files) => files.bundle.get().await?,
            None => Bytes::new(),
        };
        let script = match &self.spec.script {
            Some(script) => script.files.get().await?,
            None => Bytes::new(),
        };
        let upload = if self.requires_own_seed() {
            let opened = ScriptUpload::open(bundle, script, &mut mailbox);
            Some(opened.map_err(SeedError::Function)?)
        } else {
            None
        };
        let (ram, code) = (self.ram_bytes, Some(&*code));
        let mut making = SeedBuild::fork(context, parent, ram, mailbox, code, log).await?;
        if let Some(upload) = upload {
            making = making.with_upload(upload);
        }
        making.reach(to).await?;
        Ok(making)
    }
}
