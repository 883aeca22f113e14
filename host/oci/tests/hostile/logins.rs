//! Credentials and tokens: which server receives them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use faasw_oci::{OciError, credentials::Credential};

use crate::{
    MODULE, SHOWN, good, is_blob, is_manifest, manifest_of, password, pull,
    server::{Answer, ReceivedRequest, Server},
};

fn challenge(realm: &str) -> Answer {
    let value = format!(r#"Bearer realm="{realm}",service="a service",scope="whatever""#);
    Answer::of(401).header("WWW-Authenticate", value)
}

fn content(request: &ReceivedRequest) -> Answer {
    match (is_manifest(request), is_blob(request)) {
        (true, _) => Answer::ok(manifest_of(MODULE)),
        (_, true) => Answer::ok(MODULE),
        _ => Answer::of(404),
    }
}

/// A registry that wants a token, which is had there or, at `/token`, of itself.
async fn wanting_tokens(realm: Option<String>) -> Server {
    Server::start(move |request| {
        if request.path.starts_with("/token") {
            return Answer::ok(r#"{"token": "t.o.k"}"#);
        }
        if request.authorization.as_deref() == Some("Bearer t.o.k") {
            return content(request);
        }
        match &realm {
            Some(realm) => challenge(realm),
            // Where it is itself it learns from the request alone.
            None => challenge("/token"),
        }
    })
    .await
}

#[tokio::test]
async fn a_foreign_realm_gets_no_credentials() {
    let elsewhere = Server::start(|_| Answer::ok(r#"{"token": "t.o.k"}"#)).await;
    let server = wanting_tokens(Some(elsewhere.url("/token"))).await;
    for credential in [
        password(),
        Some(Credential::IdentityToken("hush".to_owned())),
    ] {
        let failed = pull(&server, credential).await.unwrap_err();
        assert!(
            matches!(
                &failed,
                OciError::Realm { realm, .. } if *realm == elsewhere.address.to_string()
            ),
            "{failed}"
        );
    }
    assert!(
        elsewhere.requests().is_empty(),
        "{:?}",
        elsewhere.requests()
    );
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
    // If a token needs no log-in, the client fetches it from any server.
    assert_eq!(pull(&server, None).await.unwrap(), MODULE);
    let request = &elsewhere.requests()[0];
    assert!(request.authorization.is_none());
    assert_eq!(
        request.line(),
        "GET /token?scope=repository%3Ateam%2Fapp%3Apull&service=a+service"
    );
}

#[tokio::test]
async fn a_realm_of_the_registry_gets_credentials() {
    // An absolute address is what registries send; this one does not know its own before it is
    // asked.
    let server = wanting_tokens(None).await;
    let failed = pull(&server, password()).await.unwrap_err();
    assert!(matches!(failed, OciError::Protocol { .. }), "{failed}");
    let own = Arc::new(std::sync::OnceLock::<String>::new());
    let realm = own.clone();
    let server = Server::start(move |request| {
        if request.path.starts_with("/token") {
            return match request.authorization.as_deref() {
                Some(SHOWN) => Answer::ok(r#"{"access_token": "t.o.k"}"#),
                None if request.method == "POST" => Answer::ok(r#"{"access_token": "t.o.k"}"#),
                _ => Answer::of(401),
            };
        }
        match request.authorization.as_deref() {
            Some("Bearer t.o.k") => content(request),
            _ => challenge(realm.get().unwrap()),
        }
    })
    .await;
    own.set(server.url("/token")).unwrap();
    assert_eq!(pull(&server, password()).await.unwrap(), MODULE);
    let token = server
        .requests()
        .into_iter()
        .find(|request| request.path.starts_with("/token"))
        .unwrap();
    assert!(
        token.path.ends_with("&account=me&client_id=faasw"),
        "{}",
        token.path
    );
    let identity = Some(Credential::IdentityToken("a&b".to_owned()));
    assert_eq!(pull(&server, identity).await.unwrap(), MODULE);
    let posted = server
        .requests()
        .into_iter()
        .find(|request| request.method == "POST")
        .unwrap();
    assert!(
        posted.body.contains("refresh_token=a%26b") && !posted.path.contains("refresh"),
        "{posted:?}"
    );
    let failed = pull(&server, None).await.unwrap_err();
    assert!(
        matches!(failed, OciError::Unauthorized { had_one: false, .. }),
        "{failed}"
    );
}

#[tokio::test]
async fn a_password_is_sent_only_after_a_challenge() {
    let server = Server::start(|request| match request.authorization.as_deref() {
        Some(SHOWN) => content(request),
        _ => Answer::of(401).header("WWW-Authenticate", "Basic realm=\"r\""),
    })
    .await;
    assert_eq!(pull(&server, password()).await.unwrap(), MODULE);
    let shown: Vec<bool> = server
        .requests()
        .iter()
        .map(|request| request.authorization.is_some())
        .collect();
    assert_eq!(shown, [false, true, true]);
    let open = good().await;
    pull(&open, password()).await.unwrap();
    assert!(
        open.requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
    let refusing =
        Server::start(|_| Answer::of(401).header("WWW-Authenticate", "Basic realm=\"r\"")).await;
    let failed = pull(&refusing, password()).await.unwrap_err();
    assert!(
        matches!(failed, OciError::Unauthorized { had_one: true, .. }),
        "{failed}"
    );
    assert_eq!(refusing.lines().len(), 2);
}

#[tokio::test]
async fn a_redirect_target_gets_no_credentials() {
    let elsewhere = Server::start(|_| Answer::ok(MODULE)).await;
    let to = elsewhere.url("/signed?x=y");
    let server = Server::start(move |request| match request.authorization.as_deref() {
        Some(SHOWN) if is_blob(request) => Answer::of(307).header("Location", to.clone()),
        Some(SHOWN) => content(request),
        _ => Answer::of(401).header("WWW-Authenticate", "Basic realm=\"r\""),
    })
    .await;
    assert_eq!(pull(&server, password()).await.unwrap(), MODULE);
    let requests = elsewhere.requests();
    assert_eq!(
        (requests.len(), requests[0].authorization.as_deref()),
        (1, None)
    );
    // Nor does its asking for it help.
    let asking =
        Server::start(|_| Answer::of(401).header("WWW-Authenticate", "Basic realm=\"r\"")).await;
    let to = asking.url("/");
    let server = Server::start(move |request| {
        if is_manifest(request) {
            Answer::ok(manifest_of(MODULE))
        } else {
            Answer::of(302).header("Location", to.clone())
        }
    })
    .await;
    let failed = pull(&server, password()).await.unwrap_err();
    assert!(matches!(failed, OciError::Refused { .. }), "{failed}");
    assert_eq!(
        (
            asking.requests().len(),
            asking.requests()[0].authorization.as_deref()
        ),
        (1, None)
    );
}

#[tokio::test]
async fn a_redirect_loop_is_an_error() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = Server::start(move |_| {
        counted.fetch_add(1, Relaxed);
        Answer::of(302).header("Location", "/v2/again")
    })
    .await;
    let failed = pull(&server, None).await.unwrap_err();
    assert!(matches!(failed, OciError::Protocol { .. }), "{failed}");
    assert_eq!(count.load(Relaxed), 6);
    for to in ["file:///etc/passwd", "ftp://a.test/", "http://[", "\u{e9}"] {
        let server = Server::start(move |_| Answer::of(302).header("Location", to)).await;
        assert!(pull(&server, None).await.is_err(), "{to}");
    }
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_per_request() {
    let own = Arc::new(std::sync::OnceLock::<String>::new());
    let (realm, count) = (own.clone(), AtomicUsize::new(0));
    let server = Server::start(move |request| {
        if request.path.starts_with("/token") {
            let number = count.fetch_add(1, Relaxed);
            return Answer::ok(format!(r#"{{"token": "t{number}"}}"#));
        }
        match request.authorization.as_deref() {
            Some("Bearer t0") if is_manifest(request) => content(request),
            Some("Bearer t1") if is_blob(request) => content(request),
            _ => challenge(realm.get().unwrap()),
        }
    })
    .await;
    own.set(server.url("/token")).unwrap();
    assert_eq!(pull(&server, None).await.unwrap(), MODULE);
}

#[tokio::test]
async fn an_invalid_token_is_never_sent() {
    for answer in [
        "{}",
        "[]",
        "",
        "hush",
        r#"{"token": "a\r\nX: y"}"#,
        r#"{"token": 5, "x": "hush"}"#,
    ] {
        let elsewhere = Server::start(move |_| Answer::ok(answer)).await;
        let server = wanting_tokens(Some(elsewhere.url("/"))).await;
        let failed = pull(&server, None).await.unwrap_err();
        assert!(matches!(failed, OciError::Protocol { .. }), "{failed}");
        assert!(!failed.to_string().contains("hush"), "{failed}");
        assert_eq!(server.lines().len(), 1);
    }
}
