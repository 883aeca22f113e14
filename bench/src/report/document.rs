//! The report as Markdown.

use std::ffi::OsStr;

use super::{
    ablation, figure, figures,
    host::Host,
    measure::Results,
    server::{Reuse, peer_command},
};
use crate::contest::{self, Contestant, Summary};

/// The heading above the figures.
pub struct Heading {
    /// The date of the report, and the host.
    pub host: Host,
    /// The command that made the report.
    pub command: String,
    /// The node's version.
    pub faasw: Option<String>,
    /// The peer's version.
    pub wasmtime: Option<String>,
    /// Whether rounds were few and short.
    pub quick: bool,
}

/// Returns the whole report. Its links expect the plots in the folder `plots` beside it.
pub fn markdown(results: &Results, heading: &Heading, plots: Option<&OsStr>) -> String {
    let mut text = heading.markdown();
    text.push_str("\n## Figures and goals\n\n");
    text.push_str(&figure::table(&figures::of(results)).markdown());
    for note in &results.notes {
        text.push_str(&format!("\n{note}\n"));
    }
    for (name, error) in &results.failures {
        text.push_str(&format!(
            "\nNot measured: {name}: {}\n",
            error.replace('\n', "; ")
        ));
    }
    let plot = |name: &str| match plots {
        Some(folder) => format!("\n![{name}]({}/{name}.svg)\n", folder.to_string_lossy()),
        None => String::new(),
    };
    for (function, contests) in &results.contests {
        let name = &function.name;
        text.push_str(&format!("\n## {} against its peers\n", function.title()));
        for kind in ["latency", "throughput", "cpu"] {
            text.push_str(&plot(&format!("{kind}-{name}")));
        }
        for contest in contests {
            let summaries: Vec<Summary> = contest.all().filter_map(Contestant::summary).collect();
            text.push_str(&format!("\n{}:\n\n", contest.title()));
            text.push_str(&contest::table(&summaries).markdown());
        }
    }
    if let Some(found) = &results.floor {
        text.push_str("\n## The way through a microVM\n");
        text.push_str(&plot("floor"));
        text.push_str(&format!(
            "\n{}\nStages as `Server-Timing` tells them; *at once* means that requests came together \
             and competed:\n\n{}",
            found.floor_table().markdown(),
            found.ways_table().markdown()
        ));
    }
    if let Some(found) = &results.sandboxes {
        text.push_str("\n## Getting a sandbox\n");
        text.push_str(&plot("sandboxes"));
        text.push_str(&format!(
            "\nThe time from the request for a sandbox until one is jailed and ready for a seed \
             (AFaaS fig. 8 and 15). A pool with zygotes keeps {} ready, which are specialised; a \
             request that finds none has one made.\n\n{}\nThe parts of making a sandbox, as the \
             spawner and the sandbox report them. Zygotes are made in the background. The rest of \
             the time is messages, and waiting for the spawner and for processors:\n\n{}",
            found.kept_ready,
            found.table().markdown(),
            found.parts_table().markdown()
        ));
    }
    if !results.ablation.is_empty() {
        text.push_str(&ablation::markdown(&results.ablation));
    }
    for (function, found) in &results.memory {
        text.push_str(&format!("\n## Memory of {}\n\n", function.title()));
        text.push_str(&found.table().markdown());
    }
    if let Some(found) = &results.soak {
        text.push_str("\n## Load for a long time\n");
        text.push_str(&plot("soak"));
        text.push_str(&format!("\n{}", found.table().markdown()));
    }
    if let Some(found) = &results.overload {
        text.push_str("\n## More than can be done\n");
        text.push_str(&plot("overload"));
        text.push_str(&format!(
            "\nRequests come at fixed times, whatever becomes of those before, to a function that \
             computes for some milliseconds; the load is to the {:.0} answers/s that it gives to \
             connections that wait. Latency counts from when a request was due.\n\n{}",
            found.capacity,
            found.table().markdown()
        ));
    }
    text
}

impl Heading {
    fn markdown(&self) -> String {
        let host = &self.host;
        let version = |version: &Option<String>| version.clone().unwrap_or("unknown".to_owned());
        let mut text = String::from(
            "# Performance\n\n\
             Made by `faasw-bench report`; [bench/README.md](../bench/README.md) says how each number\n\
             is measured. Ratios are medians over rounds of one run, and the interval holds the\n\
             median with 95 % confidence. Machines like this are noisy: trust the ratios.\n\n",
        );
        if self.quick {
            text.push_str(
                "**Made with `--quick`: this shows that everything works, not how fast it \
                 is.**\n\n",
            );
        }
        for (name, value) in [
            ("date", host.date.clone()),
            ("processor", format!("{}, {} cores", host.cpu, host.cores)),
            ("memory", format!("{} MiB", host.memory_mib)),
            ("kernel", host.kernel.clone()),
            ("KVM", host.kvm.clone()),
            ("node", version(&self.faasw)),
            ("peer", version(&self.wasmtime)),
            ("command", format!("`{}`", self.command)),
            ("fresh peer", format!("`{}`", peer_command(Reuse::Fresh))),
            ("warm peer", format!("`{}`", peer_command(Reuse::Warm))),
        ] {
            text.push_str(&format!("- {name}: {value}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_could_not_be_measured_and_that_it_was_quick() {
        let results = Results {
            notes: vec!["js: no warm peer".to_owned()],
            failures: vec![("soak".to_owned(), "no\nnode".to_owned())],
            ..Results::default()
        };
        let heading = Heading {
            host: Host::here(),
            command: "faasw-bench report --quick".to_owned(),
            faasw: None,
            wasmtime: Some("wasmtime 48".to_owned()),
            quick: true,
        };
        let text = markdown(&results, &heading, None);
        assert!(text.contains("Not measured: soak: no; node\n"), "{text}");
        assert!(text.contains("\njs: no warm peer\n") && text.contains("- node: unknown\n"));
        assert!(text.contains("not how fast it is") && !text.contains(".svg"));
    }
}
