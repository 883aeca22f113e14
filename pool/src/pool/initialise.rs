//! Initialising an upload by Wizer: the instrumented code runs in a microVM and reports its state,
//! and the upload is rewritten to begin in that state.
//!
//! Only bytes pass from one process to the next. The bytes of the guest are copied as they arrive
//! into the file that the next helper reads, up to a limit. The node parses none of them.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use faasw_abi::state::{REASON_MAX, STATUS_REFUSED, STATUS_STATE};
use faasw_abi::wire::RequestHead;
use faasw_common::text::Line;
use faasw_compiler_protocol::{Task, Wizer};
use http_body_util::{BodyExt as _, Empty};

use super::{CompileOutput, CompiledFunction, Pool};
use crate::compile::{self, Compilation, Initialiser, Input};
use crate::error::{CompileError, InitialiseError, InvokeError, SeedError};
use crate::invocation::{
    CallerPermit, InvocationLimits, InvocationRequest, Reply, ReplyBody, RequestClient,
    ResponsePart,
};
use crate::seeds::{FreezeReport, FunctionSpec, FunctionVersion};

/// The result of compiling code so that Wizer can initialise it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialisationPlan {
    /// The upload can be initialised by this export. The code reports its state and does nothing
    /// else ([`Pool::initialise`]).
    By(String),
    /// The upload cannot be initialised by this export. The code is that of the upload as it is.
    Refused {
        /// The name of the export.
        export: String,
        /// Why it cannot.
        reason: String,
    },
}

/// A module that begins in the state in which its initialisation left it.
#[derive(Debug)]
pub struct InitialisedModule {
    /// The module.
    pub module: Bytes,
    /// The report of the initialisation's draws.
    pub report: FreezeReport,
}

impl Pool {
    /// Compiles as [`Pool::compile`] does, with further settings. If the upload is to be
    /// initialised and Wizer can do that, the code is for [`Pool::initialise`].
    ///
    /// # Errors
    /// Returns a [`CompileError`] that names the fault of the upload or the exceeded limit.
    pub async fn compile_for(&self, work: Compilation) -> Result<CompileOutput, CompileError> {
        let task = match work.initialiser {
            Some(Initialiser::Named(export)) => Task::CompileToInitialiseBy(export),
            Some(Initialiser::Found) => Task::CompileToInitialise,
            None => Task::Compile,
        };
        let _slot = self.compile_slot(&work.owner).await;
        let input = Input::new(&task, &work.upload, work.cache.as_deref())?;
        let spawner = self.inner.zygote_pool.spawner()?;
        let (isa, limits) = (self.inner.isa, self.compile_limits());
        let (report, code, cache) = compile::compile(&spawner, input, isa, limits).await?;
        let export = || task.export().unwrap_or_default().to_owned();
        // A helper that was not asked for initialisable code must not report any.
        let wizer = report.wizer.filter(|_| task.export().is_some());
        let (code, initialising) = match wizer {
            Some(Wizer::Instrumented) => (
                code.reporting_state(),
                Some(InitialisationPlan::By(export())),
            ),
            Some(Wizer::Refused(reason)) => {
                let export = export();
                (code, Some(InitialisationPlan::Refused { export, reason }))
            }
            None => (code, None),
        };
        let function = CompiledFunction {
            imports: report.imports,
            has_initialiser: report.has_initialiser,
            is_engine: report.is_engine,
            initialising,
            ..CompiledFunction::unstored(report.kind, Arc::new(code))
        };
        Ok(CompileOutput { function, cache })
    }

    /// Packs the files of `owner`, a function, into a bundle. The files come in the encoding of
    /// [`faasw_abi::files::upload`]; only the helper parses their paths.
    ///
    /// # Errors
    /// Returns a [`CompileError`] that names the fault of the files or the exceeded limit.
    pub async fn pack(&self, owner: &str, files: &[u8]) -> Result<Bytes, CompileError> {
        let _slot = self.compile_slot(owner).await;
        let input = Input::new(&Task::Pack, files, None)?;
        let spawner = self.inner.zygote_pool.spawner()?;
        let (isa, limits) = (self.inner.isa, self.compile_limits());
        compile::pack(&spawner, input, isa, limits).await
    }

