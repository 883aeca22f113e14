//! A server for outbound calls of clients in scripts.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::LazyLock,
    thread,
};

use faasw::{FunctionOptions, Node, OutboundGrant, OutboundOptions};

use super::{Bench, limits};

/// A node whose functions may call this machine.
pub static REACHING: LazyLock<Bench> = LazyLock::new(|| {
    super::at_end(|| REACHING.end());
    let options = OutboundOptions::default().allow_private("127.0.0.0/8".parse().unwrap());
    Bench::start(Node::builder().outbound(options), limits())
});

/// Returns options that grant calls to this server.
pub fn granted(address: SocketAddr) -> FunctionOptions {
    let grant = OutboundGrant::new(format!("http://{address}")).unwrap();
    FunctionOptions::default().allow_outbound(grant)
}

/// A request that a server received.
#[derive(Debug)]
pub struct Received {
    pub method: String,
    pub path: String,
    pub body: String,
}

/// A response, whose status is 200.
#[derive(Debug)]
pub struct Reply {
    /// The header fields, each with its line end.
    pub fields: &'static str,
    pub body: String,
}

/// Starts a server for the rest of the process, whose connections stay open.
pub fn serve(reply: fn(&Received) -> Reply) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || converse(stream, reply));
        }
    });
    address
}

/// Answers the requests of a connection until the client closes it.
fn converse(stream: TcpStream, reply: fn(&Received) -> Reply) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let mut length = 0;
        loop {
            let mut field = String::new();
            reader.read_line(&mut field)?;
            let field = field.trim_end().to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if field.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let Reply { fields, body } = reply(&Received { method, path, body });
        let size = body.len();
        write!(
            writer,
            "HTTP/1.1 200 OK\r\n{fields}Content-Length: {size}\r\n\r\n{body}"
        )?;
    }
}
