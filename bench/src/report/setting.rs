//! Settings of a node that differ from its defaults.

use std::str::FromStr;

/// Options and environment variables with which a node is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Options of `faasw up`.
    pub options: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
}

impl Setting {
    /// Returns these settings together with further ones.
    pub fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.options.extend_from_slice(&other.options);
        both.environment.extend_from_slice(&other.environment);
        both
    }

    /// Returns settings with only these options.
    pub fn of_options(options: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            options: options.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
        }
    }
}

/// A node with a mechanism switched off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Without {
    /// Name of the mechanism.
    pub name: String,
    /// The settings that switch it off.
    pub setting: Setting,
}

impl FromStr for Without {
    type Err = String;

    /// Parses `NAME: WORD…`, where a word is an option, or `VARIABLE=value`.
    fn from_str(text: &str) -> Result<Self, String> {
        let usage = "what to switch off is NAME: WORDS, such as 'warm: --some-option=0'";
        let (name, words) = text.split_once(':').ok_or(usage)?;
        let mut setting = Setting::default();
        for word in words.split_ascii_whitespace() {
            match word.split_once('=') {
                Some((variable, value)) if !word.starts_with('-') => {
                    setting
                        .environment
                        .push((variable.to_owned(), value.to_owned()));
                }
                _ => setting.options.push(word.to_owned()),
            }
        }
        if name.trim().is_empty() || setting == Setting::default() {
            return Err(usage.to_owned());
        }
        Ok(Self {
            name: name.trim().to_owned(),
            setting,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_has_a_name_options_and_variables() {
        let without: Without = "large pages: --huge no --x=1 A_B=c=d".parse().unwrap();
        assert_eq!(without.name, "large pages");
        assert_eq!(without.setting.options, ["--huge", "no", "--x=1"]);
        assert_eq!(
            without.setting.environment,
            [("A_B".to_owned(), "c=d".to_owned())]
        );
        for wrong in ["warm", "warm:", ": --x"] {
            assert!(wrong.parse::<Without>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_add_up() {
        let without: Without = "x: --b A=1".parse().unwrap();
        let both = Setting::of_options(["--a"]).and(&without.setting);
        assert_eq!(both.options, ["--a", "--b"]);
        assert_eq!(both.environment.len(), 1);
    }
}
