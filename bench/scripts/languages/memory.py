"""Measures hello scripts: the memory of one and of ten, and the time of a deployment."""

import json
import time

from figures import Figure, mib, ms
from scripts import LANGUAGES, ROOT

SCRIPTS, REQUESTS = 10, 40
MIB = 1 << 20
NAMES = LANGUAGES | {"lua": "Lua"}
HELLO = {
    "js": ROOT / "examples/js/hello.js",
    "python": ROOT / "examples/python/hello.py",
    "lua": "return function() return 'hello\\n' end\n",
}
# Maximum bytes of a script's layer and of a warm instance, and seconds of a deployment.
LAYER = {"js": MIB // 2, "python": 2 * MIB}
WARM = {"js": 0.6 * MIB, "python": 1.5 * MIB}
DEPLOY = {"js": 0.05, "python": 0.25}
# Maximum ratio of ten scripts to one.
TEN = 1.5


def measure(bench):
    measured = {}
    for language in [*bench.languages, "lua"]:
        with bench.part_of_scope():
            measured[language] = measure_one(bench, language)
    report = bench.report
    report.say(
        f"### Memory and deployments\n\nA script of hello, after {REQUESTS} requests; a page has "
        "4 KiB."
    )
    report.table("", *(NAMES[language] for language in measured))
    for what in next(iter(measured.values())):
        report.row(what, *(told[what] for told in measured.values()))


def measure_one(bench, language):
    node = bench.node()
    path = HELLO[language]
    if language == "lua":
        (path := bench.folder("lua")).mkdir(parents=True)
        path /= "hello.lua"
        path.write_text(HELLO["lua"])
    node.command("engine", "warm", language)
    names, took = [f"{language}-{number}" for number in range(SCRIPTS)], []
    # The first deployment is not counted.
    for name in ["first", *names]:
        # Wait until the images of earlier deployments are written.
        node.settle()
        begun = time.perf_counter()
        node.deploy(path, name)
        took.append(time.perf_counter() - begun)
    node.command("rm", "first")
    took = Figure(took[1:])
    chains = used(node, names)
    engine, own = chains[0][-2], [chain[-1] for chain in chains]
    code = json.loads(node.command("inspect", names[0], "--json"))["function"]["code_bytes"]
    layers, warm = sizes(chains)
    shared = code + engine["layer_bytes"]
    ten = Figure([(shared + sum(layers.values)) / (shared + layers.median)])
    name, report = NAMES[language], bench.report
    report.keep(
        "memory", language, code_bytes=code, engine_layer=engine["layer_bytes"], layers=layers,
        warm=warm, ten=ten, deploy=took,
    )  # fmt: skip
    if language in LAYER:
        report.goal(f"{name}: a script's layer", layers, LAYER[language], " MiB", 1 / MIB)
        report.goal(
            f"{name}: private memory of a warm instance",
            warm,
            WARM[language],
            " MiB",
            1 / MIB,
        )
        report.goal(f"{name}: a deployment, engine warm", took, DEPLOY[language], " ms", 1e3)
        report.goal(f"{name}: code and layers of ten scripts, to those of one", ten, TEN, " ×")

    def pages(field):
        return Figure([seed[field] for seed in own]).told(digits=0)

    return {
        "compiled code, once for all scripts (`code_bytes` of `inspect`), MiB": mib(code),
        "the engine's layer, once for all scripts (`layer_bytes` of `tree`), MiB": mib(
            engine["layer_bytes"]
        ),
        "pages that the engine keeps (`changed_pages`)": engine["changed_pages"],
        "a script's layer (`layer_bytes`), MiB": layers.told(1 / MIB),
        "pages that a script keeps (`changed_pages`)": pages("changed_pages"),
        "pages that a request writes (`written_pages`)": pages("written_pages"),
        "pages that a request only reads (`read_pages`)": pages("read_pages"),
        "private memory of a warm instance (`warm_bytes`), MiB": warm.told(1 / MIB),
        "code and layers of ten scripts, to those of one": ten.told(),
        "`faasw deploy` with the engine warm, from its start to its end, ms": ms(took),
    }


def used(node, names):
    """Sends requests to functions until their memory is that of use. Returns their chains."""
    for _ in range(REQUESTS):
        for name in names:
            node.ask(name)
    node.rest()
    return [node.chain(name) for name in names]


def sizes(chains):
    """Returns the bytes of the functions' layers and of their warm instances."""
    own = [chain[-1] for chain in chains]
    layers = Figure([seed["layer_bytes"] for seed in own])
    return layers, Figure([seed["warm_bytes"] / seed["warm"] for seed in own])
