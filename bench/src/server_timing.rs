//! `Server-Timing`, as a node answers it to `X-Faasw-Timing: 1`.

use std::time::Duration;

/// Header fields that ask a node where a request's time goes, also behind a
/// body that comes as a stream.
pub const ASKING: &str = "x-faasw-timing: 1\r\nte: trailers\r\n";

/// Where a request's time went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Which kind of microVM served, if the node says.
    pub served: Option<String>,
    /// Each stage with its name, in the node's order.
    pub stages: Vec<(String, Duration)>,
}

impl Stages {
    /// Reads the field's value. Entries that say neither a time nor `served` are
    /// passed over.
    pub fn parse(value: &str) -> Self {
        let mut found = Self::default();
        for entry in value.split(',') {
            let mut parts = entry.split(';').map(str::trim);
            let Some(name) = parts.next().filter(|name| !name.is_empty()) else {
                continue;
            };
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                let value = value.trim_matches('"');
                match key {
                    "desc" if name == "served" => found.served = Some(value.to_owned()),
                    "dur" => found
                        .stages
                        .extend(milliseconds(value).map(|d| (name.to_owned(), d))),
                    _ => {}
                }
            }
        }
        found
    }

    /// From the request written to the handler finished in the microVM: `run`
    /// where the node tells it, else the stages that it is made of.
    pub fn in_vm(&self) -> Option<Duration> {
        let stage = |wanted: &str| {
            let mut stages = self.stages.iter();
            stages
                .find(|(name, _)| name == wanted)
                .map(|(_, time)| *time)
        };
        stage("run").or_else(|| Some(stage("fork")? + stage("init")? + stage("exec")?))
    }
}

fn milliseconds(value: &str) -> Option<Duration> {
    let milliseconds: f64 = value.parse().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: &str = "queue;dur=0.024, fork;dur=0.650, init;dur=0.150, exec;dur=0.700";

    #[test]
    fn the_way_through_the_vm_is_its_stages_or_what_the_node_says() {
        let stages = Stages::parse(PRESENT);
        assert_eq!(stages.served, None);
        assert_eq!(stages.stages.len(), 4);
        assert_eq!(stages.in_vm(), Some(Duration::from_micros(1500)));
        let told = Stages::parse(&format!("{PRESENT}, run;dur=0.031"));
        assert_eq!(told.in_vm(), Some(Duration::from_micros(31)));
    }

    #[test]
    fn who_served_is_a_description() {
        let stages = Stages::parse(&format!("served;desc=\"parked\", {PRESENT}"));
        assert_eq!(stages.served.as_deref(), Some("parked"));
        assert_eq!(stages.stages.len(), 4);
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        let stages = Stages::parse("cache;desc=hit, , db;dur=soon, exec;dur=-1,fork;dur=1");
        assert_eq!(
            stages.stages,
            [("fork".to_owned(), Duration::from_millis(1))]
        );
        assert_eq!(stages.in_vm(), None);
        assert_eq!(Stages::parse(""), Stages::default());
    }
}
