//! The permissions that an artifact requests, and those that it gets.
//!
//! The author of an artifact is not the user who deploys it. Some options affect only the function
//! itself (its environment, its arguments, lower limits) and are accepted. Options that would let
//! it reach, read or use resources of the node are requests. They include more time and memory than
//! functions have by default. The program shows the requests. The deploying user grants them by
//! kind. Without the user's decision, nothing is deployed.

use std::{collections::BTreeSet, fmt::Write as _};

use clap::ValueEnum as _;
use faasw_client::{FunctionLimits, FunctionOptions, OptionValue, TimeLimit};
use faasw_common::options::OptionPermission;

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
    first: Option<BTreeSet<OptionValue>>,
}

/// An artifact's options after the grants are applied.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GrantedOptions {
    /// The options that are in force.
    pub values: Vec<OptionValue>,
    /// The options that were requested but not granted.
    pub refused: Vec<OptionValue>,
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
        values: Vec<OptionValue>,
        defaults: &FunctionLimits,
    ) -> Result<GrantedOptions, Exit> {
        let kind_of = |value: &OptionValue| kind_of(value, defaults);
        let asks = |value: &&OptionValue| kind_of(value).is_some();
        let asked: Vec<OptionValue> = values.iter().filter(asks).cloned().collect();
        if !asked.is_empty() && !self.is_said {
            let kinds: BTreeSet<String> = asked.iter().filter_map(kind_of).map(kind_word).collect();
            let kinds: Vec<String> = kinds.into_iter().collect();
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
        for value in values {
            match kind_of(&value) {
                Some(kind) if !self.kinds.contains(&kind) => taken.refused.push(value),
                Some(_) => {
                    granted.insert(value.clone());
                    taken.values.push(value);
                }
                None => taken.values.push(value),
            }
        }
        match &self.first {
            None => self.first = Some(granted),
            Some(first) => {
                let more: Vec<OptionValue> = granted.difference(first).cloned().collect();
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

/// Returns the kind of permission that an option requests, if any.
fn kind_of(value: &OptionValue, defaults: &FunctionLimits) -> Option<Kind> {
    match value.definition.permission {
        OptionPermission::Free => None,
        OptionPermission::AboveDefault => is_above(value, defaults).then_some(Kind::Limits),
        OptionPermission::Polling => polls(value).then_some(Kind::Limits),
        OptionPermission::Outbound => Some(Kind::Outbound),
        OptionPermission::Secrets => Some(Kind::Secrets),
        OptionPermission::Stores => Some(Kind::Kv),
        OptionPermission::Hosts => Some(Kind::Hosts),
    }
}

/// Returns whether a limit is above the node's default. A limit without a known default counts as
/// above it.
fn is_above(value: &OptionValue, defaults: &FunctionLimits) -> bool {
    let Ok(options) = FunctionOptions::from_values([value]) else {
        return true;
    };
    match TimeLimit::parse(value.name()) {
        // If there is no default limit, any limit is lower.
        Some(limit) => defaults.times.of(limit).is_some_and(|default| {
            let own = options.own_time(limit);
            own.is_none_or(|own| own > default)
        }),
        None => options.own_memory().is_none_or(|own| own > defaults.memory),
    }
}

/// Returns whether instances poll with this value. Polling uses idle processors only, but the node
/// may have it switched off.
fn polls(value: &OptionValue) -> bool {
    let options = FunctionOptions::from_values([value]).unwrap_or_default();
    options.own_poll().is_none_or(|own| !own.is_zero())
}

/// Returns the word for a kind on the command line.
fn kind_word(kind: Kind) -> String {
    let word = kind.to_possible_value();
    word.map_or_else(String::new, |word| word.get_name().to_owned())
}

/// Returns options as one line for people.
pub fn shown(values: &[OptionValue]) -> String {
    let mut text = String::new();
    for value in values {
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{} ", value.name());
        let value = &value.text;
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
    use faasw_common::options::{OptionDefinition, OptionForm};

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

    fn value(name: &str, text: &str) -> OptionValue {
        OptionValue::new(name, text).unwrap()
    }

    fn grants(words: &str) -> ArtifactGrants {
        match parse(&format!("deploy oci://reg.test/a {words}")).unwrap() {
            Command::Deploy(deploy) => ArtifactGrants::new(&deploy.accept),
            other => panic!("{other:?}"),
        }
    }

    fn everything() -> Vec<OptionValue> {
        vec![
            value("env", "A=b"),
            value("memory", &(64 << 20).to_string()),
            value("allow-outbound", "https://a.test"),
            value("secret", "s"),
            value("bind-secret", "t=https://a.test"),
            value("kv", "shared"),
            value("host", "a.test"),
            value("timeout", "1h"),
        ]
    }

    #[test]
    fn options_that_reach_resources_need_a_grant() {
        let own = vec![
            value("env", "A=b"),
            value("memory", "65536"),
            value("timeout", "1s"),
            value("concurrency", "3"),
            value("poll", "off"),
        ];
        assert_eq!(
            grants("").apply(own.clone(), &defaults()).unwrap().values,
            own
        );
        for asking in everything().split_off(2) {
            let refused = grants("")
                .apply(vec![value("env", "A=b"), asking.clone()], &defaults())
                .unwrap_err();
            assert!(refused.to_string().contains(&asking.text), "{refused}");
        }
        for limit in [
            value("memory", &(1_u64 << 40).to_string()),
            value("cpu-time", "11s"),
            value("idle-guest", "61s"),
            value("poll", "auto"),
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
            value("memory", &(64 << 20).to_string()),
            value("cpu-time", "1s"),
            value("total-time", "6s"),
        ] {
            assert!(grants("").apply(vec![limit.clone()], &defaults()).is_ok());
            let refused = grants("").apply(vec![limit.clone()], &lower).unwrap_err();
            assert!(refused.to_string().contains(&limit.text), "{refused}");
            let taken = grants("--accept none").apply(vec![limit], &lower).unwrap();
            assert_eq!((taken.values.len(), taken.refused.len()), (0, 1));
        }
        let mut higher = defaults();
        higher.memory = 1 << 30;
        let large = vec![value("memory", &(1_u64 << 30).to_string())];
        assert!(grants("").apply(large, &higher).is_ok());
    }

    /// A new limit must not be free by oversight.
    #[test]
    fn a_limit_without_a_known_default_needs_a_grant() {
        static NEW: OptionDefinition = OptionDefinition {
            name: "new-limit",
            member: "new_limit",
            form: OptionForm::Count,
            permission: OptionPermission::AboveDefault,
        };
        let new = OptionValue {
            definition: &NEW,
            text: "1".to_owned(),
        };
        assert_eq!(kind_of(&new, &defaults()), Some(Kind::Limits));
    }

    #[test]
    fn only_accepted_kinds_are_granted() {
        let taken = grants("--accept none")
            .apply(everything(), &defaults())
            .unwrap();
        assert_eq!((taken.values.len(), taken.refused.len()), (2, 6));
        let taken = grants("--accept secrets,limits")
            .apply(everything(), &defaults())
            .unwrap();
        let refused: Vec<&str> = taken.refused.iter().map(OptionValue::name).collect();
        assert_eq!(refused, ["allow-outbound", "kv", "host"]);
        assert_eq!(
            grants("--accept all")
                .apply(everything(), &defaults())
                .unwrap()
                .values,
            everything()
        );
    }

    #[test]
    fn later_artifacts_of_a_followed_tag_get_no_further_grants() {
        let mut grants = grants("--accept outbound");
        grants
            .apply(vec![value("allow-outbound", "https://a.test")], &defaults())
            .unwrap();
        grants
            .apply(vec![value("env", "A=b")], &defaults())
            .unwrap();
        grants
            .apply(vec![value("allow-outbound", "https://a.test")], &defaults())
            .unwrap();
        let more = vec![value("allow-outbound", "https://*.test")];
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
                .apply(vec![value("kv", "shared")], &defaults())
                .unwrap()
                .refused
                .len(),
            1
        );
    }

    #[test]
    fn shown_options_are_one_short_line() {
        let text = shown(&[
            value("env", &format!("A={}", "\n".repeat(500))),
            value("init", "\u{202e}x"),
        ]);
        assert!(
            text.len() < 600 && !text.contains(['\n', '\u{202e}']),
            "{text}"
        );
    }
}
