//! Requests to containerd: which image a container has, and the blobs of the content store.
//!
//! This module verifies blobs against their digests. The content store verified them only when it
//! received them.

use std::{
    env,
    ffi::OsString,
    future::Future,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::{
    error::Error,
    grpc::{Connection, Failure},
    image::{Descriptor, hex},
    protobuf::{Malformed, Reader, Value, Writer},
};

/// Environment variable with the address of containerd's socket. runc's shim passes it on to runc.
pub const ADDRESS: &str = "FAASW_SHIM_CONTAINERD";
/// Environment variable with containerd's namespace, passed on in the same way.
pub const NAMESPACE: &str = "FAASW_SHIM_NAMESPACE";

/// Timeout for all requests for one container, well below kubelet's timeout of two minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The extension of a container's record in which CRI stores its metadata.
const OF_CRI: &str = "io.cri-containerd.container.metadata";

/// A connection to containerd, for one namespace.
#[derive(Debug)]
pub struct Containerd {
    connection: Connection,
    namespace: String,
}

/// containerd's record of a container.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The image's name.
    pub image: String,
    /// The digest of the config of the image from which CRI created the container. `None` if CRI
    /// did not create it.
    pub config: Option<String>,
}

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Self {
        Self::Containerd("its answer is malformed".into())
    }
}

/// Runs requests to containerd to completion, for at most 60 s.
///
/// # Errors
/// Returns the error of the requests, [`Error::Containerd`] after the timeout, or [`Error::Io`] if
/// no runtime can be started.
pub fn ask<T>(requests: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io("a runtime", error))?;
    runtime.block_on(async {
        timeout(CALL_TIMEOUT, requests).await.unwrap_or_else(|_| {
            Err(Error::Containerd(format!(
                "no answer within {} s",
                CALL_TIMEOUT.as_secs()
            )))
        })
    })
}

impl Containerd {
    /// Connects to the containerd that started this pod's shim, as [`ADDRESS`] and [`NAMESPACE`]
    /// name it.
    ///
    /// # Errors
    /// Returns [`Error::Containerd`] if a variable is not set or nothing answers at the address.
    pub async fn connect() -> Result<Self, Error> {
        let known = |name: &str| -> Result<OsString, Error> {
            env::var_os(name).ok_or_else(|| {
                Error::Containerd(format!("its address is unknown: no {name} is set"))
            })
        };
        let namespace = known(NAMESPACE)?;
        let namespace = namespace.to_str().ok_or(Malformed)?.to_owned();
        let socket = PathBuf::from(known(ADDRESS)?);
        Ok(Self {
            connection: Connection::open(&socket).await?,
            namespace,
        })
    }

    async fn get(&mut self, method: &str, name: &str) -> Result<bytes::Bytes, Failure> {
        let request = Writer::default().bytes(1, name.as_bytes()).done();
        let messages = self.connection.call(method, &self.namespace, &request);
        messages.await?.only().await
    }

    /// Returns the record of a container.
    ///
    /// # Errors
    /// Returns [`Error::Containerd`] if there is no such container or the request fails.
    pub async fn container(&mut self, id: &str) -> Result<Record, Error> {
        let method = "/containerd.services.containers.v1.Containers/Get";
        let answer = self.get(method, id).await?;
        let container = Reader::last(&answer, 1)?.unwrap_or_default();
        Ok(record(container)?)
    }

    /// Returns the descriptor of the manifest or index to which an image name leads, or `None` if
    /// containerd has no image of this name.
    ///
    /// # Errors
    /// Returns [`Error::Containerd`] if the request fails.
    pub async fn image(&mut self, name: &str) -> Result<Option<Descriptor>, Error> {
        let method = "/containerd.services.images.v1.Images/Get";
        let answer = match self.get(method, name).await {
            Ok(answer) => answer,
            Err(Failure::NotFound) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        };
        let image = Reader::last(&answer, 1)?.unwrap_or_default();
        let target = Reader::last(image, 3)?.unwrap_or_default();
        Ok(Some(descriptor(target)?))
    }

    /// Returns a small blob. `what` names it in errors.
    ///
    /// # Errors
    /// Returns an error if the blob is missing, has more than `most` bytes, or does not match its
    /// digest.
    pub async fn small(
        &mut self,
        blob: &Descriptor,
        what: &str,
        most: u64,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.copy(blob, what, most, &mut bytes).await?;
        Ok(bytes)
    }

