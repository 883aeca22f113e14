//! Code that may have left memory. It is in memory as long as a seed, an instance that is being
//! made, or the caller that compiled it holds it. It is loaded again when it is next needed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use faasw_abi::pages::PageSet;
use faasw_common::Lock;
use faasw_common::text::Line;
use rustix::io::Errno;

use super::{Code, CodeDigest, CodeFill, LoadedCode};
use crate::error::PlatformError;
use crate::snapshots::loading::wait_loaded;

/// The future of loading code.
pub type LoadFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The storage of code that is not in memory.
pub trait CodeSource: fmt::Debug + Send + Sync {
    /// Reads the code, verified to be what was stored; `None` if it is missing or damaged. If
    /// `first` names the used part of the code, the rest may be read later.
    fn read(&self, first: Option<PageSet>) -> LoadFuture<'_, Option<LoadedCode>>;

    /// Compiles the code again, which need not give the same code.
    ///
    /// # Errors
    /// Returns the reason if it could not be compiled.
    fn compile(&self) -> LoadFuture<'_, Result<Arc<Code>, String>>;
}

/// The code of a function, in memory or stored.
#[derive(Debug)]
pub struct CodeHandle {
    location: Lock<CodeLocation>,
    reports_state: bool,
    /// Held by the caller that loads the code; others wait for it.
    loading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct CodeLocation {
    /// The code, as long as another holder keeps it in memory.
    loaded: Weak<Code>,
    /// Keeps the code in memory as long as it is stored nowhere.
    unstored: Option<Arc<Code>>,
    source: Option<Arc<dyn CodeSource>>,
    bytes: u64,
    digest: Option<CodeDigest>,
    /// Whether a part of the stored code was found to be damaged after the code had been returned
    /// to a caller.
    is_damaged: bool,
}

impl CodeHandle {
    /// Wraps code that is only in memory, and stays there.
    #[must_use]
    pub fn unstored(code: Arc<Code>) -> Self {
        Self {
            reports_state: code.reports_state(),
            location: Lock::new(CodeLocation {
                loaded: Arc::downgrade(&code),
                bytes: code.bytes(),
                unstored: Some(code),
                ..CodeLocation::default()
            }),
            loading: tokio::sync::Mutex::default(),
        }
    }

    /// Wraps code that is stored, and that is in memory as long as another holder keeps it there.
    #[must_use]
    pub fn stored(
        source: Arc<dyn CodeSource>,
        bytes: u64,
        digest: CodeDigest,
        loaded: Option<&Arc<Code>>,
    ) -> Self {
        Self {
            reports_state: false,
            location: Lock::new(CodeLocation {
                loaded: loaded.map(Arc::downgrade).unwrap_or_default(),
                source: Some(source),
                bytes,
                digest: Some(digest),
                ..CodeLocation::default()
            }),
            loading: tokio::sync::Mutex::default(),
        }
    }

    /// Records that the code is stored now, so that it may leave memory when it has no other
    /// holder.
    pub fn is_stored_at(&self, source: Arc<dyn CodeSource>, digest: CodeDigest) {
        let unstored = {
            let mut location = self.location.lock();
            location.source = Some(source);
            location.digest = Some(digest);
            location.is_damaged = false;
            location.unstored.take()
        };
        // Dropped outside the lock, because this may unmap the code.
        drop(unstored);
    }

    /// Returns whether the code may leave memory.
    #[must_use]
    pub fn can_be_evicted(&self) -> bool {
        self.location.lock().unstored.is_none()
    }

    /// Returns the code if all of it is in memory.
    #[must_use]
    pub fn in_memory(&self) -> Option<Arc<Code>> {
        self.pending()
            .filter(|code| code.progress().is_fully_loaded())
    }

    /// Returns the code if it is in memory or is being read.
    fn pending(&self) -> Option<Arc<Code>> {
        self.location.lock().loaded.upgrade()
    }

    /// Records that the stored code was found to be damaged by the reader of `code`, so that it is
    /// compiled again when it is next needed. Without effect if other code has replaced it: code
    /// that was compiled since, or code that another reader reads, which finds the damage itself.
    pub fn mark_damaged(&self, code: &Arc<Code>) {
        let mut location = self.location.lock();
        location.is_damaged |= std::ptr::eq(location.loaded.as_ptr(), Arc::as_ptr(code));
    }

    /// Returns the code. If it is not in memory, it is loaded once for all callers that wait.
    ///
    /// # Errors
    /// Returns [`PlatformError::CodeGone`] if it can be neither read nor compiled again.
    pub async fn get(&self) -> Result<Arc<Code>, PlatformError> {
        let (code, rest) = self.get_in_parts(None).await?;
        // Without a set to read first, all of it is read.
        debug_assert!(rest.is_none());
        Ok(code)
    }

