//! A node that is killed at any moment loses nothing that it acknowledged, and keeps no half-done
//! operation (docs/decisions/0010).
//!
//! The test uses real processes, real KVM, and SIGKILL at random moments of deployments, rollbacks
//! and removals. After each restart it compares the registry with a model of what was acknowledged.
//! `FAASW_TEST_SEED` repeats the choices of a run, `FAASW_CRASH_OPERATIONS` sets the number of
//! operations.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{raw, time_limit};
use e2e::process::Running;
use e2e::random::{self, number, up_to};
use faasw::{
    Digest, FunctionName, FunctionOptions,
    admin::{Client, ClientError},
};
use fastrand::Rng;

/// Number of versions that a node keeps.
const VERSIONS_KEPT: usize = 10;

/// The names of each of the two clients, whose operations overlap in time.
const NAMES: [[&str; 2]; 2] = [["a", "b"], ["c", "d"]];

/// The expected state of one name: the answers of its versions.
#[derive(Clone, Debug, Default, PartialEq)]
struct ExpectedState {
    versions: BTreeMap<u64, String>,
    current: u64,
    newest: u64,
}

/// An operation that a client requests.
#[derive(Clone, Debug)]
enum Operation {
    Deploy { answer: String },
    Rollback { version: u64 },
    Remove,
}

impl Operation {
    fn chosen(expected: &ExpectedState, rng: &mut Rng) -> Self {
        let kept: Vec<_> = expected.versions.keys().copied().collect();
        match rng.u8(..10) {
            0 if !kept.is_empty() => Self::Remove,
            1..=3 if !kept.is_empty() => Self::Rollback {
                version: kept[rng.usize(..kept.len())],
            },
            _ => Self::Deploy {
                answer: format!("version {:06}\n", rng.u32(..1_000_000)),
            },
        }
    }

    /// Returns the expected state after the operation.
    fn done(&self, before: &ExpectedState) -> ExpectedState {
        let mut after = before.clone();
        match self {
            Self::Deploy { answer } => {
                after.newest += 1;
                after.current = after.newest;
                after.versions.insert(after.newest, answer.clone());
                while after.versions.len() > VERSIONS_KEPT {
                    after.versions.pop_first();
                }
            }
            Self::Rollback { version } => after.current = *version,
            Self::Remove => after = ExpectedState::default(),
        }
        after
    }

    async fn ask(&self, client: &Client, name: &FunctionName) -> Result<(), ClientError> {
        match self {
            Self::Deploy { answer } => {
                let options = FunctionOptions::default();
                client.deploy(name, module(answer), &options).await?;
            }
            Self::Rollback { version } => {
                client.rollback(name, Some(*version)).await?;
            }
            Self::Remove => client.remove(name).await?,
        }
        Ok(())
    }
}

/// Returns the smallest function with this answer, which has 15 bytes.
fn module(answer: &str) -> Bytes {
    let text = String::from_utf8(e2e::file("tests/fixtures/wat/hello.wat")).unwrap();
    let escaped = answer.escape_default().to_string();
    let changed = text.replace("hello from wat\\n", &escaped);
    assert!(changed != text && answer.len() == 15);
    changed.into()
}

/// A client with the functions that only it changes.
#[derive(Clone)]
struct ClientRun {
    expected: BTreeMap<&'static str, ExpectedState>,
    /// The operation that was under way when the node died, which may be done or not.
    unsure: Option<(&'static str, Operation)>,
    asked: usize,
    rng: Rng,
}

impl ClientRun {
    /// Requests one operation after the other until the node is gone or `count` were requested.
    async fn run(mut self, client: Client, count: usize) -> Self {
        let names: Vec<_> = self.expected.keys().copied().collect();
        for _ in 0..count {
            let name = names[self.rng.usize(..names.len())];
            let expected = self.expected.get_mut(name).unwrap();
            let operation = Operation::chosen(expected, &mut self.rng);
            self.asked += 1;
            match operation
                .ask(&client, &FunctionName::new(name).unwrap())
                .await
            {
                Ok(()) => *expected = operation.done(expected),
                Err(ClientError::Refused { status, detail }) => {
                    panic!("{name} {operation:?}: {status} {detail}")
                }
                Err(_) => {
                    self.unsure = Some((name, operation));
                    break;
                }
            }
        }
        self
    }

