//! What an entry says of itself, and what it has beside images and code. It is sealed as an export
//! is (`faasw_seedtree::image`, parcels), with the entry's key, and read as a stranger's word.

use std::{
    io::{Cursor, Read},
    time::SystemTime,
};

use bytes::Bytes;
use faasw_client::{Digest, FunctionName, FunctionOptions};
use faasw_pool::{Images, Opening, Origin, ParcelError};
use serde::{Deserialize, Serialize};

use super::what::{Namespace, What};
use crate::registry::{ArtifactRecord, EngineRecord, VersionRecord};

/// Raised whenever a note comes to mean something else.
const FORMAT: u32 = 1;

/// Bytes of a sealed note, and of what comes behind it, at most.
pub(super) const MOST: u64 = 256 << 20;

/// What an entry says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    format: u32,
    pub(crate) namespace: Namespace,
    pub(crate) name: FunctionName,
    /// Of all that was deployed.
    pub(crate) upload: Digest,
    /// The version that came of it, options and all.
    pub(crate) record: VersionRecord,
    /// The engine of a script.
    pub(crate) engine: Option<EngineRecord>,
    /// Its code, or its engine's.
    pub(crate) code: ArtifactRecord,
    /// What compiled that.
    pub(crate) generation: String,
    /// What made it, and where.
    pub(crate) origin: Origin,
    pub(crate) made: SystemTime,
}

/// A version as a node has it, to be shared.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) record: VersionRecord,
    pub(crate) engine: Option<EngineRecord>,
    /// What its code is called among artifacts, and what is known of it.
    pub(crate) code: (String, ArtifactRecord),
    pub(crate) generation: String,
    /// Its module, where that is another than was deployed: as initialising it has left that.
    pub(crate) module: Vec<u8>,
    /// Its files, packed, if it has some.
    pub(crate) bundle: Vec<u8>,
}

/// A note that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) note: Note,
    pub(super) module: Bytes,
    pub(super) bundle: Bytes,
}

/// Why there is no such thing.
pub(super) enum NotOpened {
    Parcel(ParcelError),
    Senseless(String),
}

impl From<ParcelError> for NotOpened {
    fn from(error: ParcelError) -> Self {
        Self::Parcel(error)
    }
}

impl Note {
    /// Of what was made for this, here and now.
    pub(super) fn of(what: &What, whole: &Whole) -> Self {
        Self {
            format: FORMAT,
            namespace: what.namespace.clone(),
            name: what.name.clone(),
            upload: what.upload,
            record: whole.record.clone(),
            engine: whole.engine.clone(),
            code: whole.code.1.clone(),
            generation: whole.generation.clone(),
            origin: Origin::here(),
            made: SystemTime::now(),
        }
    }

    /// What it is of.
    pub(super) fn what(&self) -> What {
        What {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            upload: self.upload,
            options: self.record.options.clone(),
        }
    }

    /// Whether it is of this function, made by this faasw on such a machine.
    ///
    /// # Errors
    /// How it is not.
    pub(crate) fn check(
        &self,
        name: &FunctionName,
        upload: Digest,
        options: &FunctionOptions,
        here: &Origin,
    ) -> Result<(), &'static str> {
        let told = [
            (self.name == *name, "it is of a function of another name"),
            (self.upload == upload, "it is of another module"),
            (
                self.record.options == *options,
                "it was made with other options",
            ),
            (
                self.origin.build == here.build,
                "another build of faasw has made it",
            ),
            (
                self.origin.machine == here.machine,
                "it was made on another processor, or by another kernel",
            ),
        ];
        let differs = told.into_iter().find(|(is_same, _)| !is_same);
        differs.map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Seals it, with what is behind it.
    ///
    /// # Errors
    /// When it is too large; the system's.
    pub(super) fn seal(&self, images: &Images, whole: Whole) -> Result<Vec<u8>, ParcelError> {
        let note = serde_json::to_vec(self).map_err(std::io::Error::other)?;
        let part = |bytes: Vec<u8>| -> faasw_pool::ParcelPart {
            (bytes.len() as u64, Box::new(Cursor::new(bytes)))
        };
        let mut sealing = images.seal(&note, [part(whole.module), part(whole.bundle)])?;
        let mut sealed = Vec::new();
        while let Some(piece) = sealing.next_piece()? {
            sealed.extend(piece);
        }
        Ok(sealed)
    }
}

