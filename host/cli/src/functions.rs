//! `deploy`, `ls`, `rollback` and `rm`: the running node's functions.

use faasw_client::FunctionOptions;

use super::{
    args::{Deploy, Ls, Rm, Rollback},
    exit::Exit,
    files, oci,
    output::{self, print, print_json, say, stage_of, with_stages},
    script,
};

/// Deploys a function from a file or an artifact.
pub async fn deploy(args: Deploy) -> Result<(), Exit> {
    if let Some(reference) = oci::reference_in(&args.file)? {
        return oci::deploy(args, reference).await;
    }
    if args.follow.is_given() || args.accept.is_given() || args.registries.is_given() {
        return Err(Exit::usage(
            "registry options need an artifact: oci://REGISTRY/REPOSITORY[:TAG]",
        )
        .hint("to follow a file: faasw up FILE --watch"));
    }
    let name = script::name_of(args.name, &args.file)?;
    let client = args.node.client()?;
    let files = args.options.files.as_ref();
    let files = files.map(|files| files.folder.as_path());
    let module = files::read_upload(&args.file, args.entry.as_deref(), files)?;
    say(format_args!(
        "{name}: deploying {}…",
        output::size(module.len() as u64)
    ));
    let mut options = FunctionOptions::from(args.options);
    if let Some(most) = args.poll {
        options = options.poll(most);
    }
    let stage = async || stage_of(&name, client.deployments().await.ok()?);
    let deployed = with_stages(&name, client.deploy(&name, module, &options), stage)
        .await
        .map_err(|error| Exit::from(error).of(&name, "was not deployed"))?;
    if args.format.json {
        return print_json(&deployed);
    }
    print(format!("{}\n", output::deployed(&deployed)))
}

/// Lists functions.
pub async fn list(args: Ls) -> Result<(), Exit> {
    let functions = args.node.client()?.list().await?;
    if args.format.json {
        return print_json(&functions);
    }
    print(output::functions(&functions))
}

/// Removes a function.
pub async fn remove(args: Rm) -> Result<(), Exit> {
    args.node.client()?.remove(&args.name).await?;
    say(format_args!("{}: removed", args.name));
    Ok(())
}

/// Makes an earlier version the current one.
pub async fn rollback(args: Rollback) -> Result<(), Exit> {
    let client = args.node.client()?;
    let name = &args.name;
    say(format_args!("{name}: making the version's seed…"));
    let function = client
        .rollback(name, args.version)
        .await
        .map_err(|error| Exit::from(error).of(name, "was not rolled back"))?;
    if args.format.json {
        return print_json(&function);
    }
    print(format!("{name}: version {} serves now\n", function.version))
}
