use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use super::*;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}

fn password(user: &str, password: &str) -> Credential {
    Credential::Password {
        user: user.into(),
        password: password.into(),
    }
}

fn auth(text: &str) -> String {
    STANDARD.encode(text)
}

async fn find(file: &str, of: &str) -> Result<Option<Credential>, CredentialError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    fs::write(&path, file).unwrap();
    Files::at(vec![path]).find(&reference(of)).await
}

#[tokio::test]
async fn the_longest_matching_key_of_a_credentials_file_applies() {
    let file = format!(
        r#"{{"auths": {{"reg.test": {{"auth": "{}"}}, "reg.test/a": {{"auth": "{}"}},
            "reg.test/a/b/c": {{"auth": "{}"}}, "reg.test:5000": {{"auth": "{}"}},
            "other.test": {{}}}}, "HttpHeaders": {{"x": "y"}}}}"#,
        auth("one:1"),
        auth("two:2:2"),
        auth("three:"),
        STANDARD_NO_PAD.encode("four:4"),
    );
    for (of, expected) in [
        ("reg.test/x", Some(password("one", "1"))),
        ("reg.test/ab", Some(password("one", "1"))),
        ("reg.test/a", Some(password("two", "2:2"))),
        ("reg.test/a/b", Some(password("two", "2:2"))),
        ("reg.test/a/b/c/d", Some(password("three", ""))),
        ("reg.test:5000/a", Some(password("four", "4"))),
        ("reg.test:5001/a", None),
        ("sub.reg.test/a", None),
        ("other.test/a", None),
    ] {
        assert_eq!(find(&file, of).await.unwrap(), expected, "{of}");
    }
}

#[tokio::test]
async fn legacy_keys_are_recognised() {
    for key in [
        "https://index.docker.io/v1/",
        "index.docker.io",
        "docker.io",
        "https://registry-1.docker.io",
    ] {
        let file = format!(
            r#"{{"auths": {{"{key}": {{"auth": "{}"}}}}}}"#,
            auth("me:it")
        );
        let found = find(&file, "docker.io/me/it").await.unwrap();
        assert_eq!(found, Some(password("me", "it")), "{key}");
    }
    let file = r#"{"auths": {"https://reg.test/v2/": {"username": "u", "password": "p"}}}"#;
    assert_eq!(
        find(file, "reg.test/a").await.unwrap(),
        Some(password("u", "p"))
    );
    let file = format!(
        r#"{{"auths": {{"reg.test": {{"auth": "{}", "identitytoken": "t"}}}}}}"#,
        auth("<token>:")
    );
    let token = Credential::IdentityToken("t".into());
    assert_eq!(find(&file, "reg.test/a").await.unwrap(), Some(token));
}

#[tokio::test]
async fn the_first_file_with_the_registry_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let entry = |registry: &str, user: &str| {
        format!(
            r#"{{"auths": {{"{registry}": {{"auth": "{}"}}}}}}"#,
            auth(&format!("{user}:p"))
        )
    };
    fs::create_dir_all(at("docker")).unwrap();
    fs::create_dir_all(at("run/containers")).unwrap();
    fs::create_dir_all(at("home/.config/containers")).unwrap();
    fs::write(at("docker/config.json"), entry("a.test", "docker")).unwrap();
    fs::write(at("run/containers/auth.json"), entry("b.test", "run")).unwrap();
    fs::write(
        at("home/.config/containers/auth.json"),
        entry("b.test", "home"),
    )
    .unwrap();
    fs::write(at("auth.json"), entry("c.test", "alone")).unwrap();
    let mut set = vec![
        ("HOME", "home"),
        ("DOCKER_CONFIG", "docker"),
        ("XDG_RUNTIME_DIR", "run"),
    ];
    let files = |set: &[(&str, &str)]| {
        Files::of(|name| {
            let found = set.iter().find(|(other, _)| *other == name);
            found.map(|(_, path)| at(path))
        })
    };
    let user = async |files: &Files, of: &str| match files.find(&reference(of)).await.unwrap() {
        Some(Credential::Password { user, .. }) => user,
        other => format!("{other:?}"),
    };
    let all = files(&set);
    assert_eq!(user(&all, "a.test/x").await, "docker");
    assert_eq!(user(&all, "b.test/x").await, "run");
    assert_eq!(user(&all, "c.test/x").await, "None");
    set.push(("REGISTRY_AUTH_FILE", "auth.json"));
    let alone = files(&set);
    assert_eq!(user(&alone, "a.test/x").await, "None");
    assert_eq!(user(&alone, "c.test/x").await, "alone");
}

