//! The spelling of function kinds, freeze policies, log streams, times and durations.
//!
//! The registry, the admin API, log files and the command line use the same words, so they are
//! defined only here. Most submodules can be used with `#[serde(with = …)]`.

use std::time::Duration;

use faasw_abi::wire::FunctionKind;
use faasw_common::{FreezePolicy, LogStream};
use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

macro_rules! words {
    ($(#[$doc:meta])* $module:ident: $type:ty { $($variant:path = $word:literal,)+ }) => {
        $(#[$doc])*
        pub mod $module {
            use super::*;

            /// All words.
            pub const WORDS: &[&str] = &[$($word),+];

            /// Returns the word for a value.
            #[must_use]
            pub fn word(value: $type) -> &'static str {
                match value { $($variant => $word,)+ }
            }

            /// Returns the value for a word, if there is one.
            #[must_use]
            pub fn parse(word: &str) -> Option<$type> {
                match word { $($word => Some($variant),)+ _ => None }
            }

            /// Serialises a value as its word.
            ///
            /// # Errors
            /// Returns the serialiser's error.
            pub fn serialize<S: Serializer>(
                value: &$type,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(word(*value))
            }

            /// Deserialises a value from its word.
            ///
            /// # Errors
            /// Returns an error if the text is not one of the words.
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
    /// The kinds of function.
    kind: FunctionKind {
        FunctionKind::HttpComponent = "http-component",
        FunctionKind::CliComponent = "cli-component",
        FunctionKind::CgiModule = "cgi-module",
    }
}

words! {
    /// The freeze policies.
    freeze: FreezePolicy {
        FreezePolicy::Auto = "auto",
        FreezePolicy::BeforeInit = "before-init",
        FreezePolicy::AfterInit = "after-init",
    }
}

words! {
    /// The streams of log lines.
    stream: LogStream {
        LogStream::Out = "out",
        LogStream::Err = "err",
        LogStream::Node = "node",
    }
}

/// The maximum polling time of instances.
pub mod poll {
    use faasw_common::{POLL, POLL_MAX};

    use super::*;

    /// Returns the text for a time: `off` for zero.
    #[must_use]
    pub fn word(time: Duration) -> String {
        if time.is_zero() {
            "off".to_owned()
        } else {
            humantime::format_duration(time).to_string()
        }
    }

    /// Returns the time for `off`, `auto` or a duration.
    ///
    /// # Errors
    /// Returns a short reason if the text is none of these or the duration is too long.
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

/// Durations as whole microseconds, which are exact in JSON and fine enough for any stage.
pub mod microseconds {
    use super::*;

    /// Serialises a duration as microseconds.
    ///
    /// # Errors
    /// Returns the serialiser's error.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }

    /// Deserialises a duration from microseconds.
    ///
    /// # Errors
    /// Returns an error if the value is not a number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

/// Times in the format of RFC 3339, in UTC with milliseconds.
pub mod time {
    use std::time::SystemTime;

    use super::*;

    /// Returns the text of a time.
    #[must_use]
    pub fn text(time: SystemTime) -> String {
        humantime::format_rfc3339_millis(time).to_string()
    }

    /// Returns the time for a text, if it is valid.
    #[must_use]
    pub fn parse(text: &str) -> Option<SystemTime> {
        humantime::parse_rfc3339(text).ok()
    }

    /// Serialises a time as text.
    ///
    /// # Errors
    /// Returns the serialiser's error.
    pub fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339_millis(*time))
    }

    /// Deserialises a time from text.
    ///
    /// # Errors
    /// Returns an error if the text is not a time in the format of RFC 3339.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| D::Error::custom("no moment as RFC 3339 has it"))
    }
}

/// Optional durations as whole microseconds, for stages that may have been unnecessary.
pub mod optional_microseconds {
    use super::*;

    /// Serialises an optional duration as microseconds.
    ///
    /// # Errors
    /// Returns the serialiser's error.
    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => microseconds::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Deserialises an optional duration from microseconds.
    ///
    /// # Errors
    /// Returns an error if there is a value that is not a number.
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
    fn every_spelled_word_parses_back_to_its_value() {
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
