//! `deploy oci://…`: deploys an artifact with its options and those of the command line.

use std::path::Path;

use faasw_client::{FunctionName, FunctionOptions, OptionValue};
use faasw_oci::{Reference, reference::TagOrDigest};

use super::{follow, permissions::ArtifactGrants, target::Target};
use crate::{args::Deploy, exit::Exit};

/// Deploys an artifact. With `--watch`, also deploys the artifacts to which the tag leads later.
pub async fn deploy(args: Deploy, reference: Reference) -> Result<(), Exit> {
    if args.entry.is_some() {
        return Err(Exit::usage("--entry needs a folder"));
    }
    if args.follow.watch && matches!(reference.tag_or_digest(), TagOrDigest::Digest(_)) {
        return Err(Exit::usage("a digest never changes: --watch needs a tag"));
    }
    let name = match args.name {
        Some(name) => name,
        None => FunctionName::from_file(Path::new(reference.repository()))
            .map_err(|error| Exit::usage(error).hint("set one with --name"))?,
    };
    let freeze = args.options.freeze;
    let files = args.options.files.clone();
    let mut options = FunctionOptions::from(args.options);
    if let Some(most) = args.poll {
        options = options.poll(most);
    }
    options.check().map_err(Exit::usage)?;
    let mut own = options.values();
    // An explicit `auto` overrides the artifact's policy.
    if freeze.is_some_and(|freeze| freeze == FunctionOptions::default().freeze_policy()) {
        own.push(OptionValue::new("freeze", "auto").map_err(Exit::usage)?);
    }
    let every = args.follow.every();
    let mut target = Target {
        client: args.node.client()?,
        name,
        grants: ArtifactGrants::new(&args.accept),
        registries: args.registries,
        own,
        files,
        is_json: args.format.json,
        reference,
    };
    let registry = target.registry().await?;
    let deployed = target
        .deploy(&registry, &target.reference.tag_or_digest().clone())
        .await?;
    if args.follow.watch {
        follow::follow(target, registry, deployed, every).await
    } else {
        Ok(())
    }
}
