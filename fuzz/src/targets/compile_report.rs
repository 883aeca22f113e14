//! The compile helper's report. Input: the report.

use faasw_compiler_protocol::{
    CompileReport, IMPORTS_MAX, MESSAGE_MAX, NAME_MAX, REPORT_MAX, ReportError,
};

use crate::Target;

/// The worst case is a document of nothing but empty names.
pub const TARGET: Target = Target {
    name: "compile_report",
    read,
    memory: 64 << 10,
    per_byte: 48,
    executions: 50_000,
};

fn read(bytes: &[u8]) -> bool {
    let report = match CompileReport::parse(bytes) {
        Ok(report) => report,
        Err(ReportError::TooLarge(size)) => {
            assert!(size == bytes.len() && size > REPORT_MAX);
            return false;
        }
        Err(error) => {
            // The error goes into a log, so its length is bounded, whatever the report is.
            assert!(error.to_string().len() < 300);
            return false;
        }
    };
    let (imports, message) = match &report.result {
        Ok(compiled) => (&compiled.imports, ""),
        Err(refusal) => (&refusal.imports, refusal.message.as_str()),
    };
    assert!(imports.len() <= IMPORTS_MAX);
    assert!(message.len() <= MESSAGE_MAX);
    let hostile = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    for text in imports.iter().map(String::as_str).chain([message]) {
        assert!(!text.contains(hostile), "{text:?}");
    }
    assert!(imports.iter().all(|name| name.len() <= NAME_MAX));
    if let Ok(compiled) = &report.result
        && let Some(name) = &compiled.name_hint
    {
        assert!(
            (1..=63).contains(&name.len()) && !name.contains('/'),
            "{name:?}"
        );
    }
    // A report that was bounded once stays as it is.
    if let Ok(json) = report.to_json() {
        let again = CompileReport::parse(&json).unwrap_or_else(|error| panic!("{error}"));
        let kept = match (&again.result, &report.result) {
            (Ok(again), Ok(first)) => first.imports.starts_with(&again.imports),
            (Err(again), Err(first)) => first.imports.starts_with(&again.imports),
            _ => false,
        };
        assert!(kept);
    }
    true
}
