//! Restricts a process that parses scripts.

use landlock::{
    Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, Scope, path_beneath_rules,
};

use super::{files::VERSION, filter};

/// Restricts this process to reading files: no change of the file system, on systems with Landlock,
/// no network, no other program.
///
/// # Errors
/// Returns a message if the kernel rejects a rule.
pub fn restrict_preparation() -> Result<(), String> {
    read_only().map_err(|error| error.to_string())?;
    let filter = filter::of_preparation()?;
    filter.install().map_err(|error| error.to_string())
}

fn read_only() -> Result<(), RulesetError> {
    // Packages may be anywhere: package managers link to their stores.
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?
        .add_rules(path_beneath_rules(["/"], read))?
        .restrict_self()
        .map(|_| ())
}
