//! Texts at the end of the help of commands, and which options the short help shows.

use clap::Arg;

/// The options that `up -h` shows.
pub const SHORT_UP: &str = "\
    name watch listen data-dir max-instances confinement log-format allow-private env config \
    secret kv allow-outbound files args memory cpu-time timeout json";

/// The options that `serve -h` shows.
pub const SHORT_SERVE: &str = "\
    listen tls-cert tls-key domain metrics data-dir max-instances zygotes keep-alive min-warm \
    instance-memory confinement log-format access-log trusted-proxy kv-server allow-private \
    memory cpu-time timeout json";

/// The options that `pod -h` shows.
pub const SHORT_POD: &str = "\
    name listen health-listen drain-delay data-dir max-instances instance-memory confinement \
    log-format access-log kv-server allow-private env config kv allow-outbound files args memory \
    cpu-time timeout";

/// The options that `deploy -h` shows.
pub const SHORT_DEPLOY: &str = "\
    entry name env config files args secret kv allow-outbound host memory cpu-time timeout \
    concurrency freeze init accept watch data-dir json";

/// The options that `push -h` shows.
pub const SHORT_PUSH: &str = "\
    env config files args secret kv allow-outbound host memory cpu-time timeout concurrency \
    freeze init plain-http ca json";

/// The options that `share add -h` and `share find -h` show.
pub const SHORT_SHARE: &str = "\
    store namespace name request digest entry env config files args memory cpu-time timeout \
    freeze json";

pub const UP: &str = "\
Examples:
  faasw up hello.wasm                    then: curl http://127.0.0.1:8080/hello/
  faasw up hello.wasm --watch            deploys it again when it changes
  faasw up a.wasm b.wasm -e LEVEL=debug --timeout 2s";

pub const SERVE: &str = "\
Examples:
  faasw serve                            then: faasw deploy hello.wasm
  faasw serve --listen 0.0.0.0:80 --data-dir /var/lib/faasw --metrics 127.0.0.1:9090
  faasw serve --log-format json --timeout 2s --memory 64
  faasw serve --listen 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem";

pub const POD: &str = "\
The node divides the container's memory and processors among seeds, instances and clients. \
Options override this; the node logs the result when it is ready. It accepts connections once the \
function's seed is ready. After SIGTERM, /readyz fails at once, the node accepts connections for \
--drain-delay, and running requests have 10 s.

Examples:
  faasw pod hello.wasm                   then: curl http://127.0.0.1:8080/
  PORT=3000 faasw pod app.js --memory 64 --health-listen [::]:9090
  faasw pod /function.wasm -e LEVEL=warn --log-format json --drain-delay 5s";

pub const SHARE: &str = "\
A store is a folder that belongs to root. `share add` compiles a file and makes its seed, in \
jails. A pod with this entry (`pod --shared --shared-key`) reads both instead of making them. See \
docs/kubernetes.md.

Examples:
  faasw share add hello.wasm --store /var/lib/faasw/shared --namespace shop -e LEVEL=warn
  faasw share find hello.wasm --store /var/lib/faasw/shared --namespace shop -e LEVEL=warn
  faasw share rm --store /var/lib/faasw/shared --stale";

pub const DEPLOY: &str = "\
If the name exists, this makes its next version. Running requests end on the previous one; `faasw \
rollback` restores it.

Examples:
  faasw deploy hello.wasm
  faasw deploy hello.js                  a script, run by its language engine
  faasw deploy shop/ --entry main.lua    a script of several files
  faasw deploy hello.wasm --name greeter -e GREETING=hi --memory 64 --concurrency 20
  faasw deploy shop.wasm --host shop.example.org --host www.example.org
  faasw deploy python.wasm --files app:/app -e PYTHONHOME=/app --args /app/main.py
  faasw deploy oci://registry.example.com/team/hello:v1
  faasw deploy oci://registry.example.com/team/hello:main --watch";

pub const PUSH: &str = "\
Every reader of the repository can read the artifact, including the values of --env. The artifact \
requests what --allow-outbound, --secret, --bind-secret, --kv, --host and higher limits state. \
`deploy --accept` grants these requests.

Log-ins are those of `docker login` and `podman login`.

