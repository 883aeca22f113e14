//! The effect of each mechanism: nodes that differ by one of them, measured beside each other (as
//! AFaaS fig. 14 and Spice fig. 11).
//!
//! Some mechanisms are switched off by the node's ordinary options. The others need a node that was
//! built with its feature `ablation`; without one, the report says so.

use std::path::Path;

use anyhow::{Context, Result};

use super::{
    figure::Unit,
    function::Function,
    section::Section,
    server::Node,
    setting::{DisabledMechanism, Setting},
};
use crate::{
    client::Connections,
    contest::{self, Contestant, Rounds, Summary},
    table::Table,
};

/// Nodes that are measured in the same rounds.
pub struct Group {
    /// How requests are served in all nodes of the group.
    title: &'static str,
    /// Options of all nodes of the group.
    options: &'static [&'static str],
    /// Connections to each node.
    pub connections: u16,
    rows: &'static [Row],
}

/// A mechanism, and how a node is run without it.
struct Row {
    name: &'static str,
    by: By,
}

/// The way to switch a mechanism off.
enum By {
    /// These options, which any node has.
    Options(&'static [&'static str]),
    /// The feature `ablation`, with this name of the mechanism.
    Feature(&'static str),
}

/// All groups.
pub const GROUPS: [Group; 4] = [
    Group {
        title: "requests that warm instances serve",
        options: &[],
        connections: 1,
        rows: &[
            Row {
                name: "warm",
                by: By::Options(&["--max-reuse", "1"]),
            },
            Row {
                name: "telling the end early",
                by: By::Feature("early-end"),
            },
            Row {
                name: "waiting for a reset",
                by: By::Feature("reset-wait"),
            },
            Row {
                name: "jails",
                by: By::Feature("jail"),
            },
        ],
    },
    Group {
        title: "requests that hot instances serve",
        options: &["--poll", "auto"],
        connections: 1,
        rows: &[
            Row {
                name: "guests that look for their requests",
                by: By::Feature("hot"),
            },
            Row {
                name: "a node that looks for the answer",
                by: By::Feature("node-looks"),
            },
        ],
    },
    Group {
        title: "many requests at once",
        options: &[],
        connections: 24,
        rows: &[
            Row {
                name: "warm",
                by: By::Options(&["--max-reuse", "1"]),
            },
            Row {
                name: "turns",
                by: By::Feature("turns"),
            },
            Row {
                name: "waiting for a reset",
                by: By::Feature("reset-wait"),
            },
            Row {
                name: "jails",
                by: By::Feature("jail"),
            },
        ],
    },
    Group {
        title: "requests that forks serve",
        options: &["--max-reuse", "1"],
        connections: 1,
        rows: &[
            Row {
                name: "zygotes",
                by: By::Options(&["--zygotes", "0"]),
            },
            Row {
                name: "the function's seed",
                by: By::Options(&["--seed-memory", "0"]),
            },
            Row {
                name: "freezing after initialisation",
                by: By::Options(&["--freeze", "before-init"]),
            },
            Row {
                name: "filling in what is written",
                by: By::Feature("write-set"),
            },
            Row {
                name: "filling in what is read",
                by: By::Feature("read-set"),
            },
            Row {
                name: "large pages for what all read",
                by: By::Feature("large-pages"),
            },
            Row {
                name: "jails",
                by: By::Feature("jail"),
            },
        ],
    },
];

/// The node and the function with which each group is measured.
pub struct Subject<'a> {
    /// The node's program.
    pub faasw: &'a Path,
    /// Whether the program was built with the feature `ablation`.
    pub has_feature: bool,
    /// The function.
    pub function: &'a Function,
    /// How all nodes are set up.
    pub setting: &'a Setting,
    /// Further nodes, which are added to groups without options of their own.
    pub without: &'a [DisabledMechanism],
}

/// The results of a group.
pub struct AblationReport {
    title: String,
    /// The contestants, with the whole node first.
    contestants: Vec<Contestant>,
    /// Mechanisms that cannot be switched off without the feature `ablation`.
    missing: Vec<&'static str>,
}

impl Group {
    /// Returns the name of the group.
    pub fn name(&self) -> String {
        format!("ablation, {}", self.title)
    }

    /// Returns the nodes that the group compares with the whole one, and the names of those that
    /// need the feature `ablation` if it is missing.
    fn nodes(
        &self,
        has_feature: bool,
        given: &[DisabledMechanism],
    ) -> (Vec<DisabledMechanism>, Vec<&'static str>) {
        let mut nodes = Vec::new();
        let mut missing = Vec::new();
        for Row { name, by } in self.rows {
            let options: &[&str] = match by {
                By::Options(options) => options,
                By::Feature(mechanism) if has_feature => &["--without", mechanism],
                By::Feature(_) => {
                    missing.push(*name);
                    continue;
                }
            };
            nodes.push(DisabledMechanism {
                name: (*name).to_owned(),
                setting: Setting::of_options(options.iter().copied()),
            });
        }
        if self.options.is_empty() {
            nodes.extend_from_slice(given);
        }
        (nodes, missing)
    }

