//! `inspect`: a function and its versions.

use std::{fmt::Write as _, time::Duration};

use faasw_client::{
    FunctionDetails, FunctionInfo, HostName, Initialisation, Lacking, RequestLimits, SecretName,
    StoreName, spelling,
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
    if let Some(source) = &function.source {
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
            spelling::freeze::word(function.freeze),
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
    let at_once = function
        .concurrency
        .map_or("the node's limit".into(), |most| most.to_string());
    line(
        "at once",
        format!("{at_once}; {} under way", details.under_way),
    );
    if let Some(most) = function.poll_us {
        let most = Duration::from_micros(most);
        line("polls", spelling::poll::word(most));
    }
    if let Some(Lacking { instances, why }) = details.lacking {
        line(
            "missing",
            format!("{instances} instances of --min-warm: {}", why.description()),
        );
    }
    line("hosts", list(function.hosts.iter().map(HostName::as_str)));
    line(
        "environment",
        list(function.environment.iter().map(String::as_str)),
    );
    line(
        "arguments",
        list(function.arguments.iter().map(String::as_str)),
    );
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
        if let Some(path) = &files.freeze_at {
            line("freeze at", Line(path).to_string());
        }
    }
    let pairs = function.configuration.iter();
    let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
    match pairs.split_first() {
        None => line("config", "nothing".into()),
        Some((first, others)) => {
            line("config", Line(first).to_string());
            for other in others {
                line("", Line(other).to_string());
            }
        }
    }
    let secrets = function.secrets.iter().map(SecretName::as_str);
    line("secrets", list(secrets));
    for (name, hosts) in &function.bound_secrets {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        line("bound", format!("{} to {}", Line(name), hosts.join(", ")));
    }
    let stores = function.stores.iter().map(StoreName::as_str);
    line("shared kv", list(stores));
    let grants: Vec<String> = function.outbound.iter().map(ToString::to_string).collect();
    line("outbound", list(grants.iter().map(String::as_str)));
    line("imports", list(function.imports.iter().map(String::as_str)));
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
