//! Common parts of all commands that run a node in the foreground: its configuration, and how it
//! stops.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use faasw::{DeployOutcome, FunctionName, FunctionOptions, Limits, Node, NodeBuilder};

use super::{
    access_log::{AccessLog, STDOUT},
    confine::{Confinement, Needs},
    exit::Exit,
    output::{deployed, stage_of, with_stages},
    serving::{LogFormat, Serving},
    signals::Stop,
    startup_inputs::StartupInputs,
};

/// Returns the rights that a node needs while it runs, except the files of its addresses.
pub fn needs(
    serving: &Serving,
    addresses: impl IntoIterator<Item = SocketAddr>,
    inputs: &StartupInputs,
    data_dir: Option<PathBuf>,
) -> Needs {
    let ports = addresses.into_iter().map(|address| address.port());
    #[cfg(feature = "ablation")]
    faasw_pool::Mechanism::switch_off(&serving.without);
    let mut needs = Needs::new(data_dir, ports);
    let access_log = serving.access_log.clone();
    needs.files.rotated = access_log
        .filter(|path| path != Path::new(STDOUT))
        .into_iter()
        .collect();
    let server = inputs.key_value_server.as_ref();
    needs.key_value_server = server.map(|server| server.address().clone());
    needs
}

/// Opens the access log, if there is to be one. It has to outlive the node, because dropping it
/// writes the remaining lines.
pub fn access_log(serving: &Serving) -> Result<Option<AccessLog>, Exit> {
    let path = serving.access_log.as_deref();
    path.map(AccessLog::open).transpose()
}

/// Raises the soft limit of open files to the hard limit. This has to run before any process of the
/// node starts, because the spawner has open files for each microVM, too. Processes in jails have
/// limits of their own.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: now.maximum,
        ..now
    };
    // If this fails, the node adapts to the current limit, and reports it.
    let _ = setrlimit(Resource::Nofile, most);
}

/// Configures a node, except for its addresses.
pub fn builder(
    serving: &Serving,
    mut limits: Limits,
    inputs: StartupInputs,
    confinement: &Confinement,
) -> NodeBuilder {
    const MIB: u64 = 1 << 20;
    limits.store_keys = serving.kv_keys;
    if let Some(mebibytes) = serving.kv_size {
        limits.store_bytes = mebibytes.saturating_mul(MIB);
    }
    let mut builder = serving
        .clients
        .apply(Node::builder(), limits)
        .keep_alive(serving.keep_alive)
        .poll(serving.poll)
        .min_warm(serving.min_warm)
        .max_reuse(serving.max_reuse)
        .image_disk(serving.image_disk.saturating_mul(MIB))
        .outbound(inputs.outbound)
        .confinement(serving.confinement.into())
        .launcher(confinement.launcher.clone());
    #[cfg(feature = "ablation")]
    {
        builder = builder.without(serving.without.clone());
    }
    if let Some(count) = serving.max_instances {
        builder = builder.max_instances(count);
    }
    if let Some(count) = serving.zygotes {
        builder = builder.zygotes(count);
    }
    if let Some(count) = serving.max_warm {
        builder = builder.max_warm(count);
    }
    if let Some(mebibytes) = serving.seed_memory {
        builder = builder.seed_memory(mebibytes.saturating_mul(MIB));
    }
    if let Some(mebibytes) = serving.function_memory {
        builder = builder.function_memory(mebibytes.saturating_mul(MIB));
    }
    if let Some(mebibytes) = serving.instance_memory {
        builder = builder.instance_memory(mebibytes.saturating_mul(MIB));
    }
    if let (Some(server), Some(dialer)) = (inputs.key_value_server, &confinement.dialer) {
        builder = builder.key_value_server(server.dial_by(dialer.clone()));
    }
    if let Some(key) = inputs.image_key {
        builder = builder.image_key(*key);
    }
    if let Some(key) = inputs.secret_key {
        builder = builder.secret_key(*key);
    }
    builder
}

/// Deploys a function, and reports the stages of a long deployment.
pub async fn deploy(
    node: &Node,
    name: &FunctionName,
    upload: Bytes,
    options: FunctionOptions,
    log: LogFormat,
) -> Result<DeployOutcome, Exit> {
    let deploying = node.deploy(name.as_str(), upload, options);
    let stage = async || stage_of(name, node.deployments());
    let done = with_stages(name, deploying, stage)
        .await
        .map_err(|error| Exit::failure(format_args!("{name} was not deployed: {error}")))?;
    log.say(deployed(&done));
    Ok(done)
}

/// Runs the node until a signal stops it or its confinement breaks. After a signal, it still
/// accepts requests for `delay`.
pub async fn run_until_stopped(
    node: &Node,
    delay: Duration,
    mut stop: Stop,
    log: LogFormat,
    confinement: &Confinement,
) -> Result<(), Exit> {
    tokio::select! {
        () = stop.requested() => stop_node(node, delay, stop, log).await,
        broken = confinement.broken() => {
            node.shutdown().await;
            Err(broken)
        }
    }
}

/// Drains the node: it is no longer ready, accepts requests for `delay`, and completes those in
/// progress. A further signal ends it at once.
pub async fn stop_node(
    node: &Node,
    delay: Duration,
    mut stop: Stop,
    log: LogFormat,
) -> Result<(), Exit> {
    log.say("stopping; a second signal stops at once");
    tokio::select! {
        () = node.drain(delay) => Ok(()),
        () = stop.requested() => Err(Exit::failure("stopped at once")),
    }
}
