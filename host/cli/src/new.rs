//! `new`: creates a folder with a new function.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use super::{
    args::{Language, New},
    exit::Exit,
    output::say,
};

/// The mode of executable files.
const EXECUTABLE: u32 = 0o755;

/// A file's path and its text, in which NAME stands for the function's name.
type File = (&'static str, &'static str);

const JS: &[File] = &[
    ("handler.js", include_str!("templates/js/handler.js")),
    ("README.md", include_str!("templates/js/README.md")),
    ("request.sh", include_str!("templates/request.sh")),
];

const TS: &[File] = &[
    ("handler.ts", include_str!("templates/ts/handler.ts")),
    ("package.json", include_str!("templates/ts/package.json")),
    ("tsconfig.json", include_str!("templates/ts/tsconfig.json")),
    ("README.md", include_str!("templates/ts/README.md")),
    ("request.sh", include_str!("templates/request.sh")),
    (".gitignore", "node_modules/\n"),
];

const PYTHON: &[File] = &[
    ("handler.py", include_str!("templates/python/handler.py")),
    ("README.md", include_str!("templates/python/README.md")),
    ("request.sh", include_str!("templates/request.sh")),
];

const RUST: &[File] = &[
    ("Cargo.toml", include_str!("templates/rust/Cargo.toml")),
    ("src/lib.rs", include_str!("templates/rust/lib.rs")),
    ("README.md", include_str!("templates/rust/README.md")),
    ("request.sh", include_str!("templates/request.sh")),
    (".gitignore", "target/\n"),
];

/// Creates the folder. Fails if it already exists.
pub fn new(args: &New) -> Result<(), Exit> {
    let name = args.name.as_str();
    let folder = Path::new(name);
    let files = match args.language {
        Language::Js => JS,
        Language::Ts => TS,
        Language::Python => PYTHON,
        Language::Rust => RUST,
    };
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Exit::failure(format_args!("{name} already exists")).hint("choose another name")
        }
        _ => Exit::failure(format_args!("cannot create {name}: {error}")),
    })?;
    for (path, text) in files {
        write(&folder.join(path), &text.replace("NAME", name))
            .map_err(|error| Exit::failure(format_args!("{name}/{path}: {error}")))?;
    }
    say(format_args!(
        "{name}: created; continue with {name}/README.md"
    ));
    Ok(())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)?;
    if path.extension().is_some_and(|extension| extension == "sh") {
        fs::set_permissions(path, fs::Permissions::from_mode(EXECUTABLE))?;
    }
    Ok(())
}
