//! A proxy on a socket that is open already.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::IntoRawFd as _,
    sync::Arc,
};

use async_trait::async_trait;
use pingora::{
    proxy::{HttpProxy, http_proxy_service},
    server::{ListenFds, ShutdownWatch, configuration::ServerConf},
    services::{Service, listening},
};

use crate::Edge;

/// A pingora service that serves a proxy on a socket of its caller's.
///
/// Left to itself, pingora opens its sockets in the background, where an
/// address that is taken ends only a task and the port that 0 became is nobody's
/// to know. It does take over sockets from the process before it, though, by
/// address: this one is put among them.
pub struct Listening {
    proxy: listening::Service<HttpProxy<Edge>>,
    address: SocketAddr,
    socket: Option<TcpListener>,
}

impl Listening {
    /// Clients can connect from now on; they are served once the server runs.
    ///
    /// # Errors
    /// The socket's.
    pub fn new(
        configuration: &Arc<ServerConf>,
        edge: Edge,
        socket: TcpListener,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let mut proxy = http_proxy_service(configuration, edge);
        proxy.add_tcp(&address.to_string());
        Ok(Self {
            proxy,
            address,
            socket: Some(socket),
        })
    }
}

#[async_trait]
impl Service for Listening {
    async fn start_service(
        &mut self,
        sockets: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_socket: usize,
    ) {
        if let (Some(sockets), Some(socket)) = (&sockets, self.socket.take()) {
            let descriptor = socket.into_raw_fd();
            sockets.lock().add(self.address.to_string(), descriptor);
        }
        self.proxy
            .start_service(sockets, shutdown, listeners_per_socket)
            .await;
    }

    fn name(&self) -> &str {
        "edge-proxy"
    }
}
