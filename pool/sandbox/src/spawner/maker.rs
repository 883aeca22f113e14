//! What it takes to make jails and sandboxes, found out once by the process that makes them.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use faasw_fri::userfault::Device;
use faasw_jail::filter::{Filter, Rule};
use faasw_jail::group::{Groups, Place};
use faasw_jail::{ConfinementLevel, JailError, Network, Site, out_of_the_way};
use kvm_ioctls::Kvm;

use crate::memory::page_map::PageMap;
use crate::process::jail;
use crate::vm::Template;

/// What it takes to make sandboxes beside their jails.
pub struct Sandboxes {
    /// What all VMs have in common.
    pub template: Template,
    /// What they may do.
    pub filter: Filter,
}

/// What it takes to make jails. Its descriptors have numbers that no jail uses.
pub struct Maker {
    /// What sandboxes take; nothing where none are made.
    pub sandboxes: Option<Sandboxes>,
    /// The confinement level of jails.
    pub level: ConfinementLevel,
    /// Where jails are made; or what of it this host does not allow, and then there
    /// are none.
    pub site: Result<Site, JailError>,
    /// Where their groups are; or why there are none, and then the kernel holds jails
    /// to less.
    pub groups: Result<Groups, String>,
}

impl Maker {
    /// Finds out about the host and, at the full level, leaves its namespaces. The calling
    /// process must have one thread.
    ///
    /// # Errors
    /// When KVM or the page map do not answer, or the rules are none.
    pub fn prepare(
        level: ConfinementLevel,
        rules: impl FnOnce(jail::Host) -> Vec<Rule>,
    ) -> io::Result<Self> {
        let sandboxes = Sandboxes::prepare(rules)?;
        Ok(Self::of(Some(sandboxes), Network::Empty, level))
    }

    /// As [`Maker::prepare`], but for the host's network, and for no sandboxes.
    #[must_use]
    pub fn prepare_outside(level: ConfinementLevel) -> Self {
        Self::of(None, Network::Host, level)
    }

    fn of(sandboxes: Option<Sandboxes>, network: Network, level: ConfinementLevel) -> Self {
        Self {
            sandboxes,
            level,
            // Before the site, which hides where they are.
            groups: Place::find().and_then(|place| Groups::prepare(&place, jail::SHARE)),
            site: Site::prepare(network, level),
        }
    }
}

impl Sandboxes {
    fn prepare(rules: impl FnOnce(jail::Host) -> Vec<Rule>) -> io::Result<Self> {
        let device = out_of_the_way(kvm_device()?)?;
        // SAFETY: a device descriptor whose owner gives it away.
        let template = Template::new(unsafe { Kvm::from_raw_fd(device.into_raw_fd()) })?;
        // Without it seeds are filled before any guest runs.
        let faults = match Device::open() {
            Ok(device) => Some(out_of_the_way(OwnedFd::from(device))?.into()),
            Err(_) => None,
        };
        let template = template.telling_faults(faults);
        let host = jail::Host {
            scans: PageMap::open()?.scans(),
            prefaults: template.can_prefault(),
            page_walk: template.page_walk(),
        };
        Ok(Self {
            template,
            filter: Filter::compile(&rules(host), &[]).map_err(io::Error::other)?,
        })
    }
}

fn kvm_device() -> io::Result<OwnedFd> {
    let device = Kvm::open_with_cloexec(true)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(device) })
}
