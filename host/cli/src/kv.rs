//! `kv`: the key-value stores of the running node's functions.

use faasw_client::{Client, Store, StoreInfo};
use faasw_common::text::Line;

use super::{
    args::{Kv, KvGet, KvLs, KvRm, KvSet},
    exit::Exit,
    invoke::read_data,
    output::{self, ContentForm, print, print_content, print_json, say},
};

/// Runs a command about stores.
pub async fn kv(command: Kv) -> Result<(), Exit> {
    match command {
        Kv::Ls(args) => list(args).await,
        Kv::Get(args) => get(args).await,
        Kv::Set(args) => set(args).await,
        Kv::Rm(args) => remove(args).await,
    }
}

async fn list(args: KvLs) -> Result<(), Exit> {
    let client = args.which.node.clone().client()?;
    let Some(name) = args.store else {
        let stores = client.stores().await?;
        return if args.format.json {
            print_json(&stores)
        } else {
            print(table(&stores))
        };
    };
    let keys = keys(&client, &args.which.store(&name)?).await?;
    if args.format.json {
        return print_json(&keys);
    }
    // A key is text that a function chose, so it is escaped.
    let lines = keys.iter().map(|key| format!("{}\n", Line(key)));
    print(lines.collect::<String>())
}

/// Returns all keys of a store.
async fn keys(client: &Client, store: &Store) -> Result<Vec<String>, Exit> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let after = all.last().map_or("", String::as_str);
        let page = client.store_keys(store, after).await?;
        let is_last = page.keys.is_empty() || !page.has_more;
        all.extend(page.keys);
        if is_last {
            return Ok(all);
        }
    }
}

async fn get(args: KvGet) -> Result<(), Exit> {
    let client = args.which.node.clone().client()?;
    let store = args.which.store(&args.store)?;
    match client.store_value(&store, &args.key).await? {
        Some(value) => print_content(&value, ContentForm::of_stdout(args.raw)),
        None => {
            let (key, store) = (Line(&args.key), &args.store);
            Err(Exit::failure(format_args!("{store} has no key {key}")))
        }
    }
}

async fn set(args: KvSet) -> Result<(), Exit> {
    let client = args.which.node.clone().client()?;
    let (store, value) = (args.which.store(&args.store)?, read_data(&args.value)?);
    client.set_store_value(&store, &args.key, value).await?;
    Ok(())
}

async fn remove(args: KvRm) -> Result<(), Exit> {
    let client = args.which.node.clone().client()?;
    let store = args.which.store(&args.store)?;
    let keys = if args.all {
        keys(&client, &store).await?
    } else {
        args.keys
    };
    for key in &keys {
        client.remove_store_key(&store, key).await?;
    }
    if args.all {
        say(format_args!("{}: {} keys removed", args.store, keys.len()));
    }
    Ok(())
}

fn table(stores: &[StoreInfo]) -> String {
    let width = |info: &StoreInfo| info.store.name().len();
    let width = stores.iter().map(width).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$}  {:8}  {:>9}  {:>9}\n",
        "STORE", "OF", "KEYS", "SIZE"
    );
    for info in stores {
        let kind = match info.store {
            Store::Function(_) => "function",
            Store::Shared(_) => "shared",
        };
        let size = output::size(info.bytes);
        text.push_str(&format!(
            "{:width$}  {kind:8}  {:>9}  {size:>9}\n",
            info.store.name(),
            info.keys,
        ));
    }
    text
}