    /// Compares the node's state with the expected state, and adopts the outcome of an unsure
    /// operation.
    async fn check(&mut self, client: &Client, address: SocketAddr) {
        let unsure = self.unsure.take();
        for (name, expected) in &mut self.expected {
            let mut possible = vec![expected.clone()];
            if let Some((_, operation)) = unsure.as_ref().filter(|(other, _)| other == name) {
                possible.push(operation.done(expected));
            }
            let told = versions_of(client, name).await;
            let found = possible.iter().find(|one| {
                let digests =
                    |(number, answer): (&u64, &String)| (*number, Digest::of(&module(answer)));
                let versions: BTreeMap<_, _> = one.versions.iter().map(digests).collect();
                (one.current, versions) == told
            });
            *expected = found
                .unwrap_or_else(|| panic!("{name}: {told:?} is none of {possible:?}"))
                .clone();
            let answer = raw::get(address, &format!("/{name}/")).await;
            match expected.versions.get(&expected.current) {
                Some(text) => assert_eq!((answer.status, &answer.body), (200, text), "{name}"),
                None => assert_eq!(answer.status, 404, "{name}: {answer:?}"),
            }
        }
    }

    fn digests(&self) -> BTreeSet<String> {
        let versions = self
            .expected
            .values()
            .flat_map(|expected| expected.versions.values());
        versions
            .map(|answer| Digest::of(&module(answer)).to_string())
            .collect()
    }
}

/// Returns the current version and the digests of all versions, as the node reports them.
async fn versions_of(client: &Client, name: &str) -> (u64, BTreeMap<u64, Digest>) {
    match client.inspect(&FunctionName::new(name).unwrap()).await {
        Ok(details) => {
            let versions = details.versions.iter();
            let digests = versions.map(|one| (one.version, one.digest)).collect();
            (details.function.version, digests)
        }
        Err(ClientError::Refused { status, .. }) if status == 404 => Default::default(),
        Err(error) => panic!("{name}: {error}"),
    }
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn start(data_dir: &Path) -> Running {
    let data_dir = data_dir.to_str().unwrap();
    Running::start(&[
        "serve",
        "--data-dir",
        data_dir,
        "--listen",
        "127.0.0.1:0",
        "--zygotes",
        "2",
        "--json",
    ])
}

fn a_killed_node_keeps_exactly_the_acknowledged_state() {
    let slow = time_limit(1) > Duration::from_secs(1);
    let wanted = number("FAASW_CRASH_OPERATIONS").unwrap_or(if slow { 24 } else { 200 });
    let wanted = usize::try_from(wanted).unwrap();
    let seed = random::seed();
    // Long enough for a few operations, on a fast or a slow machine.
    let longest = time_limit(1) / if slow { 4 } else { 20 };
    println!("FAASW_TEST_SEED={seed} FAASW_CRASH_OPERATIONS={wanted}");
    let mut rng = Rng::with_seed(seed);
    let mut lanes = NAMES.map(|names| ClientRun {
        expected: names
            .into_iter()
            .map(|name| (name, ExpectedState::default()))
            .collect(),
        unsure: None,
        asked: 0,
        rng: rng.fork(),
    });

    let folder = tempfile::tempdir().unwrap();
    let client = Client::new(folder.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let begun = Instant::now();
    let (mut kills, mut unsure) = (0, 0);
    loop {
        if rng.u8(..4) == 0 {
            // The node may also be killed while it starts.
            let mut node = start(folder.path());
            std::thread::sleep(up_to(&mut rng, time_limit(1) / 10));
            node.child.kill().unwrap();
            node.child.wait().unwrap();
            kills += 1;
        }
        let mut node = start(folder.path());
        let address = node.address();
        let asked: usize = lanes.iter().map(|lane| lane.asked).sum();
        let left = wanted.saturating_sub(asked).div_ceil(lanes.len());
        lanes = runtime.block_on(async {
            for lane in &mut lanes {
                lane.check(&client, address).await;
            }
            let used: BTreeSet<_> = lanes.iter().flat_map(ClientRun::digests).collect();
            assert_eq!(files(&folder.path().join("modules")), used);
            let running = lanes.clone().map(|lane| {
                let client = client.clone();
                tokio::spawn(lane.run(client, left))
            });
            if left > 0 {
                tokio::time::sleep(up_to(&mut rng, longest)).await;
            }
            node.child.kill().unwrap();
            let [one, two] = running;
            [one.await.unwrap(), two.await.unwrap()]
        });
        node.child.wait().unwrap();
        kills += 1;
        unsure += lanes.iter().filter(|lane| lane.unsure.is_some()).count();
        if left == 0 {
            break;
        }
    }
    let mut summary = format!(
        "{kills} kills, {unsure} operations cut off, {:?}",
        begun.elapsed()
    );
    for lane in &lanes {
        for (name, expected) in &lane.expected {
            let _ = write!(
                summary,
                "; {name}: {} of {}",
                expected.current, expected.newest
            );
        }
    }
    println!("{summary}");
}

fn main() {
    e2e::main(tests![a_killed_node_keeps_exactly_the_acknowledged_state,]);
}
