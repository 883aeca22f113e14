//! Name servers.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use faasw_abi::outgoing::FailureCode as Code;
use faasw_egress::client::ConnectorOptions;
use faasw_egress::frames::WorkerOptions;
use faasw_egress_policy::AllowPrivate;

use super::{Egress, head};

/// Record types.
pub const A: u16 = 1;
pub const AAAA: u16 = 28;

/// A name server's answer: records (type, time to live, bytes), and a response code.
pub type Answer = (Vec<(u16, u32, Vec<u8>)>, u8);

/// A name server that records the queries that it has received.
pub struct Names {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<(String, u16)>>>,
}

impl Names {
    /// `answer` receives a name, a type, and how often this pair was queried before. If it returns
    /// `None`, the server is silent.
    pub fn new(answer: impl Fn(&str, u16, usize) -> Option<Answer> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let (name, kind, end) = question(&bytes[..length]);
                let before = {
                    let mut noted = noted.lock().unwrap();
                    let before = noted
                        .iter()
                        .filter(|seen| **seen == (name.clone(), kind))
                        .count();
                    noted.push((name.clone(), kind));
                    before
                };
                if let Some((records, rcode)) = answer(&name, kind, before) {
                    let reply = reply(&bytes[..end], &records, rcode);
                    socket.send_to(&reply, from).unwrap();
                }
            }
        });
        Self { address, asked }
    }

    pub fn options(&self, private: &[&str]) -> ConnectorOptions {
        ConnectorOptions {
            servers: vec![self.address],
            private: private
                .iter()
                .map(|it| AllowPrivate::network(it).unwrap())
                .collect(),
            ..ConnectorOptions::default()
        }
    }

    pub fn egress(&self, private: &[&str]) -> Egress {
        Egress::with(&self.options(private), WorkerOptions::default(), &[])
    }

    pub fn count(&self, kind: u16) -> usize {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, asked)| *asked == kind)
            .count()
    }
}

/// Returns the name and type of the question, and where it ends.
fn question(bytes: &[u8]) -> (String, u16, usize) {
    let mut labels = Vec::new();
    let mut at = 12;
    while bytes[at] != 0 {
        let end = at + 1 + usize::from(bytes[at]);
        labels.push(String::from_utf8(bytes[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    let kind = u16::from_be_bytes([bytes[at + 1], bytes[at + 2]]);
    (labels.join("."), kind, at + 5)
}

fn reply(question: &[u8], records: &[(u16, u32, Vec<u8>)], rcode: u8) -> Vec<u8> {
    let mut reply = question.to_vec();
    reply[2..4].copy_from_slice(&[0x81, 0x80 | rcode]);
    let count = u16::try_from(records.len()).unwrap().to_be_bytes();
    reply[6..12].copy_from_slice(&[count[0], count[1], 0, 0, 0, 0]);
    for (kind, ttl, bytes) in records {
        reply.extend_from_slice(&[0xc0, 12]);
        reply.extend_from_slice(&kind.to_be_bytes());
        reply.extend_from_slice(&[0, 1]);
        reply.extend_from_slice(&ttl.to_be_bytes());
        reply.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_be_bytes());
        reply.extend_from_slice(bytes);
    }
    reply
}

pub fn a(address: &str, ttl: u32) -> (u16, u32, Vec<u8>) {
    let address: Ipv4Addr = address.parse().unwrap();
    (A, ttl, address.octets().to_vec())
}

pub const OK: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";

pub async fn get(egress: &Egress, name: &str, port: u16) -> Option<Code> {
    let outcome = egress
        .call(&head("GET", format!("{name}:{port}"), "/", &[]), b"")
        .await;
    outcome.failure()
}