impl Opened {
    /// Opens what [`Note::seal`] has made, which has so many bytes.
    ///
    /// # Errors
    /// What it is instead.
    pub(super) fn read(images: &Images, from: impl Read, bytes: u64) -> Result<Self, NotOpened> {
        if bytes > MOST {
            return Err(ParcelError::TooLarge.into());
        }
        let mut from = from.take(MOST);
        let mut next = |count: usize| -> Result<Vec<u8>, ParcelError> {
            let mut piece = Vec::with_capacity(count);
            (&mut from).take(count as u64).read_to_end(&mut piece)?;
            if piece.len() == count {
                Ok(piece)
            } else {
                Err(ParcelError::CutOff)
            }
        };
        let opening = images.open_export(&next(Opening::BEGIN)?)?;
        let note = next(opening.note_bytes())?;
        let (note, mut contents) = opening.open_note(note)?;
        contents.check_length(bytes)?;
        let mut parts = [Vec::new(), Vec::new()];
        while let Some((of, count)) = contents.next_piece() {
            let piece = contents.open(next(count)?)?;
            if let Some(part) = parts.get_mut(of) {
                part.extend(piece);
            }
        }
        let senseless = |error: serde_json::Error| NotOpened::Senseless(error.to_string());
        let note: Note = serde_json::from_slice(&note).map_err(senseless)?;
        if note.format != FORMAT {
            let why = format!("it is of format {}, and not {FORMAT}", note.format);
            return Err(NotOpened::Senseless(why));
        }
        if note.record.engine.is_some() != note.engine.is_some() {
            return Err(NotOpened::Senseless("half an engine".to_owned()));
        }
        let [module, bundle] = parts.map(Bytes::from);
        Ok(Self {
            note,
            module,
            bundle,
        })
    }
}

#[cfg(test)]
mod tests {
    use faasw_client::FunctionKind;

    use super::*;
    use crate::registry::FreezeRecord;

    fn note() -> Note {
        let digest = Digest::of(b"code");
        let code = format!(r#"{{"kind":"http-component","imports":[],"digest":"{digest}"}}"#);
        Note {
            format: FORMAT,
            namespace: Namespace::new("n").unwrap(),
            name: FunctionName::new("f").unwrap(),
            upload: Digest::of(b"upload"),
            record: VersionRecord {
                digest: Digest::of(b"upload"),
                engine: None,
                files: None,
                initialised: None,
                kind: FunctionKind::HttpComponent,
                options: FunctionOptions::default().env("A", "b"),
                deployed: SystemTime::UNIX_EPOCH,
                imaged: None,
                freeze: FreezeRecord::default(),
                imports: Vec::new(),
                module_bytes: 6,
                code_bytes: 9,
            },
            engine: None,
            code: serde_json::from_str(&code).unwrap(),
            generation: "g".to_owned(),
            origin: here(),
            made: SystemTime::UNIX_EPOCH,
        }
    }

    fn here() -> Origin {
        Origin {
            build: "b".to_owned(),
            machine: "m".to_owned(),
        }
    }

    #[test]
    fn what_makes_it_good_for_nothing_is_named() {
        let note = note();
        let (name, upload, options) = (&note.name, note.upload, &note.record.options);
        assert_eq!(note.check(name, upload, options, &here()), Ok(()));
        let why = |name: &str, upload: &[u8], options: &FunctionOptions, here: &Origin| {
            let name = FunctionName::new(name).unwrap();
            note.check(&name, Digest::of(upload), options, here)
                .unwrap_err()
        };
        let other = FunctionOptions::default();
        assert!(why("g", b"upload", options, &here()).contains("name"));
        assert!(why("f", b"another", options, &here()).contains("module"));
        assert!(why("f", b"upload", &other, &here()).contains("options"));
        let (mut build, mut machine) = (here(), here());
        build.build.push('c');
        machine.machine.push('c');
        assert!(why("f", b"upload", options, &build).contains("build"));
        assert!(why("f", b"upload", options, &machine).contains("processor"));
    }

    /// Whoever seals it, and however its lengths are.
    #[test]
    fn it_comes_back_as_it_was_sealed_or_not_at_all() {
        let note = note();
        let images = Images::new("/nowhere".into(), &[7; Images::SECRET], 0);
        let whole = || Whole {
            record: note.record.clone(),
            engine: None,
            code: ("file".to_owned(), note.code.clone()),
            generation: note.generation.clone(),
            module: vec![1; 3 << 20],
            bundle: vec![2; 5],
        };
        let sealed = note.seal(&images, whole()).unwrap();
        let read =
            |bytes: &[u8], images: &Images| Opened::read(images, bytes, bytes.len() as u64).ok();
        let opened = read(&sealed, &images).unwrap();
        assert_eq!(opened.note.what(), note.what());
        assert_eq!(
            (opened.module.len(), &opened.bundle[..]),
            (3 << 20, &[2; 5][..])
        );
        let strangers = Images::new("/nowhere".into(), &[8; Images::SECRET], 0);
        assert!(read(&sealed, &strangers).is_none());
        for at in [0, 20, 100, 130, 3000, sealed.len() - 1] {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(read(&damaged, &images).is_none(), "{at}");
            assert!(read(&sealed[..at], &images).is_none(), "{at}");
        }
        assert!(read(&[&sealed[..], b"x"].concat(), &images).is_none());
        assert!(Opened::read(&images, &sealed[..], MOST + 1).is_err());
        // Somebody who has the key, and says what no faasw says.
        let mut half = note.clone();
        half.format += 1;
        assert!(read(&half.seal(&images, whole()).unwrap(), &images).is_none());
        let mut engine = note.clone();
        engine.engine = Some(EngineRecord {
            digest: Digest::of(b"engine"),
            extensions: Vec::new(),
            added: SystemTime::UNIX_EPOCH,
            module_bytes: 1,
            is_carried: true,
        });
        assert!(read(&engine.seal(&images, whole()).unwrap(), &images).is_none());
    }
}
