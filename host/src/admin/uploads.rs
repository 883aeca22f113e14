//! Limits how many uploads to the admin API are in memory at once.
//!
//! A client sends a whole module before the node looks at any of it, and the module then waits for
//! its deployment. Scripts of one user may do so hundreds of times at once. An upload beyond the
//! limit is rejected before it is read.

use std::sync::Arc;

use faasw_client::Problem;
use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of concurrent uploads, from their first byte until they are processed: as many as
/// deployments, most of which may wait for their own initialisations.
const UPLOADS: usize = 64;

/// Limit of the bytes of all uploads, as a multiple of the largest upload.
const LARGEST: usize = 2;

/// Bytes of one unit in which uploads are counted.
const UNIT: usize = 1 << 10;

/// Seconds after which a rejected upload may be retried: a deployment takes about that long, or
/// longer.
const RETRY_AFTER: u32 = 1;

/// The uploads in progress and the bytes that they may need.
#[derive(Clone, Debug)]
pub(super) struct UploadLimiter {
    places: Arc<Semaphore>,
    units: Arc<Semaphore>,
    units_max: usize,
}

/// An upload in progress. Dropping it releases its slot and its bytes.
#[derive(Debug)]
pub(super) struct UploadPermit {
    _place: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

impl UploadLimiter {
    /// Returns a limiter without uploads. One upload has at most `largest` bytes.
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

    /// Reserves a slot and memory for an upload of at most `bytes` bytes.
    ///
    /// # Errors
    /// Returns a problem with status 503 if too many uploads, or too many bytes, are in progress.
    pub(super) fn begin(&self, bytes: usize) -> Result<UploadPermit, Problem> {
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| {
            too_many(format!(
                "{UPLOADS} uploads are under way, which is the limit"
            ))
        })?;
        let wanted = u32::try_from(units(bytes)).unwrap_or(u32::MAX);
        let units = self.units.clone().try_acquire_many_owned(wanted);
        let units = units.map_err(|_| {
            let left = self.units.available_permits().saturating_mul(UNIT);
            let all = self.units_max.saturating_mul(UNIT);
            too_many(format!(
                "uploads of {} bytes are under way; the limit is {all}, and this one may have \
                 {bytes}",
                all.saturating_sub(left)
            ))
        })?;
        Ok(UploadPermit {
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
    fn concurrent_uploads_are_limited_in_number_and_bytes() {
        let uploads = UploadLimiter::new(4096);
        let mut all: Vec<_> = (0..UPLOADS).map(|_| uploads.begin(0).unwrap()).collect();
        let refused = uploads.begin(0).unwrap_err();
        assert_eq!(refused.retry_after, Some(RETRY_AFTER));
        assert!(refused.detail.contains("64 uploads"), "{}", refused.detail);
        all.clear();
        let first = uploads.begin(4096).unwrap();
        let _second = uploads.begin(4000).unwrap();
        let refused = uploads.begin(1).unwrap_err();
        assert!(refused.detail.contains("8192"), "{}", refused.detail);
        // The rejected upload has kept no slot.
        drop(first);
        assert!(uploads.begin(4096).is_ok());
    }
}
