//! The module of a container, if the container is a function: a layer of its image, or a file in
//! it.
//!
//! CRI distinguishes images by their configs. Two artifacts can have the same config, above all
//! `{}`, and then CRI can create a container from the wrong one. Therefore this module resolves the
//! *name* of the image that the pod's author wrote. It also checks the config's list of layers, if
//! the config has one.

use std::{
    collections::BTreeMap,
    fs::File,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::{
    bundle::{Bundle, ContainerSpec},
    containerd::{Containerd, Record},
    error::Error,
    image::{self, Document, FILES_MAX, MANIFEST_MAX, MODULE_MAX},
};

/// Annotation with the image name that the pod's author wrote.
const IMAGE_NAME: &str = "io.kubernetes.cri.image-name";

/// File into which the module's layer is written. It is in the container's own writable layer, so
/// it is removed with the container and counts as its disk space.
const FILE: &str = ".faasw-module.wasm";

/// File into which the layer of files is written, in the same place.
const FILES: &str = ".faasw-function.files";

/// Suffix of a container's command that names a module.
const SUFFIX: &str = ".wasm";

/// A module.
#[derive(Debug, PartialEq, Eq)]
pub struct Module {
    /// The file on the host.
    pub path: PathBuf,
    /// The digest, `sha256:` and 64 digits, if the module is a layer, which was verified against
    /// it.
    pub digest: Option<String>,
    /// The archive with the function's files, if there is one.
    pub files: Option<PathBuf>,
    /// The annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

/// Finds a container's module. Returns `None` for an ordinary container.
///
/// # Errors
/// Returns an error if the container is a function but its image has no acceptable module, or if
/// containerd fails to answer.
pub async fn find(
    container: &ContainerSpec,
    bundle: &Bundle,
    id: &str,
) -> Result<Option<Module>, Error> {
    let command = container.process.args.first().map_or("", String::as_str);
    let mut containerd = Containerd::connect().await?;
    let record = containerd.container(id).await?;
    let name = container
        .annotations
        .get(IMAGE_NAME)
        .unwrap_or(&record.image);
    let document = manifest(&mut containerd, name).await?;
    let has_module = document.as_ref().is_some_and(Document::has_module);
    if !has_module && !command.ends_with(SUFFIX) {
        return Ok(None);
    }
    let Some(document) = document else {
        return in_image(bundle, command, BTreeMap::new()).map(Some);
    };
    is_the_same(&document, &record, name)?;
    if !has_module {
        return in_image(bundle, command, document.annotations()).map(Some);
    }
    let (layer, files) = document.module()?;
    layer.digest()?;
    let config = containerd
        .small(document.config()?, "its config", MANIFEST_MAX)
        .await?;
    for layer in [Some(layer), files].into_iter().flatten() {
        image::belong_together(&config, layer)?;
    }
    let mut file = create(&bundle.image(), FILE, 0o444)?;
    containerd
        .copy(layer, "its module", MODULE_MAX, &mut file)
        .await?;
    if let Some(files) = files {
        let mut file = create(&bundle.image(), FILES, 0o444)?;
        containerd
            .copy(files, "its layer of files", FILES_MAX, &mut file)
            .await?;
    }
    Ok(Some(Module {
        path: bundle.image().join(FILE),
        digest: Some(layer.digest()?.to_owned()),
        files: files.map(|_| bundle.image().join(FILES)),
        annotations: document.annotations(),
    }))
}

/// Returns the manifest to which an image name leads. Returns `None` if it leads to nothing, or to
/// an index without a manifest for WASI.
async fn manifest(containerd: &mut Containerd, name: &str) -> Result<Option<Document>, Error> {
    if name.is_empty() {
        return Ok(None);
    }
    let Some(target) = containerd.image(&image::full_name(name)).await? else {
        return Ok(None);
    };
    let bytes = containerd
        .small(&target, "its manifest", MANIFEST_MAX)
        .await?;
    let document = Document::read(&bytes)?;
    if !document.is_index() {
        return Ok(Some(document));
    }
    let Some(one) = document.of_wasi() else {
        return Ok(None);
    };
    let bytes = containerd.small(one, "its manifest", MANIFEST_MAX).await?;
    let document = Document::read(&bytes)?;
    if document.is_index() {
        Err(Error::image("its index leads to another index"))
    } else {
        Ok(Some(document))
    }
}

/// Checks that the tag still leads to the image from which the container was created.
fn is_the_same(document: &Document, record: &Record, name: &str) -> Result<(), Error> {
    let Some(made_of) = &record.config else {
        return Ok(());
    };
    if document.config()?.digest()? == made_of {
        Ok(())
    } else {
        Err(Error::image(format!(
            "{name:.200} leads to another image now than when the container was created"
        )))
    }
}

/// Opens a container's root folder.
fn open_folder(image: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(image, flags, Mode::empty());
    folder.map_err(|errno| Error::io(image.display(), errno))
}

/// Creates a file in a container's root folder, for a layer or another generated file. An existing
/// file belongs to the image and is not touched.
///
/// # Errors
/// Returns [`Error::Io`] if the file exists or cannot be created.
pub fn create(image: &Path, name: &str, mode: u32) -> Result<File, Error> {
    let folder = open_folder(image)?;
    let file = rustix::fs::openat(
        &folder,
        name,
        OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_raw_mode(mode),
    );
    Ok(File::from(file.map_err(|errno| Error::io(name, errno))?))
}

/// Returns the module in a file of the image that the container's command names.
fn in_image(
    bundle: &Bundle,
    command: &str,
    annotations: BTreeMap<String, String>,
) -> Result<Module, Error> {
    let image = bundle.image();
    let refused = |why: &str| Error::image(format!("its command {command:.200} {why}"));
    let mut path = PathBuf::new();
    for part in Path::new(command).components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(refused("leaves the image"));
            }
        }
    }
    let folder = open_folder(&image)?;
    // runc mounts the file by its path, and would follow links of the image to files of the host.
    let file = rustix::fs::openat2(
        &folder,
        &path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    )
    .map_err(|errno| refused(&format!("is not a file of the image: {errno}")))?;
    let metadata = File::from(file)
        .metadata()
        .map_err(|error| Error::io(path.display(), error))?;
    if !metadata.is_file() {
        return Err(refused("is not a regular file"));
    }
    if metadata.len() > MODULE_MAX {
        return Err(refused(&format!("has more than {MODULE_MAX} bytes")));
    }
    Ok(Module {
        path: image.join(path),
        digest: None,
        files: None,
        annotations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn bundle() -> (tempfile::TempDir, Bundle) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("rootfs/app")).unwrap();
        let bundle = Bundle::at(folder.path()).unwrap();
        (folder, bundle)
    }

    #[test]
    fn a_file_of_the_image_is_found_by_its_command() {
        let (_folder, bundle) = bundle();
        fs::write(bundle.image().join("app/hello.wasm"), "module").unwrap();
        for command in ["/app/hello.wasm", "app/hello.wasm", "//app/./hello.wasm"] {
            let module = in_image(&bundle, command, BTreeMap::new()).unwrap();
            assert_eq!(module.path, bundle.image().join("app/hello.wasm"));
        }
    }

    #[test]
    fn an_image_cannot_name_files_outside_of_itself() {
        let (folder, bundle) = bundle();
        let image = bundle.image();
        fs::write(folder.path().join("outside.wasm"), "secret").unwrap();
        symlink("/etc/passwd", image.join("absolute.wasm")).unwrap();
        symlink("../outside.wasm", image.join("relative.wasm")).unwrap();
        symlink("/etc", image.join("folder")).unwrap();
        fs::create_dir(image.join("folder.wasm")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            image.join("pipe.wasm"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        File::create(image.join("large.wasm"))
            .unwrap()
            .set_len(MODULE_MAX + 1)
            .unwrap();
        for command in [
            "/absolute.wasm",
            "/relative.wasm",
            "/folder/x.wasm",
            "/folder.wasm",
            "/pipe.wasm",
            "/large.wasm",
            "/../outside.wasm",
            "/missing.wasm",
            "/",
        ] {
            let refused = in_image(&bundle, command, BTreeMap::new());
            assert!(
                matches!(refused, Err(Error::Image(_))),
                "{command} {refused:?}"
            );
        }
    }

    #[test]
    fn a_link_at_the_path_of_the_layer_is_not_followed() {
        let (folder, bundle) = bundle();
        let target = folder.path().join("target");
        fs::write(&target, "before").unwrap();
        symlink(&target, bundle.image().join(FILE)).unwrap();
        assert!(create(&bundle.image(), FILE, 0o444).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "before");
        fs::remove_dir_all(bundle.image()).unwrap();
        symlink(folder.path(), bundle.image()).unwrap();
        assert!(create(&bundle.image(), FILE, 0o444).is_err());
        assert!(in_image(&bundle, "/x.wasm", BTreeMap::new()).is_err());
    }
}
