//! A version takes another one's place.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{core::Core, function::Function};
use crate::backend::FunctionVersion;

/// How long a version that is new waits at most for its instances before it takes another one's
/// place.
pub(super) const OF_A_DEPLOYMENT: Duration = Duration::from_secs(10);
/// The same for one that was there before: whoever goes back to it is in a hurry.
pub(super) const OF_A_ROLLBACK: Duration = Duration::from_secs(1);

impl Core {
    /// Waits a while until a version that is to take another one's place has the instances that
    /// are parked ahead of requests: that one has its own until then. A node that ends waits for
    /// nothing.
    pub(super) async fn provide_before(&self, function: &Function, most: Duration) {
        if let Some(made) = self.is_waited_for(function) {
            tokio::select! {
                // What is not there by then comes later.
                _ = timeout(most, made.provided()) => {}
                () = self.ended() => {}
            }
        }
    }

    /// The version, if it is to have instances before it takes another one's place.
    fn is_waited_for(&self, function: &Function) -> Option<Arc<dyn FunctionVersion>> {
        let before = self.function(function.name.as_str());
        let before = before.and_then(|before| before.made.get());
        before.and(function.made.get())
    }

    /// Makes a version the function of its name, as [`Core::replace`] does, has instances of it
    /// parked, and the images of what it replaces go.
    pub(super) async fn put_in_place(&self, function: Function) -> Arc<Function> {
        let before = self.function(function.name.as_str());
        let function = self.replace(function);
        if let Some(made) = function.made.get() {
            made.provide();
        }
        let now = function.record.image(&function.name);
        let before = before.map(|before| before.record.image(&before.name));
        let gone = before.into_iter().filter(|before| *before != now).collect();
        self.images_serve(Some(&function), gone).await;
        function
    }
}
