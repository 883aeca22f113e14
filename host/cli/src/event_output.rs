//! Connects a node's events to their output and to the access log.

use faasw::{Event, NodeBuilder, RequestId, spelling};
use faasw_common::text::TabbedLine;

use super::{
    access_log::AccessLog,
    output::{say, size},
    serving::LogFormat,
};

/// A function that shows events.
pub type EventHandler = Box<dyn Fn(Event<'_>) + Send + Sync>;

/// Sends the node's events to `shown`, and requests to the access log, if they are wanted.
pub fn with_event_output(
    builder: NodeBuilder,
    shown: Option<EventHandler>,
    access_log: Option<&AccessLog>,
) -> NodeBuilder {
    if shown.is_none() && access_log.is_none() {
        return builder;
    }
    let recorder = access_log.map(AccessLog::recorder);
    let builder = builder.observe_requests(recorder.is_some());
    builder.observe(move |event| match (event, &recorder, &shown) {
        (Event::Request { record }, Some(recorder), _) => recorder.add(record),
        (event, _, Some(show)) => show(event),
        _ => {}
    })
}

impl LogFormat {
    /// Shows the progress of deployments, and the functions' logs.
    pub fn show(self, event: Event<'_>) {
        match event {
            Event::Compiling {
                function,
                module_bytes,
            } => self.say(format_args!(
                "{function}: compiling {}…",
                size(module_bytes as u64)
            )),
            Event::CompilingEngine {
                engine,
                module_bytes,
            } => self.say(format_args!(
                "compiling the language engine {engine}, {}…",
                size(module_bytes as u64)
            )),
            Event::Initialising { function } => {
                self.say(format_args!("{function}: initialising it…"));
            }
            Event::MakingSeed { function } => {
                self.say(format_args!("{function}: making the seed…"));
            }
            Event::Log { function, line } if self == Self::Json => tracing::info!(
                target: "faasw::progress",
                %function,
                instance = line.instance,
                stream = spelling::stream::word(line.stream),
                request_id = line.request_id.as_ref().map(RequestId::as_str),
                trace = line.trace.map(tracing::field::display),
                "{}",
                line.text
            ),
            Event::Log { function, line } => {
                say(TabbedLine(format_args!("{function} | {}", line.text)))
            }
            _ => {}
        }
    }

    /// Writes a message to standard error, as an event if the format is JSON.
    pub fn say(self, line: impl std::fmt::Display) {
        match self {
            Self::Text => say(line),
            Self::Json => tracing::info!(target: "faasw::progress", "{line}"),
        }
    }
}
