//! The permissions that an artifact requests, and those that it gets.
//!
//! The author of an artifact is not the user who deploys it. Some options affect only the function
//! itself (its environment, its arguments, lower limits) and are accepted. Options that would let
//! it reach, read or use resources of the node are requests. They include more time and memory than
//! functions have by default. The program shows the requests. The deploying user grants them by
//! kind. Without the user's decision, nothing is deployed.

use std::{collections::BTreeSet, fmt::Write as _};

use faasw_client::{FunctionLimits, TimeLimit};

use super::annotations::{Pair, options_from};
use crate::{
    args::{Accept, Kind},
    exit::Exit,
};

/// Maximum number of characters of a value that are shown.
const SHOWN_MAX: usize = 120;

/// The grants for the artifacts of one reference.
#[derive(Debug)]
pub struct ArtifactGrants {
    is_said: bool,
    kinds: BTreeSet<Kind>,
    /// The options that were granted first. Later artifacts of a followed tag get no others.
    first: Option<BTreeSet<Pair>>,
}

/// An artifact's options after the grants are applied.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GrantedOptions {
    /// The options that are in force.
    pub pairs: Vec<Pair>,
    /// The options that were requested but not granted.
    pub refused: Vec<Pair>,
}

impl ArtifactGrants {
    /// Creates the grants of the command line.
    pub fn new(accept: &Accept) -> Self {
        Self {
            is_said: accept.is_given(),
            kinds: accept.kinds(),
            first: None,
        }
    }

    /// Applies the grants to an artifact's options, for a node with these defaults.
    ///
    /// # Errors
    /// Returns an error if the artifact requests something and the command line has no `--accept`,
    /// or if it would be granted more than the first artifact of its tag.
    pub fn apply(
        &mut self,
        pairs: Vec<Pair>,
        defaults: &FunctionLimits,
    ) -> Result<GrantedOptions, Exit> {
        let kind_of = |pair: &Pair| kind_of(pair, defaults);
        let asks = |pair: &Pair| kind_of(pair).is_some();
        let asked: Vec<Pair> = pairs.iter().filter(|pair| asks(pair)).cloned().collect();
        if !asked.is_empty() && !self.is_said {
            let kinds: BTreeSet<&str> = asked.iter().filter_map(kind_of).map(kind_word).collect();
            let kinds: Vec<&str> = kinds.into_iter().collect();
            return Err(
                Exit::failure(format_args!("its artifact requests {}", shown(&asked))).hint(
                    format_args!(
                        "use --accept {} to grant this, or --accept none to deploy without; \
                         options given here need no --accept",
                        kinds.join(",")
                    ),
                ),
            );
        }
        let (mut taken, mut granted) = (GrantedOptions::default(), BTreeSet::new());
        for pair in pairs {
            match kind_of(&pair) {
                Some(kind) if !self.kinds.contains(&kind) => taken.refused.push(pair),
                Some(_) => {
                    granted.insert(pair.clone());
                    taken.pairs.push(pair);
                }
                None => taken.pairs.push(pair),
            }
        }
        match &self.first {
            None => self.first = Some(granted),
            Some(first) => {
                let more: Vec<Pair> = granted.difference(first).cloned().collect();
                if !more.is_empty() {
                    return Err(Exit::failure(format_args!(
                        "its artifact requests more than the first one: {}",
                        shown(&more)
                    ))
                    .hint("to grant this, restart `faasw deploy --watch`"));
                }
            }
        }
        Ok(taken)
    }
}

/// Returns the kind of permission that a parameter requests, if any.
fn kind_of(pair: &Pair, defaults: &FunctionLimits) -> Option<Kind> {
    match pair.0.as_str() {
        "allow-outbound" => Some(Kind::Outbound),
        "secret" | "bind-secret" => Some(Kind::Secrets),
        "kv" => Some(Kind::Kv),
        "host" => Some(Kind::Hosts),
        _ => is_more(pair, defaults).then_some(Kind::Limits),
    }
}

/// Returns whether a parameter sets a limit above the default.
fn is_more(pair: &Pair, defaults: &FunctionLimits) -> bool {
    // The artifact's options have been parsed before, so this does not fail.
    let Ok(options) = options_from(std::slice::from_ref(pair)) else {
        return false;
    };
    let times = &defaults.times;
    let above = |limit, default| options.own_time(limit).is_some_and(|own| own > default);
    options
        .own_memory()
        .is_some_and(|own| own > defaults.memory)
        // Polling uses idle processors only, but the node may have it switched off.
        || options.own_poll().is_some_and(|own| !own.is_zero())
        || above(TimeLimit::CpuTime, times.cpu_time)
        || above(TimeLimit::Timeout, times.first_byte)
        || above(TimeLimit::IdleClient, times.idle_client)
        || above(TimeLimit::IdleGuest, times.idle_guest)
        // If there is no default limit, any limit is lower.
        || times
            .total_time
            .is_some_and(|most| above(TimeLimit::TotalTime, most))
}

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Outbound => "outbound",
        Kind::Secrets => "secrets",
        Kind::Kv => "kv",
        Kind::Hosts => "hosts",
        Kind::Limits => "limits",
        Kind::All => "all",
        Kind::None => "none",
    }
}

