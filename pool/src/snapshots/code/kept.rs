//! Code that may have left memory: it is there as long as a seed, an instance that is being made,
//! or whoever compiled it has it, and is brought back when it is needed next.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faasw_abi::pages::PageSet;
use faasw_common::text::Line;
use rustix::io::Errno;

use super::{Code, CodeDigest, CodeFilling, ReadCode};
use crate::error::PlatformError;

/// What bringing code back comes to.
pub type Bringing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where code is that is not in memory.
pub trait CodeSource: fmt::Debug + Send + Sync {
    /// Reads it, proven to be what was stored; nothing where it is missing or damaged. Where it is
    /// told what of it is used `first`, the rest may come later.
    fn read(&self, first: Option<PageSet>) -> Bringing<'_, Option<ReadCode>>;

    /// Has it compiled again; that need not give the same code.
    ///
    /// # Errors
    /// Why it could not be.
    fn compile(&self) -> Bringing<'_, Result<Arc<Code>, String>>;
}

/// What a function has of its code, wherever that is.
#[derive(Debug)]
pub struct KeptCode {
    place: Mutex<Place>,
    tells_state: bool,
    /// Held by who brings it: others wait for that.
    bringing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Place {
    /// As long as somebody has it.
    here: Weak<Code>,
    /// As long as it is nowhere else.
    stays: Option<Arc<Code>>,
    source: Option<Arc<dyn CodeSource>>,
    bytes: u64,
    digest: Option<CodeDigest>,
    /// A part of what is stored was found to be damaged behind whoever had read it.
    is_damaged: bool,
}

impl KeptCode {
    /// Code that is nowhere but in memory, and stays there.
    #[must_use]
    pub fn here(code: Arc<Code>) -> Self {
        Self {
            tells_state: code.tells_state(),
            place: Mutex::new(Place {
                here: Arc::downgrade(&code),
                bytes: code.bytes(),
                digest: None,
                stays: Some(code),
                source: None,
                is_damaged: false,
            }),
            bringing: tokio::sync::Mutex::default(),
        }
    }

    /// Code that is stored, and in memory as long as somebody has it there.
    #[must_use]
    pub fn stored(
        source: Arc<dyn CodeSource>,
        bytes: u64,
        digest: CodeDigest,
        here: Option<&Arc<Code>>,
    ) -> Self {
        Self {
            tells_state: false,
            place: Mutex::new(Place {
                here: here.map(Arc::downgrade).unwrap_or_default(),
                stays: None,
                source: Some(source),
                bytes,
                digest: Some(digest),
                is_damaged: false,
            }),
            bringing: tokio::sync::Mutex::default(),
        }
    }

    /// It is stored by now, so that it may leave memory when nobody has it.
    pub fn is_stored_at(&self, source: Arc<dyn CodeSource>, digest: CodeDigest) {
        let stayed = {
            let mut place = self.place();
            place.source = Some(source);
            place.digest = Some(digest);
            place.is_damaged = false;
            place.stays.take()
        };
        // It may be unmapped by that.
        drop(stayed);
    }

    /// Whether it may leave memory.
    #[must_use]
    pub fn may_leave(&self) -> bool {
        self.place().stays.is_none()
    }

    /// The code, if all of it is in memory.
    #[must_use]
    pub fn in_memory(&self) -> Option<Arc<Code>> {
        self.coming().filter(|code| code.is_whole())
    }

    /// The code, if it is in memory or on its way there.
    fn coming(&self) -> Option<Arc<Code>> {
        self.place().here.upgrade()
    }

    /// What is stored was found to be damaged by whoever read this `code` of it: it is compiled
    /// again when it is needed next. Nothing where other code is in its place by now: what was
    /// compiled since, or what another reads, who finds it, too.
    pub fn found_damaged(&self, code: &Arc<Code>) {
        let mut place = self.place();
        place.is_damaged |= std::ptr::eq(place.here.as_ptr(), Arc::as_ptr(code));
    }

