//! What runc's shim asks runc for, on its way there.

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
    bundle::{self, Bundle, Given},
    command::Command,
    containerd,
    error::Error,
    groups, host,
    installation::{self, Installation},
    module,
    options::{FILES, MODULE, PREFIX, Said, Table},
    sharing::{self, Function},
    spec::{self, MARK, Parts},
    state,
};

/// By which CRI says what the container is called in its pod.
const CONTAINER_NAME: &str = "io.kubernetes.cri.container-name";

/// By which CRI says whose pod it is, as kubelet has it: an annotation of the pod's own does not
/// get here by that name.
const POD_NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";

/// Does what is to be done before it, and becomes runc.
///
/// # Errors
/// Why the command does not get there. It is written to where runc writes its errors, too, of which
/// its shim tells.
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

/// Says whether the group is to be made by systemd, where nobody has said so.
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
    let given = bundle.read()?;
    let is_systemds = given.is_systemds() && !command.has_systemd;
    let id = command.id.as_deref().and_then(|id| id.to_str());
    let id = id.ok_or_else(|| Error::Refused("a container without an id".into()))?;
    if given.is_sandbox() {
        return Ok(is_systemds);
    }
    let Some(module) = containerd::ask(module::find(&given, &bundle, id))? else {
        return Ok(is_systemds);
    };
    let installation = Installation::own()?;
    let of_pod = given.annotations.iter();
    let said = Said {
        artifact: module.annotations,
        has_files: module.files.is_some(),
        pod: of_pod
            .filter(|(name, _)| name.starts_with(PREFIX))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        name: given
            .annotations
            .get(CONTAINER_NAME)
            .map_or("", String::as_str),
        hostname: &given.hostname,
        arguments: given.process.args.clone(),
        environment: given.process.env.clone(),
    };
    let process = said.process()?;
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
    add_tables(&mut files, &given, &bundle, &process.tables)?;
    let namespace = given.annotations.get(POD_NAMESPACE);
    let shared = namespace.and_then(|namespace| {
        let function = Function {
            namespace,
            options: &process.function,
            files: &files,
            memory: given.memory(),
        };
        sharing::entry(&installation, function)
    });
    let program = installation.program();
    let specification = spec::of_node(
        &given,
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

/// A file for each table, for the node's user alone.
fn add_tables(
    files: &mut Vec<spec::File>,
    given: &Given,
    bundle: &Bundle,
    tables: &[Table],
) -> Result<(), Error> {
    let (user, group) = spec::user(given.process.user.uid, given.process.user.gid);
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

/// Holds what is to be executed in a node's container to what the node is held to.
fn execute(command: &Command) -> Result<(), Error> {
    if !is_in_node(command)? {
        return Ok(());
    }
    let process = command.process.as_deref();
    let process =
        process.ok_or_else(|| Error::Refused("what is executed here comes in a file".into()))?;
    let held = spec::of_executed(&bundle::read(process)?)?;
    // It is runc's shim's own, which removes it.
    fs::write(process, held.to_string()).map_err(|error| Error::io(process.display(), error))
}

/// Whether the container is a node's: by what runc keeps of it, or, since others that are called so
/// keep something else, by the specification in the container's folder, where its log is.
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
            let given = Bundle::at(folder)?.read()?;
            Ok(given.annotations.contains_key(MARK))
        }
        // There is no such container, as runc will say itself.
        _ => Ok(false),
    }
}

/// Writes an error as runc does. What cannot be written is on standard error, too.
fn tell(log: &Path, error: &Error) {
    let line = json!({ "level": "error", "msg": format!("faasw: {error}") });
    let file = OpenOptions::new().append(true).create(true).open(log);
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}
