//! `--watch`: follows a tag.

use std::time::Duration;

use faasw_client::Digest;
use faasw_oci::{Registry, reference::TagOrDigest};
use tokio::time::sleep;

use super::target::Target;
use crate::{
    exit::Exit,
    output::{duration, say},
};

/// Maximum pause after failures of a registry or a node, unless the interval is longer.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Polls the tag and deploys each new digest. Reports errors and retries, with a longer pause after
/// each consecutive error.
pub(super) async fn follow(
    mut target: Target,
    registry: Registry,
    mut deployed: Digest,
    every: Duration,
) -> Result<(), Exit> {
    let mut registry = Some(registry);
    let mut pause = every;
    say(format_args!(
        "{}: following {}",
        target.name, target.reference
    ));
    loop {
        sleep(pause).await;
        match poll_tag(&mut target, &mut registry, deployed).await {
            Ok(digest) => {
                deployed = digest;
                pause = every;
            }
            Err(exit) => {
                // The user may have logged in again, so the credential is read anew.
                registry = None;
                pause = next_pause(pause, every);
                say(format_args!(
                    "{}: {exit}; next attempt in {}",
                    target.name,
                    duration(pause)
                ));
            }
        }
    }
}

/// Deploys the artifact of the tag if it is new. Returns its digest.
async fn poll_tag(
    target: &mut Target,
    kept: &mut Option<Registry>,
    deployed: Digest,
) -> Result<Digest, Exit> {
    let registry = match kept {
        Some(registry) => registry,
        None => kept.insert(target.registry().await?),
    };
    let found = registry.resolve(target.reference.tag_or_digest()).await?;
    if found == deployed {
        return Ok(found);
    }
    // The digest that was found is deployed. If the tag has changed since, the next poll notices.
    target.deploy(registry, &TagOrDigest::Digest(found)).await
}

fn next_pause(pause: Duration, every: Duration) -> Duration {
    pause.saturating_mul(2).min(PAUSE_MAX.max(every))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_maximum() {
        let seconds = Duration::from_secs;
        assert_eq!(next_pause(seconds(30), seconds(30)), seconds(60));
        assert_eq!(next_pause(seconds(200), seconds(30)), PAUSE_MAX);
        assert_eq!(next_pause(seconds(3600), seconds(3600)), seconds(3600));
    }
}