    /// The code; brought back once, however many want it, if it is not in memory.
    ///
    /// # Errors
    /// When it can neither be read nor compiled again.
    pub async fn get(&self) -> Result<Arc<Code>, PlatformError> {
        let (code, rest) = self.get_in_parts(None).await?;
        // Where nobody is told what is used first, all of it is read.
        debug_assert!(rest.is_none());
        Ok(code)
    }

    /// The same for somebody who can have what it is used by wait: with what is used `first`, the
    /// rest may have to be brought yet, by whoever gets what brings it.
    ///
    /// # Errors
    /// As [`KeptCode::get`].
    pub async fn get_in_parts(
        &self,
        first: Option<PageSet>,
    ) -> Result<(Arc<Code>, Option<CodeFilling>), PlatformError> {
        if let Some(code) = self.in_memory() {
            return Ok((code, None));
        }
        let _bringing = self.bringing.lock().await;
        // What another is bringing is waited for; unless they give up.
        if let Some(code) = self.coming()
            && code.whole().await
        {
            return Ok((code, None));
        }
        let (source, is_damaged) = {
            let place = self.place();
            (place.source.clone(), place.is_damaged)
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
            Some(ReadCode { code, rest }) => (Arc::new(code), rest),
            None => {
                let compiled = source.compile().await;
                let code =
                    compiled.map_err(|why| PlatformError::CodeGone(Line(why).to_string()))?;
                // It was stored anew, or is found to be damaged once more.
                self.place().is_damaged = false;
                (code, None)
            }
        };
        // It may be other code than before; where it was compiled, all of it is looked at.
        let digest = {
            let code = code.clone();
            tokio::task::spawn_blocking(move || code.digest()).await
        };
        let digest = digest.ok().and_then(Result::ok);
        let mut place = self.place();
        place.here = Arc::downgrade(&code);
        place.bytes = code.bytes();
        place.digest = digest;
        drop(place);
        Ok((code, rest))
    }

    /// Size of the artifact, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.place().bytes
    }

    /// Whether it was made to tell what it has become, and does nothing else.
    #[must_use]
    pub fn tells_state(&self) -> bool {
        self.tells_state
    }

    /// What it is known by, as far as that was computed.
    #[must_use]
    pub fn known_digest(&self) -> Option<CodeDigest> {
        self.place().digest
    }

    /// What it is known by. Where that was not computed yet it is now, which blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn digest(&self) -> Result<CodeDigest, Errno> {
        let here = {
            let place = self.place();
            match (place.digest, place.here.upgrade()) {
                (Some(digest), _) => return Ok(digest),
                (None, Some(here)) => here,
                (None, None) => return Err(Errno::NOENT),
            }
        };
        let digest = here.digest()?;
        self.place().digest = Some(digest);
        Ok(digest)
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // It changes by single words: a panic leaves nothing half done.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::pieces::Pieces;
    use super::super::read::Stored;
    use super::super::read::tests::InMemory;
    use super::*;
    use faasw_abi::pages::PageRange;

    /// Has this artifact, unless it is damaged; compiles to another one.
    #[derive(Debug, Default)]
    struct Disk {
        artifact: Vec<u8>,
        is_damaged: bool,
        reads: AtomicUsize,
    }

    impl CodeSource for Disk {
        fn read(&self, first: Option<PageSet>) -> Bringing<'_, Option<ReadCode>> {
            Box::pin(async move {
                self.reads.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                let sound = !self.is_damaged;
                sound.then(|| {
                    let artifact = self.artifact.clone();
                    let (bytes, pieces) = (artifact.len() as u64, Pieces::of(&artifact));
                    let stored = Stored::new(Box::new(InMemory(artifact)), bytes, pieces);
                    stored.unwrap().load(first.as_ref()).unwrap()
                })
            })
        }

