//! Handles containerd's calls: checks whether the host can run pods, and becomes runc's shim.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::Command,
};

use crate::{
    command::{Word, Words},
    containerd::{self, socket_of},
    error::Error,
    host,
    installation::{self, Installation},
    protobuf::Reader,
    state,
};

/// Options that take a value.
const WITH_VALUES: &str = "namespace address publish-binary id bundle socket";

/// Maximum size of containerd's message on standard input, in bytes.
const STDIN_MAX: u64 = 1 << 20;

/// containerd's command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call<'a> {
    action: Option<&'a OsStr>,
    namespace: Option<&'a OsStr>,
    address: Option<&'a OsStr>,
    containerd: Option<&'a OsStr>,
    id: Option<&'a OsStr>,
}

impl<'a> Call<'a> {
    fn read(arguments: &'a [OsString]) -> Self {
        let mut call = Self::default();
        let mut words = Words::new(arguments, WITH_VALUES);
        while let Ok(Some(word)) = words.next() {
            match word {
                Word::Option("namespace", value) => call.namespace = value,
                Word::Option("address", value) => call.address = value,
                Word::Option("publish-binary", value) => call.containerd = value,
                Word::Option("id", value) => call.id = value,
                Word::Option(..) => {}
                Word::Other(action) => {
                    call.action = Some(action);
                    break;
                }
            }
        }
        call
    }
}

/// Checks the host if a pod is to start, and becomes runc's shim.
///
/// # Errors
/// Returns an error if the host, the installation or containerd's options are unsuitable, or if
/// runc's shim cannot be executed. containerd reports it as an event of the pod.
pub fn run(arguments: &[OsString]) -> Result<(), Error> {
    let call = Call::read(arguments);
    let path = env::var_os("PATH").unwrap_or_default();
    let folder = call
        .containerd
        .and_then(|program| Path::new(program).parent());
    let shim = installation::find("containerd-shim-runc-v2", folder, &path)?;
    let installation = Installation::own();
    let mut becoming = Command::new(&shim);
    becoming.args(arguments);
    // The remains of a pod are removed even if the host could not start one any more.
    if call.action.is_some_and(|action| action == "delete")
        && let (Some(namespace), Some(id)) = (call.namespace, call.id.and_then(OsStr::to_str))
        && let Ok(runc) = installation::find("runc", None, &path)
    {
        state::end_containers(&runc, &Path::new(state::ROOT).join(namespace), id);
    }
    if call.action.is_some_and(|action| action == "start") {
        host::check()?;
        installation
            .as_ref()
            .map_err(|error| Error::Host(error.to_string()))?;
        installation::find("runc", None, &path)?;
        refuse_options(&read_stdin()?)?;
    }
    if let Ok(installation) = installation {
        becoming.env("PATH", installation.path_before(&path));
    }
    if let (Some(address), Some(namespace)) = (call.address.and_then(OsStr::to_str), call.namespace)
    {
        becoming.env(containerd::ADDRESS, socket_of(address));
        becoming.env(containerd::NAMESPACE, namespace);
    }
    Err(Error::io(shim.display(), becoming.exec()))
}

/// Reads standard input, and replaces it with a copy that runc's shim can read.
fn read_stdin() -> Result<Vec<u8>, Error> {
    let failed = |error: io::Error| Error::io("containerd's message on standard input", error);
    let mut message = Vec::new();
    let read = io::stdin().take(STDIN_MAX + 1).read_to_end(&mut message);
    // If containerd passes no standard input, there is no message.
    if read.is_err() || message.len() as u64 > STDIN_MAX {
        return Err(Error::Refused(
            "containerd's message on standard input is unreadable or too long".into(),
        ));
    }
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let copy = rustix::fs::memfd_create("containerd-message", flags)
        .map_err(|errno| failed(errno.into()))?;
    let mut copy = std::fs::File::from(copy);
    copy.write_all(&message).map_err(failed)?;
    copy.rewind().map_err(failed)?;
    rustix::stdio::dup2_stdin(&copy).map_err(|errno| failed(errno.into()))?;
    Ok(message)
}

/// Rejects options of the runtime in containerd's configuration that cannot work. runc's shim fails
/// with options of a runtime that it does not know. With another `BinaryName`, it would not call
/// this program, so no function would be found.
fn refuse_options(message: &[u8]) -> Result<(), Error> {
    const OPTIONS: &str = "containerd's configuration has options for this runtime, which supports \
        none; with runtime_type io.containerd.runc.v2 and runtime_path, it supports those of runc \
        except BinaryName";
    if message.is_empty() {
        return Ok(());
    }
    // Later versions may send another message, which is not rejected.
    let Ok(Some(kind)) = Reader::text(message, 1) else {
        return Ok(());
    };
    let options = Reader::last(message, 2)?.unwrap_or_default();
    let kind = kind.rsplit('/').next().unwrap_or(kind);
    let has_other = match kind {
        "runtimeoptions.v1.Options" => true,
        "containerd.runc.v1.Options" => {
            Reader::last(options, 6)?.is_some_and(|name| !name.is_empty())
        }
        _ => false,
    };
    if has_other {
        Err(Error::Refused(OPTIONS.into()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::Writer;

    #[test]
    fn calls_of_containerd_are_parsed() {
        let line = "-namespace k8s.io -address /run/c.sock -publish-binary /usr/bin/containerd -id \
             start -debug start";
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let call = Call::read(&words);
        let text = |value: Option<&OsStr>| value.map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(text(call.action).as_deref(), Some("start"));
        assert_eq!(text(call.namespace).as_deref(), Some("k8s.io"));
        assert_eq!(text(call.address).as_deref(), Some("/run/c.sock"));
        assert_eq!(
            text(call.containerd).as_deref(),
            Some("/usr/bin/containerd")
        );
        let words: Vec<OsString> = ["-id=start", "delete"].map(Into::into).into();
        assert_eq!(text(Call::read(&words).action).as_deref(), Some("delete"));
        assert_eq!(Call::read(&["-info".into()]), Call::default());
    }

    #[test]
    fn options_that_would_end_the_shim_of_runc_are_refused() {
        let message = |kind: &str, options: &[u8]| {
            Writer::default()
                .bytes(1, kind.as_bytes())
                .bytes(2, options)
                .done()
        };
        let runc = "containerd.runc.v1.Options";
        let binary = Writer::default().bytes(6, b"crun").done();
        assert!(refuse_options(&[]).is_ok());
        assert!(refuse_options(&message(runc, &[0x48, 1])).is_ok());
        assert!(refuse_options(&message(runc, &binary)).is_err());
        assert!(refuse_options(&message("runtimeoptions.v1.Options", &[])).is_err());
        assert!(
            refuse_options(&message(
                "types.containerd.io/runtimeoptions.v1.Options",
                &[]
            ))
            .is_err()
        );
        assert!(refuse_options(&message("something.New", &[])).is_ok());
        assert!(refuse_options(&[0xff]).is_ok());
    }
}
