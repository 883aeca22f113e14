//! `secret`: the secrets of the running node's functions.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read},
};

use bytes::Bytes;
use faasw_client::{SECRET_BYTES, SecretInfo};
use faasw_common::text::Line;
use zeroize::Zeroizing;

use super::{
    args::{Secret, SecretLs, SecretRm, SecretSet},
    exit::Exit,
    output::{print, print_json, say},
};

/// Runs a command about secrets.
pub async fn secret(command: Secret) -> Result<(), Exit> {
    match command {
        Secret::Set(args) => set(args).await,
        Secret::Ls(args) => list(args).await,
        Secret::Rm(args) => remove(args).await,
    }
}

async fn set(args: SecretSet) -> Result<(), Exit> {
    let client = args.node.client()?;
    let value = match &args.file {
        Some(path) => {
            let value = File::open(path).and_then(read);
            value.map_err(|error| Exit::unreadable(path, error))?
        }
        None => {
            if io::stdin().is_terminal() {
                // A terminal passes on lines of limited length. The shell would read the rest of a
                // value.
                return Err(Exit::usage(
                    "the value is read from standard input, which is a terminal",
                )
                .hint("faasw secret set FUNCTION NAME < FILE, or use a pipe"));
            }
            let mut value = read(io::stdin()).map_err(|error| {
                Exit::failure(format_args!("standard input cannot be read: {error}"))
            })?;
            // The line break at the end comes from the program that printed the value.
            if value.last() == Some(&b'\n') {
                value.pop();
                if value.last() == Some(&b'\r') {
                    value.pop();
                }
            }
            if value.is_empty() {
                // Empty input more likely means that the command before the pipe has failed.
                return Err(
                    Exit::failure("standard input is empty").hint("for an empty secret use --file")
                );
            }
            value
        }
    };
    let value = Bytes::copy_from_slice(&value);
    client.set_secret(&args.function, &args.name, value).await?;
    Ok(())
}

/// Reads slightly more than the maximum size of a secret, so that the node reports what is wrong.
fn read(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let most = SECRET_BYTES + 3;
    let mut value = Zeroizing::new(Vec::with_capacity(most));
    from.take(most as u64).read_to_end(&mut value)?;
    Ok(value)
}

async fn list(args: SecretLs) -> Result<(), Exit> {
    let client = args.node.client()?;
    let secrets = client.secrets(args.function.as_ref()).await?;
    if args.format.json {
        print_json(&secrets)
    } else {
        print(table(&secrets))
    }
}

async fn remove(args: SecretRm) -> Result<(), Exit> {
    let client = args.node.client()?;
    let mut failed = None;
    for name in &args.names {
        // If several removals fail, the last error becomes the command's result.
        if let Err(error) = client.remove_secret(&args.function, name).await
            && let Some(before) = failed.replace(error)
        {
            say(before);
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn table(secrets: &[SecretInfo]) -> String {
    let width = |info: &SecretInfo| info.function.as_str().len();
    let width = secrets.iter().map(width).max().unwrap_or(0).max(8);
    let mut text = format!("{:width$}  {:20}  NAME\n", "FUNCTION", "SET");
    for info in secrets {
        let set = humantime::format_rfc3339_seconds(info.set);
        text.push_str(&format!(
            "{:width$}  {set:20}  {}\n",
            info.function,
            Line(info.name.as_str())
        ));
    }
    text
}