    /// Measures the group.
    ///
    /// # Errors
    /// Returns an error if a node does not start or does not answer.
    pub fn measure(&self, of: &Subject, rounds: Rounds) -> Result<AblationReport> {
        let base = of
            .setting
            .and(&Setting::of_options(self.options.iter().copied()));
        let (others, missing) = self.nodes(of.has_feature, of.without);
        let start = |setting: &Setting| Node::start(of.faasw, of.function, setting);
        let mut nodes = vec![("the whole node".to_owned(), start(&base)?)];
        for other in others {
            let name = format!("without {}", other.name);
            let node = start(&base.and(&other.setting)).context(name.clone())?;
            nodes.push((name, node));
        }
        let mut contestants: Vec<Contestant> = nodes
            .iter()
            .map(|(name, node)| {
                let connections = self.connections.into();
                let pid = Some(node.pid());
                Contestant::new(name, node.url(), pid, Connections::Keep, connections)
            })
            .collect();
        contest::run(&mut contestants, rounds)?;
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            many => format!("{many} connections"),
        };
        Ok(AblationReport {
            title: format!("{}, {}, {connections}", of.function.name, self.title),
            contestants,
            missing,
        })
    }
}

/// Returns the section of the report for all groups.
pub fn section(all: &[AblationReport]) -> Section {
    let mut section = Section::new("Ablation");
    section.text(
        "Each node does without one mechanism. Ratios are medians to the complete node of the same \
         rounds.",
    );
    for found in all {
        let summaries: Vec<Summary> = found
            .contestants
            .iter()
            .filter_map(Contestant::summary)
            .collect();
        section.table(format!("{}, ratios", found.title), found.table());
        section.table(found.title.clone(), contest::table(&summaries));
    }
    let mut missing: Vec<&str> = Vec::new();
    for name in all.iter().flat_map(|found| &found.missing) {
        if !missing.contains(name) {
            missing.push(name);
        }
    }
    if !missing.is_empty() {
        section.text(format!(
            "Not measured: {}. These mechanisms need a node built with `--features ablation`, \
             passed with `--ablation-faasw`.",
            missing.join(", ")
        ));
    }
    section
}

impl AblationReport {
    fn table(&self) -> Table {
        let mut table = Table::new([
            &self.title,
            "p50",
            "95 % interval",
            "answers/s",
            "CPU per answer",
        ]);
        let Some((whole, others)) = self.contestants.split_first() else {
            return table;
        };
        let times = |ratio: Option<f64>| ratio.map_or("–".to_owned(), |by| Unit::Times.write(by));
        for other in others {
            let latency = other.latency_against(whole);
            let interval = latency.as_ref().map_or("–".to_owned(), |ratio| {
                let [low, high] = [ratio.low, ratio.high].map(|by| Unit::Times.write(by));
                format!("{low} to {high}")
            });
            table.row([
                other.name.clone(),
                times(latency.map(|ratio| ratio.median)),
                interval,
                times(other.throughput_against(whole).map(|ratio| ratio.median)),
                times(other.cpu_against(whole).map(|ratio| ratio.median)),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_the_feature_omits_rows_with_a_note() {
        let given: DisabledMechanism = "mine: --x=1".parse().unwrap();
        let [warm, .., forked] = &GROUPS;
        let (all, missing) = warm.nodes(true, std::slice::from_ref(&given));
        assert_eq!((all.len(), missing.len()), (warm.rows.len() + 1, 0));
        assert_eq!(all[1].setting.options, ["--without", "early-end"]);
        let (some, missing) = warm.nodes(false, std::slice::from_ref(&given));
        assert_eq!(some[0].name, "warm");
        assert_eq!(some[1], given);
        assert_eq!(
            missing,
            ["telling the end early", "waiting for a reset", "jails"]
        );
        // Nodes of the caller are added only to groups without options of their own.
        assert_eq!(
            forked.nodes(true, std::slice::from_ref(&given)).0.len(),
            forked.rows.len()
        );
        let found = |missing| AblationReport {
            title: "hello".to_owned(),
            contestants: Vec::new(),
            missing,
        };
        let text = section(&[found(missing.clone()), found(missing)]).markdown(None);
        assert!(
            text.contains("Not measured: telling the end early, waiting for a reset, jails."),
            "{text}"
        );
        assert!(!section(&[]).markdown(None).contains("Not measured"));
    }
}
