//! Describes functions and the node's metrics.

use std::sync::Arc;

use faasw_client::{
    FunctionBrief, FunctionDetails, FunctionInfo, FunctionName, LogPage, ShortfallCause,
    WarmShortfall,
};
use faasw_pool::Backlog;

use super::TransferPermits;
use crate::{
    backend::Backend,
    error::FunctionError,
    limits::Limits,
    metrics::{CurrentValues, Metrics, NodeSummary},
    node::{
        engines::Engines,
        functions::{Function, FunctionTable},
        info::{SeedState, function_brief, function_info},
        state::NodeState,
        storage::Storage,
        versions::VersionFactory,
    },
    registry::VersionRecord,
};

/// Describes functions and the node's metrics, and exports versions.
#[derive(Debug)]
pub(crate) struct Inspector {
    pub(crate) functions: Arc<FunctionTable>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) versions: Arc<VersionFactory>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) state: Arc<NodeState>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) backlog: Arc<Backlog>,
    /// Permits for exports.
    pub(crate) exports: TransferPermits,
}

impl Inspector {
    pub(crate) fn list(&self) -> Vec<FunctionBrief> {
        let functions = self.functions.all();
        let brief = |function: &Arc<Function>| {
            let (name, version) = (&function.name, function.version);
            let is_in_memory = function
                .version_cell
                .get()
                .is_some_and(|version| version.is_in_memory());
            function_brief(name, version, &function.record, &self.limits, is_in_memory)
        };
        functions.iter().map(brief).collect()
    }

    pub(crate) fn info(&self, function: &Function) -> FunctionInfo {
        let (name, version) = (&function.name, function.version);
        let state = self.state_of(function);
        function_info(name, version, &function.record, &self.limits, state)
    }

    /// Returns where a function's seed is.
    pub(super) fn state_of(&self, function: &Function) -> SeedState {
        match function.version_cell.get() {
            Some(version) => SeedState {
                is_in_memory: version.is_in_memory(),
                image_bytes: version.image_bytes(),
            },
            None => self.state_on_disk(&function.name, &function.record),
        }
    }

    /// Returns how many of a function's instances warm ahead of requests are missing, and why.
    fn shortfall(&self, function: &Function) -> Option<WarmShortfall> {
        match function.version_cell.get() {
            Some(version) => version.shortfall(),
            None => self.shortfall_at_rest(),
        }
    }

    /// Returns what a function that rests lacks of its warm instances. A start provides instances
    /// only for as many functions as there is capacity for.
    fn shortfall_at_rest(&self) -> Option<WarmShortfall> {
        let instances = self.backend.min_warm();
        let is_too_many = self.functions.count() > self.backend.provided_functions();
        let why = ShortfallCause::MaxWarm;
        (instances > 0 && is_too_many).then_some(WarmShortfall { instances, why })
    }

    /// Returns where the seed of a version is that is not in memory.
    fn state_on_disk(&self, name: &FunctionName, record: &VersionRecord) -> SeedState {
        let images = self.storage.images.as_ref();
        SeedState {
            is_in_memory: false,
            image_bytes: images.and_then(|images| images.known_bytes_of(&record.image(name))),
        }
    }

    /// Returns a function and the versions of it that are kept.
    pub(crate) async fn inspect(&self, name: &str) -> Result<FunctionDetails, FunctionError> {
        let name = self.functions.require(name)?.name.clone();
        let of = name.clone();
        let versions = self
            .storage
            .run(move |registry| registry.versions(&of))
            .await?;
        // Looked up again, because the function may have changed while the registry was read.
        let function = self.functions.require(name.as_str())?;
        let of = |(number, record): (&u64, &VersionRecord)| {
            let state = if *number == function.version {
                self.state_of(&function)
            } else {
                self.state_on_disk(&name, record)
            };
            function_info(&name, *number, record, &self.limits, state)
        };
        Ok(FunctionDetails {
            function: self.info(&function),
            under_way: function.under_way.count(),
            lacking: self.shortfall(&function),
            versions: versions.iter().rev().map(of).collect(),
        })
    }

    /// Returns the newest lines of a log, or the lines after the position `after`. If there are
    /// none after it, waits until there is a line or the node ends.
    pub(crate) async fn log_page(
        &self,
        name: &str,
        newest: usize,
        after: Option<u64>,
    ) -> Result<LogPage, FunctionError> {
        let log = self.functions.require(name)?.log.clone();
        let Some(after) = after else {
            return Ok(log.newest(newest));
        };
        tokio::select! {
            page = log.after(after) => Ok(page),
            () = self.state.wait_until_ended() => Ok(LogPage::empty(after)),
        }
    }

    /// Returns the current metrics as OpenMetrics text.
    pub(crate) fn metrics_text(&self) -> String {
        self.measured(|now| self.metrics.encode_text(now))
    }

    /// Returns a summary of the current metrics for people.
    pub(crate) fn stats(&self) -> NodeSummary {
        self.measured(|now| self.metrics.summary(now))
    }

    /// Passes values that only the node knows to `read`, which reads its metrics.
    fn measured<T>(&self, read: impl FnOnce(&CurrentValues<'_>) -> T) -> T {
        let functions = self.functions.all();
        let under_way = functions
            .iter()
            .map(|function| function.under_way.count())
            .sum();
        let mut vms = self.backend.stats();
        if let Some(shortfall) = self.shortfall_at_rest() {
            let resting = functions
                .iter()
                .filter(|function| function.version_cell.get().is_none());
            resting.for_each(|_| vms.shortfall.add(shortfall));
        }
        let functions: Vec<_> = functions
            .iter()
            .map(|function| function.name.clone())
            .collect();
        read(&CurrentValues {
            functions: &functions,
            under_way,
            vms,
            backlog: &self.backlog,
        })
    }
}
