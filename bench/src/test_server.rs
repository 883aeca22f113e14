//! A server for tests, which sends prepared answers.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use crate::client::Url;

/// Starts a server that accepts as many connections as there are lists, all at once. It answers the
/// requests of each connection with the answers of its list, in order.
pub fn server(connections: Vec<Vec<&'static str>>) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for answers in connections {
            let (mut stream, _) = listener.accept().unwrap();
            thread::spawn(move || {
                for answer in answers {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        if stream.read_exact(&mut byte).is_err() {
                            return;
                        }
                        request.push(byte[0]);
                    }
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}/").parse().unwrap()
}
