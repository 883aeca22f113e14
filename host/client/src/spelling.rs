//! How kinds, freeze policies and log streams are spelled.
//!
//! The same words appear in the registry, the admin API, log files and on the
//! command line, so they are written down once. Each submodule is usable with
//! `#[serde(with = …)]`.

use std::time::Duration;

use faasw_abi::wire::FunctionKind;
use faasw_common::{FreezePolicy, LogStream};
use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

macro_rules! words {
    ($(#[$doc:meta])* $module:ident: $type:ty { $($variant:path = $word:literal,)+ }) => {
        $(#[$doc])*
        pub mod $module {
            use super::*;

            /// Every word there is.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word for a value.
            #[must_use]
            pub fn word(value: $type) -> &'static str {
                match value { $($variant => $word,)+ }
            }

            /// The value that a word stands for, if any.
            #[must_use]
            pub fn parse(word: &str) -> Option<$type> {
                match word { $($word => Some($variant),)+ _ => None }
            }

            /// Writes the word.
            ///
            /// # Errors
            /// As the serialiser.
            pub fn serialize<S: Serializer>(
                value: &$type,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(word(*value))
            }

            /// Reads the word.
            ///
            /// # Errors
            /// When it is none.
            pub fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                let text = String::deserialize(deserializer)?;
                parse(&text).ok_or_else(|| D::Error::unknown_variant(&text, WORDS))
            }
        }
    };
}

words! {
    /// What a function is.
    kind: FunctionKind {
        FunctionKind::HttpComponent = "http-component",
        FunctionKind::CliComponent = "cli-component",
        FunctionKind::CgiModule = "cgi-module",
    }
}

words! {
    /// When a seed is frozen.
    freeze: FreezePolicy {
        FreezePolicy::Auto = "auto",
        FreezePolicy::BeforeInit = "before-init",
        FreezePolicy::AfterInit = "after-init",
    }
}

words! {
    /// Where a log line came from.
    stream: LogStream {
        LogStream::Out = "out",
        LogStream::Err = "err",
        LogStream::Node = "node",
    }
}

/// For how long instances look for requests by themselves.
pub mod poll {
    use faasw_common::{POLL, POLL_MAX};

    use super::*;

    /// The text for a time; that for none is `off`.
    #[must_use]
    pub fn word(time: Duration) -> String {
        if time.is_zero() {
            "off".to_owned()
        } else {
            humantime::format_duration(time).to_string()
        }
    }

    /// The time that `off`, `auto` or a duration stands for.
    ///
    /// # Errors
    /// Why it stands for none, in a few words.
    pub fn parse(text: &str) -> Result<Duration, String> {
        match text {
            "off" => Ok(Duration::ZERO),
            "auto" => Ok(POLL),
            time => match humantime::parse_duration(time) {
                Ok(time) if time <= POLL_MAX => Ok(time),
                Ok(_) => Err(format!("longer than {}", word(POLL_MAX))),
                Err(_) => Err("neither off, auto, nor a time".to_owned()),
            },
        }
    }
}

/// Durations as whole microseconds: exact in JSON, fine enough for any stage.
pub mod microseconds {
    use super::*;

    /// Writes microseconds.
    ///
    /// # Errors
    /// As the serialiser.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }

    /// Reads microseconds.
    ///
    /// # Errors
    /// When there is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

/// Moments as RFC 3339 has them, in UTC with milliseconds.
pub mod time {
    use std::time::SystemTime;

    use super::*;

    /// The moment's text.
    #[must_use]
    pub fn text(time: SystemTime) -> String {
        humantime::format_rfc3339_millis(time).to_string()
    }

    /// The moment that a text stands for, if any.
    #[must_use]
    pub fn parse(text: &str) -> Option<SystemTime> {
        humantime::parse_rfc3339(text).ok()
    }

    /// Writes the text.
    ///
    /// # Errors
    /// As the serialiser.
    pub fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339_millis(*time))
    }

    /// Reads the text.
    ///
    /// # Errors
    /// When there is none.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| D::Error::custom("no moment as RFC 3339 has it"))
    }
}

/// The same for a stage that may not have been needed.
pub mod optional_microseconds {
    use super::*;

    /// Writes microseconds.
    ///
    /// # Errors
    /// As the serialiser.
    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => microseconds::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads microseconds.
    ///
    /// # Errors
    /// When there is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_the_value_that_it_spells() {
        for word in kind::WORDS {
            assert_eq!(kind::word(kind::parse(word).unwrap()), *word);
        }
        for word in freeze::WORDS {
            assert_eq!(freeze::word(freeze::parse(word).unwrap()), *word);
        }
        for word in stream::WORDS {
            assert_eq!(stream::word(stream::parse(word).unwrap()), *word);
        }
        assert_eq!(freeze::parse("AUTO"), None);
    }
}