    /// Copies a blob to a writer. What was written is unverified until this function returns `Ok`.
    ///
    /// # Errors
    /// Returns the errors of [`small`](Self::small), and [`Error::Io`] if writing fails.
    pub async fn copy(
        &mut self,
        blob: &Descriptor,
        what: &str,
        most: u64,
        to: &mut impl Write,
    ) -> Result<(), Error> {
        let digest = blob.digest()?;
        if blob.size > most {
            return Err(Error::image(format!(
                "{what} has {} bytes, more than {most}",
                blob.size
            )));
        }
        let request = Writer::default().bytes(1, digest.as_bytes()).done();
        let method = "/containerd.services.content.v1.Content/Read";
        let of_blob = |why: &str| Error::image(format!("{what}, {digest}, {why}"));
        let call = self.connection.call(method, &self.namespace, &request);
        let mut messages = call.await?;
        let (mut hash, mut written) = (Sha256::new(), 0_u64);
        loop {
            let message = match messages.next().await {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(Failure::NotFound) => {
                    return Err(of_blob("is not in containerd's content store"));
                }
                Err(failure) => return Err(failure.into()),
            };
            let data = Reader::last(&message, 2)?.unwrap_or_default();
            written += data.len() as u64;
            if written > blob.size {
                return Err(of_blob("is longer than its manifest says"));
            }
            hash.update(data);
            to.write_all(data).map_err(|error| Error::io(what, error))?;
        }
        if written != blob.size {
            return Err(of_blob("is shorter than its manifest says"));
        }
        if digest != format!("sha256:{}", hex(&hash.finalize())) {
            return Err(of_blob("does not match its digest"));
        }
        Ok(())
    }
}

/// Returns the socket's path from an address, which may be a `unix://` URL.
#[must_use]
pub fn socket_of(address: &str) -> &Path {
    Path::new(address.strip_prefix("unix://").unwrap_or(address))
}

fn descriptor(message: &[u8]) -> Result<Descriptor, Malformed> {
    let text = |field| Reader::text(message, field).map(Option::unwrap_or_default);
    let mut size = 0;
    for field in Reader::new(message) {
        if let (3, Value::Number(number)) = field? {
            size = number;
        }
    }
    Ok(Descriptor::new(text(1)?, text(2)?, size))
}

fn record(container: &[u8]) -> Result<Record, Malformed> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Extension {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Metadata {
        image_ref: String,
    }
    let mut record = Record {
        image: Reader::text(container, 3)?.unwrap_or_default().to_owned(),
        config: None,
    };
    for field in Reader::new(container) {
        if let (10, Value::Bytes(entry)) = field?
            && Reader::text(entry, 1)? == Some(OF_CRI)
        {
            let any = Reader::last(entry, 2)?.unwrap_or_default();
            let json = Reader::last(any, 2)?.unwrap_or_default();
            let extension: Extension = serde_json::from_slice(json).map_err(|_| Malformed)?;
            record.config = Some(extension.metadata.image_ref);
        }
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_names_its_image() {
        let json = br#"{"Version":"v1","Metadata":{"ID":"c","ImageRef":"sha256:12"}}"#;
        let any = Writer::default().bytes(1, b"type").bytes(2, json).done();
        let entry = |key: &str, any: &[u8]| {
            Writer::default()
                .bytes(1, key.as_bytes())
                .bytes(2, any)
                .done()
        };
        let message = |entry: &[u8]| {
            Writer::default()
                .bytes(1, b"c")
                .bytes(3, b"docker.io/library/a:1")
                .bytes(10, entry)
                .done()
        };
        let of_cri = record(&message(&entry(OF_CRI, &any))).unwrap();
        assert_eq!(of_cri.image, "docker.io/library/a:1");
        assert_eq!(of_cri.config.as_deref(), Some("sha256:12"));
        let of_others = record(&message(&entry("other", &any))).unwrap();
        assert_eq!(of_others.config, None);
        let broken = Writer::default().bytes(2, b"{").done();
        assert_eq!(record(&message(&entry(OF_CRI, &broken))), Err(Malformed));
    }

    #[test]
    fn an_image_leads_to_a_descriptor() {
        let mut message = Writer::default().bytes(1, b"type").bytes(2, b"sha256:1");
        message = message.bytes(9, b"later");
        let mut message = message.done();
        message.extend([0x18, 0xac, 0x02]);
        let found = descriptor(&message).unwrap();
        assert_eq!((found.media_type.as_str(), found.size), ("type", 300));
        assert!(found.digest().is_err());
    }

    #[test]
    fn addresses_are_paths_or_urls_of_them() {
        for address in ["/run/c.sock", "unix:///run/c.sock"] {
            assert_eq!(socket_of(address), Path::new("/run/c.sock"));
        }
    }
}
