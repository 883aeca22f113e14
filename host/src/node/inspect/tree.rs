//! The tree of seeds as a node describes it: the backend's seeds, and the functions of which
//! nothing was read yet, each below its parent seed.

use std::collections::{BTreeMap, HashSet};

use faasw_pool::SeedInfo;

use super::Inspector;

/// The level of functions, and of the engines that are the parents of scripts.
const LEVEL: u8 = 2;

/// A function that is not in memory at all.
struct RestingFunction {
    name: String,
    /// The engine that runs it, if it is a script.
    engine: Option<String>,
    image_bytes: Option<u64>,
}

impl Inspector {
    /// Returns the current seeds, in memory or not, parents before children.
    pub(crate) fn tree(&self) -> Vec<SeedInfo> {
        let functions = self.functions.all();
        // Read before the backend's tree: a function that wakes in between is in both lists, and is
        // then reported once.
        let resting = functions
            .iter()
            .filter(|function| function.version_cell.get().is_none());
        let resting: Vec<_> = resting
            .map(|function| {
                let engine = function.record.engine.as_ref();
                RestingFunction {
                    name: function.name.to_string(),
                    engine: engine.map(|engine| engine.name.to_string()),
                    image_bytes: self.state_of(function).image_bytes,
                }
            })
            .collect();
        with(self.backend.tree(), resting)
    }
}

fn with(tree: Vec<SeedInfo>, resting: Vec<RestingFunction>) -> Vec<SeedInfo> {
    let known: HashSet<String> = tree
        .iter()
        .filter(|made| made.level >= LEVEL && !made.is_shared)
        .map(|made| made.name.clone())
        .collect();
    let (mut functions, mut scripts) = (Vec::new(), BTreeMap::<String, Vec<SeedInfo>>::new());
    for function in resting {
        if known.contains(&function.name) {
            continue;
        }
        let level = LEVEL + u8::from(function.engine.is_some());
        let info = SeedInfo {
            name: function.name,
            level,
            image_bytes: function.image_bytes,
            ..SeedInfo::default()
        };
        match function.engine {
            Some(engine) => scripts.entry(engine).or_default().push(info),
            None => functions.push(info),
        }
    }
    let mut told = Vec::with_capacity(tree.len() + functions.len());
    for made in tree {
        let is_engine = made.level == LEVEL && made.is_shared;
        let its = is_engine.then(|| scripts.remove(&made.name)).flatten();
        told.push(made);
        told.extend(its.into_iter().flatten());
    }
    for (name, its) in scripts {
        told.push(SeedInfo {
            name,
            level: LEVEL,
            is_shared: true,
            ..SeedInfo::default()
        });
        told.extend(its);
    }
    told.extend(functions);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(name: &str, level: u8, is_shared: bool) -> SeedInfo {
        SeedInfo {
            name: name.to_owned(),
            level,
            is_shared,
            is_in_memory: true,
            ..SeedInfo::default()
        }
    }

    fn resting(name: &str, engine: Option<&str>) -> RestingFunction {
        RestingFunction {
            name: name.to_owned(),
            engine: engine.map(str::to_owned),
            image_bytes: Some(7),
        }
    }

    #[test]
    fn an_evicted_function_is_shown_below_its_parent_seed() {
        let tree = vec![
            seed("guest", 0, true),
            seed("linkers", 1, true),
            seed("js", 2, true),
            seed("woken.js", 3, false),
            // A function may have an engine's name.
            seed("js", 2, false),
        ];
        let told = with(
            tree,
            vec![
                resting("plain", None),
                resting("other.js", Some("js")),
                resting("a.py", Some("python")),
                resting("woken.js", Some("js")),
            ],
        );
        let told: Vec<_> = told
            .iter()
            .map(|made| (made.level, made.name.as_str(), made.is_in_memory))
            .collect();
        assert_eq!(
            told,
            [
                (0, "guest", true),
                (1, "linkers", true),
                (2, "js", true),
                (3, "other.js", false),
                (3, "woken.js", true),
                (2, "js", true),
                (2, "python", false),
                (3, "a.py", false),
                (2, "plain", false),
            ]
        );
    }
}