    /// Initialises `upload` by Wizer. `function` is its code that reports its state. Returns
    /// another module of at most `most_bytes`. Takes an admission permit for a moment, as a request
    /// does.
    ///
    /// # Errors
    /// Returns [`InitialiseError::Seed`] if the initialisation fails, or if it draws what `spec`
    /// does not allow. Returns [`InitialiseError::Refused`] if it succeeds, but no module can begin
    /// in its state, or if `function` is not code that reports its state. Returns
    /// [`InitialiseError::Compile`] if the compile helper or the platform fails.
    pub async fn initialise(
        &self,
        spec: &FunctionSpec,
        function: &CompiledFunction,
        upload: &[u8],
        most_bytes: usize,
    ) -> Result<InitialisedModule, InitialiseError> {
        let Some(InitialisationPlan::By(export)) = &function.initialising else {
            let why = "its code does not tell what it becomes";
            return Err(InitialiseError::Refused(why.to_owned()));
        };
        let spec = FunctionSpec {
            init: Some(export.clone()),
            ..spec.clone()
        };
        // The report of what the initialisation drew is about this seed, so it is held: it must not
        // be made again.
        let (version, report, frozen) = self.make_and_hold(&spec, function).await?;
        let input = Input::new(&Task::Rewrite(export.clone()), upload, None)?;
        let mut input = input.with_state(spec.memory_limit);
        self.take_state(&version, &spec, &mut input).await?;
        drop((version, frozen));
        let _slot = self.compile_slot(&spec.name).await;
        let spawner = self.inner.zygote_pool.spawner()?;
        let (isa, limits) = (self.inner.isa, self.compile_limits());
        let module = compile::rewrite(&spawner, input, isa, limits, most_bytes).await?;
        Ok(InitialisedModule { module, report })
    }

    /// Has an instance report its state into `input`.
    async fn take_state(
        &self,
        version: &FunctionVersion,
        spec: &FunctionSpec,
        input: &mut Input,
    ) -> Result<(), InitialiseError> {
        let limit = self.inner.options.instantiation_time;
        let call = InvocationRequest {
            head: RequestHead {
                method: b"GET".to_vec(),
                path_and_query: b"/".to_vec(),
                ..RequestHead::default()
            },
            body: Empty::new().map_err(|never| match never {}).boxed_unsync(),
            limits: InvocationLimits {
                cpu: limit,
                first_byte: limit,
                idle_client: limit,
                idle_guest: limit,
                total: Some(limit),
                ..InvocationLimits::default()
            },
            log: spec.log.clone(),
            client: RequestClient::default(),
            store: None,
            secrets: None,
            outbound: None,
            caller_permit: CallerPermit::default(),
        };
        let Reply { head, body, .. } =
            self.invoke(version, call).await.map_err(initialise_error)?;
        match head.status {
            STATUS_STATE => read_body(body, |bytes| input.push_state(bytes)).await,
            STATUS_REFUSED => {
                let mut reason = Vec::new();
                read_body(body, |bytes| {
                    let room = REASON_MAX.saturating_sub(reason.len());
                    reason.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                    Ok(())
                })
                .await?;
                let reason = String::from_utf8_lossy(&reason);
                Err(InitialiseError::Refused(Line(reason).to_string()))
            }
            // The code of the node's own guest does not answer so: the guest was taken over.
            status => Err(InitialiseError::Refused(format!(
                "its guest answered with the status {status}"
            ))),
        }
    }
}

/// Receives a body, piece by piece.
async fn read_body(
    body: ReplyBody,
    mut piece: impl FnMut(&[u8]) -> Result<(), CompileError>,
) -> Result<(), InitialiseError> {
    let mut stream = match body {
        ReplyBody::Whole { bytes, .. } => return Ok(piece(&bytes)?),
        ReplyBody::Stream(stream) => stream,
    };
    while let Some(part) = poll_fn(|context| stream.poll_part(context)).await {
        if let ResponsePart::Data(bytes) = part.map_err(initialise_error)? {
            piece(&bytes)?;
        }
    }
    Ok(())
}

/// Converts an error of the function that reports its state. Only a trap would happen again the
/// next time.
fn initialise_error(error: InvokeError) -> InitialiseError {
    match error {
        InvokeError::Trap { .. } => {
            InitialiseError::Refused(format!("it cannot tell what it has become: {error}"))
        }
        other => SeedError::Function(other).into(),
    }
}