    /// As [`CodeHandle::get`], for a caller whose guests can wait for missing pages. If `first`
    /// names the used part of the code, the rest may still be missing; the caller has to read it
    /// with the returned source.
    ///
    /// # Errors
    /// As [`CodeHandle::get`].
    pub async fn get_in_parts(
        &self,
        first: Option<PageSet>,
    ) -> Result<(Arc<Code>, Option<CodeFill>), PlatformError> {
        if let Some(code) = self.in_memory() {
            return Ok((code, None));
        }
        let _loading = self.loading.lock().await;
        // Waits for another caller that is reading the code, unless that caller gives up.
        if let Some(code) = self.pending()
            && wait_loaded(code.progress()).await
        {
            return Ok((code, None));
        }
        let (source, is_damaged) = {
            let location = self.location.lock();
            (location.source.clone(), location.is_damaged)
        };
        let Some(source) = source else {
            return Err(PlatformError::CodeGone("it is nowhere".to_owned()));
        };
        let read = if is_damaged {
            None
        } else {
            source.read(first).await
        };
        let (code, rest) = match read {
            Some(LoadedCode { code, rest }) => (Arc::new(code), rest),
            None => {
                let compiled = source.compile().await;
                let code =
                    compiled.map_err(|why| PlatformError::CodeGone(Line(why).to_string()))?;
                // The compiled code was stored anew; if not, the damage is found again.
                self.location.lock().is_damaged = false;
                (code, None)
            }
        };
        // The code may differ from before. If it was compiled, all of it is hashed.
        let digest = {
            let code = code.clone();
            tokio::task::spawn_blocking(move || code.digest()).await
        };
        let digest = digest.ok().and_then(Result::ok);
        let mut location = self.location.lock();
        location.loaded = Arc::downgrade(&code);
        location.bytes = code.bytes();
        location.digest = digest;
        drop(location);
        Ok((code, rest))
    }

    /// Size of the artifact, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.location.lock().bytes
    }

    /// Returns whether the code was made to report the state that it reaches, and does nothing
    /// else.
    #[must_use]
    pub fn reports_state(&self) -> bool {
        self.reports_state
    }

    /// Returns the digest of the code, if it has been computed.
    #[must_use]
    pub fn known_digest(&self) -> Option<CodeDigest> {
        self.location.lock().digest
    }

