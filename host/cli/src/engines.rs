//! `engine`: the running node's language engines.

use faasw_client::{EngineInfo, FunctionName};

use super::{
    args::{Engine, EngineAdd, EngineName, Ls},
    exit::Exit,
    output::{self, print, print_json, read_module, say, with_progress},
};

/// Runs a command about engines.
pub async fn engine(command: Engine) -> Result<(), Exit> {
    match command {
        Engine::Add(args) => add(args).await,
        Engine::Ls(args) => list(args).await,
        Engine::Warm(args) => warm(args).await,
        Engine::Rm(args) => remove(args).await,
    }
}

async fn add(args: EngineAdd) -> Result<(), Exit> {
    let name = match args.name {
        Some(name) => name,
        None => FunctionName::from_file(&args.file)
            .map_err(|error| Exit::usage(error).hint("set one with --name"))?,
    };
    let client = args.node.client()?;
    let component = read_module(&args.file)?;
    let size = output::size(component.len() as u64);
    say(format_args!("{name}: adding a language engine of {size}…"));
    let adding = client.add_engine(&name, component, &args.extension);
    let engine = with_progress(&name, adding)
        .await
        .map_err(|error| Exit::from(error).of(&name, "was not added"))?;
    if args.format.json {
        return print_json(&engine);
    }
    let extensions = extensions(&engine);
    print(format!("{name}: runs scripts that end with {extensions}\n"))
}

async fn list(args: Ls) -> Result<(), Exit> {
    let engines = args.node.client()?.engines().await?;
    if args.format.json {
        return print_json(&engines);
    }
    print(table(&engines))
}

async fn warm(args: EngineName) -> Result<(), Exit> {
    let name = &args.name;
    let client = args.node.client()?;
    with_progress(name, client.warm_engine(name))
        .await
        .map_err(|error| Exit::from(error).of(name, "was not warmed"))?;
    say(format_args!("{name}: its code and its seed are ready"));
    Ok(())
}

async fn remove(args: EngineName) -> Result<(), Exit> {
    let name = &args.name;
    let client = args.node.client()?;
    client.remove_engine(name).await?;
    say(format_args!("{name}: removed"));
    Ok(())
}

fn extensions(engine: &EngineInfo) -> String {
    let texts: Vec<_> = engine.extensions.iter().map(ToString::to_string).collect();
    texts.join(" ")
}

fn added(engine: &EngineInfo) -> String {
    match engine.added {
        _ if engine.is_carried => "comes with faasw".to_owned(),
        Some(time) => humantime::format_rfc3339_seconds(time).to_string(),
        None => "-".to_owned(),
    }
}

fn table(engines: &[EngineInfo]) -> String {
    let width = |engine: &EngineInfo| engine.name.as_str().len();
    let width = engines.iter().map(width).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:width$}  {:16}  {:>9}  {:>9}  {:4}  ADDED\n",
        "NAME", "EXTENSIONS", "SIZE", "FUNCTIONS", "WARM"
    );
    for engine in engines {
        text.push_str(&format!(
            "{:width$}  {:16}  {:>9}  {:>9}  {:4}  {}\n",
            engine.name,
            extensions(engine),
            output::size(engine.module_bytes),
            engine.functions,
            if engine.is_warm { "yes" } else { "no" },
            added(engine),
        ));
    }
    text
}
