//! `pod`: runs a node with one function, as a container of its own (docs/decisions/0030).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use bytes::Bytes;
use faasw::{
    FunctionName, FunctionOptions, Limits, Node, StartError,
    budgets::{BudgetInputs, Budgets, Machine, group_limits, memory_used},
    shared::{Entry, SharedError, read_key},
};
use faasw_common::text::Line;

use super::{
    admin_folder::AdminFolder,
    args::Pod,
    confine::{Confinement, Needs},
    event_output::with_event_output,
    events::start_tracing,
    exit::Exit,
    files,
    output::size,
    pod_log::PodLog,
    running::{self, access_log, builder, deploy, run_until_stopped, stop_node},
    script,
    serving::LogFormat,
    signals::Stop,
    startup_inputs::StartupInputs,
    trim,
};

/// The function's default port, if neither `PORT` nor `--listen` sets another.
const PORT: u16 = 8080;
/// A hint about the container's requirements for microVMs.
const JAIL_HINT: &str = "in Kubernetes: /dev/kvm by a device plugin, and a seccomp profile (type \
    Localhost) that allows namespaces and mounts, which RuntimeDefault forbids; docs/kubernetes.md \
    says what it has to allow";
/// The size of a page in bytes.
const PAGE: u64 = 4096;
/// The default port of `/livez`, `/readyz` and `/metrics`, if `--health-listen` sets no other.
const HEALTH_PORT: u16 = 9090;

/// The inputs that `pod` reads and makes before it is confined.
pub struct Prepared {
    name: FunctionName,
    upload: Bytes,
    listen: SocketAddr,
    health: SocketAddr,
    budgets: Budgets,
    inputs: StartupInputs,
    /// The shared func-image of the host, or the reason why it is not used.
    shared: Option<Result<Entry, SharedError>>,
    /// The folder of the admin socket if there is no data directory and a folder can be made.
    folder: Option<AdminFolder>,
}

impl Prepared {
    /// Reads the file and the container's limits, and makes the folder.
    ///
    /// # Errors
    /// Returns an error if the command line is wrong, a file cannot be read, or the container's
    /// limits are too low.
    pub fn new(args: &Pod) -> Result<Self, Exit> {
        let name = script::name_of(args.name.clone(), &args.file)?;
        let budgets = budgets(args)?;
        // This has to run before anything else is started. If it fails, jails have no groups, and
        // admission alone keeps them within the container's memory.
        faasw_jail::group::delegate_container_group();
        let of_all = |port| SocketAddr::new(all_addresses(), port);
        let listen = match args.listen {
            Some(address) => address,
            None => of_all(port()?.unwrap_or(PORT)),
        };
        let health = args.health_listen.unwrap_or_else(|| of_all(HEALTH_PORT));
        let is_any = |address: &SocketAddr| address.ip().is_unspecified();
        let is_same_host = listen.ip() == health.ip() || is_any(&listen) || is_any(&health);
        if is_same_host && listen.port() == health.port() && listen.port() != 0 {
            return Err(Exit::usage(format_args!(
                "the function and the health checks cannot both use port {}",
                listen.port()
            ))
            .hint("set another with --listen, $PORT or --health-listen"));
        }
        Ok(Self {
            name,
            upload: files::read_upload(&args.file, args.entry(), args.folder())?,
            listen,
            health,
            budgets,
            inputs: StartupInputs::read(&args.serving, args.data_dir.as_deref())?,
            shared: shared(args),
            folder: match args.data_dir {
                Some(_) => None,
                // On a read-only file system there is no folder, and the admin socket is not
                // essential.
                None => AdminFolder::new().ok(),
            },
        })
    }
}

/// Opens the shared func-image. Any failure is only reported, because the pod works without it.
fn shared(args: &Pod) -> Option<Result<Entry, SharedError>> {
    let (folder, key) = args.shared.as_ref().zip(args.shared_key.as_ref())?;
    let key = read_key(key);
    Some(key.and_then(|key| Entry::open(folder, &key)))
}

/// Returns the port that the container's environment sets.
fn port() -> Result<Option<u16>, Exit> {
    let Some(text) = std::env::var_os("PORT") else {
        return Ok(None);
    };
    let port = text.to_str().and_then(|text| text.parse().ok());
    port.map(Some)
        .ok_or_else(|| Exit::usage(format_args!("PORT is {text:?}, which is not a port")))
}

