//! The way to a registry that does not want, or does not keep to what it says.

use std::collections::BTreeMap;

use bytes::Bytes;
use faasw_oci::{OciError, push::Pushed, registry::Action};

use crate::{
    MODULE, SHOWN, digest, password, registry,
    server::{Answer, Body, Server},
};

async fn push(server: &Server, module: &'static [u8]) -> Result<String, OciError> {
    let pushed = Pushed {
        module: Bytes::from_static(module),
        name: "app.wasm".to_owned(),
        files: None,
        annotations: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
    };
    let registry = registry(server, Action::Push, password());
    pushed
        .push(&registry, "v1")
        .await
        .map(|digest| digest.to_string())
}

#[tokio::test]
async fn the_manifest_is_sent_last_and_existing_blobs_are_not_sent() {
    let server = Server::start(|request| match request.method.as_str() {
        "HEAD" if request.path.ends_with(&digest(MODULE)) => Answer::ok(""),
        "HEAD" => Answer::of(404),
        "POST" => Answer::of(202).header("Location", "/upload/1?state=x"),
        _ => Answer::of(201),
    })
    .await;
    push(&server, MODULE).await.unwrap();
    let lines = server.lines();
    let config = lines[1].rsplit('/').next().unwrap();
    assert_eq!(lines[2], "POST /v2/team/app/blobs/uploads/");
    assert_eq!(
        lines[3],
        format!(
            "PUT /upload/1?state=x&digest={}",
            config.replace(':', "%3A")
        )
    );
    assert_eq!(lines[4], "PUT /v2/team/app/manifests/v1");
    let requests = server.requests();
    let manifest = &requests[4].body;
    assert!(
        manifest.contains(r#""org.opencontainers.image.title":"app.wasm""#),
        "{manifest}"
    );
    assert!(
        requests[3]
            .body
            .contains(r#""config":{"Entrypoint":["/app.wasm"]}"#),
        "{}",
        requests[3].body
    );
}

#[tokio::test]
async fn a_foreign_upload_target_gets_no_credentials() {
    let elsewhere = Server::start(|_| Answer::of(201)).await;
    let to = elsewhere.url("/bucket?signed=x");
    let server = Server::start(move |request| match request.authorization.as_deref() {
        Some(SHOWN) => match request.method.as_str() {
            "HEAD" => Answer::of(404),
            "POST" => Answer::of(202).header("Location", to.clone()),
            _ => Answer::of(201),
        },
        _ => Answer::of(401).header("WWW-Authenticate", "Basic realm=\"r\""),
    })
    .await;
    push(&server, MODULE).await.unwrap();
    let requests = elsewhere.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests
            .iter()
            .all(|request| request.authorization.is_none()),
        "{requests:?}"
    );
}

#[tokio::test]
async fn no_manifest_is_sent_after_a_rejected_module() {
    let answer = |status: u16, location: Option<&'static str>| {
        move |request: &crate::server::ReceivedRequest| match request.method.as_str() {
            "HEAD" => Answer::of(404),
            "POST" => match location {
                Some(to) => Answer::of(202).header("Location", to),
                None => Answer::of(202),
            },
            _ => Answer::of(status)
                .body(Body::Whole(br#"{"errors": [{"code": "DENIED"}]}"#.to_vec())),
        }
    };
    for (status, location) in [
        (403, Some("/u")),
        (200, Some("/u")),
        (201, None),
        (201, Some("gopher://x")),
    ] {
        let server = Server::start(answer(status, location)).await;
        push(&server, MODULE).await.unwrap_err();
        assert!(
            server
                .lines()
                .iter()
                .all(|line| !line.contains("manifests")),
            "{:?}",
            server.lines()
        );
    }
    let server = Server::start(answer(201, Some("/u"))).await;
    assert!(matches!(
        push(&server, b"(module)").await,
        Err(OciError::Artifact(_))
    ));
    assert!(server.lines().is_empty());
}

#[tokio::test]
async fn a_registry_that_reads_nothing_times_out() {
    static LARGE: [u8; 16 << 20] = {
        let mut bytes = [0; 16 << 20];
        (bytes[1], bytes[2], bytes[3], bytes[4]) = (b'a', b's', b'm', 1);
        bytes
    };
    let server = Server::start(|request| match request.method.as_str() {
        "HEAD" => Answer::of(404),
        "POST" => Answer::of(202).header("Location", "/u"),
        _ => Answer::of(201).body(Body::Nothing),
    })
    .await;
    let failed = push(&server, &LARGE).await.unwrap_err();
    assert!(matches!(failed, OciError::Stalled { .. }), "{failed}");
}

#[tokio::test]
async fn a_registry_that_reports_another_digest_is_an_error() {
    let server = Server::start(|request| {
        if request.path.contains("manifests") {
            Answer::of(201).header("Docker-Content-Digest", digest(b"another"))
        } else {
            Answer::ok("")
        }
    })
    .await;
    let failed = push(&server, MODULE).await.unwrap_err();
    assert!(matches!(failed, OciError::Damaged { .. }), "{failed}");
}
