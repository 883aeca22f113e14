//! Arguments of `kv`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use faasw_client::{FunctionName, Store, StoreName};

use super::{DataDir, Format};
use crate::exit::Exit;

#[derive(Debug, Subcommand)]
pub enum Kv {
    /// List the stores that contain keys, or the keys of one store
    Ls(KvLs),
    /// Print the value of a key; on a terminal, control characters are escaped
    Get(KvGet),
    /// Set a key; returns once the value is on disk or on the key-value server
    Set(KvSet),
    /// Remove some or all keys of a store
    Rm(KvRm),
}

/// A store.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Which {
    /// Use the shared store with this name instead of a function's own store
    #[arg(long)]
    pub shared: bool,
    #[command(flatten)]
    pub node: DataDir,
}

impl Which {
    /// Returns the store of this name.
    pub fn store(&self, name: &str) -> Result<Store, Exit> {
        if self.shared {
            StoreName::new(name).map(Store::Shared).map_err(Exit::usage)
        } else {
            FunctionName::new(name)
                .map(Store::Function)
                .map_err(|error| Exit::usage(error).hint("--shared is for a store by its own name"))
        }
    }
}

#[derive(Debug, Args)]
pub struct KvLs {
    /// Function that owns the store, or with --shared a store's name [default: all stores]
    pub store: Option<String>,
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct KvGet {
    /// Function that owns the store, or with --shared a store's name
    pub store: String,
    /// Name of the key
    pub key: String,
    /// Write the exact bytes to a terminal; control characters then take effect
    #[arg(long)]
    pub raw: bool,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct KvSet {
    /// Function that owns the store, or with --shared a store's name
    pub store: String,
    /// Name of the key
    pub key: String,
    /// This text, or the content of @FILE; @- is standard input
    #[arg(value_name = "VALUE|@FILE")]
    pub value: String,
    #[command(flatten)]
    pub which: Which,
}

#[derive(Debug, Args)]
pub struct KvRm {
    /// Function that owns the store, or with --shared a store's name
    pub store: String,
    /// Keys to remove
    #[arg(value_name = "KEY", required_unless_present = "all")]
    pub keys: Vec<String>,
    /// Remove all keys of the store
    #[arg(long, conflicts_with = "keys")]
    pub all: bool,
    #[command(flatten)]
    pub which: Which,
}

/// The server to which a node requests connections, over standard input.
#[derive(Debug, Args)]
pub struct DialKv {
    /// Name or address, and port; or a socket's path
    #[arg(num_args = 1..=2)]
    pub at: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use faasw_client::FunctionOptions;

    use super::*;
    use crate::args::{Command, parse};

    #[test]
    fn stores_are_functions_own_or_shared() {
        let Command::Deploy(deploy) = parse("deploy f.wasm --kv users --kv stock").unwrap() else {
            panic!("not deploy");
        };
        let stores = ["users", "stock"].map(|name| StoreName::new(name).unwrap());
        let expected = stores
            .into_iter()
            .fold(FunctionOptions::default(), FunctionOptions::store);
        assert_eq!(FunctionOptions::from(deploy.options), expected);
        let Command::Kv(Kv::Get(get)) = parse("kv get --shared Users.v2 k").unwrap() else {
            panic!("not kv get");
        };
        let store = get.which.store(&get.store).unwrap();
        assert_eq!(store.path(), "kv/shared/Users.v2");
        let Command::Kv(Kv::Rm(rm)) = parse("kv rm greeter --all").unwrap() else {
            panic!("not kv rm");
        };
        let store = rm.which.store(&rm.store).unwrap();
        assert_eq!(store.path(), "kv/functions/greeter");
        for line in [
            "kv",
            "kv get f",
            "kv set f k",
            "kv rm f",
            "kv rm f k --all",
            "deploy f.wasm --kv default",
            "deploy f.wasm --kv a/b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
