//! `up` and `serve`: run a node in the foreground until a signal stops it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use faasw::{DeployOutcome, Extension, FunctionName, FunctionOptions, Limits, Node, NodeBuilder};
use faasw_common::text::Indented;
use serde::Serialize;

use super::{
    addresses::Addresses,
    admin_folder::AdminFolder,
    args::{Format, Serve, Up},
    confine::{Confinement, Needs},
    event_output::with_event_output,
    events::start_tracing,
    exit::Exit,
    files,
    output::{deployed, print, print_json, read_module, with_progress},
    preparation::{self, ScriptReader},
    printer::Printer,
    running::{access_log, builder, deploy, needs, run_until_stopped, stop_node},
    script,
    serving::LogFormat,
    signals::{Hangup, Stop},
    startup_inputs::StartupInputs,
    trim,
    watch::{self, Watch, WatchedSource},
};

/// The output of `up` and `serve` with `--json` when they accept requests.
#[derive(Serialize)]
struct Ready<'a> {
    address: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect: Option<SocketAddr>,
    /// The data directory by which other commands find the node.
    data_dir: &'a Path,
    functions: &'a [DeployOutcome],
}

/// The inputs that `up` reads and makes before it is confined.
pub struct Prepared {
    modules: Vec<Module>,
    engines: Vec<NewEngine>,
    inputs: StartupInputs,
    /// The folder of the admin socket if there is no data directory. It exists until the node ends.
    folder: Option<AdminFolder>,
    /// The process that reads scripts again when they change.
    reader: Option<ScriptReader>,
}

impl Prepared {
    /// Reads the files and makes the folder.
    ///
    /// # Errors
    /// Returns an error if the command line is wrong, a file cannot be read, or the folder cannot
    /// be made.
    pub fn new(args: &Up) -> Result<Self, Exit> {
        let has_scripts = args.files.iter().any(|file| watch::is_script(file));
        let reads_again = args.watch && has_scripts;
        let scripts = args.files.iter().filter(|file| watch::is_script(file));
        let scripts = scripts.map(|file| (file.as_path(), args.entry_of(file)));
        Ok(Self {
            modules: modules(args)?,
            engines: engines(args)?,
            reader: reads_again
                .then(|| ScriptReader::start(scripts))
                .transpose()?,
            inputs: StartupInputs::read(&args.serving, args.data_dir.as_deref())?,
            folder: match args.data_dir {
                Some(_) => None,
                None => Some(AdminFolder::new()?),
            },
        })
    }
}

/// Returns the rights that `up` needs while it runs.
pub fn needs_of_up(args: &Up, prepared: &Prepared) -> Needs {
    let data_dir = args.data_dir.clone();
    let mut needs = needs(
        &args.serving,
        args.addresses.all(),
        &prepared.inputs,
        data_dir,
    );
    needs.files.read.extend(certificates(&args.addresses));
    let folder = prepared.folder.as_ref();
    needs.files.passing = folder.map(|folder| folder.path().to_owned());
    if args.watch {
        needs.files.read.extend(args.files.iter().cloned());
        needs.files.read.extend(args.folder().map(Into::into));
        needs.others_files = true;
    }
    needs
}

/// Returns the rights that `serve` needs while it runs.
///
/// # Errors
/// Returns a usage error if there is no data directory.
pub fn needs_of_serve(args: &Serve, inputs: &StartupInputs) -> Result<Needs, Exit> {
    let data_dir = args.node.clone().path()?;
    let mut needs = needs(&args.serving, args.addresses.all(), inputs, Some(data_dir));
    needs.files.read.extend(certificates(&args.addresses));
    Ok(needs)
}

/// Returns the certificate files, which are read again while the node runs.
fn certificates(addresses: &Addresses) -> impl Iterator<Item = PathBuf> {
    let files = addresses.tls_cert.iter().chain(&addresses.tls_key);
    files.cloned()
}

