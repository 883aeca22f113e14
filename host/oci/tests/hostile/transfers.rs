//! Transfers of blobs: complete, damaged, cut and stalled ones.

use std::time::Instant;

use faasw_oci::{OciError, Registry, reference::TagOrDigest, registry::Action};

use crate::{
    LIMIT, MODULE, STALL, digest, good, is_blob, is_manifest, manifest, manifest_of, pull,
    reference, registry,
    server::{Answer, Body, Server},
};

/// Whatever it is, it is over soon.
async fn fails(
    manifest: impl Fn() -> Answer + Send + Sync + 'static,
    blob: impl Fn() -> Answer + Send + Sync + 'static,
) -> OciError {
    let server = Server::start(move |request| {
        if is_manifest(request) {
            manifest()
        } else {
            blob()
        }
    })
    .await;
    let begun = Instant::now();
    let failed = pull(&server, None).await.unwrap_err();
    // A server that holds a transfer does so for ten minutes.
    assert!(begun.elapsed() < STALL * 150, "{failed}");
    failed
}

fn right() -> Answer {
    Answer::ok(manifest_of(MODULE))
}

fn none() -> Answer {
    Answer::of(500)
}

#[tokio::test]
async fn a_module_is_pulled_completely() {
    let server = good().await;
    assert_eq!(pull(&server, None).await.unwrap(), MODULE);
    let expected = [
        "GET /v2/team/app/manifests/v1".to_owned(),
        format!("GET /v2/team/app/blobs/{}", digest(MODULE)),
    ];
    assert_eq!(server.lines(), expected);
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
}

#[tokio::test]
async fn a_blob_of_another_digest_is_damaged() {
    let mut other = MODULE.to_vec();
    other[12] ^= 1;
    let failed = fails(right, move || Answer::ok(other.clone())).await;
    assert!(
        matches!(&failed, OciError::Damaged { why, .. } if why.contains("digest")),
        "{failed}"
    );
}

#[tokio::test]
async fn a_blob_of_another_length_is_damaged() {
    for body in [[MODULE, b"!"].concat(), MODULE[..9].to_vec(), Vec::new()] {
        let failed = fails(right, move || Answer::ok(body.clone())).await;
        assert!(
            matches!(&failed, OciError::Damaged { why, .. } if why.contains("bytes")),
            "{failed}"
        );
    }
    // This blob announces no length and does not end.
    let failed = fails(right, || {
        Answer::of(200).body(Body::Endless(MODULE.to_vec()))
    })
    .await;
    assert!(
        matches!(&failed, OciError::Damaged { why, .. } if why.contains("more than")),
        "{failed}"
    );
}

#[tokio::test]
async fn a_truncated_transfer_is_an_error() {
    let failed = fails(right, || {
        Answer::of(200).body(Body::Cut(MODULE[..9].to_vec(), MODULE.len()))
    })
    .await;
    assert!(matches!(failed, OciError::Connection { .. }), "{failed}");
    let failed = fails(|| Answer::of(200).body(Body::Cut(b"{".to_vec(), 300)), none).await;
    assert!(matches!(failed, OciError::Connection { .. }), "{failed}");
}

#[tokio::test]
async fn a_silent_registry_times_out() {
    let failed = fails(|| Answer::ok("").body(Body::Nothing), none).await;
    assert!(matches!(failed, OciError::Stalled { .. }), "{failed}");
    let failed = fails(
        || Answer::of(200).body(Body::Stalled(b"{".to_vec(), 300)),
        none,
    )
    .await;
    assert!(matches!(failed, OciError::Stalled { .. }), "{failed}");
    let failed = fails(right, || {
        Answer::of(200).body(Body::Stalled(MODULE[..9].to_vec(), MODULE.len()))
    })
    .await;
    assert!(matches!(failed, OciError::Stalled { .. }), "{failed}");
    let failed = fails(|| Answer::of(200).body(Body::Dripping(100_000)), none).await;
    assert!(matches!(failed, OciError::Slow { .. }), "{failed}");
}

#[tokio::test]
async fn an_endless_manifest_is_rejected() {
    let endless = || Answer::of(200).body(Body::Endless(vec![b' '; 64 << 10]));
    let failed = fails(endless, none).await;
    assert!(matches!(failed, OciError::TooLarge { .. }), "{failed}");
    let huge = || Answer::of(200).body(Body::Stalled(Vec::new(), 1 << 40));
    let failed = fails(huge, none).await;
    assert!(matches!(failed, OciError::TooLarge { .. }), "{failed}");
    let refused = || Answer::of(403).body(Body::Endless(vec![b'x'; 64 << 10]));
    let failed = fails(refused, none).await;
    assert!(matches!(failed, OciError::Refused { .. }), "{failed}");
}

