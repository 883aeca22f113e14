//! The confinement of `up`, `serve` and `pod`. A serving node loses all rights that it does not
//! need, so that an attacker who takes it over does not have them either (docs/decisions/0016).
//!
//! There are two steps. [`Confinement::begin`] runs before there is a second thread. It starts the
//! launcher, which keeps the rights for making jails, and gives up what threads inherit.
//! [`Confinement::complete`] runs when the node serves, for all threads at once.

mod dialer;
mod files;
mod filter;
mod preparation;

use std::{path::PathBuf, sync::Arc};

use faasw::{Launcher, ServerAddress};
use faasw_jail::{CapabilitySet, confine_daemon};

pub use dialer::run_dialer;
pub use files::{Files, finding};
pub use preparation::restrict_preparation;

use super::exit::Exit;
use dialer::Dialer;

/// Lower ports require a privilege (ip(7)), unless the system is configured otherwise.
const PRIVILEGED_PORTS: u16 = 1024;

/// The rights that a node needs.
#[derive(Debug, Default)]
pub struct Needs {
    /// The files.
    pub files: Files,
    /// The ports on which it listens.
    pub ports: Vec<u16>,
    /// Whether it reads files of other users again, as root may: those that a developer edits.
    pub others_files: bool,
    /// The key-value server to which it needs connections.
    pub key_value_server: Option<ServerAddress>,
    /// Whether it starts to listen only after its confinement.
    pub opens_later: bool,
}

impl Needs {
    /// Returns the needs of a node with these ports, and with a data directory unless `data_dir` is
    /// `None`.
    pub fn new(data_dir: Option<PathBuf>, ports: impl IntoIterator<Item = u16>) -> Self {
        Self {
            files: Files {
                data_dir,
                ..Files::default()
            },
            ports: ports.into_iter().collect(),
            ..Self::default()
        }
    }

    fn capabilities(&self) -> CapabilitySet {
        let mut kept = CapabilitySet::empty();
        if self
            .ports
            .iter()
            .any(|port| (1..PRIVILEGED_PORTS).contains(port))
        {
            kept |= CapabilitySet::NET_BIND_SERVICE;
        }
        if self.others_files {
            kept |= CapabilitySet::DAC_READ_SEARCH;
        }
        kept
    }
}

/// A process that is partly confined.
#[derive(Debug)]
pub struct Confinement {
    /// The process that starts spawners.
    pub launcher: Arc<Launcher>,
    /// The process that connects to the key-value server, if there is one.
    pub dialer: Option<Arc<Dialer>>,
    opens_later: bool,
}

impl Confinement {
    /// Starts the launcher and, for a key-value server, the dialer, and gives up the rights that
    /// threads inherit. The process must have one thread.
    ///
    /// # Errors
    /// Returns an error if a process cannot be started or a right cannot be dropped.
    pub fn begin(needs: &Needs) -> Result<Self, Exit> {
        let launcher = Launcher::start()
            .map_err(|error| Exit::failure(format_args!("cannot start the launcher: {error}")))?;
        let dialer = needs
            .key_value_server
            .as_ref()
            .map(Dialer::start)
            .transpose();
        let dialer = dialer.map_err(|error| {
            Exit::failure(format_args!(
                "cannot start faasw-dial, which connects to the key-value server: {error}"
            ))
        })?;
        confine_daemon(needs.capabilities()).map_err(|error| {
            Exit::failure(format_args!("privileges cannot be given up: {error}"))
        })?;
        needs.files.restrict()?;
        Ok(Self {
            launcher: Arc::new(launcher),
            dialer: dialer.map(Arc::new),
            opens_later: needs.opens_later,
        })
    }

    /// Filters the system calls of all threads.
    ///
    /// # Errors
    /// Returns an error if the filter cannot be made or installed.
    pub fn complete(&self) -> Result<(), Exit> {
        let filter = filter::filter(self.opens_later).map_err(Exit::failure)?;
        filter.install_in_all_threads().map_err(|error| {
            Exit::failure(format_args!("system calls cannot be filtered: {error}"))
        })
    }

    /// Waits until the launcher or the dialer has ended, which only an outside cause brings about,
    /// and returns the failure. The node cannot start them again. Without the launcher, a spawner
    /// that ends is not replaced. Without the dialer, no connection to the key-value server is
    /// replaced.
    pub async fn broken(&self) -> Exit {
        let dialer = async {
            match &self.dialer {
                Some(dialer) => dialer.ended().await,
                None => std::future::pending().await,
            }
        };
        let (ended, what) = tokio::select! {
            ended = self.launcher.ended() => {
                (ended, "the launcher, which makes microVMs, has ended")
            }
            ended = dialer => (ended, "faasw-dial, which connects to the key-value server, has \
                 ended"),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "the node cannot detect the end of the launcher and of \
                 faasw-dial");
            return std::future::pending().await;
        }
        Exit::failure(what).hint("start the node again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_needed_capabilities_are_kept() {
        let kept = |ports: &[u16], others_files| {
            let mut needs = Needs::new(None, ports.iter().copied());
            needs.others_files = others_files;
            needs.capabilities()
        };
        assert_eq!(kept(&[0, 1024, 8080], false), CapabilitySet::empty());
        assert_eq!(kept(&[8080, 443], false), CapabilitySet::NET_BIND_SERVICE);
        assert_eq!(kept(&[], true), CapabilitySet::DAC_READ_SEARCH);
    }
}
