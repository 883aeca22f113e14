//! A registry that requires tokens, like Docker Hub's and GitHub's, and the server that issues
//! them.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::SystemTime,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::json;

use crate::{
    program::{Desk, module, read, reference},
    registry::{ISSUER, PASSWORD, Registry, SERVICE, USER},
};

/// The signer of tokens: the registry's own certificate, which its authority has signed.
struct Signer {
    certificate: String,
    key: EcdsaKeyPair,
}

impl Signer {
    fn of(registry: &Registry) -> Self {
        let read = |name: &str| fs::read(registry.folder.path().join(name)).unwrap();
        let certificate = CertificateDer::from_pem_slice(&read("cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(&read("key.pem")).unwrap();
        let random = SystemRandom::new();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_der(), &random);
        Self {
            certificate: STANDARD.encode(certificate),
            key: key.unwrap(),
        }
    }

    /// Returns a token for these actions on a repository.
    fn token(&self, repository: &str, actions: &[&str]) -> String {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let head = json!({"typ": "JWT", "alg": "ES256", "x5c": [self.certificate]});
        let claims = json!({
            "iss": ISSUER, "aud": SERVICE, "sub": "", "jti": "1",
            "iat": now, "nbf": now - 60, "exp": now + 300,
            "access": [{"type": "repository", "name": repository, "actions": actions}],
        });
        let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(head), encode(claims));
        let signature = self
            .key
            .sign(&SystemRandom::new(), signed.as_bytes())
            .unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Issues pull tokens to every client, and the requested tokens to clients that log in. Stores all
/// request heads. The server ends with the test's process.
fn serve(listener: TcpListener, signer: Arc<OnceLock<Signer>>, heads: Arc<Mutex<Vec<String>>>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let log_in = format!(
            "authorization: Basic {}",
            STANDARD.encode(format!("{USER}:{PASSWORD}"))
        );
        let repository = head.split("scope=repository%3A").nth(1).unwrap();
        let (repository, rest) = repository.split_once("%3A").unwrap();
        let wants_push = rest.starts_with("pull%2Cpush&");
        let actions: &[&str] = if wants_push && head.contains(&log_in) {
            &["pull", "push"]
        } else {
            &["pull"]
        };
        let token = signer
            .get()
            .unwrap()
            .token(&repository.replace("%2F", "/"), actions);
        let body = json!({ "token": token, "expires_in": 300 }).to_string();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        heads.lock().unwrap().push(head);
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

pub async fn tokens_come_from_the_realm_of_the_registry() {
    let desk = Desk::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let realm = format!("http://{}/token", listener.local_addr().unwrap());
    let registry = Registry::of_tokens(&realm);
    let (signer, heads) = (
        Arc::new(OnceLock::new()),
        Arc::<Mutex<Vec<String>>>::default(),
    );
    assert!(signer.set(Signer::of(&registry)).is_ok());
    thread::spawn({
        let (signer, heads) = (signer.clone(), heads.clone());
        move || serve(listener, signer, heads)
    });
    let count = || heads.lock().unwrap().len();
    let file = desk.write("a.wasm", module("one"));
    let tag = reference(&registry, "a:v1");
    // A client without a log-in may not push.
    let told = desk.refused(&["push", &file, &tag]);
    assert!(told.contains("wants a log-in"), "{told}");
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let name = registry.name();
    desk.write(
        ".docker/config.json",
        format!(r#"{{"auths": {{"{name}": {{"auth": "{auth}"}}}}}}"#),
    );
    // A server at another port without TLS is not trusted with the log-in.
    let anonymous = count();
    let told = desk.refused(&["push", &file, &tag]);
    assert!(
        told.contains("--token-host 127.0.0.1") && count() == anonymous,
        "{told}"
    );
    desk.done(&["push", &file, &tag, "--token-host", "127.0.0.1"]);
    assert_eq!(count(), anonymous + 1);
    desk.done(&["pull", &tag, "--token-host", "127.0.0.1", "-o", "out.wasm"]);
    assert_eq!(read(&desk.path("out.wasm")), module("one"));
    fs::remove_file(desk.path(".docker/config.json")).unwrap();
    desk.done(&["deploy", &format!("oci://{tag}")]);
    let heads = heads.lock().unwrap();
    assert!(
        !heads.last().unwrap().contains("authorization"),
        "{heads:?}"
    );
}