#[tokio::test]
async fn errors_about_credentials_contain_no_credentials() {
    for file in [
        r#"{"auths": {"reg.test": "hush"}}"#,
        r#"{"auths": {"reg.test": {"auth": "hush!"}}}"#,
        r#"{"auths": {"reg.test": {"auth": "aHVzaA=="}}}"#,
        r#"{"auths": {"reg.test": {"auth": 5}}} hush"#,
        "hush",
    ] {
        let refused = find(file, "reg.test/a").await.unwrap_err();
        let told = format!("{refused} {refused:?}");
        assert!(
            told.contains("config.json") && !told.contains("hush"),
            "{told}"
        );
    }
    assert_eq!(find(" \n", "reg.test/a").await.unwrap(), None);
    let told = format!(
        "{:?}",
        [
            password("me", "hush"),
            Credential::IdentityToken("hush".into())
        ]
    );
    assert!(!told.contains("hush"), "{told}");
}

#[tokio::test]
async fn an_endless_credentials_file_is_rejected() {
    let refused = Files::at(vec!["/dev/zero".into()])
        .find(&reference("reg.test/a"))
        .await;
    assert!(refused.unwrap_err().to_string().contains("too large"));
}

/// Queries a helper that runs this script.
async fn helped(script: &str, time: Duration) -> Result<Option<Credential>, CredentialError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docker-credential-x");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    helper::query(path.to_str().unwrap(), "reg.test", time).await
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_helper_receives_the_registry_and_returns_credentials() {
    let found = helped(
        concat!(
            r#"read server; "#,
            r#"echo "{\"ServerURL\": \"x\", \"Username\": \"$1\", \"Secret\": \"$server\"}""#,
        ),
        LONG,
    );
    assert_eq!(found.await.unwrap(), Some(password("get", "reg.test")));
    let found = helped(r#"echo '{"Username": "<token>", "Secret": "t"}'"#, LONG).await;
    assert_eq!(found.unwrap(), Some(Credential::IdentityToken("t".into())));
    let unknown = helped(
        "echo credentials not found in native keychain; exit 1",
        LONG,
    )
    .await;
    assert_eq!(unknown.unwrap(), None);
}

#[tokio::test]
async fn a_helper_that_fails_hangs_or_floods_is_an_error() {
    for (script, time, why) in [
        ("echo hush; exit 1", LONG, "does not give"),
        ("echo '{\"hush\": 1}'", LONG, "none of a helper's"),
        ("exec cat /dev/zero", LONG, "too long"),
        (
            "exec sleep 600",
            Duration::from_millis(200),
            "no answer within",
        ),
    ] {
        let told = helped(script, time).await.unwrap_err().to_string();
        assert!(told.contains(why) && !told.contains("hush"), "{told}");
    }
}

#[tokio::test]
async fn a_helper_name_is_never_a_path() {
    for name in ["", "../x", "/bin/true", "a b", "x\0"] {
        let refused = helper::ask(name, "reg.test").await.unwrap_err().to_string();
        assert!(refused.contains("no name of a helper"), "{refused}");
    }
    let missing = helper::ask("that-nobody-has", "reg.test").await;
    let told = missing.unwrap_err().to_string();
    assert!(told.contains("docker-credential-that-nobody-has"), "{told}");
}
