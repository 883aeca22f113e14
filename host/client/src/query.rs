//! Reads and writes the query parameters of the admin API.

use std::{borrow::Cow, fmt::Display, str::FromStr};

use form_urlencoded::Serializer;

use crate::{EXTENSIONS_MAX, Extension};

/// Default number of log lines.
const LOG_LINES: usize = 100;

/// The parameters of `invoke`.
#[derive(Debug, PartialEq, Eq)]
pub struct InvokeParameters {
    /// The method.
    pub method: String,
    /// The path and query that the function sees.
    pub path: String,
}

fn pairs(query: Option<&str>) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes())
}

fn unknown(parameter: &str) -> String {
    format!("there is no parameter {parameter:?} here")
}

/// Returns the values of the parameters that a request may have.
fn read<'a, const N: usize>(
    query: Option<&'a str>,
    names: [&str; N],
) -> Result<[Option<Cow<'a, str>>; N], String> {
    let mut values = [const { None }; N];
    for (parameter, value) in pairs(query) {
        let mut places = names.iter().zip(&mut values);
        let place = places.find(|(name, _)| **name == parameter);
        let (_, place) = place.ok_or_else(|| unknown(&parameter))?;
        if place.replace(value).is_some() {
            return Err(format!("the parameter {parameter:?} occurs twice"));
        }
    }
    Ok(values)
}

fn parse<T: FromStr<Err: Display>>(
    name: &str,
    value: Option<Cow<'_, str>>,
) -> Result<Option<T>, String> {
    let parse = |text: Cow<'_, str>| {
        let value = text.parse();
        value.map_err(|why| format!("{name}={text}: {why}"))
    };
    value.map(parse).transpose()
}

/// Reads the only parameter that a request may have, if it is there.
///
/// # Errors
/// Returns a sentence that describes the mistake if the parameter is invalid, or there is another.
pub fn read_parameter<T: FromStr<Err: Display>>(
    query: Option<&str>,
    name: &str,
) -> Result<Option<T>, String> {
    let [value] = read(query, [name])?;
    parse(name, value)
}

/// Writes parameters for a request.
pub(crate) fn write<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(parameters).finish()
}

/// Reads the file extensions of an engine's scripts.
///
/// # Errors
/// Returns a sentence that describes the mistake if a parameter is unknown or invalid, or if there
/// are no or too many extensions.
pub fn read_extensions(query: Option<&str>) -> Result<Vec<Extension>, String> {
    let mut extensions = Vec::new();
    for (parameter, value) in pairs(query) {
        if parameter != "extension" {
            return Err(unknown(&parameter));
        }
        let extension = Extension::new(&value).map_err(|error| error.to_string())?;
        if !extensions.contains(&extension) {
            extensions.push(extension);
        }
    }
    match extensions.len() {
        1..=EXTENSIONS_MAX => Ok(extensions),
        count => Err(format!(
            "an engine has 1 to {EXTENSIONS_MAX} extensions, not {count}"
        )),
    }
}

/// Reads the parameters of an invocation.
///
/// # Errors
/// Returns a sentence that describes the mistake if a parameter is unknown or invalid.
pub fn read_invocation(query: Option<&str>) -> Result<InvokeParameters, String> {
    let [method, path] = read(query, ["method", "path"])?;
    let path = path.unwrap_or("/".into());
    if !path.starts_with('/') {
        return Err(format!("path={path} does not begin with /"));
    }
    Ok(InvokeParameters {
        method: method.unwrap_or("GET".into()).into_owned(),
        path: path.into_owned(),
    })
}

/// A selection of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSelection {
    /// The number of newest lines.
    pub newest: usize,
    /// If set, the lines after this place are selected instead.
    pub after: Option<u64>,
}

/// Reads the selection of log lines.
///
/// # Errors
/// Returns a sentence that describes the mistake if a parameter is unknown or invalid.
pub fn read_lines(query: Option<&str>) -> Result<LogSelection, String> {
    let [lines, after] = read(query, ["lines", "after"])?;
    Ok(LogSelection {
        newest: parse("lines", lines)?.unwrap_or(LOG_LINES),
        after: parse("after", after)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FunctionName;

    #[test]
    fn extensions_are_read_as_they_are_written() {
        let extensions = [".js", "mjs"].map(|text| Extension::new(text).unwrap());
        let written = write(extensions.iter().map(|one| ("extension", one.as_str())));
        assert_eq!(read_extensions(Some(&written)).unwrap(), extensions);
        for query in [
            None,
            Some("extension="),
            Some("extension=wasm"),
            Some("a=b"),
        ] {
            assert!(read_extensions(query).is_err(), "{query:?}");
        }
    }

    #[test]
    fn an_invocation_survives_the_query() {
        let invocation = InvokeParameters {
            method: "PATCH".into(),
            path: "/a b?c=d&e".into(),
        };
        let query = write([("method", "PATCH"), ("path", "/a b?c=d&e")]);
        assert_eq!(read_invocation(Some(&query)).unwrap(), invocation);
    }

    #[test]
    fn a_parameter_is_any_text() {
        for key in ["a", "a b&c=d/\u{e9}\n", ""] {
            let query = write([("key", key)]);
            let read = read_parameter::<String>(Some(&query), "key");
            assert_eq!(read, Ok(Some(key.to_owned())), "{query}");
        }
        assert_eq!(read_parameter::<String>(None, "key"), Ok(None));
        assert!(read_parameter::<String>(Some("keys=a"), "key").is_err());
    }

    #[test]
    fn parameters_are_checked() {
        assert!(read_invocation(Some("path=x")).is_err());
        assert!(read_lines(Some("lines=-1")).is_err());
        let lines = LogSelection {
            newest: 7,
            after: Some(8),
        };
        assert_eq!(read_lines(Some("lines=7&after=8")), Ok(lines));
        let version = |query| read_parameter::<u64>(query, "version");
        assert_eq!(version(Some("version=3")), Ok(Some(3)));
        assert_eq!(version(None), Ok(None));
        assert!(version(Some("version=last")).is_err());
        let name = |query| read_parameter::<FunctionName>(query, "name");
        assert_eq!(name(Some("name=f")), Ok(FunctionName::new("f").ok()));
        assert_eq!(name(None), Ok(None));
        assert!(name(Some("name=F")).unwrap_err().contains("name=F"));
        assert!(name(Some("nam=f")).is_err());
    }

    #[test]
    fn a_parameter_occurs_once() {
        for (query, parameter) in [
            ("lines=x&lines=1", "lines"),
            ("lines=1&after=2&lines=1", "lines"),
            ("after=&after=", "after"),
        ] {
            let expected = format!("the parameter {parameter:?} occurs twice");
            assert_eq!(read_lines(Some(query)), Err(expected), "{query}");
        }
        assert!(read_parameter::<u64>(Some("version=1&version=2"), "version").is_err());
        assert!(read_invocation(Some("path=/a&path=/b")).is_err());
    }
}
