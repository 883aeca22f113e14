//! The note of an entry, and what the entry has besides images and code. It is sealed as an export
//! is (`faasw_seedtree::image`, parcels), with the entry's key, and parsed as untrusted input.

use std::{
    io::{Cursor, Read},
    time::SystemTime,
};

use bytes::Bytes;
use faasw_client::{Digest, FunctionName, FunctionOptions};
use faasw_pool::{ImageOrigin, Images, Opening, ParcelError};
use serde::{Deserialize, Serialize};

use super::subject::{EntrySubject, Namespace};
use crate::registry::{ArtifactRecord, EngineRecord, VersionRecord};

/// The format version, raised whenever the meaning of a note changes.
const FORMAT: u32 = 1;

/// Maximum bytes of a sealed note with the module and files behind it.
pub(super) const MAX_NOTE_BYTES: u64 = 256 << 20;

/// The description of an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    format: u32,
    pub(crate) namespace: Namespace,
    pub(crate) name: FunctionName,
    /// Digest of the whole upload.
    pub(crate) upload: Digest,
    /// The resulting version with its options.
    pub(crate) record: VersionRecord,
    /// The engine of a script.
    pub(crate) engine: Option<EngineRecord>,
    /// The compiled code of the function, or of its engine.
    pub(crate) code: ArtifactRecord,
    /// The generation of the compiler that made the code.
    pub(crate) generation: String,
    /// The build and the machine that made the entry.
    pub(crate) origin: ImageOrigin,
    pub(crate) made: SystemTime,
}

/// A version of a node with everything that is shared.
#[derive(Debug)]
pub(crate) struct SharedVersion {
    pub(crate) record: VersionRecord,
    pub(crate) engine: Option<EngineRecord>,
    /// The name of the code among the artifacts, and its record.
    pub(crate) code: (String, ArtifactRecord),
    pub(crate) generation: String,
    /// The module, if initialising it has changed the deployed one.
    pub(crate) module: Vec<u8>,
    /// The packed files, if the function has any.
    pub(crate) bundle: Vec<u8>,
}

/// An opened note.
#[derive(Debug)]
pub(super) struct OpenedNote {
    pub(super) note: Note,
    pub(super) module: Bytes,
    pub(super) bundle: Bytes,
}

/// The reason why a note was not opened.
pub(super) enum NoteError {
    Parcel(ParcelError),
    Senseless(String),
}

impl From<ParcelError> for NoteError {
    fn from(error: ParcelError) -> Self {
        Self::Parcel(error)
    }
}

impl Note {
    /// Returns the note of a version that was made for `subject`, on this machine, now.
    pub(super) fn of(subject: &EntrySubject, version: &SharedVersion) -> Self {
        Self {
            format: FORMAT,
            namespace: subject.namespace.clone(),
            name: subject.name.clone(),
            upload: subject.upload,
            record: version.record.clone(),
            engine: version.engine.clone(),
            code: version.code.1.clone(),
            generation: version.generation.clone(),
            origin: ImageOrigin::here(),
            made: SystemTime::now(),
        }
    }

    /// Returns what the entry is of.
    pub(super) fn subject(&self) -> EntrySubject {
        EntrySubject {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            upload: self.upload,
            options: self.record.options.clone(),
        }
    }

    /// Checks that the entry is of this function, made by this build of faasw on such a machine.
    ///
    /// # Errors
    /// Returns the first difference.
    pub(crate) fn check(
        &self,
        name: &FunctionName,
        upload: Digest,
        options: &FunctionOptions,
        here: &ImageOrigin,
    ) -> Result<(), &'static str> {
        let checks = [
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
        let differs = checks.into_iter().find(|(is_same, _)| !is_same);
        differs.map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Seals the note with the module and the files behind it.
    ///
    /// # Errors
    /// Returns an error if the note is too large, or if the system provides no random bytes.
    pub(super) fn seal(
        &self,
        images: &Images,
        version: SharedVersion,
    ) -> Result<Vec<u8>, ParcelError> {
        let note = serde_json::to_vec(self).map_err(std::io::Error::other)?;
        let part = |bytes: Vec<u8>| -> faasw_pool::ParcelPart {
            (bytes.len() as u64, Box::new(Cursor::new(bytes)))
        };
        let mut sealing = images.seal(&note, [part(version.module), part(version.bundle)])?;
        let mut sealed = Vec::new();
        while let Some(piece) = sealing.next_piece()? {
            sealed.extend(piece);
        }
        Ok(sealed)
    }
}

impl OpenedNote {
    /// Opens the result of [`Note::seal`], which has `bytes` bytes.
    ///
    /// # Errors
    /// Returns [`NoteError::Parcel`] if it is too large, cut off, damaged or sealed with another
    /// key, and [`NoteError::Senseless`] if its content is not valid.
    pub(super) fn read(images: &Images, from: impl Read, bytes: u64) -> Result<Self, NoteError> {
        if bytes > MAX_NOTE_BYTES {
            return Err(ParcelError::TooLarge.into());
        }
        let mut from = from.take(MAX_NOTE_BYTES);
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
        let senseless = |error: serde_json::Error| NoteError::Senseless(error.to_string());
        let note: Note = serde_json::from_slice(&note).map_err(senseless)?;
        if note.format != FORMAT {
            let why = format!("it is of format {}, and not {FORMAT}", note.format);
            return Err(NoteError::Senseless(why));
        }
        if note.record.engine.is_some() != note.engine.is_some() {
            return Err(NoteError::Senseless(
                "the engine is missing or superfluous".to_owned(),
            ));
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

    fn here() -> ImageOrigin {
        ImageOrigin {
            build: "b".to_owned(),
            machine: "m".to_owned(),
        }
    }

    #[test]
    fn an_unusable_entry_is_reported_with_the_reason() {
        let note = note();
        let (name, upload, options) = (&note.name, note.upload, &note.record.options);
        assert_eq!(note.check(name, upload, options, &here()), Ok(()));
        let why = |name: &str, upload: &[u8], options: &FunctionOptions, here: &ImageOrigin| {
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

    /// Covers other keys and other lengths, too.
    #[test]
    fn a_sealed_note_opens_unchanged_or_not_at_all() {
        let note = note();
        let images = Images::new("/nowhere".into(), &[7; Images::SECRET], 0);
        let version = || SharedVersion {
            record: note.record.clone(),
            engine: None,
            code: ("file".to_owned(), note.code.clone()),
            generation: note.generation.clone(),
            module: vec![1; 3 << 20],
            bundle: vec![2; 5],
        };
        let sealed = note.seal(&images, version()).unwrap();
        let read = |bytes: &[u8], images: &Images| {
            OpenedNote::read(images, bytes, bytes.len() as u64).ok()
        };
        let opened = read(&sealed, &images).unwrap();
        assert_eq!(opened.note.subject(), note.subject());
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
        assert!(OpenedNote::read(&images, &sealed[..], MAX_NOTE_BYTES + 1).is_err());
        // Notes that have the right key and invalid content.
        let mut half = note.clone();
        half.format += 1;
        assert!(read(&half.seal(&images, version()).unwrap(), &images).is_none());
        let mut engine = note.clone();
        engine.engine = Some(EngineRecord {
            digest: Digest::of(b"engine"),
            extensions: Vec::new(),
            added: SystemTime::UNIX_EPOCH,
            module_bytes: 1,
            is_carried: true,
        });
        assert!(read(&engine.seal(&images, version()).unwrap(), &images).is_none());
    }
}
