//! A server in place of containerd, with the calls that the shim makes, over blobs in memory.

use std::{
    collections::BTreeMap,
    os::unix::net::UnixListener,
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use faasw_shim::protobuf::{Reader, Writer};
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use sha2::{Digest as _, Sha256};

/// Returns the digest of a blob.
pub fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    let digits = digits.iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

#[derive(Default)]
struct Content {
    blobs: BTreeMap<String, Vec<u8>>,
    images: BTreeMap<String, (String, usize)>,
    made_of: Option<String>,
}

/// A server in place of containerd, which runs as long as the test.
#[derive(Clone)]
pub struct Containerd(Arc<Mutex<Content>>);

impl Containerd {
    pub fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let this = Self(Arc::default());
        let content = Arc::clone(&this.0);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    // The shim makes one call after the other, and then closes the connection.
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let content = Arc::clone(&content);
                        tokio::spawn(answer(content, request, respond));
                    }
                }
            });
        });
        this
    }

    /// Adds a blob.
    pub fn add_blob(&self, bytes: &[u8]) {
        let mut content = self.0.lock().unwrap();
        content.blobs.insert(digest(bytes), bytes.to_owned());
    }

    /// Stores other bytes under a blob's digest.
    pub fn replace(&self, bytes: &[u8], by: &[u8]) {
        let mut content = self.0.lock().unwrap();
        content.blobs.insert(digest(bytes), by.to_owned());
    }

    /// Removes a blob.
    pub fn forget(&self, bytes: &[u8]) {
        self.0.lock().unwrap().blobs.remove(&digest(bytes));
    }

    /// Adds an image of this name.
    pub fn name(&self, name: &str, manifest: &[u8]) {
        let mut content = self.0.lock().unwrap();
        let target = (digest(manifest), manifest.len());
        content.images.insert(name.to_owned(), target);
    }

    /// Records that CRI made the containers of the image with this config.
    pub fn made_of(&self, config: &str) {
        self.0.lock().unwrap().made_of = Some(config.to_owned());
    }
}

async fn answer(
    content: Arc<Mutex<Content>>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let method = request.uri().path().to_owned();
    assert_eq!(request.headers()["containerd-namespace"], "k8s.io");
    let mut body = request.into_body();
    let mut asked = Vec::new();
    while let Some(data) = body.data().await {
        asked.extend_from_slice(&data.unwrap());
    }
    let name = Reader::text(&asked[5..], 1).unwrap().unwrap().to_owned();
    let messages = content.lock().unwrap().messages(&method, &name);
    let response = Response::builder().header("content-type", "application/grpc");
    let mut stream = respond
        .send_response(response.body(()).unwrap(), false)
        .unwrap();
    for message in messages.iter().flatten() {
        let mut framed = vec![0];
        framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend_from_slice(message);
        stream.send_data(framed.into(), false).unwrap();
    }
    let mut trailers = HeaderMap::new();
    let status = if messages.is_some() { "0" } else { "5" };
    trailers.insert("grpc-status", status.parse().unwrap());
    stream.send_trailers(trailers).unwrap();
}

impl Content {
    fn messages(&self, method: &str, name: &str) -> Option<Vec<Vec<u8>>> {
        match method {
            "/containerd.services.containers.v1.Containers/Get" => {
                let mut container = Writer::default().bytes(1, name.as_bytes());
                if let Some(config) = &self.made_of {
                    let json = format!("{{\"Metadata\": {{\"ImageRef\": \"{config}\"}}}}");
                    let any = Writer::default().bytes(2, json.as_bytes()).done();
                    let key = b"io.cri-containerd.container.metadata";
                    let entry = Writer::default().bytes(1, key).bytes(2, &any).done();
                    container = container.bytes(10, &entry);
                }
                Some(vec![Writer::default().bytes(1, &container.done()).done()])
            }
            "/containerd.services.images.v1.Images/Get" => {
                let (digest, size) = self.images.get(name)?;
                let mut target = Writer::default().bytes(2, digest.as_bytes()).done();
                target.push(0x18);
                let mut size = *size;
                while size >= 0x80 {
                    target.push(size as u8 | 0x80);
                    size >>= 7;
                }
                target.push(size as u8);
                let image = Writer::default()
                    .bytes(1, name.as_bytes())
                    .bytes(3, &target)
                    .done();
                Some(vec![Writer::default().bytes(1, &image).done()])
            }
            "/containerd.services.content.v1.Content/Read" => {
                let blob = self.blobs.get(name)?;
                // containerd sends blobs in pieces, too.
                let pieces = blob.chunks(7.max(blob.len() / 3));
                Some(
                    pieces
                        .map(|piece| Writer::default().bytes(2, piece).done())
                        .collect(),
                )
            }
            other => panic!("{other}"),
        }
    }
}
