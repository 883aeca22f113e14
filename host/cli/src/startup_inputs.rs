//! The inputs of a node that come from files, read before the node gives up the right to read them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use faasw::{KeyValueServer, OutboundOptions};

use super::{
    exit::Exit,
    kv_server,
    sealing_key::{self, SealingKey},
    serving::Serving,
};

/// The inputs that a node reads from files before it is confined.
pub struct StartupInputs {
    pub image_key: Option<SealingKey>,
    pub secret_key: Option<SealingKey>,
    pub outbound: OutboundOptions,
    pub key_value_server: Option<KeyValueServer>,
}

impl StartupInputs {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is invalid.
    pub fn read(serving: &Serving, data_dir: Option<&Path>) -> Result<Self, Exit> {
        let read = |what, path: &Option<PathBuf>| {
            let path = path.as_ref();
            path.map(|path| sealing_key::read(what, path, data_dir))
                .transpose()
        };
        Ok(Self {
            image_key: read("images", &serving.image_key)?,
            secret_key: read("secrets", &serving.secret_key)?,
            outbound: outbound(serving)?,
            key_value_server: kv_server::read(serving)?,
        })
    }
}

fn outbound(serving: &Serving) -> Result<OutboundOptions, Exit> {
    let mut options = OutboundOptions::of_this_host();
    if !serving.name_server.is_empty() {
        options = options.name_servers(serving.name_server.iter().copied());
    }
    if serving.allow_private.len() > OutboundOptions::NETWORKS {
        return Err(Exit::usage(format_args!(
            "--allow-private accepts at most {} networks",
            OutboundOptions::NETWORKS
        )));
    }
    for network in &serving.allow_private {
        options = options.allow_private(*network);
    }
    for path in &serving.egress_ca {
        let failed = |error: &dyn std::fmt::Display| {
            Exit::failure(format_args!("--egress-ca {}: {error}", path.display()))
        };
        let pem = fs::read(path).map_err(|error| failed(&error))?;
        options = options.trust(&pem).map_err(|error| failed(&error))?;
    }
    Ok(options)
}
