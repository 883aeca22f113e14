//! Interfaces that are no release of WASI 0.2, but that components of Spin, wasmCloud and Wasmtime
//! import: drafts of WASI, and Spin's own.
//!
//! Their SDKs name whole worlds of them, of which a function calls few. So all of a world link:
//! some interfaces are implemented, and the others refuse each call with a reason. They are
//! identified by the names of their functions, which is all that either side needs: a refusal needs
//! no types, and an implementation defines its own.

use faasw_abi::configuration::{CONFIG_STORES, SPIN_VARIABLES};
use faasw_abi::store::{DRAFT, DRAFT2, SPIN_KEY_VALUE};

/// An interface, by the names of its items.
#[derive(Clone, Copy, Debug)]
pub struct OtherInterface {
    /// Name of the interface, with its version if it has one. A release stands for all
    /// semver-compatible releases, a draft for itself only.
    pub name: &'static str,
    /// The resources that it defines.
    pub resources: &'static [&'static str],
    /// Resources of other interfaces that its functions take, which components name there, too.
    pub uses: &'static [&'static str],
    /// The interface's functions, as components spell them.
    pub functions: &'static [&'static str],
    /// The reason why every call is refused; `None` for an implemented interface.
    pub refusal: Option<&'static str>,
}

const NO_SQLITE: &str = "SQLite databases are not supported";
const NO_MODELS: &str = "language models are not supported";
const NO_CONNECTIONS: &str = "such connections are not supported";

/// All of these interfaces.
pub const OTHERS: [OtherInterface; 21] = [
    config_store(CONFIG_STORES[0]),
    config_store(CONFIG_STORES[1]),
    config_store(CONFIG_STORES[2]),
    OtherInterface {
        name: SPIN_VARIABLES,
        resources: &[],
        uses: &[],
        functions: &["get"],
        refusal: None,
    },
    OtherInterface {
        name: SPIN_KEY_VALUE,
        resources: &["store"],
        uses: &[],
        functions: &[
            "[static]store.open",
            "[method]store.get",
            "[method]store.set",
            "[method]store.delete",
            "[method]store.exists",
            "[method]store.get-keys",
        ],
        refusal: None,
    },
    OtherInterface {
        name: "fermyon:spin/sqlite@2.0.0",
        resources: &["connection"],
        uses: &[],
        functions: &["[static]connection.open", "[method]connection.execute"],
        refusal: Some(NO_SQLITE),
    },
    OtherInterface {
        name: "spin:sqlite/sqlite@3.1.0",
        resources: &["connection"],
        uses: &[],
        functions: &[
            "[static]connection.open",
            "[method]connection.execute",
            "[method]connection.last-insert-rowid",
            "[method]connection.changes",
        ],
        refusal: Some(NO_SQLITE),
    },
    OtherInterface {
        name: "fermyon:spin/llm@2.0.0",
        resources: &[],
        uses: &[],
        functions: &["infer", "generate-embeddings"],
        refusal: Some(NO_MODELS),
    },
    OtherInterface {
        name: "fermyon:spin/redis@2.0.0",
        resources: &["connection"],
        uses: &[],
        functions: &[
            "[static]connection.open",
            "[method]connection.publish",
            "[method]connection.get",
            "[method]connection.set",
            "[method]connection.incr",
            "[method]connection.del",
            "[method]connection.sadd",
            "[method]connection.smembers",
            "[method]connection.srem",
            "[method]connection.execute",
        ],
        refusal: Some(NO_CONNECTIONS),
    },
    OtherInterface {
        name: "fermyon:spin/mqtt@2.0.0",
        resources: &["connection"],
        uses: &[],
        functions: &["[static]connection.open", "[method]connection.publish"],
        refusal: Some(NO_CONNECTIONS),
    },
    // This interface has types only.
    OtherInterface {
        name: "fermyon:spin/rdbms-types@2.0.0",
        resources: &[],
        uses: &[],
        functions: &[],
        refusal: Some(NO_CONNECTIONS),
    },
    database("fermyon:spin/mysql@2.0.0"),
    database("fermyon:spin/postgres@2.0.0"),
    database("spin:postgres/postgres@3.0.0"),
    OtherInterface {
        name: "spin:postgres/postgres@4.2.0",
        resources: &["connection", "connection-builder"],
        uses: &[],
        functions: &[
            "[constructor]connection-builder",
            "[method]connection-builder.set-ca-root",
            "[method]connection-builder.build",
            "[static]connection.open",
            "[method]connection.query",
            "[method]connection.execute",
        ],
        refusal: Some(NO_CONNECTIONS),
    },
    key_value_store(DRAFT.store),
    key_value_store(DRAFT2.store),
    key_value_batch(DRAFT.batch),
    key_value_batch(DRAFT2.batch),
    OtherInterface {
        name: DRAFT.atomics,
        resources: &[],
        uses: &["bucket"],
        functions: &["increment"],
        refusal: None,
    },
    OtherInterface {
        name: DRAFT2.atomics,
        resources: &["cas"],
        uses: &["bucket"],
        functions: &[
            "increment",
            "swap",
            "[static]cas.new",
            "[method]cas.current",
        ],
        refusal: None,
    },
];

const fn config_store(name: &'static str) -> OtherInterface {
    OtherInterface {
        name,
        resources: &[],
        uses: &[],
        functions: &["get", "get-all"],
        refusal: None,
    }
}

const fn database(name: &'static str) -> OtherInterface {
    OtherInterface {
        name,
        resources: &["connection"],
        uses: &[],
        functions: &[
            "[static]connection.open",
            "[method]connection.query",
            "[method]connection.execute",
        ],
        refusal: Some(NO_CONNECTIONS),
    }
}

const fn key_value_store(name: &'static str) -> OtherInterface {
    OtherInterface {
        name,
        resources: &["bucket"],
        uses: &[],
        functions: &[
            "open",
            "[method]bucket.get",
            "[method]bucket.set",
            "[method]bucket.delete",
            "[method]bucket.exists",
            "[method]bucket.list-keys",
        ],
        refusal: None,
    }
}

const fn key_value_batch(name: &'static str) -> OtherInterface {
    OtherInterface {
        name,
        resources: &[],
        uses: &["bucket"],
        functions: &["get-many", "set-many", "delete-many"],
        refusal: None,
    }
}
