//! Code that may have left memory: it is there as long as a seed, an instance that is being made,
//! or whoever compiled it has it, and is brought back when it is needed next.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faasw_text::Line;
use rustix::io::Errno;

use super::{Code, CodeDigest};
use crate::error::PlatformError;

/// What bringing code back comes to.
pub type Bringing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where code is that is not in memory.
pub trait CodeSource: fmt::Debug + Send + Sync {
    /// Reads it, proven to be what was stored; nothing where it is missing or damaged.
    fn read(&self) -> Bringing<'_, Option<Code>>;

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

    /// The code, if it is in memory.
    #[must_use]
    pub fn in_memory(&self) -> Option<Arc<Code>> {
        self.place().here.upgrade()
    }

    /// The code; brought back once, however many want it, if it is not in memory.
    ///
    /// # Errors
    /// When it can neither be read nor compiled again.
    pub async fn get(&self) -> Result<Arc<Code>, PlatformError> {
        if let Some(code) = self.in_memory() {
            return Ok(code);
        }
        let _bringing = self.bringing.lock().await;
        if let Some(code) = self.in_memory() {
            return Ok(code);
        }
        let source = self.place().source.clone();
        let Some(source) = source else {
            return Err(PlatformError::CodeGone("it is nowhere".to_owned()));
        };
        let code = match source.read().await {
            Some(code) => Arc::new(code),
            None => {
                let compiled = source.compile().await;
                compiled.map_err(|why| PlatformError::CodeGone(Line(why).to_string()))?
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
        Ok(code)
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

    use super::*;

    /// Has this artifact, unless it is damaged; compiles to another one.
    #[derive(Debug, Default)]
    struct Disk {
        artifact: Vec<u8>,
        is_damaged: bool,
        reads: AtomicUsize,
    }

    impl CodeSource for Disk {
        fn read(&self) -> Bringing<'_, Option<Code>> {
            Box::pin(async {
                self.reads.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                let sound = !self.is_damaged;
                sound.then(|| Code::copy_of(&self.artifact).unwrap())
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
}
