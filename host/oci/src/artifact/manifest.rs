//! Parses manifests. Alternative addresses of a layer's content (`urls`) are ignored.

use std::collections::BTreeMap;

use faasw_client::Digest;
use serde::Deserialize;

use crate::{OciError, reference::parse_digest, registry::Blob};

/// Media type of the config in the CNCF's Wasm layout.
pub const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// Media type of a layer that is a module.
pub const WASM_LAYER: &str = "application/wasm";

/// Former media types of such layers.
const WASM_LAYERS_OF_OLD: [&str; 2] = [
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
];

/// Media type of a layer with the files of a function.
pub const FILES_LAYER: &str = "application/vnd.faasw.files.v1.tar+gzip";

/// Media types of layers of images. Their first bytes reveal the compression.
const TAR_LAYERS: [&str; 5] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
];

/// Maximum size of a config in bytes. The config itself is not read.
const CONFIG_MAX: u64 = 4 << 20;

/// Names of WASI's platforms, in order of preference: those more likely to be components first.
const PLATFORMS: [&str; 4] = ["wasip3", "wasip2", "wasip1", "wasi"];

/// An image's manifest, or an index of several.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    schema_version: u64,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// A descriptor of a manifest or a blob.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// The content of an artifact.
#[derive(Debug)]
pub(crate) enum Content {
    /// A module as a layer of its own, and optionally a layer of files.
    Module {
        module: Descriptor,
        files: Option<Descriptor>,
    },
    /// An image with one layer that contains a module.
    Image(Descriptor),
}

impl Document {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, OciError> {
        let document: Self = serde_json::from_slice(bytes)
            .map_err(|error| OciError::artifact(format!("its manifest cannot be read: {error}")))?;
        if document.schema_version != 2 {
            let version = document.schema_version;
            return Err(OciError::artifact(format!(
                "its manifest is of version {version}, and not 2"
            )));
        }
        // Readers could disagree whether such a document is an index or an image (CVE-2021-41190).
        if document.layers.is_some() == document.manifests.is_some() {
            return Err(OciError::artifact(
                "its manifest is neither an image's nor an index's alone",
            ));
        }
        Ok(document)
    }

    /// Returns the digest of the selected manifest of an index, or `None` if this is not an index.
    pub(crate) fn of_wasi(&self) -> Result<Option<Digest>, OciError> {
        let Some(manifests) = &self.manifests else {
            return Ok(None);
        };
        let is_wasm =
            |platform: &Platform| matches!(platform.architecture.as_str(), "wasm" | "wasm32");
        for os in PLATFORMS {
            let mut fitting = manifests.iter().filter(|one| {
                let platform = one.platform.as_ref();
                platform.is_some_and(|platform| platform.os == os && is_wasm(platform))
            });
            match (fitting.next(), fitting.next()) {
                (None, _) => {}
                (Some(one), None) => return Ok(Some(one.blob()?.digest)),
                (Some(_), Some(_)) => {
                    return Err(OciError::artifact(format!(
                        "several of its manifests are for {os}"
                    )));
                }
            }
        }
        // Signatures and similar manifests have the platform `unknown`.
        let is_something = |one: &&Descriptor| {
            let platform = one.platform.as_ref();
            platform.is_none_or(|platform| platform.os != "unknown")
        };
        let mut others = manifests.iter().filter(is_something);
        match (others.next(), others.next()) {
            (Some(one), None) => Ok(Some(one.blob()?.digest)),
            _ => Err(OciError::artifact(format!(
                "none of its manifests is for {} with wasm",
                PLATFORMS.join(" or ")
            ))),
        }
    }

    /// Returns the content of the artifact.
    pub(crate) fn content(&self) -> Result<Content, OciError> {
        let layers = self
            .layers
            .as_deref()
            .ok_or_else(|| OciError::artifact("what its index leads to is an index, too"))?;
        if let Some(config) = &self.config {
            config.check_size(CONFIG_MAX, "the config")?;
        }
        let (mut modules, mut files, mut tars) = (Vec::new(), Vec::new(), Vec::new());
        for layer in layers {
            match layer.media_type.as_str() {
                WASM_LAYER => modules.push(layer),
                kind if WASM_LAYERS_OF_OLD.contains(&kind) => modules.push(layer),
                FILES_LAYER => files.push(layer),
                kind if TAR_LAYERS.contains(&kind) => tars.push(layer),
                other => return Err(OciError::artifact(format!("it has a layer of {other}"))),
            }
        }
        match (modules.as_slice(), files.as_slice(), tars.as_slice()) {
            ([module], [], []) => Ok(Content::Module {
                module: (*module).clone(),
                files: None,
            }),
            ([module], [files], []) => Ok(Content::Module {
                module: (*module).clone(),
                files: Some((*files).clone()),
            }),
            ([], [], [tar]) => Ok(Content::Image((*tar).clone())),
            ([], [], []) => Err(OciError::artifact("it has no layers")),
            ([], [], several) => Err(OciError::artifact(format!(
                "it is an image of {} layers, and not of one",
                several.len()
            ))),
            (modules, files, tars) => Err(OciError::artifact(format!(
                "it has {} layers of {WASM_LAYER}, {} of files and {} of an image",
                modules.len(),
                files.len(),
                tars.len()
            ))),
        }
    }

