//! The signals of `up`, `serve` and `pod`.

use faasw::Node;
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
};

use super::exit::Exit;

/// SIGINT and SIGTERM, which ask the node to stop. Signals that arrive while no task waits are
/// kept.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Starts to handle the signals, while there is one thread and no runtime. The first process of
    /// a container receives only signals that it handles. The kernel discards the others, so the
    /// sender of an early signal would wait in vain for the node to stop.
    ///
    /// # Errors
    /// Returns an error if a handler cannot be installed.
    pub fn begin() -> Result<Self, Exit> {
        // This runtime only registers the handlers. The node's runtime delivers the signals later.
        let passing = Builder::new_current_thread().enable_io().build();
        let passing = passing.map_err(|error| refused(&error))?;
        passing.block_on(async {
            Ok(Self {
                interrupt: listen(SignalKind::interrupt())?,
                terminate: listen(SignalKind::terminate())?,
            })
        })
    }

    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// SIGHUP, which asks for certificates to be read again. It is handled only if there are
/// certificates. Otherwise it ends the node, like any program whose terminal goes away.
pub struct Hangup(Signal);

impl Hangup {
    pub fn new() -> Result<Self, Exit> {
        listen(SignalKind::hangup()).map(Self)
    }

    /// Reads the certificates at each signal, for as long as the program runs.
    pub fn reload(mut self, node: Node) {
        tokio::spawn(async move {
            while self.0.recv().await.is_some() {
                match node.reload_certificates().await {
                    Ok(()) => tracing::info!(
                        target: "faasw::progress", "certificates reloaded"
                    ),
                    Err(error) => tracing::error!(
                        %error, "certificates not reloaded; the previous ones stay in use"
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
    Exit::failure(format_args!("cannot handle signals: {error}"))
}
