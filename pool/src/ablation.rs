//! Mechanisms that a benchmark may switch off, to measure what each is worth (as AFaaS fig. 14 and
//! Spice fig. 11 do).
//!
//! Only a build with the feature `ablation` can switch them off. In any other build,
//! [`Mechanism::is_off`] is a constant, and nothing of this remains. Mechanisms that isolate
//! requests from each other are not included, except for the jail, whose cost is measured.

/// A mechanism that makes requests faster, or costs them something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Making private, when an instance is forked, the pages that it will write.
    WriteSet,
    /// Mapping, when an instance is forked, the pages that it will only read, where the host fills
    /// second-level page tables in advance.
    ReadSet,
    /// Large pages for what all guests read.
    LargePages,
    /// The guest's ring at its end, which comes before its vCPU has left the VM.
    EarlyEnd,
    /// Run permits, which make short requests run one after the other.
    Turns,
    /// Waiting for an instance that is being reset, instead of a fork.
    ResetWait,
    /// Distinguishing, when an instance is forked, the pages that it will write from those that it
    /// will only read (Spice §4). Without this, all of them are treated as only read.
    SetSplit,
    /// Filling any of these pages, of memory and code, when instances are forked.
    Prefill,
    /// Func-images that begin with the pages that requests use. Without this, pages are in the
    /// order of their addresses.
    ImageOrder,
    /// Leaving out of func-images the pages of zeros, and those that are identical to the parent's.
    ImageGaps,
    /// Starting guests before all of their memory has been read from its image.
    ImageParts,
    /// Starting guests before all of their code has been read from its artifact.
    CodeParts,
    /// Instances that poll for their next request, if the node's options allow that.
    Hot,
    /// The node's polling for the answer of such an instance, instead of sleeping until it rings.
    NodeLooks,
    /// The jail round each VM, and its control group. This measures what it costs, not what it is
    /// worth. Only trusted functions may run without.
    #[cfg(feature = "ablation")]
    Jail,
}

#[cfg(feature = "ablation")]
mod switches {
    use std::str::FromStr;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Mechanism;

    /// A bit for each mechanism that is off, in this whole process.
    static OFF: AtomicU32 = AtomicU32::new(0);

    impl Mechanism {
        /// All mechanisms.
        pub const ALL: [Self; 15] = [
            Self::WriteSet,
            Self::ReadSet,
            Self::LargePages,
            Self::EarlyEnd,
            Self::Turns,
            Self::ResetWait,
            Self::SetSplit,
            Self::Prefill,
            Self::ImageOrder,
            Self::ImageGaps,
            Self::ImageParts,
            Self::CodeParts,
            Self::Hot,
            Self::NodeLooks,
            Self::Jail,
        ];

        /// Returns the name on the command line.
        #[must_use]
        pub fn name(self) -> &'static str {
            match self {
                Self::WriteSet => "write-set",
                Self::ReadSet => "read-set",
                Self::LargePages => "large-pages",
                Self::EarlyEnd => "early-end",
                Self::Turns => "turns",
                Self::ResetWait => "reset-wait",
                Self::SetSplit => "set-split",
                Self::Prefill => "prefill",
                Self::ImageOrder => "image-order",
                Self::ImageGaps => "image-gaps",
                Self::ImageParts => "image-parts",
                Self::CodeParts => "code-parts",
                Self::Hot => "hot",
                Self::NodeLooks => "node-looks",
                Self::Jail => "jail",
            }
        }

        /// Switches `these` off, and all others on.
        pub fn switch_off(these: &[Self]) {
            let bits = these.iter().fold(0, |bits, one| bits | 1 << *one as u32);
            OFF.store(bits, Ordering::Relaxed);
        }

        /// Returns whether it is switched off.
        pub(crate) fn is_off(self) -> bool {
            OFF.load(Ordering::Relaxed) & 1 << self as u32 != 0
        }
    }

    impl FromStr for Mechanism {
        type Err = String;

        fn from_str(name: &str) -> Result<Self, String> {
            let known = Self::ALL.into_iter().find(|one| one.name() == name);
            known.ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("there is no such mechanism; there are {names}")
            })
        }
    }
}

#[cfg(not(feature = "ablation"))]
impl Mechanism {
    /// Returns whether it is switched off: never.
    pub(crate) const fn is_off(self) -> bool {
        false
    }
}
