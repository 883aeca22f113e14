//! Selection of the seeds that are evicted when the memory for them runs out.
//!
//! The value of a seed is the time that it saves per second, divided by the memory that it takes.
//! The time saved is its frequency of use times the cost of making it again. (AFaaS, Insight-3 in
//! §3, has seeds for functions that are used often and take long to initialise.) Children are
//! evicted before their parents, and a seed in use is not evicted.

use std::time::Duration;

/// A seed that may have to be evicted.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Uses per unit of time.
    pub frequency: f64,
    /// Duration of making the seed again.
    pub cost: Duration,
    /// Size of its layer, in bytes.
    pub bytes: u64,
    /// Whether the seed is in use now.
    pub in_use: bool,
    /// Index of its parent in the list.
    pub parent: Option<usize>,
}

impl Candidate {
    fn value(&self) -> f64 {
        self.frequency * self.cost.as_secs_f64() / self.bytes.max(1) as f64
    }
}

/// Returns the indices of the seeds to evict, in order, so that the others fit `budget` bytes. If
/// they cannot fit, returns all seeds that can be evicted.
#[must_use]
pub fn seeds_to_evict(candidates: &[Candidate], budget: u64) -> Vec<usize> {
    let mut total: u64 = candidates.iter().map(|seed| seed.bytes).sum();
    let mut children = vec![0_usize; candidates.len()];
    for parent in candidates.iter().filter_map(|seed| seed.parent) {
        if let Some(count) = children.get_mut(parent) {
            *count += 1;
        }
    }
    let mut gone = vec![false; candidates.len()];
    let mut evicted = Vec::new();
    while total > budget {
        let free = candidates.iter().enumerate().filter(|(index, seed)| {
            let is_gone = gone.get(*index).is_some_and(|gone| *gone);
            let has_children = children.get(*index).is_some_and(|count| *count > 0);
            !seed.in_use && !is_gone && !has_children
        });
        let Some((index, seed)) =
            free.min_by(|(_, one), (_, other)| one.value().total_cmp(&other.value()))
        else {
            break;
        };
        total -= seed.bytes;
        if let Some(gone) = gone.get_mut(index) {
            *gone = true;
        }
        if let Some(count) = seed.parent.and_then(|parent| children.get_mut(parent)) {
            *count -= 1;
        }
        evicted.push(index);
    }
    evicted
}

/// The evictions that are necessary among what one function holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// Number of its warm instances to end.
    pub instances: usize,
    /// Indices of its seeds to evict, in order.
    pub seeds: Vec<usize>,
}

