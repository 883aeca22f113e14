//! The compile helper's report to the node: [`CompileReport`] as one JSON document.
//!
//! The helper parses a tenant's bytes, so the node does not trust it: the report may contain
//! anything that fits in [`REPORT_MAX`]. A report from [`CompileReport::parse`] always obeys the
//! bounds of this crate: few imports, short names, no control characters.
//!
//! [`contract`] defines the helper's arguments, descriptors and exit codes; the helper reads an
//! [`Input`].
#![forbid(unsafe_code)]

mod bounds;
pub mod contract;
mod job;
mod kind;

use serde::{Deserialize, Serialize};

pub use bounds::{IMPORTS_MAX, MESSAGE_MAX, NAME_MAX, REPORT_MAX};
pub use faasw_abi::wire::FunctionKind;
pub use job::{Input, Task};

/// Version of the report's meaning. New fields do not change it, because readers ignore unknown
/// fields.
pub const REPORT_VERSION: u32 = 1;

/// Most bytes of the reason why Wizer did nothing.
const REASON_MAX: usize = 1 << 10;

/// The result of a helper's work on an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileReport {
    /// The function, or the reason why the upload is not one.
    pub result: Result<Compiled, Refusal>,
}

/// A function whose artifact is in the output descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiled {
    /// The function's kind.
    #[serde(with = "kind")]
    pub kind: FunctionKind,
    /// The name that the toolchain has stored, converted to a valid function name.
    #[serde(default)]
    pub name_hint: Option<String>,
    /// Full names of the imported host functions.
    #[serde(default)]
    pub imports: Vec<String>,
    /// Sum of the minimum sizes of the linear memories that it defines, in bytes.
    pub initial_memory_bytes: u64,
    /// Size of the artifact, in bytes.
    pub code_bytes: u64,
    /// Size of the cache that follows the artifact, in bytes.
    #[serde(default)]
    pub cache_bytes: u64,
    /// Processor time that the helper has used, in milliseconds.
    pub cpu_milliseconds: u64,
    /// Whether the upload was text (`.wat`).
    #[serde(default)]
    pub from_text: bool,
    /// Whether it is a module that exports [`faasw_abi::state::INITIALISER`].
    #[serde(default)]
    pub has_initialiser: bool,
    /// Whether it is a component that exports [`faasw_abi::script::SCRIPT_EXPORT`].
    #[serde(default)]
    pub is_engine: bool,
    /// The result of Wizer; `None` if Wizer was not to be used, or did not apply to this upload.
    #[serde(default)]
    pub wizer: Option<Wizer>,
}

/// The result of Wizer's instrumentation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wizer {
    /// The code is instrumented so that its state can be read, and otherwise unchanged.
    Instrumented,
    /// Wizer cannot process the upload, for this reason: the code is compiled unchanged.
    Refused(String),
}

/// Why an upload is not a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The cause of the refusal.
    pub kind: RefusalKind,
    /// The error and its remedy, for the person who deploys.
    pub message: String,
    /// Imports outside the supported set, by their full names.
    #[serde(default)]
    pub imports: Vec<String>,
}

impl Refusal {
    /// Creates a refusal that is not about imports.
    #[must_use]
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            imports: Vec::new(),
        }
    }
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The bytes are neither valid WebAssembly nor text that makes some.
    Malformed,
    /// The upload imports functions that are not offered.
    UnknownImports,
    /// The upload is valid WebAssembly, but not a function, or needs features that are not offered.
    Unsupported,
    /// The helper failed. The person who deploys is not at fault.
    Internal,
}

/// Why a report is rejected as a whole.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The report is larger than [`REPORT_MAX`].
    #[error("the compile report has {0} bytes, more than {REPORT_MAX}")]
    TooLarge(usize),
    /// The report has another version, so helper and node do not belong together.
    #[error("the compile report is of version {0}, this node reads version {REPORT_VERSION}")]
    Version(u32),
    /// The bytes are not a report.
    #[error("the compile report cannot be read")]
    Malformed(#[from] serde_json::Error),
}

/// The encoded document.
#[derive(Serialize, Deserialize)]
struct Document<R> {
    version: u32,
    result: R,
}

