//! The signals of `up`, `serve` and `pod`.

use faasw::Node;
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
};

use super::exit::Exit;

/// SIGINT and SIGTERM: both ask the node to stop. What comes while nobody waits for it is kept.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Takes them from now on, while there is one thread and no runtime. The first process of a
    /// container has only such signals as it takes: until then the system forgets any other, and
    /// whoever has sent it waits in vain for the node to stop.
    ///
    /// # Errors
    /// The system's.
    pub fn begin() -> Result<Self, Exit> {
        // Who is told is known from here on; the runtime that the node has is the one that tells.
        let passing = Builder::new_current_thread().enable_io().build();
        let passing = passing.map_err(|error| refused(&error))?;
        passing.block_on(async {
            Ok(Self {
                interrupt: listen(SignalKind::interrupt())?,
                terminate: listen(SignalKind::terminate())?,
            })
        })
    }

    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// SIGHUP: asks for certificates to be read again. Taken only where there are some:
/// else it ends the node, as it does any program whose terminal goes away.
pub struct Hangup(Signal);

impl Hangup {
    pub fn new() -> Result<Self, Exit> {
        listen(SignalKind::hangup()).map(Self)
    }

    /// Reads the certificates whenever asked, for as long as the program runs.
    pub fn reload(mut self, node: Node) {
        tokio::spawn(async move {
            while self.0.recv().await.is_some() {
                match node.reload_certificates().await {
                    Ok(()) => tracing::info!(
                        target: "faasw::progress", "certificates were read again and are in use"
                    ),
                    Err(error) => tracing::error!(
                        %error, "certificates were not read again; those before stay in use"
                    ),
                }
            }
        });
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Exit> {
    signal(kind).map_err(|error| refused(&error))
}

fn refused(error: &std::io::Error) -> Exit {
    Exit::failure(format_args!("signals cannot be had: {error}"))
}