#[tokio::test]
async fn a_module_that_is_too_large_is_not_requested() {
    let server = Server::start(|request| {
        if is_manifest(request) {
            Answer::ok(manifest(&digest(MODULE), LIMIT + 1))
        } else {
            Answer::ok(MODULE)
        }
    })
    .await;
    let failed = pull(&server, None).await.unwrap_err();
    assert!(
        matches!(failed, OciError::TooLarge { limit: LIMIT, .. }),
        "{failed}"
    );
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn a_blob_that_is_no_webassembly_is_rejected() {
    for content in [&b"\0files\x01\0"[..], b"\0script\x01", b"(module)", b""] {
        let failed = fails(
            move || Answer::ok(manifest_of(content)),
            move || Answer::ok(content),
        )
        .await;
        assert!(matches!(failed, OciError::Artifact(_)), "{failed}");
    }
}

#[tokio::test]
async fn a_manifest_must_have_the_requested_digest() {
    let lying =
        || Answer::ok(manifest_of(MODULE)).header("Docker-Content-Digest", digest(b"another"));
    let failed = fails(lying, || Answer::ok(MODULE)).await;
    assert!(matches!(failed, OciError::Damaged { .. }), "{failed}");
    let server = good().await;
    let wanted = reference(&server).at(faasw_client::Digest::of(b"another"));
    let registry = registry(&server, Action::Pull, None);
    let failed = registry.manifest(wanted.tag_or_digest()).await.unwrap_err();
    assert!(matches!(failed, OciError::Damaged { .. }), "{failed}");
}

#[tokio::test]
async fn a_tag_is_resolved_with_and_without_the_digest_header() {
    let expected = faasw_client::Digest::of(manifest_of(MODULE).as_bytes());
    let resolve = async |registry: Registry| registry.resolve(&TagOrDigest::Tag("v1".into())).await;
    let server = good().await;
    assert_eq!(
        resolve(registry(&server, Action::Pull, None))
            .await
            .unwrap(),
        expected
    );
    assert_eq!(
        server.lines(),
        [
            "HEAD /v2/team/app/manifests/v1",
            "GET /v2/team/app/manifests/v1"
        ]
    );
    let saying = Server::start(move |_| {
        Answer::ok("").header("docker-content-digest", format!("sha256:{expected}"))
    })
    .await;
    assert_eq!(
        resolve(registry(&saying, Action::Pull, None))
            .await
            .unwrap(),
        expected
    );
    assert_eq!(saying.lines().len(), 1);
    let missing = Server::start(|_| Answer::of(404)).await;
    let failed = resolve(registry(&missing, Action::Pull, None))
        .await
        .unwrap_err();
    assert!(matches!(failed, OciError::Missing { .. }), "{failed}");
}

#[tokio::test]
async fn an_index_pulls_its_wasi_entry_and_resolves_to_itself() {
    let one = manifest_of(MODULE);
    let platform = r#""platform": {"os": "wasi", "architecture": "wasm"}"#;
    let index = format!(
        r#"{{"schemaVersion": 2,
            "manifests": [{{"mediaType": "m", "digest": "{}", "size": 1, {platform}}}]}}"#,
        digest(one.as_bytes())
    );
    let told = index.clone();
    let server = Server::start(move |request| match request.path.rsplit('/').next() {
        Some("v1") => Answer::ok(told.clone()),
        Some(_) if is_manifest(request) => Answer::ok(one.clone()),
        _ if is_blob(request) => Answer::ok(MODULE),
        _ => Answer::of(404),
    })
    .await;
    assert_eq!(pull(&server, None).await.unwrap(), MODULE);
    let registry = registry(&server, Action::Pull, None);
    let found = faasw_oci::Artifact::find(&registry, reference(&server).tag_or_digest())
        .await
        .unwrap();
    assert_eq!(found.digest(), faasw_client::Digest::of(index.as_bytes()));
    // An index of itself leads nowhere.
    let circle = Server::start(move |_| Answer::ok(index.clone())).await;
    assert!(pull(&circle, None).await.is_err());
}

#[tokio::test]
async fn messages_of_a_registry_are_shortened_and_escaped() {
    let body = format!(
        r#"{{"errors": [{{"code": "DENIED", "message": "no\u001b[31m\n{}"}}]}}"#,
        "x".repeat(5000)
    );
    let failed = fails(
        move || Answer::of(403).body(Body::Whole(body.clone().into_bytes())),
        none,
    )
    .await;
    let told = failed.to_string();
    assert!(
        told.contains("403") && told.len() < 600 && !told.contains(['\n', '\u{1b}']),
        "{told}"
    );
}
