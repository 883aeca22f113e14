//! Reads and writes the query parameters of the admin API.

use std::borrow::Cow;

use form_urlencoded::Serializer;

use crate::{EXTENSIONS_MAX, Extension, FunctionName};

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

/// Writes extensions for [`read_extensions`].
#[must_use]
pub fn write_extensions(extensions: &[Extension]) -> String {
    let mut query = Serializer::new(String::new());
    for extension in extensions {
        query.append_pair("extension", extension.as_str());
    }
    query.finish()
}

/// Reads the parameters of an invocation.
///
/// # Errors
/// Returns a sentence that describes the mistake if a parameter is unknown or invalid.
pub fn read_invocation(query: Option<&str>) -> Result<InvokeParameters, String> {
    let mut invocation = InvokeParameters {
        method: "GET".into(),
        path: "/".into(),
    };
    for (parameter, value) in pairs(query) {
        match &*parameter {
            "method" => invocation.method = value.into_owned(),
            "path" if value.starts_with('/') => invocation.path = value.into_owned(),
            "path" => return Err(format!("path={value} does not begin with /")),
            other => return Err(unknown(other)),
        }
    }
    Ok(invocation)
}

/// Writes an invocation for [`read_invocation`].
#[must_use]
pub fn write_invocation(invocation: &InvokeParameters) -> String {
    Serializer::new(String::new())
        .append_pair("method", &invocation.method)
        .append_pair("path", &invocation.path)
        .finish()
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
    let mut lines = LogSelection {
        newest: LOG_LINES,
        after: None,
    };
    for (parameter, value) in pairs(query) {
        match &*parameter {
            "lines" => lines.newest = number(&parameter, &value)?,
            "after" => lines.after = Some(number(&parameter, &value)?),
            other => return Err(unknown(other)),
        }
    }
    Ok(lines)
}

/// Reads the version of a rollback. `None` stands for the version before the current one.
///
/// # Errors
/// Returns a sentence that describes the mistake if a parameter is unknown or invalid.
pub fn read_version(query: Option<&str>) -> Result<Option<u64>, String> {
    let mut version = None;
    for (parameter, value) in pairs(query) {
        match &*parameter {
            "version" => version = Some(number(&parameter, &value)?),
            other => return Err(unknown(other)),
        }
    }
    Ok(version)
}

/// Reads the name of an import. `None` stands for the exported name.
///
/// # Errors
/// Returns a sentence that describes the mistake if a parameter is unknown or invalid.
pub fn read_name(query: Option<&str>) -> Result<Option<FunctionName>, String> {
    let mut name = None;
    for (parameter, value) in pairs(query) {
        match &*parameter {
            "name" => {
                let read = FunctionName::new(&value);
                name = Some(read.map_err(|error| format!("name={value}: {error}"))?);
            }
            other => return Err(unknown(other)),
        }
    }
    Ok(name)
}

fn number<T: std::str::FromStr>(parameter: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{parameter}={value} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_read_as_they_are_written() {
        let extensions = [".js", "mjs"].map(|text| Extension::new(text).unwrap());
        let written = write_extensions(&extensions);
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
        let query = write_invocation(&invocation);
        assert_eq!(read_invocation(Some(&query)).unwrap(), invocation);
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
        assert_eq!(read_version(Some("version=3")), Ok(Some(3)));
        assert_eq!(read_version(None), Ok(None));
        assert!(read_version(Some("version=last")).is_err());
        let name = read_name(Some("name=f")).unwrap().unwrap();
        assert_eq!((name.as_str(), read_name(None)), ("f", Ok(None)));
        assert!(read_name(Some("name=F")).unwrap_err().contains("name=F"));
        assert!(read_name(Some("nam=f")).is_err());
    }
}
