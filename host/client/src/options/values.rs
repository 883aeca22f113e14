//! Options as names and texts, for annotations and for people. Both directions go through the JSON
//! form and are derived from the table [`faasw_common::options`].

use std::time::Duration;

use faasw_common::options::{OPTIONS, OptionDefinition, OptionForm, find};
use serde_json::{Map, Value, json};

use super::FunctionOptions;
use crate::spelling;

/// A value of an option as text. A repeatable option has several values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OptionValue {
    /// The option.
    pub definition: &'static OptionDefinition,
    /// The value.
    pub text: String,
}

impl OptionValue {
    /// Checks and returns a value of the option of this name.
    ///
    /// # Errors
    /// Returns a sentence that names the mistake if there is no such option or the text is invalid.
    pub fn new(name: &str, text: impl Into<String>) -> Result<Self, String> {
        let definition = find(name).ok_or_else(|| format!("there is no option {name:?}"))?;
        let text = text.into();
        let value = Self { definition, text };
        FunctionOptions::from_values([&value]).map_err(|why| format!("{name}: {why}"))?;
        Ok(value)
    }

    /// Returns the option's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.definition.name
    }

    /// Adds the value to the members of options in JSON.
    fn add_to(&self, members: &mut Value) -> Result<(), String> {
        let text = self.text.as_str();
        let pair = || text.split_once('=').ok_or("not of the form NAME=VALUE");
        let member = &mut members[self.definition.member];
        match self.definition.form {
            OptionForm::Text => *member = text.into(),
            OptionForm::Count | OptionForm::Bytes => {
                let number: Result<u64, _> = text.parse();
                *member = number
                    .map_err(|_| format!("{text:?} is not a number"))?
                    .into();
            }
            OptionForm::Time => {
                let time = humantime::parse_duration(text);
                let time = time.map_err(|why| format!("{text:?} is not a time: {why}"))?;
                member[self.definition.name] = microseconds(time);
            }
            OptionForm::Polling => {
                let time = spelling::poll::parse(text);
                *member = microseconds(time.map_err(|why| format!("{text:?} is {why}"))?);
            }
            OptionForm::List => push(member, text.into()),
            OptionForm::Variables => {
                let (name, value) = pair()?;
                push(member, json!([name, value]));
            }
            OptionForm::Table => {
                let (name, value) = pair()?;
                member[name] = value.into();
            }
            OptionForm::Bindings => {
                let (name, value) = pair()?;
                push(&mut member[name], value.into());
            }
        }
        Ok(())
    }
}

impl FunctionOptions {
    /// Returns the options that differ from their defaults as texts. The source is not among them,
    /// because it is a statement about the version and not an option.
    #[must_use]
    pub fn values(&self) -> Vec<OptionValue> {
        // Options can always be written as JSON: the keys of all maps are texts.
        let [members, defaults] = [self, &Self::default()]
            .map(|options| serde_json::to_value(options).unwrap_or_default());
        let mut values = Vec::new();
        for definition in &OPTIONS {
            let [member, default] = [&members, &defaults].map(|all| all.get(definition.member));
            if let Some(member) = member
                && Some(member) != default
            {
                let texts = texts(definition, member).into_iter();
                values.extend(texts.map(|text| OptionValue { definition, text }));
            }
        }
        values
    }

    /// Returns the options for these values. For variables and configuration, the last value of a
    /// name counts; for other options that are not repeatable, the last value.
    ///
    /// # Errors
    /// Returns a sentence that names the mistake if a value is invalid.
    pub fn from_values<'a>(
        values: impl IntoIterator<Item = &'a OptionValue>,
    ) -> Result<Self, String> {
        let mut members = Value::Object(Map::new());
        for value in values {
            value.add_to(&mut members)?;
        }
        serde_json::from_value(members).map_err(|why| why.to_string())
    }
}

/// Returns the texts of an option for its member in JSON.
fn texts(definition: &OptionDefinition, member: &Value) -> Vec<String> {
    let time = |value: &Value| value.as_u64().map(Duration::from_micros);
    match (definition.form, member) {
        (OptionForm::Time, times) => time(&times[definition.name])
            .map(|time| humantime::format_duration(time).to_string())
            .into_iter()
            .collect(),
        (OptionForm::Polling, value) => time(value).map(spelling::poll::word).into_iter().collect(),
        (OptionForm::Variables, Value::Array(pairs)) => {
            pairs.iter().map(|pair| flat(pair).join("=")).collect()
        }
        (_, value) => flat(value),
    }
}

/// Returns the texts and numbers in a value, each behind its key.
fn flat(value: &Value) -> Vec<String> {
    match value {
        Value::Null | Value::Bool(_) => Vec::new(),
        Value::Number(number) => vec![number.to_string()],
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(flat).collect(),
        Value::Object(members) => {
            let of_member = |(key, value)| {
                flat(value)
                    .into_iter()
                    .map(move |text| format!("{key}={text}"))
            };
            members.iter().flat_map(of_member).collect()
        }
    }
}

fn microseconds(time: Duration) -> Value {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).into()
}

/// Appends a value to a list, which begins as null.
fn push(list: &mut Value, value: Value) {
    match list {
        Value::Array(values) => values.push(value),
        other => *other = Value::Array(vec![value]),
    }
}