        fn compile(&self) -> Bringing<'_, Result<Arc<Code>, String>> {
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
    async fn code_is_read_once_for_all_who_want_it_and_leaves_with_the_last() {
        let disk = disk(b"code", false);
        let known = Code::copy_of(b"code").unwrap().digest().unwrap();
        let kept = KeptCode::stored(disk.clone(), 4, known, None);
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
    async fn what_is_nowhere_else_stays_until_it_is_stored() {
        let code = Arc::new(Code::copy_of(b"code").unwrap());
        let kept = KeptCode::here(code);
        assert!(!kept.may_leave() && kept.in_memory().is_some());
        assert_eq!(kept.known_digest(), None);
        let known = Code::copy_of(b"code").unwrap().digest().unwrap();
        kept.is_stored_at(disk(b"code", false), known);
        assert!(kept.may_leave() && kept.in_memory().is_none());
        assert_eq!(kept.get().await.unwrap().read().unwrap(), b"code");
    }

    #[tokio::test]
    async fn what_is_damaged_is_compiled_again_and_known_as_that() {
        let known = Code::copy_of(b"code").unwrap().digest().unwrap();
        let kept = KeptCode::stored(disk(b"code", true), 4, known, None);
        let code = kept.get().await.unwrap();
        assert_eq!(code.read().unwrap(), b"compiled again");
        assert_eq!(
            (kept.bytes(), kept.digest().unwrap()),
            (14, code.digest().unwrap())
        );
        let gone = KeptCode::stored(disk(b"nothing", true), 4, known, None);
        let error = gone.get().await.unwrap_err();
        assert!(error.to_string().contains("no module"), "{error}");
    }

    /// Code of so many bytes, no two pages of which are the same.
    fn large(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 4096 + at % 251) as u8).collect()
    }

    #[tokio::test]
    async fn who_can_have_guests_wait_gets_code_before_all_others() {
        let artifact = large(4 << 20);
        let disk = disk(&artifact, false);
        let known = Code::copy_of(&artifact).unwrap().digest().unwrap();
        let kept = Arc::new(KeptCode::stored(disk.clone(), 4 << 20, known, None));
        let first = PageSet::from(PageRange::of_bytes(1 << 20, 2 << 20));
        let (code, rest) = kept.get_in_parts(Some(first.clone())).await.unwrap();
        let rest = rest.unwrap();
        assert!(!code.is_whole() && kept.in_memory().is_none());
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
        assert!(code.is_whole() && code.read().unwrap() == artifact);
        assert_eq!(disk.reads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_one_gives_up_another_reads_and_what_was_found_damaged_nobody() {
        let artifact = large(4 << 20);
        let disk = disk(&artifact, false);
        let known = Code::copy_of(&artifact).unwrap().digest().unwrap();
        let kept = Arc::new(KeptCode::stored(disk.clone(), 4 << 20, known, None));
        let first = Some(PageSet::from(PageRange::around(0, 1)));
        let (gone, rest) = kept.get_in_parts(first.clone()).await.unwrap();
        let other = {
            let kept = kept.clone();
            tokio::spawn(async move { kept.get().await.unwrap() })
        };
        tokio::task::yield_now().await;
        drop(rest);
        let other = other.await.unwrap();
        assert!(gone.has_failed() && other.is_whole() && !Arc::ptr_eq(&gone, &other));
        kept.found_damaged(&gone);
        assert!(!kept.place().is_damaged, "another has read it since");
        kept.found_damaged(&other);
        drop((gone, other));
        let (code, rest) = kept.get_in_parts(first).await.unwrap();
        assert!(rest.is_none());
        assert_eq!(code.read().unwrap(), b"compiled again");
        assert_eq!(disk.reads.load(Ordering::Relaxed), 2);
        // What was compiled is stored in its place.
        drop(code);
        let code = kept.get().await.unwrap();
        assert!(code.read().unwrap() == artifact);
    }
}
