//! The field `Server-Timing`, with which a node answers `X-Faasw-Timing: 1`.

use std::time::Duration;

/// Header fields that request the stages of a request's time from a node. With them the node can
/// also send the stages in the trailers of a streamed body.
pub const ASKING: &str = "x-faasw-timing: 1\r\nte: trailers\r\n";

/// The stages of a request's time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// The kind of microVM that served the request, if the node reports it.
    pub served: Option<String>,
    /// Each stage with its name, in the node's order.
    pub stages: Vec<(String, Duration)>,
}

impl Stages {
    /// Parses the field's value. Entries that have neither a time nor the kind `served` are
    /// ignored.
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

    /// Returns the time from when the request was written until the handler had finished in the
    /// microVM. It is the stage `run` if the node reports that, and else the sum of its parts.
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
        let stages = Stages::parse(&format!("served;desc=\"warm\", {PRESENT}"));
        assert_eq!(stages.served.as_deref(), Some("warm"));
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
