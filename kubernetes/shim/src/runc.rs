//! Handles the commands of runc's shim before they reach runc.

use std::{
    env,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process,
};

use serde_json::json;

use crate::{
    bundle::{self, Bundle, ContainerSpec},
    command::Command,
    containerd,
    error::Error,
    groups, host,
    installation::{self, Installation},
    module,
    options::{ContainerSettings, FILES, MODULE, PREFIX, Table},
    sharing::{self, Function},
    spec::{self, MARK, Parts},
    state,
};

/// Annotation in which CRI stores the container's name in its pod.
const CONTAINER_NAME: &str = "io.kubernetes.cri.container-name";

/// Annotation in which CRI stores the namespace of the pod, as kubelet states it. An annotation
/// that the pod itself sets does not arrive under this name.
const POD_NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";

/// Prepares a command and becomes runc.
///
/// # Errors
/// Returns an error if the command cannot be parsed or prepared, or if runc cannot be executed.
/// Except for a parse error, it is also written to runc's log file, from which runc's shim reports
/// it.
pub fn run(arguments: &[OsString]) -> Result<(), Error> {
    let command = Command::read(arguments).map_err(Error::Refused)?;
    let run = || {
        let path = env::var_os("PATH").unwrap_or_default();
        let runc = installation::find("runc", None, &path)?;
        let mut becoming = process::Command::new(&runc);
        if prepare(&command)? {
            becoming.arg("--systemd-cgroup");
        }
        becoming.args(arguments);
        Err(Error::io(runc.display(), becoming.exec()))
    };
    run().inspect_err(|error| {
        if let Some(log) = &command.log {
            tell(log, error);
        }
    })
}

/// Prepares a command. Returns whether to add `--systemd-cgroup`, because systemd is to make the
/// group and the command line does not say so.
fn prepare(command: &Command) -> Result<bool, Error> {
    match command.name {
        Some("create" | "run") => create(command),
        Some("exec") => execute(command).map(|()| false),
        Some("restore") => Err(Error::Refused(
            "containers of this runtime cannot be restored from a checkpoint".into(),
        )),
        _ => Ok(false),
    }
}

fn create(command: &Command) -> Result<bool, Error> {
    let bundle = Bundle::at(command.bundle.as_deref().unwrap_or(Path::new(".")))?;
    let container = bundle.read()?;
    let is_systemds = container.is_systemds() && !command.has_systemd;
    let id = command.id.as_deref().and_then(|id| id.to_str());
    let id = id.ok_or_else(|| Error::Refused("a container without an id".into()))?;
    if container.is_sandbox() {
        return Ok(is_systemds);
    }
    let Some(module) = containerd::ask(module::find(&container, &bundle, id))? else {
        return Ok(is_systemds);
    };
    let installation = Installation::own()?;
    let of_pod = container.annotations.iter();
    let settings = ContainerSettings {
        artifact: module.annotations,
        has_files: module.files.is_some(),
        pod: of_pod
            .filter(|(name, _)| name.starts_with(PREFIX))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        name: container
            .annotations
            .get(CONTAINER_NAME)
            .map_or("", String::as_str),
        hostname: &container.hostname,
        arguments: container.process.args.clone(),
        environment: container.process.env.clone(),
    };
    let process = settings.process()?;
    let of_module = [
        Some((module.path, MODULE, module.digest)),
        module.files.map(|archive| (archive, FILES, None)),
    ];
    let of_module = of_module.into_iter().flatten();
    let mut files: Vec<_> = of_module
        .map(|(on_host, path, digest)| spec::File {
            on_host,
            path,
            digest,
        })
        .collect();
    add_tables(&mut files, &container, &bundle, &process.tables)?;
    let namespace = container.annotations.get(POD_NAMESPACE);
    let shared = namespace.and_then(|namespace| {
        let function = Function {
            namespace,
            options: &process.function,
            files: &files,
            memory: container.memory(),
        };
        sharing::entry(&installation, function)
    });
    let program = installation.program();
    let specification = spec::node_spec(
        &container,
        Parts {
            root: spec::text(&installation.root())?,
            files: &files,
            process,
            shared: shared.as_ref(),
            devices: &host::devices()?,
            version: &installation.version(),
            dividing: groups::are_unified().then_some(&program),
        },
    )?;
    bundle.replace(&specification)?;
    Ok(is_systemds)
}

/// Creates a file for each table, readable only by the node's user.
fn add_tables(
    files: &mut Vec<spec::File>,
    container: &ContainerSpec,
    bundle: &Bundle,
    tables: &[Table],
) -> Result<(), Error> {
    let (user, group) = spec::user(container.process.user.uid, container.process.user.gid);
    for table in tables {
        let name = format!(".faasw-{}", table.path.trim_start_matches('/'));
        let failed = |error| Error::io(&name, error);
        let mut file = module::create(&bundle.image(), &name, 0o400)?;
        file.write_all(&table.json()).map_err(failed)?;
        std::os::unix::fs::fchown(&file, Some(user), Some(group)).map_err(failed)?;
        files.push(spec::File {
            on_host: bundle.image().join(name),
            path: table.path,
            digest: None,
        });
    }
    Ok(())
}

/// Restricts a process that is executed in a node's container as the node itself is restricted.
fn execute(command: &Command) -> Result<(), Error> {
    if !is_in_node(command)? {
        return Ok(());
    }
    let process = command.process.as_deref();
    let process =
        process.ok_or_else(|| Error::Refused("what is executed here comes in a file".into()))?;
    let held = spec::exec_process_spec(&bundle::read(process)?)?;
    // The file belongs to runc's shim, which removes it.
    fs::write(process, held.to_string()).map_err(|error| Error::io(process.display(), error))
}

/// Returns whether the container runs a node. runc's state of the container decides. If there is
/// none, because another runtime is installed as runc, the specification beside the log decides.
fn is_in_node(command: &Command) -> Result<bool, Error> {
    let state = command.state();
    let state = state.ok_or_else(|| Error::Refused("an execution in no container".into()))?;
    if state.exists() {
        let mark = format!("{MARK}=");
        let labels = state::labels(&state)?;
        return Ok(labels.iter().any(|label| label.starts_with(&mark)));
    }
    match command.log.as_deref().and_then(Path::parent) {
        Some(folder) if folder.join("config.json").exists() => {
            let container = Bundle::at(folder)?.read()?;
            Ok(container.annotations.contains_key(MARK))
        }
        // There is no such container, which runc reports itself.
        _ => Ok(false),
    }
}

/// Appends an error to the log in runc's format. Failures are ignored, because the error also goes
/// to standard error.
fn tell(log: &Path, error: &Error) {
    let line = json!({ "level": "error", "msg": format!("faasw: {error}") });
    let file = OpenOptions::new().append(true).create(true).open(log);
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}
