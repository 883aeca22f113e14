//! Secrets that come with one request exist for that request alone: in instances that were warm,
//! in hot instances, and if a request begins again in another microVM.

use faasw_pool::{FreezePolicy, FunctionVersion, InvocationRequest, Secrets, Served};

use crate::killed::{a_moment, kill_unnoticed, spawner};
use crate::support::processes::{kill, signal};
use crate::support::{Bench, bytes_of, call, slowness, spec};

async fn reader(bench: &Bench) -> FunctionVersion {
    let mut reader = spec(FreezePolicy::Auto);
    reader.secrets = vec![b"key".to_vec()];
    let seed = bench
        .seed_of("tests/fixtures/config-probe.wasm", &reader)
        .await;
    seed.unwrap()
}

fn asking(path: &str, key: Option<&str>) -> InvocationRequest {
    let key = key.map(|key| (b"key".as_slice(), key.as_bytes()));
    InvocationRequest {
        secrets: Some(Secrets::new(key.as_slice()).unwrap()),
        ..call(path)
    }
}

async fn told(bench: &Bench, seed: &FunctionVersion, order: InvocationRequest) -> String {
    let reply = bench.pool.invoke(seed, order).await.unwrap();
    String::from_utf8(bytes_of(reply.body).await.unwrap()).unwrap()
}

pub async fn secrets_of_a_request_are_gone_after_it(bench: &Bench) {
    let seed = reader(bench).await;
    for round in 0..(100 / slowness()) {
        let key = format!("{round}").repeat(1 + 40 * (round as usize % 50));
        let given = told(bench, &seed, asking("/get/key", Some(&key))).await;
        assert_eq!(given, format!("some {key}"));
        let none = told(bench, &seed, asking("/get/key", None)).await;
        assert_eq!(none, "none");
        // A request whose channel is not open has no secrets, whatever the channel held before.
        let closed = told(bench, &seed, call("/get/key")).await;
        assert!(
            closed.contains("only while a request is answered"),
            "{closed}"
        );
    }
}

pub async fn a_request_that_begins_again_has_its_secrets(bench: &Bench) {
    let seed = reader(bench).await;
    for is_noticed in [false, true] {
        let instance = bench.warm_one(&seed, "/get/colour").await;
        if is_noticed {
            signal(instance, "STOP")
        } else {
            kill_unnoticed(bench, instance).await
        }
        let asked = tokio::spawn({
            let (pool, seed) = (bench.pool.clone(), seed.clone());
            async move {
                let reply = pool.invoke(&seed, asking("/get/key", Some("again"))).await;
                let reply = reply.unwrap();
                (reply.timing.served, bytes_of(reply.body).await.unwrap())
            }
        });
        a_moment().await;
        if is_noticed {
            kill(instance)
        } else {
            signal(spawner(), "CONT")
        }
        let (served, body) = asked.await.unwrap();
        assert_eq!(body, b"some again");
        assert_eq!(served, Served::Made);
        bench.settles("it is over", |stats| stats.busy == 0).await;
    }
}
