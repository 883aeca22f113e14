//! Reads and writes the query parameters of the admin API.

use std::borrow::Cow;

use form_urlencoded::Serializer;

use crate::{
    EXTENSIONS_MAX, Extension, FunctionName, FunctionOptions, HostName, Outbound, SecretName,
    StoreName, TimeLimit, WarmUpRequest, spelling,
};

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

/// Reads the options of a deployment.
///
/// # Errors
/// Returns a sentence that describes the mistake if a parameter is unknown or invalid.
pub fn read_options(query: Option<&str>) -> Result<FunctionOptions, String> {
    options_of(pairs(query))
}

/// Reads the options of a deployment from parameters and their values, whatever their source.
///
/// # Errors
/// Returns a sentence that describes the mistake if a parameter is unknown or invalid.
pub fn options_of<'a>(
    pairs: impl IntoIterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
) -> Result<FunctionOptions, String> {
    let mut options = FunctionOptions::default();
    for (parameter, value) in pairs {
        options = match &*parameter {
            "memory" => options.memory(
                value
                    .parse()
                    .map_err(|_| format!("memory={value} is not a number of bytes"))?,
            ),
            "poll" => {
                let most = spelling::poll::parse(&value);
                options.poll(most.map_err(|error| format!("{parameter}={value}: {error}"))?)
            }
            "concurrency" => options.concurrency(number(&parameter, &value)?),
            "freeze" => options.freeze(spelling::freeze::parse(&value).ok_or_else(|| {
                let words = spelling::freeze::WORDS.join(", ");
                format!("freeze={value} is not one of {words}")
            })?),
            "init" => options.init(value),
            "warmup-request" => {
                let request = WarmUpRequest::new(value);
                options.warm_up(request.map_err(|error| format!("{parameter}: {error}"))?)
            }
            "host" => options
                .host(HostName::new(&value).map_err(|error| format!("host={value}: {error}"))?),
            "kv" => options
                .store(StoreName::new(&value).map_err(|error| format!("kv={value}: {error}"))?),
            "allow-outbound" => {
                let grant = Outbound::new(&value);
                options
                    .allow_outbound(grant.map_err(|error| format!("{parameter}={value}: {error}"))?)
            }
            "secret" => {
                let name = SecretName::new(&value);
                options.secret(name.map_err(|error| format!("{parameter}: {error}"))?)
            }
            "bind-secret" => {
                let (name, host) = value
                    .split_once('=')
                    .ok_or_else(|| format!("{parameter} is not NAME=HOST"))?;
                let name =
                    SecretName::new(name).map_err(|error| format!("{parameter}: {error}"))?;
                let host = Outbound::new(host).map_err(|error| format!("{parameter}: {error}"))?;
                options.bind_secret(name, host)
            }
            "source" => options.source(value),
            "arg" => options.argument(value),
            "files-at" => options.files_at(value),
            "freeze-at" => options.freeze_at(value),
            "env" => {
                let (name, value) = value
                    .split_once('=')
                    .ok_or_else(|| format!("env={value} is not NAME=VALUE"))?;
                options.env(name, value)
            }
            "config" => {
                let (key, value) = value
                    .split_once('=')
                    .ok_or_else(|| format!("config={value} is not KEY=VALUE"))?;
                options.config(key, value)
            }
            other => {
                let limit = TimeLimit::parse(other).ok_or_else(|| unknown(other))?;
                let value = humantime::parse_duration(&value)
                    .map_err(|error| format!("{other}={value} is not a duration: {error}"))?;
                options.time(limit, value)
            }
        };
    }
    Ok(options)
}

/// Writes options for [`read_options`].
#[must_use]
pub fn write_options(options: &FunctionOptions) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(option_pairs(options)).finish()
}

