//! Errors of scripts, in the form in which the deployment reports them.

use rquickjs::{CaughtError, Coerced, Ctx, FromJs, Value};

use crate::{
    bindings::exports::faasw::engine::script::Error, interpreter, memory, modules,
    source_maps::FramePosition,
};

/// Returns an error that belongs to no file.
pub(crate) fn plain(message: &str) -> Error {
    Error {
        message: message.to_owned(),
        file: None,
        line: None,
        stack: String::new(),
    }
}

/// The reason why scripts have no `Intl`, and the remedy.
pub(crate) const WITHOUT_INTL: &str = "the engine has no locales, and no time zones but UTC; \
     import a package that has their data, such as @formatjs/intl-datetimeformat or \
     @formatjs/intl-numberformat";

/// Returns an error's text with the remedy, if it is about an interface that the engine lacks.
pub(crate) fn explain(message: String) -> String {
    if message.ends_with("Intl is not defined") {
        format!("{message}: Intl is not available, because {WITHOUT_INTL}")
    } else {
        message
    }
}

/// Returns an error that belongs to a whole file.
pub(crate) fn at(file: &str, message: &str) -> Error {
    Error {
        file: Some(file.to_owned()),
        ..plain(message)
    }
}

/// Converts what a script threw.
pub(crate) fn of(ctx: &Ctx<'_>, error: rquickjs::Error) -> Error {
    match CaughtError::from_error(ctx, error) {
        CaughtError::Exception(exception) => {
            let stack = exception.stack().unwrap_or_default();
            let stack = interpreter::frames(ctx, stack).unwrap_or_default();
            let value = exception.into_object().into_value();
            let message =
                text(ctx, value).unwrap_or_else(|| "an error that cannot be told".to_owned());
            let place = stack.lines().find_map(place);
            Error {
                message,
                file: place.as_ref().map(|(file, _)| file.clone()),
                line: place.map(|(_, line)| line),
                stack,
            }
        }
        CaughtError::Value(value) if value.is_null() && memory::ran_out() => {
            plain("out of memory: what the script does first reached the function's memory limit")
        }
        CaughtError::Value(value) => {
            let shown = interpreter::describe(ctx, value).unwrap_or_default();
            plain(&format!("Uncaught {shown}"))
        }
        CaughtError::Error(error) => plain(&error.to_string()),
    }
}

fn text<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Option<String> {
    Coerced::<String>::from_js(ctx, value)
        .ok()
        .map(|text| explain(text.0))
}

/// Returns the file and the line of a frame.
fn place(frame: &str) -> Option<(String, u32)> {
    let place = FramePosition::of(frame, modules::has_file)?;
    Some((place.file.to_owned(), place.line))
}