Examples:
  faasw push hello.wasm registry.example.com/team/hello:v1
  faasw push shop.wasm localhost:5000/shop:v2 -e LEVEL=info --memory 64 --files site:/site";

pub const PULL: &str = "\
Examples:
  faasw pull registry.example.com/team/hello:v1                  writes hello.wasm
  faasw pull registry.example.com/team/hello@sha256:… -o app.wasm";

pub const ROLLBACK: &str = "\
The node keeps the newest 10 versions; `faasw inspect NAME` lists them. The next deployment gets \
a new number.";

pub const LOGS: &str = "\
A line has time, instance, stream and text. The stream is out or err of the function, or node for \
what the node reports about it. Lines of instance 0 come from making the seed.";

pub const TREE: &str = "\
Level 0 is the booted guest, level 1 has the runtime linked, level 2 is a function version.

  OWN      memory of the seed without its parents; \"evicted\" if it is not in memory
  DISK     size of its func-image
  HOLDS    OWN and the private pages of its warm instances
  CHANGED  pages that differ from its parent's
  WRITE    pages that its invocations write
  READ     pages that its invocations read
  HITS     requests that a warm instance served

An evicted seed is read from its func-image when it is used, or made again if it has none.";

pub const KV: &str = "\
STORE is a function, for the function's own store. With --shared it is the name of a store that \
functions share (`deploy --kv`).

Examples:
  faasw kv ls                            the stores that contain keys
  faasw kv ls greeter                    the keys of a function's own store
  faasw kv set greeter greeting hello
  faasw kv get --shared users alice";

pub const SECRET: &str = "\
A function reads the secrets that it was deployed with (`deploy --secret NAME`) like its \
configuration. A new value applies to requests that begin later, in all versions. It can be set \
before the function exists; `faasw rm` removes it with the function.

Examples:
  faasw secret set shop api_key < key.txt
  pass show shop/api | faasw secret set shop api_key
  faasw secret ls";

pub const WIZEN: &str = "\
The export runs in a microVM of this host, with the limits of a deployment. No node is needed. \
The module keeps its result on every host. `deploy --init` does the same and deploys the module.

Examples:
  faasw wizen app.wasm -o ready.wasm                  calls wizer-initialize
  faasw wizen app.wasm -o ready.wasm --init prepare
  faasw wizen app.wasm -o ready.wasm --init my:app/setup@1.0.0#run -e LEVEL=debug";

pub const NEW: &str = "\
Examples:
  faasw new js hello                     then: faasw up hello --watch
  faasw new rust hello";

pub const ENGINE_ADD: &str = "\
An engine is a component that runs scripts of one language. docs/engines.md shows how to make \
one. Deployed scripts keep the engine that they were deployed with.

Examples:
  faasw engine add lua.wasm --extension .lua
  faasw engine add js-2.wasm --name js --extension .js --extension .mjs";

pub const IMAGE_INSPECT: &str = "\
The node reads the whole func-image to check its integrity. A restore reads the pages in the \
file; empty pages and pages of parents cost nothing. RUNS counts the ranges of adjacent pages in \
memory; in the file, the working set is one range at the front. See docs/func-image.md.";

pub const IMAGE_EXPORT: &str = "\
The file contains the module, the options with the values of --env and --config, and the \
func-image. It is encrypted with the node's image key (DATA_DIR/image.key, or serve --image-key). \
Without this key it is useless.

Examples:
  faasw image export shop -o shop.faasw               then, on the other node:
  faasw image import shop.faasw";

pub const IMAGE_IMPORT: &str = "\
If the func-image is valid on this node, the node reads it and initialises nothing. Otherwise it \
deploys the module in the file, and the output has the reason. docs/func-image.md has the rules.";

pub const SHARE_ADD: &str = "\
A node that ends with the command compiles and initialises the function as a pod with the same \
options would. Only root can add entries. The store is created if it does not exist. Pods find \
the entry by namespace, name, file, options, version of faasw, processor and kernel.";

pub const SHARE_FIND: &str = "\
Exits with 5 if there is no such entry; the pod then makes the function itself. Mount only the \
folder, read-only, and the key into the pod, and nothing else of the store.";

