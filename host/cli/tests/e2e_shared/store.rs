//! Stores: what makes another entry, who may add entries, and how they are removed.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
    process::Stdio,
};

use serde_json::Value;

use crate::{
    HELLO, TestStore, USED,
    e2e::process::faasw,
    entry::{Entry, flip},
    serve,
};

const NOT_SHARED: Option<i32> = Some(5);

pub fn every_difference_makes_another_entry() {
    let test_store = TestStore::empty();
    let words = ["-e", "A=b", "--memory", "16"];
    let entry = test_store.add(HELLO, &words);
    let find = |words: &[&str]| test_store.share(&[&["find"], words].concat());
    let found = find(&[&[HELLO, "--namespace", "n"], &words[..]].concat());
    let found = Entry::parse(&String::from_utf8(found.stdout).unwrap());
    assert_eq!((&found.folder, &found.key), (&entry.folder, &entry.key));
    // A client with an image's manifest searches by the module's digest.
    let module = fs::read(crate::e2e::root().join(HELLO)).unwrap();
    let digest = format!("sha256:{}", faasw::Digest::of(&module));
    let by_digest = [
        "--digest",
        &digest,
        "--name",
        "hello",
        "--namespace",
        "n",
        "--json",
    ];
    let told = find(&[&by_digest[..], &words].concat());
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["folder"], entry.folder.to_str().unwrap());
    assert_eq!(told["key"], entry.key.to_str().unwrap());
    let others: [&[&str]; 7] = [
        &[HELLO, "--namespace", "m", "-e", "A=b", "--memory", "16"],
        &[HELLO, "--namespace", "n", "-e", "A=c", "--memory", "16"],
        &[HELLO, "--namespace", "n", "-e", "A=b", "--memory", "17"],
        &[HELLO, "--namespace", "n", "-e", "A=b"],
        &[
            HELLO,
            "--namespace",
            "n",
            "-e",
            "A=b",
            "--memory",
            "16",
            "--name",
            "x",
        ],
        &[
            HELLO,
            "--namespace",
            "n",
            "-e",
            "A=b",
            "--memory",
            "16",
            "--freeze",
            "before-init",
        ],
        &[
            "tests/fixtures/wat/nothing.wasm",
            "--name",
            "hello",
            "--namespace",
            "n",
            "-e",
            "A=b",
            "--memory",
            "16",
        ],
    ];
    for other in others {
        let output = find(other);
        assert_eq!(output.status.code(), NOT_SHARED, "{other:?} {output:?}");
        assert!(output.stdout.is_empty());
    }
    for senseless in [
        &[HELLO, "--namespace", "../n"][..],
        &[HELLO, "--namespace", ""],
        &["--namespace", "n"],
        &["--digest", &digest, "--namespace", "n"],
        &["--digest", "abc", "--name", "hello", "--namespace", "n"],
    ] {
        assert_eq!(find(senseless).status.code(), Some(2), "{senseless:?}");
    }
    // An entry of another namespace is made separately, with a key of its own.
    let theirs = test_store.says(&[&["add", HELLO, "--namespace", "m"], &words[..]].concat());
    let theirs = Entry::parse(&theirs);
    assert_ne!(theirs.folder, entry.folder);
    assert_ne!(
        fs::read(&theirs.key).unwrap(),
        fs::read(&entry.key).unwrap()
    );
    assert_ne!(
        fs::read(theirs.note()).unwrap(),
        fs::read(entry.note()).unwrap()
    );
}

pub fn concurrent_additions_make_one_entry() {
    let test_store = TestStore::empty();
    let begin = || {
        let mut command = test_store.command(&["add", HELLO, "--namespace", "n"]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let both = [begin(), begin()].map(|child| child.wait_with_output().unwrap());
    let said: Vec<_> = both
        .iter()
        .map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
        .collect();
    assert!(
        both.iter().all(|output| output.status.success()),
        "{both:?}"
    );
    assert_eq!(both[0].stdout, both[1].stdout);
    assert_eq!(
        said.iter().filter(|said| said.contains("made")).count(),
        1,
        "{said:?}"
    );
    assert_eq!(
        said.iter()
            .filter(|said| said.contains("was there"))
            .count(),
        1,
        "{said:?}"
    );
    let names = fs::read_dir(test_store.store().join("n")).unwrap();
    let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| !name.starts_with('.')).count(), 1);
}

