//! A process that writes is killed at any moment. Every write that was acknowledged is in the file;
//! a write that was not acknowledged is there completely or not at all.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use super::*;

/// The variable with the path of the child's file. It is unset in the parent.
const FILE: &str = "FAASW_TEST_STORE";

/// The child, by its name among tests.
const CHILD: &str =
    "services::key_value::embedded::tests::crash::the_child_writes_until_it_is_killed";

/// The number of simultaneous writers.
const WRITERS: usize = 8;

fn number(value: Option<Vec<u8>>) -> u64 {
    let text = value.map_or_else(|| "0".to_owned(), |value| String::from_utf8(value).unwrap());
    text.parse().unwrap()
}

#[test]
#[ignore = "it is what the test below kills"]
fn the_child_writes_until_it_is_killed() {
    let Some(path) = env::var_os(FILE) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Arc::new(Embedded::in_file(PathBuf::from(path)).unwrap());
    runtime.block_on(async {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write_on(Arc::clone(&store), writer)))
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// Writes a pair whose values are always equal, and increments a number that all writers share.
async fn write_on(store: Arc<Embedded>, writer: usize) {
    let (one, other) = (format!("{writer}/a"), format!("{writer}/b"));
    let mut last = number(get(&store, "n", &one));
    loop {
        last += 1;
        let text = last.to_string();
        let pair = put(&[(&one, Some(&text)), (&other, Some(&text))]);
        store.change("n", "n".into(), WIDE, pair).await.unwrap();
        println!("\nwrote {writer} {last}");
        let counted = Change::Increment(b"all".to_vec(), 1);
        store.change("n", "n".into(), WIDE, counted).await.unwrap();
        println!("\ncounted");
    }
}

/// Runs the child for this time. Returns which writes were acknowledged, and how often the child
/// incremented the number.
fn run_and_kill(path: &Path, after: Duration) -> (BTreeMap<usize, u64>, u64) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", CHILD, "--ignored", "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        let (mut wrote, mut counted) = (BTreeMap::new(), 0);
        // An incomplete last line does not count.
        for line in output.split(b'\n') {
            let line = String::from_utf8(line.unwrap()).unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["wrote", writer, last] => {
                    wrote.insert(writer.parse().unwrap(), last.parse().unwrap());
                }
                ["counted"] => counted += 1,
                _ => {}
            }
        }
        (wrote, counted)
    });
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn acknowledged_changes_survive_a_kill_at_any_moment() {
    let seed = env::var("FAASW_TEST_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    let kills = env::var("FAASW_KILLS").ok();
    let kills: u64 = kills.map_or(20, |kills| kills.parse().unwrap());
    println!("FAASW_TEST_SEED={seed} FAASW_KILLS={kills}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv.redb");
    let (mut acknowledged, mut all) = (BTreeMap::<usize, u64>::new(), 0);
    for kill in 1..=kills {
        // The times range from before the file is complete to some hundred commits.
        let after = Duration::from_micros(random.u64(1_000..150_000));
        let (wrote, counted) = run_and_kill(&path, after);
        acknowledged.extend(wrote);
        all += counted;
        let store = Embedded::in_file(path.clone()).unwrap();
        for writer in 0..WRITERS {
            let has = number(get(&store, "n", &format!("{writer}/a")));
            let other = number(get(&store, "n", &format!("{writer}/b")));
            assert_eq!(has, other, "a batch by half after kill {kill}");
            let told = acknowledged.get(&writer).copied().unwrap_or(0);
            assert!(
                (told..=told + kill).contains(&has),
                "{writer}: {told} {has}"
            );
            acknowledged.insert(writer, has);
        }
        let has = number(get(&store, "n", "all"));
        let most = all + WRITERS as u64;
        assert!((all..=most).contains(&has), "counted {all}, has {has}");
        all = has;
    }
    println!("{all} counted");
    assert!(all > 0, "no child came to write anything");
}