/// Selects the evictions after which a function fits `budget` bytes. Warm instances end first;
/// `warm` has their bytes in that order. Only if none is left are seeds evicted, in the order of
/// [`seeds_to_evict`]. A warm instance does not make its seed count as in use.
#[must_use]
pub fn evict_to_fit(warm: &[u64], seeds: &[Candidate], budget: u64) -> Evictions {
    let of_seeds: u64 = seeds.iter().map(|seed| seed.bytes).sum();
    let mut total = of_seeds.saturating_add(warm.iter().sum());
    let instances = warm
        .iter()
        .take_while(|bytes| {
            let is_over = total > budget;
            total -= **bytes;
            is_over
        })
        .count();
    let seeds = if instances < warm.len() {
        Vec::new()
    } else {
        seeds_to_evict(seeds, budget)
    };
    Evictions { instances, seeds }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(frequency: f64, millis: u64, bytes: u64) -> Candidate {
        Candidate {
            frequency,
            cost: Duration::from_millis(millis),
            bytes,
            in_use: false,
            parent: None,
        }
    }

    fn dice() -> impl FnMut(u64) -> u64 {
        let given = std::env::var("FAASW_TEST_SEED").ok();
        let seed = given.map_or_else(|| fastrand::u64(..), |number| number.parse().unwrap());
        println!("again with FAASW_TEST_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        move |bound| random.u64(..bound)
    }

    #[test]
    fn the_least_valuable_seed_is_evicted_first() {
        let list = [
            seed(10.0, 10, 100),
            seed(1.0, 10, 100),
            seed(10.0, 1, 1000),
            seed(0.0, 1000, 10),
        ];
        assert_eq!(seeds_to_evict(&list, 2000), []);
        assert_eq!(seeds_to_evict(&list, 1209), [3]);
        assert_eq!(seeds_to_evict(&list, 1100), [3, 2]);
        assert_eq!(seeds_to_evict(&list, 0), [3, 2, 1, 0]);
    }

    #[test]
    fn used_seeds_stay_and_children_are_evicted_before_parents() {
        let mut list = [
            seed(0.0, 1, 100),
            seed(5.0, 1, 100),
            seed(9.0, 1, 100),
            seed(1.0, 1, 100),
        ];
        list[1].parent = Some(0);
        list[2].parent = Some(0);
        list[3].in_use = true;
        assert_eq!(seeds_to_evict(&list, 100), [1, 2, 0]);
        list[2].in_use = true;
        // The parent of a seed in use stays, however little it is worth.
        assert_eq!(seeds_to_evict(&list, 0), [1]);
    }

    #[test]
    fn random_trees_keep_their_rules() {
        let mut next = dice();
        for _ in 0..300 {
            let list: Vec<Candidate> = (0..1 + next(12) as usize)
                .map(|place| Candidate {
                    parent: (place > 0 && next(2) == 0).then(|| next(place as u64) as usize),
                    in_use: next(4) == 0,
                    ..seed(next(50) as f64, next(50), 1 + next(500))
                })
                .collect();
            let budget = next(2000);
            let gone = seeds_to_evict(&list, budget);
            let left: u64 = list
                .iter()
                .enumerate()
                .filter(|(place, _)| !gone.contains(place))
                .map(|(_, seed)| seed.bytes)
                .sum();
            for (order, place) in gone.iter().enumerate() {
                assert!(!list[*place].in_use);
                let child_later = list.iter().enumerate().any(|(child, seed)| {
                    seed.parent == Some(*place) && !gone[..order].contains(&child)
                });
                assert!(!child_later, "a parent went before its child");
            }
            let could_more = list.iter().enumerate().any(|(place, seed)| {
                let is_parent = list
                    .iter()
                    .enumerate()
                    .any(|(child, seed)| seed.parent == Some(place) && !gone.contains(&child));
                !seed.in_use && !gone.contains(&place) && !is_parent
            });
            assert!(left <= budget || !could_more, "it stopped too early");
            let before_last: u64 = gone.last().map_or(0, |last| left + list[*last].bytes);
            assert!(gone.is_empty() || before_last > budget, "it went too far");
        }
    }

    #[test]
    fn warm_instances_end_before_any_seed_is_evicted() {
        let seeds = [seed(1.0, 1, 100), seed(9.0, 1, 100)];
        let warm = [10, 20, 30];
        let of = |budget| evict_to_fit(&warm, &seeds, budget);
        assert_eq!(of(260), Evictions::default());
        assert_eq!((of(259).instances, of(250).instances), (1, 1));
        assert_eq!((of(249).instances, of(200).instances), (2, 3));
        assert_eq!(of(230).instances, 2);
        assert_eq!(of(200).seeds, []);
        assert_eq!(of(199).seeds, [0]);
        assert_eq!((of(0).instances, of(0).seeds), (3, vec![0, 1]));
        // A seed in use stays, even though the function is over its budget.
        let used = [Candidate {
            in_use: true,
            ..seeds[0]
        }];
        assert_eq!(evict_to_fit(&warm, &used, 0).seeds, []);
        assert_eq!(evict_to_fit(&[], &[], 0), Evictions::default());
    }

    #[test]
    fn random_holdings_are_evicted_to_fit_the_budget() {
        let mut next = dice();
        for _ in 0..1000 {
            let seeds: Vec<Candidate> = (0..next(4))
                .map(|_| Candidate {
                    in_use: next(3) == 0,
                    ..seed(next(50) as f64, next(50), 1 + next(500))
                })
                .collect();
            let warm: Vec<u64> = (0..next(6)).map(|_| 1 + next(100)).collect();
            let budget = next(1500);
            let Evictions {
                instances,
                seeds: gone,
            } = evict_to_fit(&warm, &seeds, budget);
            let of_warm: u64 = warm[instances..].iter().sum();
            let of_seeds = |gone: &[usize]| -> u64 {
                let all = seeds.iter().enumerate();
                let left = all.filter(|(place, _)| !gone.contains(place));
                left.map(|(_, seed)| seed.bytes).sum()
            };
            let left = of_warm + of_seeds(&gone);
            assert!(gone.is_empty() || instances == warm.len());
            assert!(gone.iter().all(|place| !seeds[*place].in_use));
            let could_more = instances < warm.len()
                || (0..seeds.len()).any(|place| !seeds[place].in_use && !gone.contains(&place));
            assert!(left <= budget || !could_more, "it stopped too early");
            let before_last = match (gone.split_last(), instances.checked_sub(1)) {
                (Some((_, before)), _) => of_seeds(before),
                (None, Some(last)) => left + warm[last],
                (None, None) => continue,
            };
            assert!(before_last > budget, "it went too far");
        }
    }
}
