//! Writing results and progress: the one place that decides what a terminal may receive.
//!
//! Names, keys, log lines, errors and contents come from functions, clients and files. A terminal
//! obeys control characters in them. [`print`] and [`say`] escape all text, wherever it goes.
//! [`print_json`] escapes it as JSON does. [`print_content`] escapes contents only for a terminal:
//! programs receive the exact bytes. Other modules do not write to standard output or standard
//! error, except those that write whole lines of logs, which the test below lists.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use faasw::Limits;
use faasw_client::{
    DeployOutcome, DeploymentInfo, FreezePolicy, FunctionBrief, FunctionInfo, FunctionKind,
    FunctionName, LogLine, spelling,
};
use faasw_common::text::{ByteLines, Indented, Json, Line, Lines, TabbedLine};
use serde::Serialize;

use super::exit::Exit;

/// Writes text to standard output, with control characters escaped.
pub fn print(text: impl Display) -> Result<(), Exit> {
    write_stdout(Lines(text).to_string().as_bytes())
}

/// The form in which contents reach standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentForm {
    /// The unchanged bytes.
    Exact,
    /// Text with the control characters escaped that a terminal would obey.
    Escaped,
}

impl ContentForm {
    /// Returns the exact form for a pipe or a file, and for a terminal if the operator asks for it
    /// with `--raw`.
    pub fn of_stdout(raw: bool) -> Self {
        if raw || !io::stdout().is_terminal() {
            Self::Exact
        } else {
            Self::Escaped
        }
    }
}

/// Writes contents to standard output that a function or a client has chosen: the body of a
/// response, or a stored value.
pub fn print_content(content: &[u8], form: ContentForm) -> Result<(), Exit> {
    match form {
        ContentForm::Exact => write_stdout(content),
        ContentForm::Escaped => {
            let shown = ByteLines(content).to_string();
            write_stdout(shown.as_bytes())?;
            if shown.as_bytes() != content {
                say("\n(control characters are escaped; --raw writes the exact bytes)");
            }
            Ok(())
        }
    }
}

/// Writes bytes to standard output as they are. A reader that has gone away is no failure.
fn write_stdout(bytes: &[u8]) -> Result<(), Exit> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Exit::failure(
            format_args!("cannot write to the output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Writes a value as a line of JSON to standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), Exit> {
    let json = serde_json::to_string(value).map_err(Exit::failure)?;
    write_stdout(format!("{}\n", Json(json)).as_bytes())
}

/// Writes a line to standard error, for people to follow, escaped as all text is.
pub fn say(line: impl Display) {
    // A closed standard error is no reason to stop.
    let _ = writeln!(io::stderr().lock(), "{}", Lines(line));
}

/// Writes the message and the hint of a failure to standard error, and returns its exit code.
pub fn report(exit: &Exit) -> ExitCode {
    if let Some(message) = &exit.message {
        say(format_args!("faasw: {}", Indented(message)));
    }
    if let Some(hint) = &exit.hint {
        say(format_args!("  {}", Indented(hint)));
    }
    ExitCode::from(exit.code)
}

/// Writes clap's message about the arguments, and returns the exit code. A usage error quotes
/// arguments, and a shell may have expanded these to file names.
pub fn report_arguments(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // The rendered text ends with a line break, as `say` does.
        let text = error.render().to_string();
        say(text.trim_end());
    } else {
        // Help and version. If standard output is closed, there is no reader for an error either.
        drop(error.print())
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
}

/// Interval of the progress messages of long work.
const REMINDER: Duration = Duration::from_secs(5);

/// Waits for work that may take minutes, and reports periodically that it continues.
pub async fn with_progress<T>(name: &impl Display, work: impl Future<Output = T>) -> T {
    with_stages(name, work, async || None).await
}

/// Waits for a deployment that may take minutes, and periodically reports the stage that `stage`
/// returns, if any.
pub async fn with_stages<T>(
    name: &impl Display,
    work: impl Future<Output = T>,
    stage: impl AsyncFn() -> Option<DeploymentInfo>,
) -> T {
    let begun = tokio::time::Instant::now();
    let mut reminders = tokio::time::interval_at(begun + REMINDER, REMINDER);
    let mut work = std::pin::pin!(work);
    loop {
        let reminder = async {
            reminders.tick().await;
            stage().await
        };
        tokio::select! {
            done = &mut work => return done,
            stage = reminder => say(format_args!(
                "{name}: {}",
                still_at_work(stage.as_ref(), begun.elapsed())
            )),
        }
    }
}

fn still_at_work(stage: Option<&DeploymentInfo>, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match stage {
        Some(stage) => format!("{stage} ({seconds} s so far)"),
        None => format!("still running after {seconds} s"),
    }
}

/// Returns the stage of a function's deployment, from all deployments in progress. If there are
/// several, returns that of the last one.
pub fn stage_of(name: &FunctionName, all: Vec<DeploymentInfo>) -> Option<DeploymentInfo> {
    all.into_iter().rfind(|one| one.function == *name)
}

/// Formats a duration with a unit for people.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        10.0.. => format!("{seconds:.1} s"),
        1.0.. => format!("{seconds:.2} s"),
        0.001.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

/// Formats a number of bytes for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

/// Describes a deployment in one or two lines.
pub fn deployed(deployed: &DeployOutcome) -> String {
    let function = &deployed.function;
    let name = &function.name;
    let compiled = match (&function.engine, deployed.compile_time) {
        (Some(engine), _) => format!("run by {}", engine.name),
        (None, Some(time)) => format!("compiled in {}", duration(time)),
        (None, None) => "was compiled before".into(),
    };
    let frozen = if function.frozen_at_entry {
        "at its entry point"
    } else if function.frozen_after_init {
        "after initialisation"
    } else {
        "before initialisation"
    };
    let mut text = format!(
        "{name}: version {}, {compiled}; seed made in {}, frozen {frozen}",
        function.version,
        duration(deployed.seed_time)
    );
    if let Some(notice) = &deployed.notice {
        text.push_str(&format!("\n{name}: note: {}", Line(notice)));
    }
    text
}

/// Returns the freeze policy in force.
pub fn frozen(function: &FunctionInfo) -> &'static str {
    frozen_word(function.frozen_at_entry, function.frozen_after_init)
}