    pub(crate) fn annotations(self) -> BTreeMap<String, String> {
        self.annotations.unwrap_or_default()
    }
}

impl Descriptor {
    pub(crate) fn blob(&self) -> Result<Blob, OciError> {
        let digest = parse_digest(&self.digest);
        Ok(Blob {
            digest: digest.map_err(OciError::artifact)?,
            bytes: self.size,
        })
    }

    /// Checks the announced size, so that nothing too large is downloaded.
    pub(crate) fn check_size(&self, limit: u64, what: &str) -> Result<(), OciError> {
        if self.size > limit {
            Err(OciError::TooLarge {
                what: what.to_owned(),
                limit,
            })
        } else {
            Ok(())
        }
    }
}

/// Returns the system for which a module is: that of components or that of core modules. Returns
/// `None` for anything else.
#[must_use]
pub fn os_of(module: &[u8]) -> Option<&'static str> {
    // The layer field (core module or component) follows the version field.
    match module.get(..8)? {
        [b'\0', b'a', b's', b'm', _, _, 1, 0] => Some("wasip2"),
        [b'\0', b'a', b's', b'm', 1, 0, 0, 0] => Some("wasip1"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(letter: char) -> String {
        format!("sha256:{}", letter.to_string().repeat(64))
    }

    fn layer(kind: &str) -> String {
        format!(
            r#"{{"mediaType": "{kind}", "digest": "{}", "size": 9,
                "urls": ["https://evil.test/"]}}"#,
            digest('a')
        )
    }

    fn content(kinds: &[&str]) -> Result<Content, OciError> {
        let layers: Vec<String> = kinds.iter().map(|kind| layer(kind)).collect();
        let json = format!(
            r#"{{"schemaVersion": 2, "config": {}, "layers": [{}], "subject": {{}}}}"#,
            layer("application/vnd.oci.empty.v1+json"),
            layers.join(",")
        );
        Document::read(json.as_bytes())?.content()
    }

    #[test]
    fn a_module_layer_or_an_image_of_one_layer_is_accepted() {
        for kinds in [
            &[WASM_LAYER][..],
            &[WASM_LAYERS_OF_OLD[0]],
            &[FILES_LAYER, WASM_LAYER],
        ] {
            let Content::Module { module, files } = content(kinds).unwrap() else {
                panic!("{kinds:?}");
            };
            assert_eq!((module.size, files.is_some()), (9, kinds.len() == 2));
        }
        for kind in TAR_LAYERS {
            assert!(
                matches!(content(&[kind]).unwrap(), Content::Image(_)),
                "{kind}"
            );
        }
        for kinds in [
            &[][..],
            &[WASM_LAYER, WASM_LAYER],
            &[WASM_LAYER, FILES_LAYER, FILES_LAYER],
            &[FILES_LAYER],
            &[WASM_LAYER, TAR_LAYERS[0]],
            &[TAR_LAYERS[0], TAR_LAYERS[0]],
            &[WASM_LAYER, "text/plain"],
            &["application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"],
        ] {
            let refused = content(kinds).unwrap_err();
            assert!(
                matches!(refused, OciError::Artifact(_)),
                "{kinds:?} {refused}"
            );
        }
    }

    fn index(platforms: &[(&str, &str)]) -> Result<Option<Digest>, OciError> {
        let manifests: Vec<String> = platforms
            .iter()
            .zip('a'..)
            .map(|((os, architecture), letter)| {
                let digest = digest(letter);
                format!(
                    r#"{{"mediaType": "m", "digest": "{digest}", "size": 9,
                        "platform": {{"os": "{os}", "architecture": "{architecture}"}}}}"#
                )
            })
            .collect();
        let json = format!(
            r#"{{"schemaVersion": 2, "manifests": [{}]}}"#,
            manifests.join(",")
        );
        Document::read(json.as_bytes())?.of_wasi()
    }

    #[test]
    fn an_index_selects_its_wasi_or_only_entry() {
        let wasi = ("wasi", "wasm");
        for (platforms, expected) in [
            (&[("linux", "amd64"), wasi][..], 'b'),
            (&[wasi, ("wasip1", "wasm"), ("wasip2", "wasm32")], 'c'),
            (&[("linux", "amd64")], 'a'),
            (&[("unknown", "unknown"), ("linux", "arm64")], 'b'),
        ] {
            let found = index(platforms).unwrap().unwrap().to_string();
            assert!(found.starts_with(expected), "{platforms:?} {found}");
        }
        for platforms in [
            &[][..],
            &[wasi, wasi],
            &[("linux", "amd64"), ("linux", "arm64")],
            &[("wasi", "amd64"), ("js", "wasm")],
        ] {
            assert!(index(platforms).is_err(), "{platforms:?}");
        }
        // All platforms that it looks for are named.
        let refused = index(&[]).unwrap_err().to_string();
        assert!(PLATFORMS.iter().all(|os| refused.contains(os)), "{refused}");
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
            r#"{"schemaVersion": 2, "layers": {}}"#,
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
        let wrong = layer(WASM_LAYER).replace("sha256:aaaa", "sha256:zzzz");
        let descriptor: Descriptor = serde_json::from_str(&wrong).unwrap();
        assert!(descriptor.blob().is_err());
        assert!(descriptor.check_size(8, "it").is_err() && descriptor.check_size(9, "it").is_ok());
    }
}
