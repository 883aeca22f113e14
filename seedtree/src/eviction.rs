//! Which seeds give way when memory for them runs out.
//!
//! A seed is worth what it saves a second: how often it is used times what making
//! it again costs, by the memory it takes (the cost-benefit rule of AFaaS §4.2's
//! pools, for seeds). Children go before their parents, and nothing that is in use.

use std::time::Duration;

/// A seed that may have to give way.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Uses in a unit of time.
    pub frequency: f64,
    /// What making it again takes.
    pub cost: Duration,
    /// What its layer takes, in bytes.
    pub bytes: u64,
    /// Somebody uses it now.
    pub in_use: bool,
    /// Its parent's place in the list.
    pub parent: Option<usize>,
}

impl Candidate {
    fn value(&self) -> f64 {
        self.frequency * self.cost.as_secs_f64() / self.bytes.max(1) as f64
    }
}

/// The places of those that give way, in order, so that the others fit `budget`
/// bytes; all that can where even that is not enough.
#[must_use]
pub fn victims(candidates: &[Candidate], budget: u64) -> Vec<usize> {
    let mut total: u64 = candidates.iter().map(|seed| seed.bytes).sum();
    let mut children = vec![0_usize; candidates.len()];
    for parent in candidates.iter().filter_map(|seed| seed.parent) {
        if let Some(count) = children.get_mut(parent) {
            *count += 1;
        }
    }
    let mut gone = vec![false; candidates.len()];
    let mut victims = Vec::new();
    while total > budget {
        let free = candidates.iter().enumerate().filter(|(place, seed)| {
            let is_gone = gone.get(*place).is_some_and(|gone| *gone);
            let has_children = children.get(*place).is_some_and(|count| *count > 0);
            !seed.in_use && !is_gone && !has_children
        });
        let Some((place, seed)) =
            free.min_by(|(_, one), (_, other)| one.value().total_cmp(&other.value()))
        else {
            break;
        };
        total -= seed.bytes;
        if let Some(gone) = gone.get_mut(place) {
            *gone = true;
        }
        if let Some(count) = seed.parent.and_then(|parent| children.get_mut(parent)) {
            *count -= 1;
        }
        victims.push(place);
    }
    victims
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

    #[test]
    fn the_least_worth_goes_first() {
        let list = [
            seed(10.0, 10, 100),
            seed(1.0, 10, 100),
            seed(10.0, 1, 1000),
            seed(0.0, 1000, 10),
        ];
        assert_eq!(victims(&list, 2000), []);
        assert_eq!(victims(&list, 1209), [3]);
        assert_eq!(victims(&list, 1100), [3, 2]);
        assert_eq!(victims(&list, 0), [3, 2, 1, 0]);
    }

    #[test]
    fn what_is_used_stays_and_children_go_before_parents() {
        let mut list = [
            seed(0.0, 1, 100),
            seed(5.0, 1, 100),
            seed(9.0, 1, 100),
            seed(1.0, 1, 100),
        ];
        list[1].parent = Some(0);
        list[2].parent = Some(0);
        list[3].in_use = true;
        assert_eq!(victims(&list, 100), [1, 2, 0]);
        list[2].in_use = true;
        // The parent of what is used stays, however little it is worth.
        assert_eq!(victims(&list, 0), [1]);
    }

    #[test]
    fn random_trees_keep_their_rules() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        for _ in 0..300 {
            let list: Vec<Candidate> = (0..1 + next(12) as usize)
                .map(|place| Candidate {
                    parent: (place > 0 && next(2) == 0).then(|| next(place as u64) as usize),
                    in_use: next(4) == 0,
                    ..seed(next(50) as f64, next(50), 1 + next(500))
                })
                .collect();
            let budget = next(2000);
            let gone = victims(&list, budget);
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
}
