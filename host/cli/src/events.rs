//! The node's own log: its events on standard error.
//!
//! An event is one line, whatever it contains. The code that creates an event escapes foreign text
//! (`faasw_common::text`). This module enforces that for the events of all crates, because all of
//! them pass through it.

use std::{
    fmt::{self, Display, Formatter},
    io::{self, IsTerminal as _, Write},
    sync::Arc,
};

use faasw::EventLimiter;
use faasw_common::text::{Json, Line};
use tokio::task::JoinHandle;
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer,
    fmt::MakeWriter,
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use super::serving::LogFormat;

/// Reports how many events were suppressed. Dropping it reports the rest.
#[must_use = "dropping it ends the reports"]
pub struct Summaries {
    limiter: Arc<EventLimiter>,
    reporting: JoinHandle<()>,
}

impl Drop for Summaries {
    fn drop(&mut self) {
        self.reporting.abort();
        self.limiter.report_rest();
    }
}

/// A layer that logs the events that the limiter admits.
struct Limited(Arc<EventLimiter>);

impl<S: Subscriber> Layer<S> for Limited {
    fn event_enabled(&self, event: &tracing::Event<'_>, _: Context<'_, S>) -> bool {
        self.0.admits(event)
    }
}

/// Starts to log the node's own events to standard error, at a limited rate for each cause.
/// `FAASW_LOG` selects the events. Must be called inside a tokio runtime.
pub fn start_tracing(format: LogFormat, default: &str) -> Summaries {
    let limiter = EventLimiter::new();
    let limited = Limited(limiter.clone());
    let filter = EnvFilter::try_from_env("FAASW_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(Events { format });
    match format {
        LogFormat::Text => events.finish().with(limited).init(),
        LogFormat::Json => {
            let events = events.json().flatten_event(true);
            events.finish().with(limited).init();
        }
    }
    Summaries {
        reporting: tokio::spawn(limiter.clone().run()),
        limiter,
    }
}

/// A writer of events to standard error.
#[derive(Clone, Copy)]
struct Events {
    format: LogFormat,
}

impl MakeWriter<'_> for Events {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

impl Write for Events {
    /// Writes an event, which the formatter passes in one piece.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let mut stderr = io::stderr().lock();
        match self.format {
            LogFormat::Text => writeln!(stderr, "{}", Coloured(text))?,
            LogFormat::Json => writeln!(stderr, "{}", Json(text))?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Formats an event as one line that keeps its colours. They come from the formatter, which escapes
/// those in fields.
struct Coloured<'a>(&'a str);

impl Display for Coloured<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const BEGINS: &str = "\u{1b}[";
        let mut pieces = self.0.split(BEGINS);
        if let Some(first) = pieces.next() {
            write!(f, "{}", Line(first))?;
        }
        for piece in pieces {
            let colour = piece.split_once('m').filter(|(numbers, _)| {
                let is_of = |byte: u8| byte.is_ascii_digit() || byte == b';';
                numbers.bytes().all(is_of)
            });
            match colour {
                Some((numbers, rest)) => write!(f, "{BEGINS}{numbers}m{}", Line(rest))?,
                None => write!(f, "{}{}", Line(BEGINS), Line(piece))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_that_keeps_its_colours_and_nothing_else() {
        for (event, line) in [
            ("\u{1b}[2mWARN\u{1b}[0m a", "\u{1b}[2mWARN\u{1b}[0m a"),
            ("a\nERROR b\u{2028}c", "a\\nERROR b\\u{2028}c"),
            ("\u{1b}[2J\u{1b}]0;x\u{7}", "\\u{1b}[2J\\u{1b}]0;x\\u{7}"),
            ("a\u{1b}[", "a\\u{1b}["),
        ] {
            assert_eq!(Coloured(event).to_string(), line);
        }
    }
}
