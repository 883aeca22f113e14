//! Names of component interfaces (`wasi:http/types@0.2.6`), and their compatibility.

use semver::Version;

/// An interface's name, split into path and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceName<'a> {
    /// `namespace:package/interface`.
    pub path: &'a str,
    /// The version, if there is one.
    pub version: Option<Version>,
}

impl<'a> InterfaceName<'a> {
    /// Parses a name. Returns `None` if the text after the `@` is not a version.
    pub fn parse(name: &'a str) -> Option<Self> {
        Some(match name.split_once('@') {
            Some((path, version)) => Self {
                path,
                version: Some(Version::parse(version).ok()?),
            },
            None => Self {
                path: name,
                version: None,
            },
        })
    }

    /// Returns whether this is any release of WASI 0.2, the only WASI that components can use here.
    ///
    /// Within WASI 0.2, the linker accepts every version for every other, because functions were
    /// added, never changed. Release candidates are not part of it.
    pub fn is_wasi_0_2(&self) -> bool {
        self.path.starts_with("wasi:") && self.is_0(2)
    }

    /// Returns whether this is any release 0.1 of an interface of this project, for engines or
    /// functions.
    pub fn is_ours(&self) -> bool {
        let is_ours = |package| self.path.starts_with(package);
        ["faasw:engine/", "faasw:function/"]
            .into_iter()
            .any(is_ours)
            && self.is_0(1)
    }

    fn is_0(&self, minor: u64) -> bool {
        let version = self.version.as_ref();
        version.is_some_and(|version| {
            version.major == 0 && version.minor == minor && version.pre.is_empty()
        })
    }

    /// Returns whether the interface `offered` satisfies an import of this one, by the linker's
    /// rules: it is identical, or another release of the same major version (before 1.0: of the
    /// same minor version).
    pub fn fits(&self, offered: &InterfaceName<'_>) -> bool {
        if self == offered {
            return true;
        }
        let (Some(own), Some(other)) = (&self.version, &offered.version) else {
            return false;
        };
        let is_of_its_track = match own.major {
            0 => own.minor != 0 && own.minor == other.minor,
            _ => true,
        };
        self.path == offered.path
            && own.pre.is_empty()
            && other.pre.is_empty()
            && own.major == other.major
            && is_of_its_track
    }

    /// Returns whether this is the interface `path` of any release of WASI 0.2.
    pub fn is_wasi_0_2_of(&self, path: &str) -> bool {
        self.path == path && self.is_wasi_0_2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_wasi_0_2(name: &str) -> bool {
        InterfaceName::parse(name).is_some_and(|name| name.is_wasi_0_2())
    }

    #[test]
    fn releases_of_one_track_stand_for_each_other_and_drafts_for_themselves() {
        let fits = |name, offered| {
            let [name, offered] = [name, offered].map(|name| InterfaceName::parse(name).unwrap());
            name.fits(&offered)
        };
        for (name, offered) in [
            ("a:b/c", "a:b/c"),
            ("a:b/c@1.0.0-x", "a:b/c@1.0.0-x"),
            ("a:b/c@1.0.0", "a:b/c@1.2.3"),
            ("a:b/c@1.2.3", "a:b/c@1.0.0"),
            ("a:b/c@0.3.0", "a:b/c@0.3.9"),
        ] {
            assert!(fits(name, offered), "{name} {offered}");
        }
        for (name, offered) in [
            ("a:b/c", "a:b/c@1.0.0"),
            ("a:b/c@1.0.0", "a:b/d@1.0.0"),
            ("a:b/c@1.0.0", "a:b/c@2.0.0"),
            ("a:b/c@1.0.0-x", "a:b/c@1.0.0"),
            ("a:b/c@1.0.0", "a:b/c@1.0.0-x"),
            ("a:b/c@0.3.0", "a:b/c@0.4.0"),
            ("a:b/c@0.0.1", "a:b/c@0.0.2"),
        ] {
            assert!(!fits(name, offered), "{name} {offered}");
        }
    }

    #[test]
    fn ours_have_a_version_of_their_own() {
        let is_ours = |name| InterfaceName::parse(name).is_some_and(|name| name.is_ours());
        assert!(is_ours("faasw:engine/script@0.1.7") && is_ours("faasw:function/entry@0.1.0"));
        for name in [
            "faasw:engine/script",
            "faasw:engine/script@0.2.0",
            "faasw:engine/script@0.1.0-rc",
            "wasi:engine/script@0.1.0",
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }

    #[test]
    fn every_release_of_wasi_0_2_is_the_same_to_us_and_nothing_else_is() {
        for name in ["wasi:io/poll@0.2.0", "wasi:io/poll@0.2.99"] {
            assert!(is_wasi_0_2(name), "{name}");
        }
        for name in [
            "wasi:io/poll",
            "wasi:io/poll@0.3.0",
            "wasi:io/poll@0.1.0",
            "wasi:io/poll@1.2.0",
            "wasi:io/poll@0.2.0-rc-2023-11-10",
            "wasi:io/poll@two",
            "acme:io/poll@0.2.0",
        ] {
            assert!(!is_wasi_0_2(name), "{name}");
        }
    }
}