/// The only part of the document that every version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl CompileReport {
    /// Encodes the report as JSON of at most [`REPORT_MAX`] bytes. Text that exceeds the bounds is
    /// cut, the last imports first.
    ///
    /// # Errors
    /// Returns [`ReportError::TooLarge`] if even a report without imports does not fit, which the
    /// bounds on messages exclude.
    pub fn to_json(&self) -> Result<Vec<u8>, ReportError> {
        let mut report = self.clone();
        report.bound();
        loop {
            let json = serde_json::to_vec(&Document {
                version: REPORT_VERSION,
                result: &report.result,
            })?;
            if json.len() <= REPORT_MAX {
                return Ok(json);
            }
            let imports = report.imports_mut();
            if imports.is_empty() {
                return Err(ReportError::TooLarge(json.len()));
            }
            imports.truncate(imports.len() / 2);
        }
    }

    /// Decodes a report from untrusted bytes, and applies every bound.
    ///
    /// # Errors
    /// Returns [`ReportError::TooLarge`] if there are too many bytes, [`ReportError::Version`] if
    /// the version is another, and [`ReportError::Malformed`] if the bytes are not a report.
    pub fn parse(json: &[u8]) -> Result<Self, ReportError> {
        if json.len() > REPORT_MAX {
            return Err(ReportError::TooLarge(json.len()));
        }
        let Version { version } = serde_json::from_slice(json)?;
        if version != REPORT_VERSION {
            return Err(ReportError::Version(version));
        }
        let Document { result, .. } = serde_json::from_slice(json)?;
        let mut report = Self { result };
        report.bound();
        Ok(report)
    }

    fn imports_mut(&mut self) -> &mut Vec<String> {
        match &mut self.result {
            Ok(compiled) => &mut compiled.imports,
            Err(refusal) => &mut refusal.imports,
        }
    }

    fn bound(&mut self) {
        bounds::bound_names(self.imports_mut());
        match &mut self.result {
            Ok(compiled) => {
                compiled.name_hint = compiled
                    .name_hint
                    .as_deref()
                    .and_then(bounds::function_name);
                if let Some(Wizer::Refused(reason)) = &mut compiled.wizer {
                    bounds::bound_text(reason, REASON_MAX);
                }
            }
            Err(refusal) => bounds::bound_text(&mut refusal.message, MESSAGE_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled() -> Compiled {
        Compiled {
            kind: FunctionKind::HttpComponent,
            name_hint: Some("hello".to_owned()),
            imports: vec!["wasi:io/streams@0.2.6#[method]output-stream.write".to_owned()],
            initial_memory_bytes: 65536,
            code_bytes: 12,
            cache_bytes: 5,
            cpu_milliseconds: 3,
            from_text: true,
            has_initialiser: true,
            is_engine: true,
            wizer: Some(Wizer::Refused("why".to_owned())),
        }
    }

    #[test]
    fn both_results_survive_the_trip() {
        let refused = Refusal {
            kind: RefusalKind::UnknownImports,
            message: "imports outside the supported set: env.f".to_owned(),
            imports: vec!["env.f".to_owned()],
        };
        for result in [Ok(compiled()), Err(refused)] {
            let report = CompileReport { result };
            let json = report.to_json().unwrap();
            assert_eq!(CompileReport::parse(&json).unwrap(), report);
        }
    }

    #[test]
    fn a_reader_ignores_fields_of_a_newer_helper() {
        let json = br#"{"version":1,"new":[{}],
            "result":{"Err":{"kind":"internal","message":"m","new":1}}}"#;
        let report = CompileReport::parse(json).unwrap();
        assert_eq!(report.result, Err(Refusal::new(RefusalKind::Internal, "m")));
    }

    #[test]
    fn another_version_is_named_even_when_nothing_else_can_be_read() {
        let error = CompileReport::parse(br#"{"version":2}"#).unwrap_err();
        assert!(matches!(error, ReportError::Version(2)), "{error}");
    }

    #[test]
    fn more_bytes_than_allowed_are_refused_before_they_are_read() {
        let error = CompileReport::parse(&vec![b' '; REPORT_MAX + 1]).unwrap_err();
        assert!(matches!(error, ReportError::TooLarge(_)), "{error}");
    }

    #[test]
    fn oversized_text_is_cut_by_the_sender() {
        let report = CompileReport {
            result: Err(Refusal {
                kind: RefusalKind::UnknownImports,
                message: "\"".repeat(1 << 20),
                imports: vec!["\"".repeat(1 << 10); 10_000],
            }),
        };
        let json = report.to_json().unwrap();
        assert!(json.len() <= REPORT_MAX);
        let refusal = CompileReport::parse(&json).unwrap().result.unwrap_err();
        assert!(!refusal.imports.is_empty());
        assert!(refusal.message.len() <= MESSAGE_MAX);
    }

    #[test]
    fn a_long_reason_is_cut() {
        let mut compiled = compiled();
        compiled.wizer = Some(Wizer::Refused("x".repeat(1 << 20)));
        let report = CompileReport {
            result: Ok(compiled),
        };
        let json = report.to_json().unwrap();
        let compiled = CompileReport::parse(&json).unwrap().result.unwrap();
        assert!(matches!(compiled.wizer, Some(Wizer::Refused(why)) if why.len() <= REASON_MAX));
    }

    #[test]
    fn a_lying_helper_cannot_put_control_characters_on_a_terminal() {
        let json = br#"{"version":1,"result":{"Err":
            {"kind":"malformed","message":"a\u001b[2Jb\nc","imports":["\u0007"]}}}"#;
        let refusal = CompileReport::parse(json).unwrap().result.unwrap_err();
        assert_eq!(refusal.message, "a\\u{1b}[2Jb\nc");
        assert_eq!(refusal.imports, ["\\u{7}"]);
    }
}
