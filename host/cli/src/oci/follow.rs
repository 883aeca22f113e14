//! `--watch`: what a tag leads to, over and over.

use std::time::Duration;

use faasw_client::Digest;
use faasw_oci::{Registry, reference::Which};
use tokio::time::sleep;

use super::deploy::Target;
use crate::{
    exit::Exit,
    output::{duration, say},
};

/// How long it takes at most until a registry, or a node, that failed is asked again, unless
/// whoever follows asks more seldom.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Asks where the tag leads as often as is wanted, and deploys what is new. Errors are told, and it
/// is asked again: after a longer time after each.
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
        match look(&mut target, &mut registry, deployed).await {
            Ok(digest) => {
                deployed = digest;
                pause = every;
            }
            Err(exit) => {
                // Whoever it was asked by may have logged in anew.
                registry = None;
                pause = longer(pause, every);
                say(format_args!(
                    "{}: {exit}; it is asked again in {}",
                    target.name,
                    duration(pause)
                ));
            }
        }
    }
}

/// Deploys what the tag leads to if that is new. Says its digest.
async fn look(
    target: &mut Target,
    kept: &mut Option<Registry>,
    deployed: Digest,
) -> Result<Digest, Exit> {
    let registry = match kept {
        Some(registry) => registry,
        None => kept.insert(target.registry().await?),
    };
    let found = registry.resolve(target.reference.which()).await?;
    if found == deployed {
        return Ok(found);
    }
    // What was found, though the tag may lead elsewhere by now: that is for the next time.
    target.deploy(registry, &Which::Digest(found)).await
}

fn longer(pause: Duration, every: Duration) -> Duration {
    pause.saturating_mul(2).min(PAUSE_MAX.max(every))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let seconds = Duration::from_secs;
        assert_eq!(longer(seconds(30), seconds(30)), seconds(60));
        assert_eq!(longer(seconds(200), seconds(30)), PAUSE_MAX);
        assert_eq!(longer(seconds(3600), seconds(3600)), seconds(3600));
    }
}
