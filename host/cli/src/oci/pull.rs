//! `pull`: downloads a module from a registry into a file, completely or not at all.

use std::{
    fs::Permissions,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use faasw::Limits;
use faasw_oci::{Artifact, Reference, registry::Action};
use serde::Serialize;

use super::registry;
use crate::{
    args::Pull,
    exit::Exit,
    output::{print, print_json, say, size, with_progress},
};

/// The output with `--json`.
#[derive(Serialize)]
struct PullOutput {
    reference: String,
    file: PathBuf,
    bytes: usize,
}

/// Pulls a module.
pub async fn pull(args: Pull) -> Result<(), Exit> {
    let (reference, output) = (&args.reference, args.output);
    // The artifact's name for the file is never used, because its author is untrusted.
    let output = output.unwrap_or_else(|| default_output(reference));
    let failed = |error: io::Error| {
        Exit::failure(format_args!(
            "{} cannot be written: {error}",
            output.display()
        ))
    };
    if output.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let registry = registry(reference, Action::Pull, &args.registries).await?;
    let limit = Limits::default().module as u64;
    let pulling = async {
        let artifact = Artifact::find(&registry, reference.tag_or_digest()).await?;
        let module = artifact.module(&registry, limit).await?;
        Ok::<_, Exit>((artifact, module))
    };
    let (artifact, module) = with_progress(reference, pulling).await?;
    write_atomically(&output, &module).map_err(failed)?;
    let from = artifact.reference(reference).to_string();
    say(format_args!(
        "{}: {} written",
        output.display(),
        size(module.len() as u64)
    ));
    if artifact.has_files() {
        say("the artifact also has files; `faasw deploy oci://…` deploys them");
    }
    if args.format.json {
        return print_json(&PullOutput {
            reference: from,
            file: output,
            bytes: module.len(),
        });
    }
    print(format!("{from}\n"))
}

fn default_output(of: &Reference) -> PathBuf {
    let name = of.repository().rsplit('/').next().unwrap_or_default();
    format!("{name}.wasm").into()
}

/// Writes a new file and renames it, so that readers see either the old content or all of the new
/// one. Writes directly into a device, a pipe or a link's target, because these must not be
/// replaced by a file.
fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(there) if !there.is_file() => return std::fs::write(path, content),
        _ => {}
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".faasw-pull-")
        // The user's umask reduces these permissions.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| folder.path().join(name));
        std::fs::write(&target, b"before, and longer").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_atomically(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        let null = Path::new("/dev/null");
        write_atomically(null, b"nobody's").unwrap();
        assert!(!null.metadata().unwrap().is_file());
    }

    #[test]
    fn a_file_is_replaced_atomically_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        std::fs::create_dir(folder.path().join("b")).unwrap();
        assert!(write_atomically(&folder.path().join("b"), b"three").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let reference: Reference = "reg.test/team/hello:v1".parse().unwrap();
        assert_eq!(default_output(&reference), Path::new("hello.wasm"));
    }
}
