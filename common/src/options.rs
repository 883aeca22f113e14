//! The options of a function: their names, forms and permissions.
//!
//! This table is the only list of options besides their JSON form, which is that of
//! `faasw_client::FunctionOptions`. Annotations of artifacts and pods, `faasw inspect` and the
//! containerd shim derive their spelling from it. A test of `faasw-client` fails for an option
//! without an entry. An annotation without an entry is rejected.

/// An option of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OptionDefinition {
    /// The name: that of the annotation behind `dev.faasw.`, and nearly always of the flag.
    pub name: &'static str,
    /// The member of the options' JSON.
    pub member: &'static str,
    /// How texts become JSON.
    pub form: OptionForm,
    /// The permission that an artifact needs so that the option takes effect.
    pub permission: OptionPermission,
}

/// The form of an option's value as text, and in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionForm {
    /// A text; in JSON a string.
    Text,
    /// A number.
    Count,
    /// A number of bytes.
    Bytes,
    /// A time, such as `1s 500ms`; in JSON microseconds, in an object by the option's name.
    Time,
    /// `off`, `auto` or a time; in JSON microseconds.
    Polling,
    /// Repeatable texts; in JSON a list.
    List,
    /// Repeatable `NAME=VALUE`; in JSON a list of pairs.
    Variables,
    /// Repeatable `KEY=VALUE`; in JSON an object.
    Table,
    /// Repeatable `NAME=VALUE` with several values of a name; in JSON an object of lists.
    Bindings,
}

impl OptionForm {
    /// Returns whether an option may have several values. Its annotation is a list in JSON.
    #[must_use]
    pub const fn is_repeatable(self) -> bool {
        matches!(
            self,
            Self::List | Self::Variables | Self::Table | Self::Bindings
        )
    }

    /// Returns whether each name of the option has one value. A later value replaces it.
    #[must_use]
    pub const fn is_by_name(self) -> bool {
        matches!(self, Self::Variables | Self::Table)
    }
}

/// The permission that an artifact needs so that one of its options takes effect. An artifact's
/// author is not the user who deploys it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionPermission {
    /// Nothing: the option affects only the function itself, or restricts it.
    Free,
    /// The grant `limits`, for more than the node's default. In a pod, the container's limits bound
    /// it instead.
    AboveDefault,
    /// The grant `limits`, unless polling is off: it uses processors without requests.
    Polling,
    /// The grant `outbound`.
    Outbound,
    /// The grant `secrets`.
    Secrets,
    /// The grant `kv`.
    Stores,
    /// The grant `hosts`.
    Hosts,
}

/// All options that an artifact can have.
pub static OPTIONS: [OptionDefinition; 21] = {
    use OptionForm::{Bindings, Bytes, Count, List, Polling, Table, Text, Time, Variables};
    use OptionPermission::{self as Permission, AboveDefault, Free};
    [
        option("memory", "memory", Bytes, AboveDefault),
        option("cpu-time", "times_us", Time, AboveDefault),
        option("timeout", "times_us", Time, AboveDefault),
        option("idle-client", "times_us", Time, AboveDefault),
        option("idle-guest", "times_us", Time, AboveDefault),
        option("total-time", "times_us", Time, AboveDefault),
        option("concurrency", "concurrency", Count, Free),
        option("poll", "poll_us", Polling, Permission::Polling),
        option("freeze", "freeze", Text, Free),
        option("freeze-at", "freeze_at", Text, Free),
        option("init", "init", Text, Free),
        option("warmup-request", "warm_ups", List, Free),
        option("files-at", "files_at", Text, Free),
        option("arg", "arguments", List, Free),
        option("env", "environment", Variables, Free),
        option("config", "configuration", Table, Free),
        option("secret", "secrets", List, Permission::Secrets),
        option(
            "bind-secret",
            "bound_secrets",
            Bindings,
            Permission::Secrets,
        ),
        option("kv", "stores", List, Permission::Stores),
        option("host", "hosts", List, Permission::Hosts),
        option("allow-outbound", "outbound", List, Permission::Outbound),
    ]
};

const fn option(
    name: &'static str,
    member: &'static str,
    form: OptionForm,
    permission: OptionPermission,
) -> OptionDefinition {
    OptionDefinition {
        name,
        member,
        form,
        permission,
    }
}

/// Returns the option of a name, if there is one.
#[must_use]
pub fn find(name: &str) -> Option<&'static OptionDefinition> {
    OPTIONS.iter().find(|option| option.name == name)
}
