//! `tree`: shows the running node's seeds.

use std::fmt::Write as _;

use faasw_client::SeedInfo;

use super::{
    args::Tree,
    exit::Exit,
    output::{print, print_json, size},
};

/// Prints the tree of seeds.
pub async fn tree(args: Tree) -> Result<(), Exit> {
    let seeds = args.node.client()?.tree().await?;
    if args.format.json {
        return print_json(&seeds);
    }
    print(draw(&seeds))
}

fn draw(seeds: &[SeedInfo]) -> String {
    let labels: Vec<String> = seeds
        .iter()
        .enumerate()
        .map(|(index, seed)| label(seeds, index, seed))
        .collect();
    let width = labels
        .iter()
        .map(|label| label.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = format!(
        "{:width$}  {:>9}  {:>9}  {:>9}  {:>7}  {:>6}  {:>6}  {:>6}  {:>4}  {:>7}  {:>8}  {:>5}  \
         {:>6}\n",
        "SEED",
        "OWN",
        "DISK",
        "HOLDS",
        "CHANGED",
        "WRITE",
        "READ",
        "WARM",
        "BUSY",
        "FORKS",
        "REQUESTS",
        "HITS",
        "FAULTS"
    );
    for (seed, label) in seeds.iter().zip(&labels) {
        let own = if seed.is_in_memory {
            size(seed.layer_bytes)
        } else {
            "evicted".into()
        };
        let disk = seed.image_bytes.map_or("-".into(), size);
        // Shared seeds count towards no function's account.
        let holds = if seed.is_shared {
            "-".into()
        } else {
            size(seed.layer_bytes.saturating_add(seed.warm_bytes))
        };
        let of_requests = |value: String| if seed.requests > 0 { value } else { "-".into() };
        let part = |count: u64| count as f64 / seed.requests.max(1) as f64;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{label:width$}  {own:>9}  {disk:>9}  {holds:>9}  {:>7}  {:>6}  {:>6}  {:>6}  {:>4}  \
             {:>7}  {:>8}  {:>5}  {:>6}",
            seed.changed_pages,
            seed.written_pages,
            seed.read_pages,
            seed.warm,
            seed.busy,
            seed.forks,
            seed.requests,
            of_requests(format!("{:.0}%", part(seed.hits) * 100.0)),
            of_requests(format!("{:.1}", part(seed.page_faults))),
        );
    }
    text
}

/// Returns whether another seed of this level follows under the same parent.
fn has_later_sibling(seeds: &[SeedInfo], index: usize, level: u8) -> bool {
    let later = seeds.get(index + 1..).unwrap_or_default();
    let same_parent = later.iter().take_while(|seed| seed.level >= level);
    same_parent.into_iter().any(|seed| seed.level == level)
}

fn label(seeds: &[SeedInfo], index: usize, seed: &SeedInfo) -> String {
    let mut label = String::new();
    for level in 1..=seed.level {
        let has_later = has_later_sibling(seeds, index, level);
        label.push_str(match (level == seed.level, has_later) {
            (true, true) => "├─ ",
            (true, false) => "└─ ",
            (false, true) => "│  ",
            (false, false) => "   ",
        });
    }
    label + &seed.name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(json: serde_json::Value) -> SeedInfo {
        let mut whole = serde_json::to_value(SeedInfo::default()).unwrap();
        for (key, value) in json.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_tree_is_drawn_with_its_branches() {
        let seeds = [
            seed(serde_json::json!({
                "name": "guest", "is_shared": true, "is_in_memory": true,
                "layer_bytes": 3 << 20, "warm_bytes": 5
            })),
            seed(serde_json::json!({
                "name": "linkers", "level": 1, "is_in_memory": true, "image_bytes": 70 << 10
            })),
            seed(serde_json::json!({
                "name": "a", "level": 2, "is_in_memory": true, "layer_bytes": 1 << 20,
                "warm_bytes": 1 << 19, "requests": 8, "hits": 6, "page_faults": 4
            })),
            seed(serde_json::json!({"name": "lua", "level": 2, "is_shared": true})),
            seed(serde_json::json!({"name": "c", "level": 3})),
            seed(serde_json::json!({"name": "d", "level": 3})),
            seed(serde_json::json!({"name": "b", "level": 2, "image_bytes": 9 << 20})),
        ];
        let text = draw(&seeds);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].starts_with("guest ") && lines[1].contains("3.0 MiB"),
            "{text}"
        );
        assert!(lines[2].starts_with("└─ linkers"), "{text}");
        assert!(lines[3].starts_with("   ├─ a "), "{text}");
        assert!(
            lines[3].contains("75%") && lines[3].ends_with("0.5"),
            "{text}"
        );
        assert!(
            lines[3].contains("1.0 MiB") && lines[3].contains("1.5 MiB"),
            "{text}"
        );
        assert!(!lines[1].contains("5 B"), "{text}");
        assert!(lines[4].starts_with("   ├─ lua "), "{text}");
        assert!(lines[5].starts_with("   │  ├─ c "), "{text}");
        assert!(lines[6].starts_with("   │  └─ d "), "{text}");
        assert!(
            lines[7].starts_with("   └─ b ") && lines[7].contains("evicted"),
            "{text}"
        );
        // The seeds are in memory, on disk, or both.
        assert!(lines[2].contains("70 KiB"), "{text}");
        assert!(lines[3].contains("1.0 MiB          -    1.5 MiB"), "{text}");
        assert!(lines[7].contains("evicted    9.0 MiB"), "{text}");
    }
}