    /// Returns the digest of the code. If it has not been computed yet, this computes it, which
    /// blocks.
    ///
    /// # Errors
    /// Returns `NOENT` if the digest is unknown and the code is not in memory, or the error of
    /// reading the code.
    pub fn digest(&self) -> Result<CodeDigest, Errno> {
        let loaded = {
            let location = self.location.lock();
            match (location.digest, location.loaded.upgrade()) {
                (Some(digest), _) => return Ok(digest),
                (None, Some(loaded)) => loaded,
                (None, None) => return Err(Errno::NOENT),
            }
        };
        let digest = loaded.digest()?;
        self.location.lock().digest = Some(digest);
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::pieces::Pieces;
    use super::super::read::StoredCode;
    use super::super::read::tests::InMemory;
    use super::*;
    use faasw_abi::pages::PageRange;

    /// Holds this artifact, unless it is damaged; compiles to another one.
    #[derive(Debug, Default)]
    struct Disk {
        artifact: Vec<u8>,
        is_damaged: bool,
        reads: AtomicUsize,
    }

    impl CodeSource for Disk {
        fn read(&self, first: Option<PageSet>) -> LoadFuture<'_, Option<LoadedCode>> {
            Box::pin(async move {
                self.reads.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                let sound = !self.is_damaged;
                sound.then(|| {
                    let artifact = self.artifact.clone();
                    let (bytes, pieces) = (artifact.len() as u64, Pieces::of(&artifact));
                    let stored = StoredCode::new(Box::new(InMemory(artifact)), bytes, pieces);
                    stored.unwrap().load(first.as_ref()).unwrap()
                })
            })
        }

        fn compile(&self) -> LoadFuture<'_, Result<Arc<Code>, String>> {
            Box::pin(async {
                match self.artifact.as_slice() {
                    b"nothing" => Err("no module".to_owned()),
                    _ => Ok(Arc::new(Code::copy_of(b"compiled again").unwrap())),
                }
            })
        }
    }

    fn disk(artifact: &[u8], is_damaged: bool) -> Arc<Disk> {
        Arc::new(Disk {
            artifact: artifact.to_vec(),
            is_damaged,
            reads: AtomicUsize::new(0),
        })
    }

    #[tokio::test]
    async fn code_is_read_once_for_all_callers_and_leaves_memory_with_the_last() {
        let disk = disk(b"code", false);
        let known = Code::copy_of(b"code").unwrap().digest().unwrap();
        let kept = CodeHandle::stored(disk.clone(), 4, known, None);
        for round in 1..4 {
            let (one, other, third) = tokio::join!(kept.get(), kept.get(), kept.get());
            let one = one.unwrap();
            assert!(Arc::ptr_eq(&one, &other.unwrap()) && Arc::ptr_eq(&one, &third.unwrap()));
            assert_eq!(disk.reads.load(Ordering::Relaxed), round);
            assert_eq!(one.read().unwrap(), b"code");
            drop(one);
            assert!(kept.in_memory().is_none());
            assert_eq!(kept.digest().unwrap(), known);
        }
    }

    #[tokio::test]
    async fn unstored_code_stays_in_memory_until_it_is_stored() {
        let code = Arc::new(Code::copy_of(b"code").unwrap());
        let kept = CodeHandle::unstored(code);
        assert!(!kept.can_be_evicted() && kept.in_memory().is_some());
        assert_eq!(kept.known_digest(), None);
        let known = Code::copy_of(b"code").unwrap().digest().unwrap();
        kept.is_stored_at(disk(b"code", false), known);
        assert!(kept.can_be_evicted() && kept.in_memory().is_none());
        assert_eq!(kept.get().await.unwrap().read().unwrap(), b"code");
    }

    #[tokio::test]
    async fn damaged_code_is_compiled_again_and_identified_by_its_new_digest() {
        let known = Code::copy_of(b"code").unwrap().digest().unwrap();
        let kept = CodeHandle::stored(disk(b"code", true), 4, known, None);
        let code = kept.get().await.unwrap();
        assert_eq!(code.read().unwrap(), b"compiled again");
        assert_eq!(
            (kept.bytes(), kept.digest().unwrap()),
            (14, code.digest().unwrap())
        );
        let gone = CodeHandle::stored(disk(b"nothing", true), 4, known, None);
        let error = gone.get().await.unwrap_err();
        assert!(error.to_string().contains("no module"), "{error}");
    }

    /// Code of `bytes` bytes in which no two pages are equal.
    fn large(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 4096 + at % 251) as u8).collect()
    }

    #[tokio::test]
    async fn a_caller_whose_guests_can_wait_gets_code_before_it_is_complete() {
        let artifact = large(4 << 20);
        let disk = disk(&artifact, false);
        let known = Code::copy_of(&artifact).unwrap().digest().unwrap();
        let kept = Arc::new(CodeHandle::stored(disk.clone(), 4 << 20, known, None));
        let first = PageSet::from(PageRange::of_bytes(1 << 20, 2 << 20));
        let (code, rest) = kept.get_in_parts(Some(first.clone())).await.unwrap();
        let rest = rest.unwrap();
        assert!(!code.progress().is_fully_loaded() && kept.in_memory().is_none());
        assert_eq!(kept.digest().unwrap(), known);
        let other = {
            let (kept, first) = (kept.clone(), first.clone());
            tokio::spawn(async move { kept.get_in_parts(Some(first)).await.unwrap() })
        };
        tokio::task::yield_now().await;
        while rest.fill_next().unwrap() {
            assert!(!other.is_finished());
        }
        rest.finish().unwrap();
        let (other, none) = other.await.unwrap();
        assert!(Arc::ptr_eq(&code, &other) && none.is_none());
        assert!(code.progress().is_fully_loaded() && code.read().unwrap() == artifact);
        assert_eq!(disk.reads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn an_abandoned_read_is_repeated_and_damaged_code_is_not_read_again() {
        let artifact = large(4 << 20);
        let disk = disk(&artifact, false);
        let known = Code::copy_of(&artifact).unwrap().digest().unwrap();
        let kept = Arc::new(CodeHandle::stored(disk.clone(), 4 << 20, known, None));
        let first = Some(PageSet::from(PageRange::around(0, 1)));
        let (gone, rest) = kept.get_in_parts(first.clone()).await.unwrap();
        let other = {
            let kept = kept.clone();
            tokio::spawn(async move { kept.get().await.unwrap() })
        };
        tokio::task::yield_now().await;
        drop(rest);
        let other = other.await.unwrap();
        assert!(
            gone.progress().has_failed()
                && other.progress().is_fully_loaded()
                && !Arc::ptr_eq(&gone, &other)
        );
        kept.mark_damaged(&gone);
        assert!(
            !kept.location.lock().is_damaged,
            "another has read it since"
        );
        kept.mark_damaged(&other);
        drop((gone, other));
        let (code, rest) = kept.get_in_parts(first).await.unwrap();
        assert!(rest.is_none());
        assert_eq!(code.read().unwrap(), b"compiled again");
        assert_eq!(disk.reads.load(Ordering::Relaxed), 2);
        // The compiled code has replaced the damaged code.
        drop(code);
        let code = kept.get().await.unwrap();
        assert!(code.read().unwrap() == artifact);
    }
}
