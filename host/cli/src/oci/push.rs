//! `push`: uploads a module, its options and its files as an artifact.

use std::path::Path;

use bytes::Bytes;
use faasw::files::Kind;
use faasw_client::FunctionOptions;
use faasw_oci::{
    artifact::{FileKind, FilesEntry, os_of, write_files},
    push::Pushed,
    reference::TagOrDigest,
    registry::Action,
};
use serde::Serialize;

use super::{annotations, registry};
use crate::{
    args::Push,
    exit::Exit,
    files,
    output::{print, print_json, read_module, say, size, with_progress},
};

/// The output with `--json`.
#[derive(Serialize)]
struct PushOutput {
    reference: String,
}

/// Pushes a module.
pub async fn push(args: Push) -> Result<(), Exit> {
    let TagOrDigest::Tag(tag) = args.reference.tag_or_digest() else {
        return Err(Exit::usage("cannot push to a digest: push to a tag"));
    };
    let file = args.file.display();
    let module = read_module(&args.file)?;
    if os_of(&module).is_none() {
        return Err(Exit::failure(format_args!(
            "{file} is not WebAssembly; artifacts contain nothing else"
        )));
    }
    let layer = args
        .options
        .files
        .as_ref()
        .map(|files| files.folder.as_path());
    let layer = layer.map(files_layer).transpose()?;
    let options = FunctionOptions::from(args.options);
    options.check().map_err(Exit::usage)?;
    let bytes = module.len() + layer.as_ref().map_or(0, Bytes::len);
    let pushed = Pushed {
        module,
        name: name_of(&args.file),
        files: layer,
        annotations: annotations::of_options(&options),
    };
    let registry = registry(&args.reference, Action::Push, &args.registries).await?;
    say(format_args!("{file}: pushing {}…", size(bytes as u64)));
    let digest = with_progress(&file, pushed.push(&registry, tag)).await?;
    let reference = args.reference.at(digest).to_string();
    if args.format.json {
        return print_json(&PushOutput { reference });
    }
    print(format!("{reference}\n"))
}

/// Returns the module's name in the artifact, with characters that every runtime accepts in an
/// entry point.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let plain: String = stem
        .chars()
        .map(|letter| if is_plain(letter) { letter } else { '-' })
        .collect();
    format!("{plain}.wasm")
}

fn files_layer(folder: &Path) -> Result<Bytes, Exit> {
    let mut all = Vec::new();
    files::for_each_entry(folder, |kind, path, content| {
        let kind = match kind {
            Kind::File => FileKind::File,
            Kind::Folder => FileKind::Folder,
            Kind::Link => FileKind::Link,
        };
        all.push((kind, path.to_owned(), content.to_owned()));
    })
    .map_err(|error| files::unusable_files(folder, &error))?;
    let entries = all.iter().map(|(kind, path, content)| FilesEntry {
        kind: *kind,
        path,
        content,
    });
    Ok(write_files(entries)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_of_a_module_is_plain() {
        for (file, name) in [
            ("a/hello.wasm", "hello.wasm"),
            ("My App\u{e9}.v1.wasm", "My-App-.v1.wasm"),
            ("\n", "-.wasm"),
        ] {
            assert_eq!(name_of(Path::new(file)), name);
        }
    }
}
