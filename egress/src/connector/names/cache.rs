//! Answers of name servers, kept for each function for as long as they hold.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::connector::fair::{FairPermit, FairPool};

/// Bounds on the caches of all functions.
#[derive(Clone, Debug)]
pub struct CacheLimits {
    /// How long a name is cached at most, whatever TTL its server sends.
    pub longest: Duration,
    /// A permit for each name.
    pub names: Rc<FairPool>,
}

/// A function's names. A function that exceeds its share loses its own names. No function can find
/// out from the duration of a lookup which names another has looked up.
#[derive(Debug)]
pub struct NameCache {
    limits: CacheLimits,
    names: RefCell<HashMap<String, CachedName>>,
}

#[derive(Debug)]
struct CachedName {
    until: Instant,
    addresses: Vec<IpAddr>,
    _permit: FairPermit,
}

impl NameCache {
    /// Returns an empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            names: RefCell::default(),
        }
    }

    /// Returns the addresses of a name, if they are known and still hold.
    pub fn get(&self, name: &str) -> Option<Vec<IpAddr>> {
        let names = self.names.borrow();
        let cached = names.get(name)?;
        (cached.until > Instant::now()).then(|| cached.addresses.clone())
    }

    /// Keeps the addresses of a name of `function` for `time`.
    pub fn put(&self, name: &str, addresses: &[IpAddr], time: Duration, function: u64) {
        let now = Instant::now();
        let until = now + time.min(self.limits.longest);
        let mut names = self.names.borrow_mut();
        names.remove(name);
        if until == now {
            return;
        }
        let permit = loop {
            if let Some(permit) = self.limits.names.try_acquire(function) {
                break permit;
            }
            // Over the function's share: expired names go first, then the one that expires next.
            let before = names.len();
            names.retain(|_, cached| cached.until > now);
            if names.len() == before {
                let next = names.iter().min_by_key(|(_, cached)| cached.until);
                let Some(name) = next.map(|(name, _)| name.clone()) else {
                    return;
                };
                names.remove(&name);
            }
        };
        let cached = CachedName {
            until,
            addresses: addresses.to_vec(),
            _permit: permit,
        };
        names.insert(name.to_owned(), cached);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.names.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::fair::FairLimits;

    const ADDRESSES: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1))];

    fn limits() -> CacheLimits {
        CacheLimits {
            longest: Duration::from_secs(3600),
            names: FairPool::new(FairLimits {
                floor: 2,
                shared: 30,
                alpha: 2,
            }),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_kept_for_their_time_and_for_the_longest_at_most() {
        let cache = NameCache::new(limits());
        cache.put("never.example", &ADDRESSES, Duration::ZERO, 1);
        cache.put("short.example", &ADDRESSES, Duration::from_secs(5), 1);
        cache.put("long.example", &ADDRESSES, Duration::MAX, 1);
        assert_eq!(cache.get("never.example"), None);
        assert!(cache.get("short.example").is_some());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(cache.get("short.example"), None);
        assert!(cache.get("long.example").is_some());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(cache.get("long.example"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_function_with_many_names_loses_its_own_and_no_other_loses_any() {
        let limits = limits();
        let [few, many] = [(); 2].map(|()| NameCache::new(limits.clone()));
        few.put("few.example", &ADDRESSES, Duration::from_secs(60), 1);
        for number in 0..1000 {
            let name = format!("{number}.example");
            many.put(&name, &ADDRESSES, Duration::from_secs(60 + number), 2);
            assert!(many.get(&name).is_some());
        }
        // The floor, and 10 of 30 shared permits: half of the 20 that are then free.
        assert_eq!(many.names.borrow().len(), 2 + 10);
        assert!(few.get("few.example").is_some());
        few.put("more.example", &ADDRESSES, Duration::from_secs(60), 1);
        assert!(few.get("few.example").is_some() && few.get("more.example").is_some());
        drop(many);
        let other = NameCache::new(limits);
        for number in 0..10 {
            other.put(&format!("{number}"), &ADDRESSES, Duration::from_secs(60), 3);
        }
        assert_eq!(other.names.borrow().len(), 10);
    }
}
