//! The parts of a report.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};

use super::{
    ablation::{self, GROUPS, Group},
    function::Function,
    server::{Compiled, Node, Reuse},
    setting::{Setting, Without},
};
use crate::{
    client::{Client, Connections, Url},
    contest::{self, Contestant, Rounds},
    floor, interrupt,
    load::Until,
    memory, overload, sandboxes, soak,
};

/// Further options of a node with many instances.
const ROOMY: [&str; 2] = ["--timeout", "60s"];
/// Answers that a warm peer must give to be accepted: some fail late.
const WARM_TRIES: u32 = 300;
/// A function whose answers cost so much that the cost of requesting them is small beside it.
const BUSY: &str = include_str!("busy.wat");
/// Requests to each function of the crowd at once, and thus instances of each.
const OF_EACH: u32 = 3;

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Latency, throughput and CPU time of every function against its peers
    Latency,
    /// The way through a microVM against an empty one
    Floor,
    /// Getting a sandbox, with pools of kernel resources and without
    Sandboxes,
    /// Nodes that do without one mechanism each, beside the whole one
    Ablation,
    /// Memory of warm instances
    Memory,
    /// Many functions with a few instances each
    Crowd,
    /// Load for a long time
    Soak,
    /// More load than can be served
    Overload,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Self; 8] = [
        Self::Latency,
        Self::Floor,
        Self::Sandboxes,
        Self::Ablation,
        Self::Memory,
        Self::Crowd,
        Self::Soak,
        Self::Overload,
    ];
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds over one connection, and requests in each.
    one: (u32, u64),
    /// Rounds over many connections, and how long each takes.
    many: (u32, Duration),
    /// How much of the floor to measure.
    floor: floor::Plan,
    /// Rounds of getting sandboxes.
    sandboxes: u32,
    /// Instances of one function.
    instances: u32,
    /// Functions of the crowd.
    crowd: u32,
    /// How much of the soak to run.
    soak: soak::Plan,
    /// How long each load of the overload is offered.
    overload: Duration,
}

impl Plan {
    /// The complete plan: half an hour or less.
    pub const WHOLE: Self = Self {
        one: (20, 300),
        many: (10, Duration::from_secs(1)),
        floor: floor::Plan {
            rounds: 20,
            trips: 200,
            burst: 24,
        },
        sandboxes: 20,
        instances: 500,
        crowd: 100,
        soak: soak::Plan {
            connections: 24,
            windows: 10,
            window: Duration::from_secs(60),
        },
        overload: Duration::from_secs(10),
    };

    fn of_sandboxes(&self) -> sandboxes::Plan {
        sandboxes::Plan {
            rounds: self.sandboxes,
            at_once: sandboxes::AT_ONCE.to_vec(),
            sandboxes: 24,
            ready: 24,
        }
    }

    fn over_one_connection(&self) -> Rounds {
        Rounds {
            count: self.one.0,
            each: Until::Requests(self.one.1),
            warm_up: Until::Requests(50),
            tell: true,
        }
    }

    fn over_many_connections(&self) -> Rounds {
        Rounds {
            count: self.many.0,
            each: Until::Elapsed(self.many.1),
            warm_up: Until::Elapsed(self.many.1),
            tell: true,
        }
    }

    /// Just enough to exercise every part.
    pub const QUICK: Self = Self {
        one: (3, 40),
        many: (3, Duration::from_millis(200)),
        floor: floor::Plan {
            rounds: 3,
            trips: 40,
            burst: 12,
        },
        sandboxes: 3,
        instances: 20,
        crowd: 5,
        soak: soak::Plan {
            connections: 24,
            windows: 3,
            window: Duration::from_secs(1),
        },
        overload: Duration::from_secs(1),
    };
}

/// The subjects of a report: what is measured, and with which programs.
pub struct Subjects<'a> {
    /// The node's program.
    pub faasw: &'a Path,
    /// The node's program, built with its feature `ablation`.
    pub ablation_faasw: Option<&'a Path>,
    /// The peer's program.
    pub wasmtime: &'a Path,
    /// Functions, `hello` among them.
    pub functions: &'a [Function],
    /// Parts to measure.
    pub parts: &'a [Part],
    /// How nodes are set up.
    pub setting: &'a Setting,
    /// Nodes with something switched off.
    pub without: &'a [Without],
    /// How much to measure.
    pub plan: Plan,
}

/// A function against its peers over some number of connections.
pub struct Contest {
    /// Number of connections.
    pub connections: u16,
    /// The faasw node.
    pub ours: Contestant,
    /// `wasmtime serve`, a new instance for each request.
    pub fresh: Contestant,
    /// `wasmtime serve` with one instance for all requests, if the component can be reused.
    pub warm: Option<Contestant>,
}

impl Contest {
    /// Returns the number of connections, in words.
    pub fn title(&self) -> String {
        match self.connections {
            1 => "1 connection".to_owned(),
            many => format!("{many} connections"),
        }
    }

    /// Iterates over the contestants.
    pub fn all(&self) -> impl Iterator<Item = &Contestant> {
        [&self.ours, &self.fresh].into_iter().chain(&self.warm)
    }
}

