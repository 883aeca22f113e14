//! A function's stores, as its guests use them: by records, on a node that has no microVMs.

use std::{sync::Arc, time::Duration};

use faasw::{FunctionOptions, Limits, Node, NodeBuilder, StartError, StoreName};
use faasw_abi::store::{Answer, LENGTH_BYTES, ListFrom, OWN_STORE, Operation, Request};
use faasw_pool::StoreService;
use tokio::time::Instant;

use crate::{common::FakeBackend, common::give_up, server::Server};

/// The store that the function shares with other functions.
pub const SHARED: &str = "users";

/// A store's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    Done,
    Values(Vec<Option<Vec<u8>>>),
    Exists(bool),
    Keys(Vec<Vec<u8>>, bool),
    Number(i64),
    Denied,
    Failed(String),
}

impl From<Answer<'_>> for StoreReply {
    fn from(answer: Answer<'_>) -> Self {
        let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        match answer {
            Answer::Done => Self::Done,
            Answer::Values(values) => Self::Values(values.into_iter().map(owned).collect()),
            Answer::Exists(is_there) => Self::Exists(is_there),
            Answer::Keys(keys, more) => {
                Self::Keys(keys.into_iter().map(<[u8]>::to_vec).collect(), more)
            }
            Answer::Number(number) => Self::Number(number),
            Answer::Denied => Self::Denied,
            Answer::Failed(why) => Self::Failed(why.to_owned()),
        }
    }
}

pub fn failed(why: &str) -> StoreReply {
    StoreReply::Failed(why.to_owned())
}

/// Returns the answer with one value, or with none.
pub fn value(value: Option<&str>) -> StoreReply {
    StoreReply::Values(vec![value.map(|value| value.as_bytes().to_vec())])
}

/// A node with a function.
#[derive(Clone, Debug)]
pub struct StoreNode {
    pub node: Node,
    store: Arc<dyn StoreService>,
}

impl StoreNode {
    /// Starts a node whose stores are embedded.
    pub async fn embedded(limits: Limits) -> Self {
        Self::on(Node::builder().limits(limits)).await.unwrap()
    }

    /// Starts a node whose stores are on a server.
    pub async fn of(server: &Server, limits: Limits) -> Self {
        let builder = Node::builder().limits(limits);
        let node = Self::on(builder.key_value_server(server.at())).await;
        node.unwrap()
    }

    pub async fn on(builder: NodeBuilder) -> Result<Self, StartError> {
        let backend = FakeBackend::default();
        let node = builder.start_on(Arc::new(backend.clone())).await?;
        let options = FunctionOptions::default().store(StoreName::new(SHARED).unwrap());
        node.deploy("f", "keeps", options).await.unwrap();
        let request = http::Request::get("/").body(String::new()).unwrap();
        assert_eq!(node.invoke("f", request).await.status(), 200);
        let store = backend.take_seen().pop().unwrap().store.unwrap();
        Ok(Self { node, store })
    }

    /// Performs an operation on the function's own store.
    pub async fn execute(&self, operation: Operation<'_>) -> StoreReply {
        self.execute_on(OWN_STORE, operation).await
    }

    pub async fn execute_on(&self, store: &str, operation: Operation<'_>) -> StoreReply {
        let record = Request { store, operation }.encode().unwrap();
        let answer = self.store.answer(record[LENGTH_BYTES..].to_vec()).await;
        StoreReply::from(Answer::decode(&answer.unwrap()[LENGTH_BYTES..]).unwrap())
    }

    pub async fn set(&self, key: &str, value: &str) -> StoreReply {
        let pair = (key.as_bytes(), value.as_bytes());
        self.execute(Operation::Set(vec![pair])).await
    }

    pub async fn get(&self, key: &str) -> StoreReply {
        self.execute(Operation::Get(vec![key.as_bytes()])).await
    }

    /// Returns all keys, and the number of pages in which they came.
    pub async fn keys(&self) -> (Vec<Vec<u8>>, usize) {
        let (mut all, mut pages) = (Vec::<Vec<u8>>::new(), 0);
        loop {
            let from = all
                .last()
                .map_or(ListFrom::Start, |key| ListFrom::Behind(key));
            let StoreReply::Keys(keys, more) = self.execute(Operation::Keys(from)).await else {
                panic!("no keys");
            };
            all.extend(keys);
            pages += 1;
            if !more {
                return (all, pages);
            }
        }
    }

    /// Repeats a read until it succeeds.
    pub async fn until_it_works(&self) {
        let deadline = Instant::now() + give_up();
        while !matches!(self.get("nothing").await, StoreReply::Values(_)) {
            assert!(Instant::now() < deadline, "it does not come back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn end(self) {
        self.node.shutdown().await;
    }
}