/// Returns options as parameters and values for [`options_of`].
#[must_use]
pub fn option_pairs(options: &FunctionOptions) -> Vec<(&'static str, String)> {
    let freeze = spelling::freeze::word(options.freeze_policy());
    let mut pairs = vec![("freeze", freeze.to_owned())];
    let mut add = |parameter, value: String| pairs.push((parameter, value));
    if let Some(bytes) = options.own_memory() {
        add("memory", bytes.to_string());
    }
    if let Some(requests) = options.own_concurrency() {
        add("concurrency", requests.to_string());
    }
    if let Some(most) = options.own_poll() {
        add("poll", spelling::poll::word(most));
    }
    for (limit, value) in options.own_times() {
        add(limit.word(), humantime::format_duration(value).to_string());
    }
    if let Some(export) = options.init_export() {
        add("init", export.to_owned());
    }
    for request in options.warm_ups() {
        add("warmup-request", request.as_str().to_owned());
    }
    for host in options.hosts() {
        add("host", host.as_str().to_owned());
    }
    for store in options.stores() {
        add("kv", store.as_str().to_owned());
    }
    for grant in options.outbound() {
        add("allow-outbound", grant.to_string());
    }
    for name in options.secrets() {
        add("secret", name.as_str().to_owned());
    }
    for (name, hosts) in options.bound_secrets() {
        for host in hosts {
            add("bind-secret", format!("{name}={host}"));
        }
    }
    for argument in options.arguments() {
        add("arg", argument.to_owned());
    }
    if let Some(path) = options.own_files_at() {
        add("files-at", path.to_owned());
    }
    if let Some(path) = options.own_freeze_at() {
        add("freeze-at", path.to_owned());
    }
    for (name, value) in options.environment() {
        add("env", format!("{name}={value}"));
    }
    for (key, value) in options.configuration() {
        add("config", format!("{key}={value}"));
    }
    if let Some(source) = options.own_source() {
        add("source", source.to_owned());
    }
    pairs
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
    use faasw_common::FreezePolicy;
    use std::time::Duration;

    #[test]
    fn options_survive_the_query() {
        for options in [
            FunctionOptions::default(),
            FunctionOptions::default()
                .env("A", "ä=&%+ \n\x7f")
                .env("B", "")
                .config("a.b c&d\u{e9}", "x=y&z\n%")
                .config("empty", "")
                .memory(1 << 30)
                .first_byte(Duration::from_micros(1_500_001))
                .cpu_time(Duration::from_secs(1))
                .idle_client(Duration::from_secs(2))
                .idle_guest(Duration::from_secs(3))
                .total_time(Duration::from_secs(4))
                .concurrency(3)
                .poll(Duration::from_micros(1500))
                .freeze(FreezePolicy::BeforeInit),
            FunctionOptions::default()
                .store(StoreName::new("users").unwrap())
                .store(StoreName::new("Stock_2.old-").unwrap()),
            FunctionOptions::default()
                .secret(SecretName::new("api_key").unwrap())
                .secret(SecretName::new("a b&\u{e9}").unwrap()),
            FunctionOptions::default()
                .bind_secret(
                    SecretName::new("api_key").unwrap(),
                    Outbound::new("https://api.example.com").unwrap(),
                )
                .bind_secret(
                    SecretName::new("api_key").unwrap(),
                    Outbound::new("https://*.example.com:8443").unwrap(),
                ),
            FunctionOptions::default().poll(Duration::ZERO),
            FunctionOptions::default().init("a:b/c@1.0.0#d&e"),
            FunctionOptions::default().source("oci://reg.test/a@sha256:12"),
            FunctionOptions::default()
                .argument("--a=b&c")
                .argument("")
                .files_at("/usr/lib/\u{e9}")
                .freeze_at("/usr/lib/\u{e9}/a&b"),
            FunctionOptions::default()
                .warm_up(WarmUpRequest::new("/b").unwrap())
                .warm_up(
                    WarmUpRequest::new("PUT /a?b=%26&c\r\nx: y\r\n\r\n{\"\u{e9}\": 1}").unwrap(),
                ),
        ] {
            let query = write_options(&options);
            assert_eq!(read_options(Some(&query)).unwrap(), options, "{query}");
        }
        assert_eq!(read_options(None).unwrap(), FunctionOptions::default());
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
    fn query_errors_name_the_bad_parameter() {
        for (query, word) in [
            ("memory=1k", "1k"),
            ("timeout=5", "5"),
            ("idle-guest=soon", "idle-guest"),
            ("concurrency=-1", "-1"),
            ("poll=11ms", "10ms"),
            ("poll=on", "auto"),
            ("freeze=never", "before-init"),
            ("warmup-request=a", "METHOD /PATH"),
            ("env=A", "NAME=VALUE"),
            ("config=a", "KEY=VALUE"),
            ("secret=a%3Db", "a=b"),
            ("memry=1", "memry"),
        ] {
            let error = read_options(Some(query)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
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