/// Returns the address for all IPv6 and IPv4 addresses, or for IPv4 only if the host has no IPv6.
fn all_addresses() -> IpAddr {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn budgets(args: &Pod) -> Result<Budgets, Exit> {
    let (serving, options) = (&args.serving, &args.options);
    let mebibytes = |number: Option<u64>| number.map(|number| number.saturating_mul(1 << 20));
    let count = |number: Option<usize>| number.map(|number| number as u64);
    let memory = options.own.memory.map(|memory| u64::from(memory) << 20);
    let has_stores_elsewhere = serving.kv_server.is_some() || args.data_dir.is_some();
    let asked = BudgetInputs {
        has_outbound: !options.outbound.is_empty(),
        stores: if has_stores_elsewhere {
            0
        } else {
            // The function's own store needs no grant, so it is not in `options.stores`.
            1 + options.stores.len() as u64
        },
        instances: count(serving.max_instances),
        warm: count(serving.max_warm),
        zygotes: count(serving.zygotes),
        connections: count(serving.clients.max_connections),
        seeds: mebibytes(serving.seed_memory),
        undelivered: mebibytes(serving.clients.undelivered_memory),
        store_bytes: if has_stores_elsewhere {
            Some(mebibytes(serving.kv_size).unwrap_or(Limits::default().store_bytes))
        } else {
            mebibytes(serving.kv_size)
        },
        instance_memory: mebibytes(serving.instance_memory),
        ..BudgetInputs::of_function(memory.unwrap_or(Limits::default().memory))
    };
    asked
        .budgets(group_limits(), Machine::this())
        .map_err(|small| {
            Exit::failure(small).hint(
                "raise the container's memory limit, or lower the function's \
             --memory",
            )
        })
}

/// Returns the rights that `pod` needs while it runs.
pub fn needs(args: &Pod, prepared: &Prepared) -> Needs {
    let addresses = [prepared.listen, prepared.health];
    let data_dir = args.data_dir.clone();
    let mut needs = running::needs(&args.serving, addresses, &prepared.inputs, data_dir);
    let folder = prepared.folder.as_ref();
    needs.files.read = args.shared.iter().cloned().collect();
    needs.files.passing = folder.map(|folder| folder.path().to_owned());
    needs.opens_later = true;
    needs
}

/// Runs a node with the function until a signal stops it.
pub async fn pod(
    args: Pod,
    prepared: Prepared,
    confinement: Confinement,
    mut stop: Stop,
) -> Result<(), Exit> {
    let Prepared {
        name,
        upload,
        listen,
        health,
        budgets,
        inputs,
        shared,
        folder,
    } = prepared;
    let log = args.serving.log_format;
    let _summaries = start_tracing(log, "info");
    let output = PodLog::new(log)?;
    let access_log = access_log(&args.serving)?;
    let mut builder = builder(&args.serving, Limits::default(), inputs, &confinement)
        .budgets(&budgets)
        .listen(listen)
        .opens_later(true)
        .root(name.clone())
        .metrics(health);
    if let Some(data_dir) = &args.data_dir {
        builder = builder.data_dir(data_dir).admin(true);
    } else if let Some(folder) = &folder {
        builder = builder.admin_in(folder.path());
    }
    match shared {
        Some(Ok(entry)) => builder = builder.shared(entry),
        Some(Err(error)) => tracing::warn!(
            error = %Line(error),
            "the shared entry is not used; the function is made here"
        ),
        None => {}
    }
    let writer = output.writer();
    let show = Box::new(move |event: faasw::Event<'_>| writer.show(event));
    let builder = with_event_output(builder, Some(show), access_log.as_ref());
    let node = tokio::select! {
        node = builder.start() => node.map_err(start_failure)?,
        () = stop.requested() => return Ok(()),
    };
    confinement.complete()?;
    starting(&node, log);
    let options = FunctionOptions::from(args.options);
    let made = tokio::select! {
        made = deploy(&node, &name, upload, options, log) => made,
        () = stop.requested() => return stop_node(&node, Duration::ZERO, stop, log).await,
    };
    let made = made.and_then(|_| {
        check_memory(&node, &name, &budgets)?;
        node.open()
            .map_err(|error| Exit::failure(format_args!("cannot listen on {listen}: {error}")))
    });
    if let Err(exit) = made {
        node.shutdown().await;
        return Err(exit);
    }
    trim::trim_once();
    tokio::spawn(trim::run());
    ready(&node, &budgets, log);
    run_until_stopped(&node, args.drain_delay, stop, log, &confinement).await
}

/// Returns the failure of the node's start, with a hint if the container lacks rights for microVMs.
fn start_failure(error: StartError) -> Exit {
    use faasw::PoolStartError::{KvmMissing, KvmPermission, Sandbox};
    let is_about_jails = matches!(
        error,
        StartError::Pool(KvmMissing | KvmPermission | Sandbox(_))
    );
    let exit = Exit::from(error);
    if is_about_jails {
        exit.hint(JAIL_HINT)
    } else {
        exit
    }
}

/// Checks that the function's seed fits into its budget. Also checks that node and seeds leave
/// enough memory for the instances. The memory of seeds includes the holes that guests may still
/// fill by reading them.
fn check_memory(node: &Node, name: &FunctionName, budgets: &Budgets) -> Result<(), Exit> {
    let seeds = node.tree();
    let is_its = |seed: &&faasw::SeedInfo| seed.name == name.as_str() && seed.is_in_memory;
    // A seed that exceeds its budget was evicted at once, and would be made again and again.
    if seeds.iter().find(is_its).is_none() {
        return Err(Exit::failure(format_args!(
            "the function's seed exceeds its {} of the memory limit of {}",
            size(budgets.seeds),
            size(budgets.limit)
        ))
        .hint("raise the container's memory limit, or set --seed-memory MIB"));
    }
    let holes = seeds.iter().map(|seed| {
        let mapped = seed.changed_pages.saturating_mul(PAGE);
        mapped.saturating_sub(seed.layer_bytes)
    });
    let holes: u64 = holes.sum();
    let instances_take = budgets.fitting.saturating_mul(budgets.instance);
    let room = budgets.limit.saturating_sub(instances_take);
    let Some(used) = memory_used().map(|used| used.saturating_add(holes)) else {
        return Ok(());
    };
    if used <= room {
        return Ok(());
    }
    Err(Exit::failure(format_args!(
        "node and seed use up to {} of the memory limit of {}; this leaves too little for {} of {} \
         each",
        size(used),
        size(budgets.limit),
        instances(budgets.fitting),
        size(budgets.instance)
    ))
    .hint(format_args!(
        "raise the container's memory limit, or set --seed-memory {}",
        (budgets.seeds + used - room).div_ceil(1 << 20)
    )))
}

/// Reports where probes are answered while the function is made.
fn starting(node: &Node, log: LogFormat) {
    let (Some(address), Some(health)) = (node.address(), node.metrics_address()) else {
        return;
    };
    match log {
        LogFormat::Json => {
            tracing::info!(target: "faasw::progress", %address, %health, "starting");
        }
        LogFormat::Text => log.say(format_args!(
            "starting; /livez, /readyz and /metrics on {health}"
        )),
    }
}

/// Reports that the node accepts requests, with its budgets.
fn ready(node: &Node, budgets: &Budgets, log: LogFormat) {
    let (Some(address), Some(health)) = (node.address(), node.metrics_address()) else {
        return;
    };
    if log == LogFormat::Json {
        tracing::info!(
            target: "faasw::progress",
            %address,
            %health,
            memory_limit = budgets.limit,
            instances_max = budgets.instances,
            instances_fitting = budgets.fitting,
            instance_memory = budgets.instance,
            warm_max = budgets.warm,
            seed_memory = budgets.seeds,
            connections_max = budgets.connections,
            undelivered_memory = budgets.undelivered,
            store_memory = budgets.store_bytes,
            "ready"
        );
        return;
    }
    log.say(format_args!(
        "of {}: {} of at most {} each, {} for seeds and code, {} connections",
        size(budgets.limit),
        instances(budgets.fitting),
        size(budgets.instance),
        size(budgets.seeds),
        budgets.connections
    ));
    log.say(format_args!("ready on {address}"));
}

fn instances(count: u64) -> String {
    match count {
        1 => "1 instance".to_owned(),
        count => format!("{count} instances"),
    }
}
