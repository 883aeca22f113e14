//! Creates and pushes an artifact in the CNCF's Wasm layout.

use std::collections::BTreeMap;

use bytes::Bytes;
use faasw_client::Digest;
use serde::Serialize;

use crate::{
    OciError, Registry,
    artifact::{FILES_LAYER, WASM_CONFIG, WASM_LAYER, os_of},
    reference::digest_text,
};

/// Media type of the manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Annotation with the file's name, used when clients such as `oras` unpack an artifact.
const TITLE: &str = "org.opencontainers.image.title";

/// An artifact to push.
#[derive(Debug)]
pub struct Pushed {
    /// The module.
    pub module: Bytes,
    /// The name of the module's file, `….wasm`.
    pub name: String,
    /// The layer of files, if there is one, made by
    /// [`write_files`](crate::artifact::write_files).
    pub files: Option<Bytes>,
    /// The annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u8,
    media_type: &'a str,
    config: Descriptor<'a>,
    layers: Vec<Descriptor<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor<'a> {
    media_type: &'a str,
    digest: String,
    size: usize,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'a str, &'a str>,
}

/// The config, by which runtimes recognise the artifact and containerd knows what to start.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    architecture: &'static str,
    os: &'static str,
    layer_digests: Vec<String>,
    config: Start,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Start {
    entrypoint: [String; 1],
}

fn descriptor<'a>(media_type: &'a str, bytes: &Bytes, title: Option<&'a str>) -> Descriptor<'a> {
    Descriptor {
        media_type,
        digest: digest_text(Digest::of(bytes)),
        size: bytes.len(),
        annotations: title.map(|title| (TITLE, title)).into_iter().collect(),
    }
}

impl Pushed {
    /// Pushes the artifact. The manifest is sent last, so that no client finds an incomplete
    /// artifact. Returns the digest of the manifest, which is equal for equal artifacts.
    ///
    /// # Errors
    /// Returns an error if the module is invalid or the registry rejects a part.
    pub async fn push(&self, registry: &Registry, tag: &str) -> Result<Digest, OciError> {
        let os = os_of(&self.module)
            .ok_or_else(|| OciError::artifact("the file does not begin as WebAssembly does"))?;
        let mut layers = vec![descriptor(WASM_LAYER, &self.module, Some(&self.name))];
        let files = self.files.as_ref();
        layers.extend(files.map(|files| descriptor(FILES_LAYER, files, Some("files.tar.gz"))));
        let config = json(&Config {
            architecture: "wasm",
            os,
            layer_digests: layers.iter().map(|layer| layer.digest.clone()).collect(),
            config: Start {
                entrypoint: [format!("/{}", self.name)],
            },
        })?;
        let manifest = json(&Manifest {
            schema_version: 2,
            media_type: MANIFEST,
            config: descriptor(WASM_CONFIG, &config, None),
            layers,
            annotations: &self.annotations,
        })?;
        for blob in [Some(&self.module), files, Some(&config)]
            .into_iter()
            .flatten()
        {
            registry.push_blob(blob.clone()).await?;
        }
        registry.push_manifest(tag, MANIFEST, manifest).await
    }
}

fn json(value: &impl Serialize) -> Result<Bytes, OciError> {
    let json = serde_json::to_vec(value);
    json.map(Bytes::from).map_err(OciError::artifact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_core_modules_are_distinguished() {
        assert_eq!(os_of(b"\0asm\x01\0\0\0..."), Some("wasip1"));
        assert_eq!(os_of(b"\0asm\x0d\0\x01\0..."), Some("wasip2"));
        for other in [
            &b""[..],
            b"\0asm",
            b"(module)",
            b"\0asm\x02\0\0\0",
            b"#!/bin/sh",
        ] {
            assert_eq!(os_of(other), None, "{other:?}");
        }
    }
}