/// Many functions on one node.
pub struct Crowd {
    /// Number of functions.
    pub functions: u32,
    /// Requests that were sent to each function at once, and thus wanted instances of each.
    pub of_each: u32,
    /// Warm instances in the end, as the node reports.
    pub instances: usize,
}

/// The results of all parts.
#[derive(Default)]
pub struct Results {
    /// Contests, by function.
    pub contests: Vec<(Function, Vec<Contest>)>,
    /// The floor, with the function hello.
    pub floor: Option<floor::Found>,
    /// Times to get a sandbox, without a function.
    pub sandboxes: Option<sandboxes::Found>,
    /// Ablation, with the function hello: the whole node, and nodes without one mechanism each.
    pub ablation: Vec<ablation::Found>,
    /// Memory of warm instances, by function.
    pub memory: Vec<(Function, memory::Found)>,
    /// Many functions on one node.
    pub crowd: Option<Crowd>,
    /// Load for a long time, with the function hello.
    pub soak: Option<soak::Found>,
    /// Overload, with a function that computes.
    pub overload: Option<overload::Found>,
    /// Notes about what a peer cannot do.
    pub notes: Vec<String>,
    /// Parts that could not be measured, and why.
    pub failures: Vec<(String, String)>,
}

/// Measures all parts.
///
/// # Errors
/// Returns an error only after an interrupt; a part that fails is noted in the results.
pub fn all(subjects: &Subjects) -> Result<Results> {
    let mut results = Results::default();
    let wants = |part| subjects.parts.contains(&part);
    for function in subjects.functions.iter().filter(|_| wants(Part::Latency)) {
        let name = format!("latency of {}", function.name);
        let mut notes = Vec::new();
        let contests = results.try_part(name, || subjects.contests(function, &mut notes))?;
        results.notes.extend(notes);
        if let Some(contests) = contests {
            results.contests.push((function.clone(), contests));
        }
    }
    if wants(Part::Floor) {
        results.floor = results.try_part("floor".to_owned(), || subjects.floor())?;
    }
    if wants(Part::Sandboxes) {
        let plan = subjects.plan.of_sandboxes();
        results.sandboxes =
            results.try_part("sandboxes".to_owned(), || sandboxes::measure(&plan))?;
    }
    for group in GROUPS.iter().filter(|_| wants(Part::Ablation)) {
        let found = results.try_part(group.name(), || subjects.ablation(group))?;
        results.ablation.extend(found);
    }
    for function in subjects.functions.iter().filter(|_| wants(Part::Memory)) {
        if function.goals().is_none_or(|goals| goals.memory.is_none()) {
            continue;
        }
        let name = format!("memory of {}", function.name);
        if let Some(found) = results.try_part(name, || subjects.memory(function))? {
            results.memory.push((function.clone(), found));
        }
    }
    if wants(Part::Crowd) {
        results.crowd = results.try_part("many functions".to_owned(), || subjects.crowd())?;
    }
    if wants(Part::Soak) {
        results.soak = results.try_part("soak".to_owned(), || subjects.soak())?;
    }
    if wants(Part::Overload) {
        results.overload = results.try_part("overload".to_owned(), || subjects.overload())?;
    }
    Ok(results)
}

impl Results {
    fn try_part<T>(&mut self, name: String, part: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        eprintln!("{name} …");
        let measured = part();
        interrupt::check()?;
        match measured {
            Ok(found) => Ok(Some(found)),
            Err(error) => {
                eprintln!("{name} could not be measured: {error:#}");
                self.failures.push((name, format!("{error:#}")));
                Ok(None)
            }
        }
    }
}

/// Checks that an instance answers more than once; engines of some languages do not.
fn serves_again(url: &Url) -> Result<()> {
    let mut client = Client::new(url);
    (0..WARM_TRIES).try_for_each(|_| client.get(&url.path).map(drop))
}

