//! How much is sent to the admin API at once, and lies in memory until what it is for is done.
//!
//! Whoever deploys sends all of a module before anything of it is looked at, and then waits for its
//! turn. One user's scripts may do so hundreds of times at once; one upload too many hears so
//! before it is read.

use std::sync::Arc;

use faasw_client::Problem;
use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Uploads that are under way at once, from their first byte until what they are for is done: as
/// many as deployments, most of which may wait for their own initialisations.
const UPLOADS: usize = 64;

/// How many of the largest there are in what all may come to.
const LARGEST: usize = 2;

/// What bytes are counted in.
const UNIT: usize = 1 << 10;

/// Seconds after which one too many may be sent again: a deployment takes about that, or longer.
const RETRY_AFTER: u32 = 1;

/// Uploads under way, and the bytes that they may come to.
#[derive(Clone, Debug)]
pub(super) struct Uploads {
    places: Arc<Semaphore>,
    units: Arc<Semaphore>,
    units_max: usize,
}

/// One of them. Dropping it gives its place back.
#[derive(Debug)]
pub(super) struct UnderWay {
    _place: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

impl Uploads {
    /// None yet, of which each has at most `largest` bytes.
    pub(super) fn new(largest: usize) -> Self {
        let units_max = units(largest)
            .saturating_mul(LARGEST)
            .min(Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(UPLOADS)),
            units: Arc::new(Semaphore::new(units_max)),
            units_max,
        }
    }

    /// A place for one that may come to so many bytes.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn begin(&self, bytes: usize) -> Result<UnderWay, Problem> {
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| {
            too_many(format!(
                "{UPLOADS} uploads are under way, and no more are taken at once"
            ))
        })?;
        let wanted = u32::try_from(units(bytes)).unwrap_or(u32::MAX);
        let units = self.units.clone().try_acquire_many_owned(wanted);
        let units = units.map_err(|_| {
            let left = self.units.available_permits().saturating_mul(UNIT);
            let all = self.units_max.saturating_mul(UNIT);
            too_many(format!(
                "uploads of {} bytes are under way; at most {all} are taken at once, and this one \
                 may come to {bytes}",
                all.saturating_sub(left)
            ))
        })?;
        Ok(UnderWay {
            _place: place,
            _units: units,
        })
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

fn too_many(detail: String) -> Problem {
    let mut problem = Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too-many-uploads",
        "Too much is being sent at once",
        detail,
    );
    problem.retry_after = Some(RETRY_AFTER);
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_end_to_how_many_there_are_and_to_their_bytes() {
        let uploads = Uploads::new(4096);
        let mut all: Vec<_> = (0..UPLOADS).map(|_| uploads.begin(0).unwrap()).collect();
        let refused = uploads.begin(0).unwrap_err();
        assert_eq!(refused.retry_after, Some(RETRY_AFTER));
        assert!(refused.detail.contains("64 uploads"), "{}", refused.detail);
        all.clear();
        let first = uploads.begin(4096).unwrap();
        let _second = uploads.begin(4000).unwrap();
        let refused = uploads.begin(1).unwrap_err();
        assert!(refused.detail.contains("8192"), "{}", refused.detail);
        // What was refused has kept no place.
        drop(first);
        assert!(uploads.begin(4096).is_ok());
    }
}
