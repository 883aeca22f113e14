//! Configuration, environment and secrets of the function.
//!
//! Configuration and environment belong to the function version, so `init` reads them once. A
//! secret's value is read each time that the script asks for it, and only while a request is
//! answered: the seed of a script must not contain it.

use rquickjs::{Ctx, Exception, Object, Result, object::Property};

use crate::{
    bindings::{
        faasw::engine::grants,
        wasi::{
            cli::environment::{get_arguments, get_environment},
            config::store,
        },
    },
    exchange,
};

/// Returns what `configure` in `web/env.js` needs.
pub(crate) fn all<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let pairs = |pairs: Vec<(String, String)>| -> Vec<Vec<String>> {
        let pairs = pairs.into_iter();
        pairs.map(|(name, value)| vec![name, value]).collect()
    };
    let all = Object::new(ctx.clone())?;
    all.set("environment", pairs(get_environment()))?;
    all.set("configuration", pairs(grants::configuration()))?;
    all.set("secrets", grants::secrets())?;
    all.set("stores", grants::stores())?;
    all.set("assets", grants::files())?;
    Ok(all)
}

/// Returns the function's name.
pub(crate) fn function_name() -> String {
    get_arguments().into_iter().next().unwrap_or_default()
}

/// Returns the function's memory limit in bytes.
pub(crate) fn memory_limit() -> f64 {
    grants::memory_limit() as f64
}

/// Returns a secret's value, or `None` if it is not set.
pub(crate) fn secret(ctx: &Ctx<'_>, name: &str) -> Result<Option<String>> {
    check_request(ctx, &format!("the secret {name:?}"))?;
    store::get(name).map_err(|error| {
        let (store::Error::Upstream(why) | store::Error::Io(why)) = error;
        throw(ctx, &format!("the secret {name:?}: {why}"))
    })
}

/// Throws an error if no request is being answered. `what` is what the script uses.
pub(crate) fn check_request(ctx: &Ctx<'_>, what: &str) -> Result<()> {
    if exchange::is_under_way() {
        return Ok(());
    }
    let why = format!(
        "{what} is available only while a request is answered, not at the top level of a script"
    );
    Err(throw(ctx, &why))
}

/// Throws an `Error`, whose message is not enumerable, as if the script had constructed it.
pub(crate) fn throw(ctx: &Ctx<'_>, message: &str) -> rquickjs::Error {
    let error = match Exception::from_message(ctx.clone(), message) {
        Ok(error) => error,
        Err(error) => return error,
    };
    // `from_message` makes it enumerable, and a property keeps that until it is removed.
    let hidden = Property::from(message).writable().configurable();
    let object = error.as_object();
    let made = object
        .remove("message")
        .and_then(|()| object.prop("message", hidden));
    match made {
        Ok(()) => error.throw(),
        Err(error) => error,
    }
}
