//! `inspect`: a function and its versions.

use std::fmt::Write as _;

use faasw_client::{
    FunctionDetails, FunctionInfo, FunctionOptions, Initialisation, RequestLimits, WarmShortfall,
    spelling,
};
use faasw_common::text::Line;

use super::{
    args::Inspect,
    exit::Exit,
    output::{duration, frozen, kind, print, print_json, size},
};

/// Prints everything that the node reports about a function.
pub async fn inspect(args: Inspect) -> Result<(), Exit> {
    let client = args.node.client()?;
    let details = client.inspect(&args.name).await?;
    if args.format.json {
        return print_json(&details);
    }
    print(text(&details))
}

fn text(details: &FunctionDetails) -> String {
    let function = &details.function;
    let mut text = format!("{} version {}\n", function.name, function.version);
    let mut line = |what: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {what:12} {value}");
    };
    line("kind", kind(function));
    line("deployed", time(function));
    line("digest", function.digest.to_string());
    if let Some(source) = function.options.own_source() {
        line("from", Line(source).to_string());
    }
    match &function.engine {
        Some(engine) => line(
            "script",
            format!(
                "{}, run by {} with the digest {}",
                size(function.module_bytes),
                engine.name,
                engine.digest
            ),
        ),
        None => line(
            "module",
            format!(
                "{}, compiled to {}",
                size(function.module_bytes),
                size(function.code_bytes)
            ),
        ),
    }
    line(
        "seed",
        format!(
            "{}, {}",
            size(function.layer_bytes),
            describe_seed_location(function)
        ),
    );
    line(
        "frozen",
        format!(
            "{}, requested: {}; initialisation takes {}",
            frozen(function),
            spelling::freeze::word(function.options.freeze_policy()),
            duration(function.instantiation)
        ),
    );
    match &function.init {
        Some(Initialisation::AsModule { export, upload }) => line(
            "init",
            format!(
                "{}, called once; what was sent has the digest {upload}",
                Line(export)
            ),
        ),
        Some(Initialisation::InMemory { export, reason }) => line(
            "init",
            format!(
                "{}, called when its seed is made: {}",
                Line(export),
                Line(reason)
            ),
        ),
        None => {}
    }
    if !function.warm_ups.is_empty() {
        line(
            "warmed up",
            format!(
                "by {} whenever its seed is made",
                list(function.warm_ups.iter().map(String::as_str))
            ),
        );
    }
    line("drew", list(function.drawn.lines()));
    line("memory", size(function.memory));
    line("times", times(&function.limits));
    line("under way", details.under_way.to_string());
    if let Some(WarmShortfall { instances, why }) = details.lacking {
        line(
            "missing",
            format!("{instances} instances of --min-warm: {}", why.description()),
        );
    }
    if let Some(files) = &function.files {
        line(
            "files",
            format!(
                "{} with {} at {}, packed to {} with the digest {}",
                files.entries,
                size(files.bytes),
                Line(&files.at),
                size(files.bundle_bytes),
                files.digest
            ),
        );
    }
    line(
        "environment",
        list(function.environment.iter().map(String::as_str)),
    );
    line("imports", list(function.imports.iter().map(String::as_str)));
    text.push_str(&options(&function.options));
    text.push_str("versions\n");
    for version in &details.versions {
        let mark = if version.version == function.version {
            '*'
        } else {
            ' '
        };
        let digest = version.digest.to_string();
        let _ = writeln!(
            text,
            "{mark} {:>5}  {}  {}  {:>9}  {}",
            version.version,
            time(version),
            digest.get(..12).unwrap_or(&digest),
            size(version.module_bytes),
            frozen(version),
        );
    }
    text
}

/// Lists the options that the function sets, each value in a line of its own.
fn options(options: &FunctionOptions) -> String {
    let values = options.values();
    let mut text = String::from(if values.is_empty() { "" } else { "options\n" });
    let mut last = "";
    for value in &values {
        let name = value.name();
        let shown = if name == last { "" } else { name };
        last = name;
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {shown:14} {}", Line(&value.text));
    }
    text
}

/// Describes where the seed is.
fn describe_seed_location(function: &FunctionInfo) -> String {
    match (function.ready, function.image_bytes.map(size)) {
        (true, Some(image)) => format!("in memory, and in a func-image of {image} on disk"),
        (true, None) => "in memory, without a func-image".into(),
        (false, Some(image)) => {
            format!("not in memory; read from a func-image of {image} when needed")
        }
        (false, None) => "made in the background or with the first request".into(),
    }
}

fn time(function: &FunctionInfo) -> String {
    humantime::format_rfc3339_seconds(function.deployed).to_string()
}

fn times(limits: &RequestLimits) -> String {
    let total = limits.total_time.map_or("no limit".into(), duration);
    format!(
        "cpu {}, first byte {}, idle client {}, idle guest {}, total {total}",
        duration(limits.cpu_time),
        duration(limits.first_byte),
        duration(limits.idle_client),
        duration(limits.idle_guest),
    )
}

fn list<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let values: Vec<_> = values.map(|value| Line(value).to_string()).collect();
    if values.is_empty() {
        "nothing".into()
    } else {
        values.join(", ")
    }
}