/// Returns options as one line for people.
pub fn shown(pairs: &[Pair]) -> String {
    let mut text = String::new();
    for (parameter, value) in pairs {
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{parameter} ");
        let is_long = value.chars().count() > SHOWN_MAX;
        text.extend(value.chars().take(SHOWN_MAX));
        text.push_str(if is_long { "…" } else { "" });
    }
    faasw_common::text::Line(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use faasw_client::RequestLimits;

    use super::*;
    use crate::args::{Command, parse};

    /// Returns the defaults of a node without options.
    fn defaults() -> FunctionLimits {
        let seconds = Duration::from_secs;
        FunctionLimits {
            memory: 128 << 20,
            times: RequestLimits {
                cpu_time: seconds(10),
                first_byte: seconds(10),
                idle_client: seconds(30),
                idle_guest: seconds(60),
                total_time: None,
            },
        }
    }

    fn pair(parameter: &str, value: &str) -> Pair {
        (parameter.to_owned(), value.to_owned())
    }

    fn grants(words: &str) -> ArtifactGrants {
        match parse(&format!("deploy oci://reg.test/a {words}")).unwrap() {
            Command::Deploy(deploy) => ArtifactGrants::new(&deploy.accept),
            other => panic!("{other:?}"),
        }
    }

    fn everything() -> Vec<Pair> {
        vec![
            pair("env", "A=b"),
            pair("memory", &(64 << 20).to_string()),
            pair("allow-outbound", "https://a.test"),
            pair("secret", "s"),
            pair("bind-secret", "t=https://a.test"),
            pair("kv", "shared"),
            pair("host", "a.test"),
            pair("timeout", "1h"),
        ]
    }

    #[test]
    fn options_that_reach_resources_need_a_grant() {
        let own = vec![
            pair("env", "A=b"),
            pair("memory", "65536"),
            pair("timeout", "1s"),
            pair("concurrency", "3"),
            pair("poll", "off"),
        ];
        assert_eq!(
            grants("").apply(own.clone(), &defaults()).unwrap().pairs,
            own
        );
        for asking in everything().split_off(2) {
            let refused = grants("")
                .apply(vec![pair("env", "A=b"), asking.clone()], &defaults())
                .unwrap_err();
            assert!(refused.to_string().contains(&asking.1), "{refused}");
        }
        for limit in [
            pair("memory", &(1_u64 << 40).to_string()),
            pair("cpu-time", "11s"),
            pair("idle-guest", "61s"),
            pair("poll", "auto"),
        ] {
            assert!(grants("").apply(vec![limit], &defaults()).is_err());
        }
    }

    #[test]
    fn limits_above_the_nodes_defaults_need_a_grant() {
        let mut lower = defaults();
        lower.memory = 16 << 20;
        lower.times.cpu_time = Duration::from_millis(500);
        lower.times.total_time = Some(Duration::from_secs(5));
        for limit in [
            pair("memory", &(64 << 20).to_string()),
            pair("cpu-time", "1s"),
            pair("total-time", "6s"),
        ] {
            assert!(grants("").apply(vec![limit.clone()], &defaults()).is_ok());
            let refused = grants("").apply(vec![limit.clone()], &lower).unwrap_err();
            assert!(refused.to_string().contains(&limit.1), "{refused}");
            let taken = grants("--accept none").apply(vec![limit], &lower).unwrap();
            assert_eq!((taken.pairs.len(), taken.refused.len()), (0, 1));
        }
        let mut higher = defaults();
        higher.memory = 1 << 30;
        let large = vec![pair("memory", &(1_u64 << 30).to_string())];
        assert!(grants("").apply(large, &higher).is_ok());
    }

    #[test]
    fn only_accepted_kinds_are_granted() {
        let taken = grants("--accept none")
            .apply(everything(), &defaults())
            .unwrap();
        assert_eq!((taken.pairs.len(), taken.refused.len()), (2, 6));
        let taken = grants("--accept secrets,limits")
            .apply(everything(), &defaults())
            .unwrap();
        let refused: Vec<&str> = taken
            .refused
            .iter()
            .map(|(parameter, _)| parameter.as_str())
            .collect();
        assert_eq!(refused, ["allow-outbound", "kv", "host"]);
        assert_eq!(
            grants("--accept all")
                .apply(everything(), &defaults())
                .unwrap()
                .pairs,
            everything()
        );
    }

    #[test]
    fn later_artifacts_of_a_followed_tag_get_no_further_grants() {
        let mut grants = grants("--accept outbound");
        grants
            .apply(vec![pair("allow-outbound", "https://a.test")], &defaults())
            .unwrap();
        grants.apply(vec![pair("env", "A=b")], &defaults()).unwrap();
        grants
            .apply(vec![pair("allow-outbound", "https://a.test")], &defaults())
            .unwrap();
        let more = vec![pair("allow-outbound", "https://*.test")];
        assert!(
            grants
                .apply(more, &defaults())
                .unwrap_err()
                .to_string()
                .contains("*.test")
        );
        // A request that is not granted does not count as more than the first one.
        assert_eq!(
            grants
                .apply(vec![pair("kv", "shared")], &defaults())
                .unwrap()
                .refused
                .len(),
            1
        );
    }

    #[test]
    fn shown_options_are_one_short_line() {
        let text = shown(&[
            pair("env", &format!("A={}", "\n".repeat(500))),
            pair("kv", "\u{202e}x"),
        ]);
        assert!(
            text.len() < 600 && !text.contains(['\n', '\u{202e}']),
            "{text}"
        );
    }
}
