//! The module `faasw`, by which scripts use what the operator gives them.

use std::cell::Cell;

use rquickjs::{Ctx, Module, Result, module::Declared};

use crate::interpreter;

/// The module's name in imports.
pub(crate) const NAME: &str = "faasw";

/// Returns the module. Its exports are made when a script imports it.
pub(crate) fn declare<'js>(ctx: &Ctx<'js>) -> Result<Module<'js, Declared>> {
    let source = "export const { env, kv, secrets, config, files } = import.meta.api;
        export default import.meta.api;";
    let module = Module::declare(ctx.clone(), NAME, source)?;
    module.meta()?.set("api", interpreter::api(ctx)?)?;
    Ok(module)
}

/// Logs that the caches of scripts keep nothing, once, when a script that uses them is deployed. A
/// request could not know that an earlier one has logged it.
pub(crate) fn note_use_of_caches(name: &str, source: &str) {
    thread_local! {
        static IS_NOTED: Cell<bool> = const { Cell::new(false) };
    }
    let uses = ["caches.default", "caches.open("];
    if !IS_NOTED.get() && uses.iter().any(|text| source.contains(text)) {
        IS_NOTED.set(true);
        eprintln!("{name} uses caches: they keep nothing here, so match never finds a response");
    }
}