fn frozen_word(at_entry: bool, after_init: bool) -> &'static str {
    if at_entry {
        return "at its entry point";
    }
    spelling::freeze::word(if after_init {
        FreezePolicy::AfterInit
    } else {
        FreezePolicy::BeforeInit
    })
}

/// Describes the kind of a function.
pub fn kind(function: &FunctionInfo) -> String {
    let engine = function.engine.as_ref().map(|engine| &engine.name);
    kind_word(engine, function.kind)
}

fn kind_word(engine: Option<&FunctionName>, kind: FunctionKind) -> String {
    match engine {
        Some(engine) => format!("script of {engine}"),
        None => spelling::kind::word(kind).to_owned(),
    }
}

/// Formats functions as a table.
pub fn functions(functions: &[FunctionBrief]) -> String {
    let width = |function: &FunctionBrief| function.name.as_str().len();
    let width = functions.iter().map(width).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:width$}  {:>7}  {:14}  {:>9}  {:>8}  {:11}  {}\n",
        "NAME", "VERSION", "KIND", "MEMORY", "TIMEOUT", "FROZEN", "DEPLOYED"
    );
    for function in functions {
        text.push_str(&format!(
            "{:width$}  {:>7}  {:14}  {:>9}  {:>8}  {:11}  {}\n",
            function.name,
            function.version,
            kind_word(function.engine.as_ref(), function.kind),
            size(function.memory),
            duration(function.timeout),
            frozen_word(function.frozen_at_entry, function.frozen_after_init),
            humantime::format_rfc3339_seconds(function.deployed),
        ));
    }
    text
}

/// Formats log entries, each as one line.
pub fn log_lines(lines: &[LogLine]) -> String {
    let line = |line: &LogLine| format!("{}\n", TabbedLine(line));
    lines.iter().map(line).collect()
}

/// Reads a module. Rejects a file that is too large for any node without reading it.
pub fn read_module(file: &Path) -> Result<Bytes, Exit> {
    let failed = |error: io::Error| Exit::unreadable(file, error);
    let size = std::fs::metadata(file).map_err(failed)?.len();
    let limit = Limits::default().module as u64;
    if size > limit {
        return Err(Exit::failure(format_args!(
            "{} has {size} bytes; the limit is {limit}",
            file.display()
        )));
    }
    std::fs::read(file).map(Bytes::from).map_err(failed)
}

#[cfg(test)]
mod tests {
    use faasw_client::DeployStage;

    use super::*;

    #[test]
    fn durations_and_sizes_are_readable() {
        for (micros, text) in [
            (7, "7 µs"),
            (1_500, "1.5 ms"),
            (1_234_000, "1.23 s"),
            (65_432_100, "65.4 s"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
        for (bytes, text) in [(1023, "1023 B"), (2048, "2 KiB"), (128 << 20, "128.0 MiB")] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn only_this_module_and_the_line_writers_use_the_standard_streams() {
        // Each of these modules escapes its lines, and has a test for that; the worker of
        // preparation writes frames to its parent.
        let writers = [
            "access_log/mod.rs",
            "events.rs",
            "output.rs",
            "pod_log.rs",
            "preparation/worker.rs",
            "printer.rs",
        ];
        let cli = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders = vec![cli.clone()];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let streams = ["stdout()", "stderr()", "print!(", "println!(", "dbg!("];
                if path.extension().is_some_and(|extension| extension == "rs")
                    && streams.iter().any(|stream| text.contains(stream))
                {
                    let name = path.strip_prefix(&cli).unwrap();
                    found.push(name.to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        assert_eq!(found, writers);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_waits_for_long_work() {
        let work = async {
            tokio::time::sleep(REMINDER * 3).await;
            7
        };
        assert_eq!(with_progress(&"f", work).await, 7);
    }

    #[test]
    fn a_reminder_names_the_stage_of_a_deployment() {
        let of = |function: &str, queued_behind| DeploymentInfo {
            function: FunctionName::new(function).unwrap(),
            stage: DeployStage::Initialising,
            queued_behind,
        };
        let all = vec![of("f", None), of("f", Some(3)), of("g", Some(7))];
        let stage = stage_of(&FunctionName::new("f").unwrap(), all);
        let told = still_at_work(stage.as_ref(), Duration::from_secs(10));
        assert_eq!(told, "queued behind 3 other initialisations (10 s so far)");
        assert_eq!(still_at_work(None, REMINDER), "still running after 5 s");
    }

    #[test]
    fn a_huge_file_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        assert!(read_module(file.path()).is_err());
    }
}