/// Adds a line about `--help` to the text at the end of a short help that hides options.
pub fn short(text: &str) -> String {
    format!("{text}\n\nUse --help to show all options.")
}

/// Returns a function that hides options from the short help, except those in a list of words.
pub fn show_only(shown: &'static str) -> impl FnMut(Arg) -> Arg {
    move |arg| {
        let is_shown = |long| shown.split(' ').any(|word| word == long);
        let is_hidden = arg.get_long().is_some_and(|long| !is_shown(long));
        arg.hide_short_help(is_hidden)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::*;
    use crate::args::Cli;

    /// The width at which the tests render help.
    const COLUMNS: usize = 100;
    /// The most options that a short help shows.
    const SHORT_OPTIONS: usize = 24;

    /// Returns all visible commands, with their names and nested commands.
    fn commands() -> Vec<(String, Command)> {
        let mut root = Cli::command().term_width(COLUMNS);
        root.build();
        let mut found = Vec::new();
        let mut left = vec![(root.get_name().to_owned(), root)];
        while let Some((name, command)) = left.pop() {
            let nested = command.get_subcommands();
            let nested = nested.filter(|command| !command.is_hide_set());
            left.extend(
                nested
                    .filter(|command| command.get_name() != "help")
                    .map(|command| {
                        let name = format!("{name} {}", command.get_name());
                        (name, command.clone())
                    }),
            );
            found.push((name, command));
        }
        found
    }

    /// Returns whether a help has a line for this option. Such a line is indented by 2 columns, or
    /// by 6 if there is no short form.
    fn has(help: &str, option: &Arg) -> bool {
        let long = format!("--{}", option.get_long().unwrap_or_default());
        help.lines().any(|line| {
            let words = line.trim_start();
            let is_option = matches!(line.len() - words.len(), 2 | 6) && words.starts_with('-');
            is_option && words.split([' ', ',']).take(3).any(|word| word == long)
        })
    }

    #[test]
    fn no_line_is_too_long() {
        for (name, mut command) in commands() {
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            for line in short.lines().chain(long.lines()) {
                let columns = line.chars().count();
                assert!(columns <= COLUMNS, "{name}: {columns} columns: {line}");
            }
        }
    }

    #[test]
    fn every_argument_and_every_command_has_a_text() {
        for (name, command) in commands() {
            assert!(command.get_about().is_some(), "{name}");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{name}: {}", arg.get_id());
            }
        }
    }

    #[test]
    fn the_short_help_has_few_options_and_the_long_one_all() {
        for (name, mut command) in commands() {
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            let mut shown = 0;
            let mut hidden = 0;
            let options = command.get_arguments().filter(|arg| !arg.is_positional());
            for option in options.filter(|option| !option.is_hide_set()) {
                let is_hidden = option.is_hide_short_help_set();
                assert!(has(&long, option), "{name}: {}", option.get_id());
                assert_eq!(
                    has(&short, option),
                    !is_hidden,
                    "{name}: {}",
                    option.get_id()
                );
                if is_hidden {
                    hidden += 1;
                } else {
                    shown += 1;
                }
            }
            assert!(shown <= SHORT_OPTIONS, "{name}: {shown} options");
            let points = short
                .trim_end()
                .ends_with("Use --help to show all options.");
            assert_eq!(points, hidden > 0, "{name}");
            assert!(!long.contains("Use --help to show all options."), "{name}");
        }
    }

    #[test]
    fn listed_options_exist() {
        let commands = commands();
        for (name, shown) in [
            ("faasw up", SHORT_UP),
            ("faasw serve", SHORT_SERVE),
            ("faasw pod", SHORT_POD),
            ("faasw deploy", SHORT_DEPLOY),
            ("faasw push", SHORT_PUSH),
            ("faasw share add", SHORT_SHARE),
            ("faasw share find", SHORT_SHARE),
        ] {
            let (_, command) = commands.iter().find(|(each, _)| each == name).unwrap();
            for option in shown.split(' ') {
                let mut longs = command.get_arguments().filter_map(Arg::get_long);
                let is_there = longs.any(|long| long == option);
                // The two commands of `share` have one list.
                let is_other = matches!(option, "request" | "digest");
                assert!(is_there || is_other, "{name}: --{option}");
            }
        }
    }
}
