//! The resources for making jails and sandboxes, determined once by the process that makes them.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use faasw_fri::userfault::Device;
use faasw_jail::filter::{Filter, Rule};
use faasw_jail::group::{CgroupLocation, Groups};
use faasw_jail::{ConfinementLevel, JailError, Network, Site, dup_to_high_fd};
use kvm_ioctls::Kvm;

use crate::memory::page_map::PageMap;
use crate::process::jail;
use crate::vm::VmTemplate;

/// The resources for making sandboxes, besides their jails.
pub struct SandboxResources {
    /// The properties that all VMs share.
    pub template: VmTemplate,
    /// The system-call filter of sandboxes.
    pub filter: Filter,
}

/// The resources for making jails. Their descriptors have numbers that no jail uses.
pub struct JailResources {
    /// The resources for sandboxes; `None` if this process makes none.
    pub sandboxes: Option<SandboxResources>,
    /// The confinement level of jails.
    pub level: ConfinementLevel,
    /// Where jails are made; or the error if this host does not allow it, and then no jail can be
    /// made.
    pub site: Result<Site, JailError>,
    /// The control groups of jails; or why there are none, and then the kernel enforces fewer
    /// limits.
    pub groups: Result<Groups, String>,
}

impl JailResources {
    /// Determines the host's properties and, at the full level, leaves its namespaces. The calling
    /// process must have one thread.
    ///
    /// # Errors
    /// Returns an error if KVM or the page map cannot be opened, or if the rules do not compile.
    pub fn prepare(
        level: ConfinementLevel,
        rules: impl FnOnce(jail::HostFeatures) -> Vec<Rule>,
    ) -> io::Result<Self> {
        let sandboxes = SandboxResources::prepare(rules)?;
        Ok(Self::of(Some(sandboxes), Network::Empty, level))
    }

    /// Does the same as [`JailResources::prepare`] in the host's network, without resources for
    /// sandboxes.
    #[must_use]
    pub fn prepare_in_host_network(level: ConfinementLevel) -> Self {
        Self::of(None, Network::Host, level)
    }

    fn of(sandboxes: Option<SandboxResources>, network: Network, level: ConfinementLevel) -> Self {
        Self {
            sandboxes,
            level,
            // Before the site, which hides the groups' files.
            groups: CgroupLocation::find().and_then(|place| Groups::prepare(&place, jail::SHARE)),
            site: Site::prepare(network, level),
        }
    }
}

impl SandboxResources {
    fn prepare(rules: impl FnOnce(jail::HostFeatures) -> Vec<Rule>) -> io::Result<Self> {
        let device = dup_to_high_fd(kvm_device()?)?;
        // SAFETY: `into_raw_fd` passes on the ownership of the device's descriptor.
        let template = VmTemplate::new(unsafe { Kvm::from_raw_fd(device.into_raw_fd()) })?;
        // Without it, seeds are completely loaded before any guest runs.
        let faults = match Device::open() {
            Ok(device) => Some(dup_to_high_fd(OwnedFd::from(device))?.into()),
            Err(_) => None,
        };
        let template = template.with_faults(faults);
        let host = jail::HostFeatures {
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