/// Runs a node with the given functions.
pub async fn up(
    args: Up,
    prepared: Prepared,
    confinement: Confinement,
    mut stop: Stop,
) -> Result<(), Exit> {
    let Prepared {
        modules,
        engines,
        inputs,
        folder,
        reader,
    } = prepared;
    let log = args.serving.log_format;
    let _summaries = start_tracing(log, "warn,faasw::progress=info");
    let hangup = hangup(&args.addresses)?;
    let is_followed = args.watch && args.format.json;
    let printer = is_followed.then(Printer::of_stdout).transpose()?;
    let access_log = access_log(&args.serving)?;
    let builder = builder(&args.serving, Limits::default(), inputs, &confinement);
    let builder = args
        .addresses
        .apply(builder)?
        .timing(true)
        .verbose_errors(true);
    let mut builder = with_event_output(
        builder,
        Some(Box::new(move |event| log.show(event))),
        access_log.as_ref(),
    );
    let admin = match (&args.data_dir, &folder) {
        (Some(data_dir), _) => {
            builder = builder.data_dir(data_dir).admin(true);
            data_dir.as_path()
        }
        (None, Some(folder)) => {
            builder = builder.admin_in(folder.path());
            folder.path()
        }
        (None, None) => return Err(Exit::failure("the admin socket has no folder")),
    };
    let Some(node) = start(builder, hangup, &confinement, &mut stop).await? else {
        return Ok(());
    };
    let folder = args.folder().map(Path::to_path_buf);
    let options = FunctionOptions::from(args.options);
    let deploying = async {
        add_all(&node, engines).await?;
        deploy_all(&node, &modules, &options, log).await
    };
    let deployed = tokio::select! {
        deployed = deploying => deployed,
        () = stop.requested() => {
            node.shutdown().await;
            return Ok(());
        }
    };
    let addresses = &args.addresses;
    let result =
        deployed.and_then(|deployed| ready(&node, &deployed, addresses, log, &args.format, admin));
    if let Err(exit) = result {
        node.shutdown().await;
        return Err(exit);
    }
    if args.watch {
        let mut watched = Watch::default();
        for module in modules {
            let Module {
                name,
                file,
                upload,
                inputs,
            } = module;
            let source = WatchedSource {
                name,
                entry: args
                    .entry
                    .clone()
                    .filter(|entry| preparation::takes_entry(&file, entry)),
                reader: reader.clone().filter(|_| watch::is_script(&file)),
                path: file,
                files: folder.clone(),
            };
            watched.add(source, &upload, inputs);
        }
        log.say("watching for changes");
        tokio::select! {
            () = redeploy(&node, watched, &options, printer.as_ref(), log) => {}
            () = stop.requested() => {}
            broken = confinement.broken() => {
                node.shutdown().await;
                return Err(broken);
            }
        }
        return stop_node(&node, Duration::ZERO, stop, log).await;
    }
    run_until_stopped(&node, Duration::ZERO, stop, log, &confinement).await
}

/// Runs a node with the functions of its data directory.
pub async fn serve(
    args: Serve,
    inputs: StartupInputs,
    confinement: Confinement,
    mut stop: Stop,
) -> Result<(), Exit> {
    let log = args.serving.log_format;
    let _summaries = start_tracing(log, "info");
    let hangup = hangup(&args.addresses)?;
    let access_log = access_log(&args.serving)?;
    let builder = builder(&args.serving, Limits::from(args.own), inputs, &confinement);
    let builder = args
        .addresses
        .apply(builder)?
        .timing(args.timing)
        .verbose_errors(args.verbose_errors)
        .data_dir(args.node.path()?)
        .admin(true);
    let builder = with_event_output(builder, None, access_log.as_ref());
    let Some(node) = start(builder, hangup, &confinement, &mut stop).await? else {
        return Ok(());
    };
    let data_dir = node.data_dir().unwrap_or("".as_ref());
    ready(&node, &[], &args.addresses, log, &args.format, data_dir)?;
    run_until_stopped(&node, Duration::ZERO, stop, log, &confinement).await
}

/// Starts to handle SIGHUP if there are certificates. This happens before the node starts, so that
/// an early signal does not end the process.
fn hangup(addresses: &Addresses) -> Result<Option<Hangup>, Exit> {
    let has_certificates = !addresses.tls_cert.is_empty();
    has_certificates.then(Hangup::new).transpose()
}

/// Starts a node and what runs beside it. Returns `None` if a signal stops the program first.
async fn start(
    builder: NodeBuilder,
    hangup: Option<Hangup>,
    confinement: &Confinement,
    stop: &mut Stop,
) -> Result<Option<Node>, Exit> {
    let node = tokio::select! {
        node = builder.start() => node?,
        () = stop.requested() => return Ok(None),
    };
    confinement.complete()?;
    if let Some(hangup) = hangup {
        hangup.reload(node.clone());
    }
    tokio::spawn(trim::run());
    Ok(Some(node))
}

/// Reads the files that `serve` needs, before the node can no longer read them.
///
/// # Errors
/// Returns an error if there is no data directory, or if a file cannot be read or is invalid.
pub fn startup_inputs_of_serve(args: &Serve) -> Result<StartupInputs, Exit> {
    let data_dir = args.node.clone().path()?;
    StartupInputs::read(&args.serving, Some(&data_dir))
}

/// A function that `up` deploys.
struct Module {
    name: FunctionName,
    file: PathBuf,
    upload: Bytes,
    /// The files and folders that decide the upload, if they are not the file's own.
    inputs: Option<Vec<PathBuf>>,
}

/// Reads the names and uploads of all files, before anything starts.
fn modules(args: &Up) -> Result<Vec<Module>, Exit> {
    if args.name.is_some() && args.files.len() > 1 {
        return Err(Exit::usage(
            "--name needs a single file; several are named after their files",
        ));
    }
    let mut modules: Vec<Module> = Vec::new();
    for file in &args.files {
        let name = script::name_of(args.name.clone(), file)?;
        if modules.iter().any(|other| other.name == name) {
            return Err(Exit::usage(format_args!(
                "two files have the function name {name}"
            )));
        }
        let (upload, inputs) = files::read_watched(file, args.entry_of(file), args.folder())?;
        modules.push(Module {
            name,
            file: file.clone(),
            upload,
            inputs,
        });
    }
    Ok(modules)
}

