//! Writes the seeds of all targets anew.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (target, name, bytes) in faasw_fuzz::seeds::all() {
        fs::create_dir_all(root.join(target))?;
        fs::write(root.join(target).join(name), bytes)?;
    }
    Ok(())
}
