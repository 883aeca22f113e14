//! Compiled code of modules, by the generation of the engine that compiled it: records, and files
//! of code in pieces.

use std::collections::HashSet;

use faasw_abi::pages::PageSet;
use faasw_client::{Digest, FunctionName};
use faasw_pool::LoadedCode;
use redb::ReadableTable as _;

use super::{
    Artifact, ArtifactRecord, NewArtifact, Registry, RegistryError, StoredArtifact,
    record::PiecesRecord,
    tables::{
        ARTIFACTS, artifact_file, digest_part, put_artifact, read_at, update_artifact, write_record,
    },
};

impl Registry {
    /// Returns the artifact of a module by this generation of the engine, if there is one that may
    /// be this function's code. If no function is named, only code that is not reserved for one
    /// function is returned. Any other code can be compiled again. The code itself is not read,
    /// unless its record has no pieces, or pieces of a former size.
    pub(crate) fn artifact(
        &self,
        module: Digest,
        generation: &str,
        function: Option<&FunctionName>,
    ) -> Result<Option<StoredArtifact>, RegistryError> {
        let file = artifact_file(module, generation);
        let Some((record, pieces)) = self.record_with_pieces(&file, function)? else {
            return Ok(None);
        };
        Ok(Some(StoredArtifact {
            kind: record.kind,
            imports: record.imports,
            has_initialiser: record.has_initialiser,
            bytes: pieces.bytes,
            digest: pieces.pieces().digest(pieces.bytes),
        }))
    }

    /// Returns the modules that this generation of the engine has compiled.
    pub(crate) fn modules_compiled_by(
        &self,
        generation: &str,
    ) -> Result<HashSet<Digest>, RegistryError> {
        self.store.read(|state| {
            let mut modules = HashSet::new();
            for entry in state.open_table(ARTIFACTS)?.iter()? {
                let (file, _) = entry?;
                let file = file.value();
                let module = digest_part(file).and_then(|digest| digest.parse().ok());
                modules.extend(module.filter(|module| artifact_file(*module, generation) == file));
            }
            Ok(modules)
        })
    }

    /// Returns the code of such an artifact in memory, if it exists and is undamaged. If `first`
    /// names the pages that are used first, the other pages may still be loading.
    pub(crate) fn code(
        &self,
        module: Digest,
        generation: &str,
        function: Option<&FunctionName>,
        first: Option<&PageSet>,
    ) -> Result<Option<LoadedCode>, RegistryError> {
        let file = artifact_file(module, generation);
        let Some((_, pieces)) = self.record_with_pieces(&file, function)? else {
            return Ok(None);
        };
        let (bytes, pieces) = (pieces.bytes, pieces.pieces());
        match self.artifacts.code(&file, bytes, pieces, first) {
            Some(Ok(code)) => Ok(Some(code)),
            // Whether the file or the memory for it is at fault, the code can be compiled again.
            Some(Err(error)) => {
                tracing::warn!(file, %error, "stored code is not used; it is compiled again");
                Ok(None)
            }
            None => {
                tracing::warn!(file, "stored code is missing; it is compiled again");
                Ok(None)
            }
        }
    }

    /// Returns the record of code with its pieces, which are computed if it has none.
    fn record_with_pieces(
        &self,
        file: &str,
        function: Option<&FunctionName>,
    ) -> Result<Option<(ArtifactRecord, PiecesRecord)>, RegistryError> {
        let Some(mut record) = self.artifact_record(file, function)? else {
            return Ok(None);
        };
        let pieces = match record.pieces.take() {
            Some(pieces) => Some(pieces),
            None => self.pieces_of_old(file, &record)?,
        };
        Ok(pieces.map(|pieces| (record, pieces)))
    }

    pub(super) fn artifact_record(
        &self,
        file: &str,
        function: Option<&FunctionName>,
    ) -> Result<Option<ArtifactRecord>, RegistryError> {
        let record = self.store.read(|state| {
            let artifacts = state.open_table(ARTIFACTS)?;
            read_at::<ArtifactRecord>(file, artifacts.get(file)?)
        })?;
        // Pieces were larger in earlier versions.
        let record = record.map(|record| ArtifactRecord {
            pieces: record.pieces.filter(PiecesRecord::has_all),
            ..record
        });
        let is_for = |record: &ArtifactRecord| {
            record.only_for.is_none() || record.only_for.as_ref() == function
        };
        Ok(record.filter(is_for))
    }

    /// Returns the pieces of code that was stored without them or with pieces of another size, if
    /// the code is undamaged. Its record has the pieces from then on.
    fn pieces_of_old(
        &self,
        file: &str,
        record: &ArtifactRecord,
    ) -> Result<Option<PiecesRecord>, RegistryError> {
        let code = self.artifacts.read(file)?;
        let Some(code) = code.filter(|code| Digest::of(code) == record.digest) else {
            tracing::warn!(
                file,
                "stored code is missing or damaged; it is compiled again"
            );
            return Ok(None);
        };
        let pieces = PiecesRecord::of(&code);
        let record = ArtifactRecord {
            pieces: Some(pieces.clone()),
            ..record.clone()
        };
        let _changing = self.changing();
        if let Err(error) = self
            .store
            .change(|change| update_artifact(change, file, &record))
        {
            tracing::debug!(file, %error, "the pieces of stored code are found again next time");
        }
        Ok(Some(pieces))
    }

    /// Stores newly compiled code of a version's module, in place of the code of other generations.
    pub(crate) fn store_artifact(
        &self,
        module: Digest,
        new: NewArtifact<'_>,
    ) -> Result<(), RegistryError> {
        let _changing = self.changing();
        let (file, artifact) = self.write_artifact(module, new)?;
        let others = self
            .store
            .change(|change| put_artifact(change, &file, artifact))?;
        self.collect([], others);
        Ok(())
    }

    /// Returns the record of the code of a module or an engine, with the name of its file, for use
    /// by another node.
    pub(crate) fn code_record(
        &self,
        module: Digest,
        generation: &str,
    ) -> Result<Option<(String, ArtifactRecord)>, RegistryError> {
        let file = artifact_file(module, generation);
        let record = self.artifact_record(&file, None)?;
        Ok(record.map(|record| (file, record)))
    }

    /// Adds the record of code that is in the folder that this registry was opened with.
    pub(crate) fn register_given_code(
        &self,
        module: Digest,
        generation: &str,
        record: &ArtifactRecord,
    ) -> Result<(), RegistryError> {
        let _changing = self.changing();
        let file = artifact_file(module, generation);
        let text = write_record(&file, record)?;
        self.store.change(|change| {
            let mut artifacts = change.open_table(ARTIFACTS)?;
            artifacts.insert(file.as_str(), text.as_slice())?;
            Ok(())
        })
    }

    /// Writes the file of new code. Returns its name with the code.
    pub(super) fn write_artifact<'a>(
        &self,
        module: Digest,
        new: NewArtifact<'a>,
    ) -> Result<(String, &'a Artifact), RegistryError> {
        let file = artifact_file(module, new.generation);
        self.artifacts.write(&file, &new.artifact.code)?;
        Ok((file, new.artifact))
    }
}
