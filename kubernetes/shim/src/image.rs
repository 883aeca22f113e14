//! Manifests of images, which are untrusted: finds the module in them.
//!
//! The rules are those of `faasw deploy oci://…` (docs/oci.md), as far as they concern artifacts.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::Error;

/// Maximum size of a manifest and of a config in bytes: registries have to accept this size.
pub const MANIFEST_MAX: u64 = 4 << 20;

/// Maximum size of a module in bytes: the limit of nodes.
pub const MODULE_MAX: u64 = 64 << 20;

/// Maximum size of the packed files of a function in bytes: the limit of the unpacked files, plus
/// the overhead that `faasw deploy` accepts.
pub const FILES_MAX: u64 = 128 << 20;

/// Media type of a layer with a function's files.
const FILES: &str = "application/vnd.faasw.files.v1.tar+gzip";

/// Media types of layers that are modules, current and former.
const MODULES: [&str; 3] = [
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
];

/// Names of WASI's platforms, in order of preference: those more likely to be components first.
const PLATFORMS: [&str; 4] = ["wasip3", "wasip2", "wasip1", "wasi"];

/// A descriptor: the type, digest and size of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type.
    pub media_type: String,
    digest: String,
    /// The size in bytes.
    pub size: u64,
    platform: Option<Platform>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

impl Descriptor {
    /// Returns the descriptor that containerd has of an image.
    #[must_use]
    pub fn new(media_type: &str, digest: &str, size: u64) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: digest.to_owned(),
            size,
            platform: None,
        }
    }

    fn is_module(&self) -> bool {
        MODULES.contains(&self.media_type.as_str())
    }

    /// Returns the digest: `sha256:` and 64 hexadecimal digits. It is checked because it becomes a
    /// file's name elsewhere.
    ///
    /// # Errors
    /// Returns [`Error::Image`] if the digest does not have this form.
    pub fn digest(&self) -> Result<&str, Error> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match self.digest.strip_prefix("sha256:") {
            Some(digits) if digits.len() == 64 && digits.bytes().all(is_digit) => Ok(&self.digest),
            _ => {
                let why = format!("{:.80} is not a SHA-256 digest", self.digest);
                Err(Error::image(why))
            }
        }
    }
}

/// A manifest, or an index of several.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    schema_version: u64,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Document {
    /// Parses a manifest or index.
    ///
    /// # Errors
    /// Returns [`Error::Image`] if it is neither, or could be read as both.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let document: Self = serde_json::from_slice(bytes)
            .map_err(|error| Error::image(format!("its manifest cannot be read: {error}")))?;
        // Readers could disagree whether such a document is an index or an image (CVE-2021-41190).
        if document.schema_version != 2 || document.layers.is_some() == document.manifests.is_some()
        {
            return Err(Error::image(
                "its manifest is neither an image's nor an index's alone",
            ));
        }
        Ok(document)
    }

    /// Returns the manifest for WASI in an index. Returns `None` if the index has none, or if a
    /// preference level is ambiguous and no later level has exactly one.
    #[must_use]
    pub fn of_wasi(&self) -> Option<&Descriptor> {
        let manifests = self.manifests.as_deref().unwrap_or_default();
        PLATFORMS.iter().find_map(|os| {
            let mut fitting = manifests.iter().filter(|one| {
                let platform = one.platform.as_ref();
                platform.is_some_and(|platform| {
                    platform.os == *os
                        && matches!(platform.architecture.as_str(), "wasm" | "wasm32")
                })
            });
            fitting.next().filter(|_| fitting.next().is_none())
        })
    }

    /// Returns whether the document is an index.
    #[must_use]
    pub fn is_index(&self) -> bool {
        self.manifests.is_some()
    }

    /// Returns whether one of the layers is a module.
    #[must_use]
    pub fn has_module(&self) -> bool {
        self.layers.iter().flatten().any(Descriptor::is_module)
    }

    /// Returns the module, and the layer with its files if there is one.
    ///
    /// # Errors
    /// Returns [`Error::Image`] unless the layers are one module, optionally followed by one layer
    /// of files.
    pub fn module(&self) -> Result<(&Descriptor, Option<&Descriptor>), Error> {
        match self.layers.as_deref().unwrap_or_default() {
            [module] if module.is_module() => Ok((module, None)),
            [module, files] if module.is_module() && files.media_type == FILES => {
                Ok((module, Some(files)))
            }
            layers => {
                let other = layers.iter().find(|layer| !layer.is_module());
                Err(Error::image(match other {
                    Some(other) => format!(
                        "it has a layer of {:.80} beside its module, which pods do not support",
                        other.media_type
                    ),
                    None => format!("it has {} modules", layers.len()),
                }))
            }
        }
    }

    /// Returns the descriptor of the config.
    ///
    /// # Errors
    /// Returns [`Error::Image`] if the manifest has no config.
    pub fn config(&self) -> Result<&Descriptor, Error> {
        self.config
            .as_ref()
            .ok_or_else(|| Error::image("its manifest has no config"))
    }

    /// Returns the annotations.
    #[must_use]
    pub fn annotations(self) -> BTreeMap<String, String> {
        self.annotations.unwrap_or_default()
    }
}