/// An engine that `up` adds.
struct NewEngine {
    name: FunctionName,
    component: Bytes,
    /// The extensions of its scripts.
    extensions: Vec<Extension>,
}

fn engines(args: &Up) -> Result<Vec<NewEngine>, Exit> {
    let mut engines: Vec<NewEngine> = Vec::new();
    for engine in &args.engines {
        let name = FunctionName::from_file(&engine.file).map_err(Exit::usage)?;
        if engines.iter().any(|other| other.name == name) {
            return Err(Exit::usage(format_args!(
                "two engines have the name {name}; several extensions of one are \
                 .EXT,.EXT=FILE"
            )));
        }
        engines.push(NewEngine {
            name,
            component: read_module(&engine.file)?,
            extensions: engine.extensions.clone(),
        });
    }
    Ok(engines)
}

async fn add_all(node: &Node, engines: Vec<NewEngine>) -> Result<(), Exit> {
    for engine in engines {
        let name = &engine.name;
        let adding = node.add_engine(name.as_str(), engine.component, engine.extensions);
        with_progress(name, adding).await.map_err(|error| {
            Exit::failure(format_args!("the engine {name} was not added: {error}"))
        })?;
    }
    Ok(())
}

async fn deploy_all(
    node: &Node,
    modules: &[Module],
    options: &FunctionOptions,
    log: LogFormat,
) -> Result<Vec<DeployOutcome>, Exit> {
    let mut all = Vec::new();
    for Module { name, upload, .. } in modules {
        all.push(deploy(node, name, upload.clone(), options.clone(), log).await?);
    }
    Ok(all)
}

/// Deploys changed files for as long as the node runs. If a file cannot be deployed, its next
/// change may correct that, so the node continues.
async fn redeploy(
    node: &Node,
    mut watch: Watch,
    options: &FunctionOptions,
    printer: Option<&Printer>,
    log: LogFormat,
) {
    loop {
        let (name, module) = watch.changed().await;
        log.say(format_args!("{name}: its file has changed"));
        let done = node.deploy(name.as_str(), module, options.clone()).await;
        match done {
            Ok(done) => {
                log.say(format_args!("{}\n{name}: redeployed", deployed(&done)));
                if let Some(Err(exit)) = printer.map(|printer| printer.print_json(&name, &done)) {
                    log.say(exit);
                }
            }
            Err(error) => log.say(format_args!(
                "{name} was not redeployed; the previous version still serves: {}",
                Indented(error)
            )),
        }
    }
}

/// Reports that the node accepts requests. With functions, prints a command to paste.
fn ready(
    node: &Node,
    deployed: &[DeployOutcome],
    addresses: &Addresses,
    log: LogFormat,
    format: &Format,
    data_dir: &Path,
) -> Result<(), Exit> {
    let Some(address) = node.address() else {
        return Err(Exit::failure("the gateway has no address"));
    };
    let metrics = node.metrics_address();
    let redirect = node.redirect_address();
    if format.json {
        return print_json(&Ready {
            address,
            metrics,
            redirect,
            data_dir,
            functions: deployed,
        });
    }
    if let Some(metrics) = metrics {
        log.say(format_args!("metrics at http://{metrics}/metrics"));
    }
    if let Some(redirect) = redirect {
        log.say(format_args!("redirects to https on {redirect}"));
    }
    match deployed.first() {
        Some(first) => {
            let name = &first.function.name;
            log.say(format_args!(
                "to use this node from another terminal:\n  faasw logs {name} -f \
                 --data-dir {}",
                quoted(data_dir)
            ));
            log.say(format_args!("ready on {address}; Ctrl-C stops it"));
            print(format!("  {}\n", curl(addresses, reachable(address), name)))
        }
        None => {
            let count = node.function_count();
            log.say(format_args!(
                "ready on {address} with {count} functions of {}; Ctrl-C stops it",
                data_dir.display()
            ));
            Ok(())
        }
    }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns a curl command that sends a request to a function.
fn curl(addresses: &Addresses, address: SocketAddr, name: &FunctionName) -> String {
    // The certificate is rarely valid for this machine's address.
    let (options, scheme) = if addresses.tls_cert.is_empty() {
        ("", "http")
    } else {
        (" -k", "https")
    };
    let (ip, port) = (address.ip(), address.port());
    match &addresses.domain {
        Some(domain) => {
            let host = format!("{name}.{domain}:{port}");
            format!("curl{options} --resolve {host}:{ip} {scheme}://{host}/")
        }
        None => format!("curl{options} {scheme}://{address}/{name}/"),
    }
}

/// Returns an address to connect to for an address to listen on.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