impl Subjects<'_> {
    fn hello(&self) -> Result<&Function> {
        let mut functions = self.functions.iter();
        functions
            .find(|function| function.name == "hello")
            .context("no function hello")
    }

    fn contests(&self, function: &Function, notes: &mut Vec<String>) -> Result<Vec<Contest>> {
        let compiled = Compiled::new(self.wasmtime, function)?;
        let fresh = compiled.serve(Reuse::Fresh)?;
        let warm = compiled.serve(Reuse::Warm)?;
        let warm_serves = serves_again(warm.url());
        if let Err(error) = &warm_serves {
            // The cause is the peer's status; its error page adds nothing.
            let cause = error.root_cause().to_string();
            let status = cause.split(':').next().unwrap_or_default();
            notes.push(format!(
                "{}: no warm peer, since an instance of it does not serve again ({status}).",
                function.name
            ));
        }
        let node = Node::start(self.faasw, function, self.setting)?;
        let one = self.plan.over_one_connection();
        let many = self.plan.over_many_connections();
        let mut contests = Vec::new();
        for (connections, rounds) in [(1, one), (12, many), (24, many)] {
            let new = |name, url, pid| {
                Contestant::new(name, url, Some(pid), Connections::Keep, connections.into())
            };
            let line_up = |with_warm: bool| {
                let mut contestants = vec![
                    new("faasw", node.url(), node.pid()),
                    new("wasmtime serve", fresh.url(), fresh.pid()),
                ];
                if with_warm {
                    contestants.push(new("the same, one warm instance", warm.url(), warm.pid()));
                }
                contestants
            };
            eprintln!("connections: {connections}");
            let mut contestants = line_up(warm_serves.is_ok());
            let ran = contest::run(&mut contestants, rounds);
            if let Err(error) = ran {
                if warm_serves.is_err() {
                    return Err(error);
                }
                // Some warm peers fail only now and then. The contest is repeated without the warm
                // peer; if that fails as well, the cause was another contestant.
                interrupt::check()?;
                let name = &function.name;
                eprintln!("once more without a warm instance: {error:#}");
                contestants = line_up(false);
                contest::run(&mut contestants, rounds)?;
                notes.push(format!(
                    "{name}, {connections} connections: no warm peer, since it fails at times."
                ));
            }
            let mut measured = contestants.into_iter();
            let nobody = "nobody was measured";
            contests.push(Contest {
                connections,
                ours: measured.next().context(nobody)?,
                fresh: measured.next().context(nobody)?,
                warm: measured.next(),
            });
        }
        Ok(contests)
    }

    fn floor(&self) -> Result<floor::Found> {
        let hello = self.hello()?;
        // On the second node every request is served by a fork.
        let forks = self.setting.and(&Setting::of_options(["--max-reuse", "1"]));
        let mut nodes = vec![
            Node::start(self.faasw, hello, self.setting)?,
            Node::start(self.faasw, hello, &forks)?,
        ];
        for without in self.without {
            let setting = self.setting.and(&without.setting);
            nodes.push(Node::start(self.faasw, hello, &setting)?);
        }
        let urls: Vec<Url> = nodes.iter().map(|node| node.url().clone()).collect();
        floor::measure(&urls, self.plan.floor)
    }

    fn ablation(&self, group: &Group) -> Result<ablation::Found> {
        let subject = ablation::Subject {
            faasw: self.ablation_faasw.unwrap_or(self.faasw),
            has_feature: self.ablation_faasw.is_some(),
            function: self.hello()?,
            setting: self.setting,
            without: self.without,
        };
        let rounds = match group.connections {
            1 => self.plan.over_one_connection(),
            _ => self.plan.over_many_connections(),
        };
        group.measure(&subject, rounds)
    }

    /// Starts a node that accepts `requests` requests at once, and keeps as many instances of all
    /// functions for as long as the measurement lasts.
    fn roomy(&self, function: &Function, requests: u32) -> Result<Node> {
        let requests = requests.to_string();
        let counts = [
            ["--max-instances", &requests],
            ["--max-warm", &requests],
            ["--keep-alive", "1h"],
        ];
        let roomy = ROOMY.into_iter().chain(counts.into_iter().flatten());
        let setting = self.setting.and(&Setting::of_options(roomy));
        Node::start(self.faasw, function, &setting)
    }

    fn memory(&self, function: &Function) -> Result<memory::Found> {
        let count = self.plan.instances;
        let node = self.roomy(function, 2 * count)?;
        memory::measure(node.pid(), node.url(), Some(count), Some(node.commands()))
    }

    fn crowd(&self) -> Result<Crowd> {
        let hello = self.hello()?;
        let functions = self.plan.crowd;
        let node = self.roomy(hello, 2 * functions * OF_EACH)?;
        let file = hello
            .file
            .to_str()
            .context("a file whose name is no text")?;
        let mut urls = vec![node.url().clone()];
        for number in 1..functions {
            interrupt::check()?;
            let name = format!("{}-{number}", hello.name);
            node.commands().run(&["deploy", file, "--name", &name])?;
            let mut url = node.url().clone();
            url.path = format!("/{name}/");
            urls.push(url);
        }
        // After the first burst the node knows what instances use; after the second it keeps some.
        for _ in 0..2 {
            for url in &urls {
                interrupt::check()?;
                memory::burst(url, OF_EACH)?;
            }
            std::thread::sleep(memory::SETTLE);
        }
        Ok(Crowd {
            functions,
            of_each: OF_EACH,
            instances: node.commands().microvms()?.warm(),
        })
    }

    fn soak(&self) -> Result<soak::Found> {
        let node = Node::start(self.faasw, self.hello()?, self.setting)?;
        soak::measure(node.pid(), node.url(), self.plan.soak, true)
    }
    fn overload(&self) -> Result<overload::Found> {
        let folder = tempfile::TempDir::with_prefix("faasw-bench-")?;
        let file = folder.path().join("busy.wat");
        std::fs::write(&file, BUSY)?;
        let function = Function {
            name: "busy".to_owned(),
            file,
            freeze: None,
        };
        let node = Node::start(self.faasw, &function, self.setting)?;
        overload::measure(node.url(), self.plan.overload, &overload::LOADS, true)
    }
}