pub fn damaged_entries_are_rebuilt() {
    let test_store = TestStore::empty();
    let entry = test_store.add(HELLO, &[]);
    let key = fs::read(&entry.key).unwrap();
    // A file that a killed command has left.
    let left = test_store.store().join("n/.passing-0123");
    fs::create_dir_all(left.join("data")).unwrap();
    flip(&entry.note());
    let find = ["find", HELLO, "--namespace", "n"];
    let output = test_store.share(&find);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let again = test_store.add(HELLO, &[]);
    assert_eq!(again.folder, entry.folder);
    assert_ne!(fs::read(&again.key).unwrap(), key);
    assert!(!left.exists());
    let (pod, said) = serve(HELLO, &again, &[]);
    assert!(said.contains(USED), "{said}");
    assert_eq!(pod.node.stop("TERM"), Some(0));
    // An entry without its key, or with nothing but its key, does not count.
    fs::remove_file(&again.key).unwrap();
    assert_eq!(test_store.share(&find).status.code(), NOT_SHARED);
    let again = test_store.add(HELLO, &[]);
    fs::remove_dir_all(&again.folder).unwrap();
    assert_eq!(test_store.share(&find).status.code(), NOT_SHARED);
    test_store.add(HELLO, &[]);
    test_store.says(&find);
}

pub fn entries_are_listed_and_removed() {
    let test_store = TestStore::empty();
    let first = test_store.add(HELLO, &[]);
    let second = test_store.add(HELLO, &["--memory", "16"]);
    test_store.says(&["add", HELLO, "--namespace", "m"]);
    let list = |words: &[&str]| -> Vec<Value> {
        let text = test_store.says(&[&["ls", "--json"], words].concat());
        serde_json::from_str(&text).unwrap()
    };
    let all = list(&[]);
    assert_eq!(all.len(), 3);
    for row in &all {
        assert!(row["unused"].is_null() && row["name"] == "hello", "{row}");
        assert!(row["bytes"].as_u64().unwrap() > 100_000, "{row}");
    }
    assert_eq!(list(&["--namespace", "n"]).len(), 2);
    assert!(test_store.says(&["ls"]).contains("good here"));
    flip(&second.note());
    let damaged = list(&["--namespace", "n"]);
    let damaged: Vec<_> = damaged
        .iter()
        .filter(|row| !row["unused"].is_null())
        .collect();
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0]["folder"], second.folder.to_str().unwrap());
    test_store.says(&["rm", "--stale"]);
    assert!(!second.folder.exists() && first.folder.exists());
    let id = first
        .folder
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    // A pod that uses the entry continues to serve.
    let (pod, _) = serve(HELLO, &first, &[]);
    test_store.says(&["rm", id]);
    assert!(!first.folder.exists());
    assert_eq!(crate::get(pod.address, "/").status, 200);
    assert_eq!(pod.node.stop("TERM"), Some(0));
    assert_eq!(test_store.share(&["rm", id]).status.code(), Some(1));
    assert_eq!(test_store.share(&["rm"]).status.code(), Some(2));
    assert_eq!(test_store.share(&["rm", "--all"]).status.code(), Some(2));
    test_store.says(&["rm", "--all", "--namespace", "m"]);
    assert!(list(&[]).is_empty());
}

pub fn only_root_can_read_a_store() {
    let test_store = TestStore::empty();
    test_store.add(HELLO, &[]);
    let find = ["find", HELLO, "--namespace", "n"];
    let add = ["add", HELLO, "--namespace", "n"];
    let refused = |why: &str| {
        for words in [&find, &add] {
            let output = test_store.share(words);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(why), "{said}");
        }
    };
    let store = test_store.store();
    for mode in [0o750, 0o701, 0o777] {
        fs::set_permissions(&store, fs::Permissions::from_mode(mode)).unwrap();
        refused("chmod 700");
    }
    fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&store, Some(1000), None).unwrap();
    refused("user 1000");
    chown(&store, Some(0), None).unwrap();
    test_store.says(&find);
    for (path, mode) in [("n", 0o700), ("", 0o700)] {
        let of = fs::metadata(store.join(path)).unwrap();
        assert_eq!((of.uid(), of.mode() & 0o777), (0, mode), "{path}");
    }
    // A user other than root cannot add entries, not even to a directory of its own.
    let theirs = tempfile::tempdir().unwrap();
    chown(theirs.path(), Some(1000), None).unwrap();
    let own = theirs.path().to_str().unwrap();
    let output = as_another(&["share", "add", HELLO, "--store", own, "--namespace", "n"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("only root"),
        "{said}"
    );
    assert_eq!(fs::read_dir(theirs.path()).unwrap().count(), 0);
    let missing = Path::new("/nowhere/at/all");
    let words = ["share", "ls", "--store", missing.to_str().unwrap()];
    assert_eq!(faasw(&words).output().unwrap().status.code(), Some(1));
}

fn as_another(words: &[&str]) -> std::process::Output {
    crate::as_user(words).output().unwrap()
}