/// Returns the hexadecimal digits of a hash.
#[must_use]
pub fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that a config lists a layer's digest, if the config lists its layers at all. CRI
/// distinguishes images only by their configs.
///
/// # Errors
/// Returns [`Error::Image`] if the config lists other layers only.
pub fn belong_together(config: &[u8], layer: &Descriptor) -> Result<(), Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        layer_digests: Option<Vec<String>>,
    }
    // A config of another kind need not be a JSON object; it then lists no layers.
    let Ok(Config {
        layer_digests: Some(named),
    }) = serde_json::from_slice(config)
    else {
        return Ok(());
    };
    if named.contains(&layer.digest) {
        Ok(())
    } else {
        Err(Error::image("its config is of another module"))
    }
}

/// Returns containerd's full name for an image reference as a user writes it.
#[must_use]
pub fn full_name(written: &str) -> String {
    if written.starts_with("sha256:") {
        return written.to_owned();
    }
    let (name, digest) = match written.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (written, None),
    };
    let (first, path) = match name.split_once('/') {
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => (first, path),
        _ => ("docker.io", name),
    };
    let library = if first == "docker.io" && !path.contains('/') {
        "library/"
    } else {
        ""
    };
    let (repository, tag) = match path.rsplit_once(':') {
        Some((repository, tag)) => (repository, tag),
        None => (path, "latest"),
    };
    match digest {
        Some(digest) => format!("{first}/{library}{repository}@{digest}"),
        None => format!("{first}/{library}{repository}:{tag}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(letter: char) -> String {
        format!("sha256:{}", letter.to_string().repeat(64))
    }

    fn layer(kind: &str) -> String {
        let digest = digest('a');
        format!(r#"{{"mediaType": "{kind}", "digest": "{digest}", "size": 9, "urls": ["x"]}}"#)
    }

    fn manifest(kinds: &[&str]) -> Document {
        let layers: Vec<String> = kinds.iter().map(|kind| layer(kind)).collect();
        let json = format!(
            r#"{{"schemaVersion": 2, "config": {}, "layers": [{}], "annotations": {{"a": "b"}}}}"#,
            layer("application/vnd.oci.empty.v1+json"),
            layers.join(",")
        );
        Document::read(json.as_bytes()).unwrap()
    }

    #[test]
    fn only_images_of_one_module_are_functions() {
        for kind in MODULES {
            let document = manifest(&[kind]);
            assert!(document.has_module());
            assert_eq!(document.module().unwrap().0.size, 9);
        }
        let tar = "application/vnd.oci.image.layer.v1.tar+gzip";
        for kinds in [&[][..], &[tar], &[tar, tar]] {
            assert!(!manifest(kinds).has_module(), "{kinds:?}");
        }
        for kinds in [
            &[MODULES[0], MODULES[0]][..],
            &[MODULES[0], tar],
            &[tar, MODULES[1]],
            &["application/vnd.faasw.files.v1.tar+gzip", MODULES[0]],
        ] {
            let document = manifest(kinds);
            assert!(document.has_module(), "{kinds:?}");
            assert!(document.module().is_err(), "{kinds:?}");
        }
        assert_eq!(manifest(&[]).annotations()["a"], "b");
    }

    fn index(platforms: &[(&str, &str)]) -> Option<String> {
        let manifests: Vec<String> = platforms
            .iter()
            .zip('a'..)
            .map(|((os, architecture), letter)| {
                format!(
                    r#"{{"mediaType": "m", "digest": "{}", "size": 9,
                        "platform": {{"os": "{os}", "architecture": "{architecture}"}}}}"#,
                    digest(letter)
                )
            })
            .collect();
        let json = format!(
            r#"{{"schemaVersion": 2, "manifests": [{}]}}"#,
            manifests.join(",")
        );
        let document = Document::read(json.as_bytes()).unwrap();
        assert!(document.is_index());
        document.of_wasi().map(|one| one.digest.clone())
    }

    #[test]
    fn an_index_selects_its_wasi_entry() {
        let wasi = ("wasi", "wasm");
        assert_eq!(index(&[("linux", "amd64"), wasi]), Some(digest('b')));
        assert_eq!(index(&[wasi, ("wasip2", "wasm32")]), Some(digest('b')));
        for platforms in [&[][..], &[wasi, wasi], &[("linux", "amd64")]] {
            assert_eq!(index(platforms), None, "{platforms:?}");
        }
    }

    #[test]
    fn ambiguous_documents_are_rejected() {
        for json in [
            "",
            "[]",
            "{}",
            r#"{"schemaVersion": 2}"#,
            r#"{"schemaVersion": 1, "layers": []}"#,
            r#"{"schemaVersion": 2, "layers": [], "manifests": []}"#,
            r#"{"schemaVersion": 2, "layers": [], "layers": []}"#,
            r#"{"schemaVersion": 2, "layers": [{"mediaType": "m", "digest": "d", "size": -1}]}"#,
        ] {
            assert!(Document::read(json.as_bytes()).is_err(), "{json}");
        }
        let deep = format!(
            r#"{{"schemaVersion": 2, "layers": [], "x": {}"#,
            "[".repeat(100_000)
        );
        assert!(Document::read(deep.as_bytes()).is_err());
    }

    #[test]
    fn a_digest_must_not_be_a_path() {
        for wrong in [
            "",
            "sha256:",
            "sha256:../../../../etc/passwd",
            "sha512:00",
            &digest('g'),
            &digest('A'),
            &format!("{}0", digest('a')),
        ] {
            assert!(Descriptor::new("", wrong, 1).digest().is_err(), "{wrong}");
        }
        assert!(Descriptor::new("", &digest('f'), 1).digest().is_ok());
    }

    #[test]
    fn a_config_must_name_the_selected_layer() {
        let layer = Descriptor::new("", &digest('a'), 1);
        let naming = |letter| {
            format!(
                r#"{{"os": "wasip2", "layerDigests": ["{}"]}}"#,
                digest(letter)
            )
        };
        assert!(belong_together(naming('a').as_bytes(), &layer).is_ok());
        assert!(belong_together(naming('b').as_bytes(), &layer).is_err());
        for silent in ["", "{}", r#"{"layerDigests": null}"#] {
            assert!(belong_together(silent.as_bytes(), &layer).is_ok());
        }
    }

    #[test]
    fn names_are_expanded_as_containerd_does() {
        for (written, full) in [
            ("hello", "docker.io/library/hello:latest"),
            ("team/hello:1", "docker.io/team/hello:1"),
            ("docker.io/hello", "docker.io/library/hello:latest"),
            ("localhost/hello", "localhost/hello:latest"),
            ("localhost:5000/a/b:v1", "localhost:5000/a/b:v1"),
            ("registry.test/a:1@sha256:12", "registry.test/a@sha256:12"),
            ("sha256:12", "sha256:12"),
        ] {
            assert_eq!(full_name(written), full);
        }
    }
}
