"""Measures the deployment of a TypeScript project, and the time from a save to the answer.

The project has 50 modules of its own and imports 5 packages of npm. The peer of the deployment is
esbuild: the project's bundle, and the deployment of that file.
"""

import json
import re
import time

import saving
from figures import Figure, ms
from node import Failed
from nodes import Up
from tools import PROJECT, run

MODULES = 50
# In seconds.
DEPLOY, SAVE = 0.4, 0.2
ESBUILD = [
    "--bundle",
    "--format=esm",
    "--platform=browser",
    "--conditions=workerd,worker",
    "--main-fields=browser,module,main",
    "--log-level=warning",
]
# A module of the project: types, an enum, a class with parameter properties, generics, imports.
MODULE = """\
import {{ nanoid }} from "nanoid";
import {{ z }} from "zod";
import type {{ Entry, Repository }} from "../types.js";
{imports}
export enum Kind{number} {{
  Small = "small-{number}",
  Large = "large-{number}",
}}

export const schema{number} = z.object({{
  name: z.string().min(1).max(80),
  kind: z.enum([Kind{number}.Small, Kind{number}.Large]),
  price: z.number().nonnegative(),
  tags: z.array(z.string()).default([]),
}});

export type Item{number} = z.infer<typeof schema{number}>;

export interface Summary{number}<T extends Entry> {{
  readonly first: T | undefined;
  readonly total: number;
  readonly by: Partial<Record<Kind{number}, T[]>>;
}}

export class Service{number} implements Repository<Item{number} & Entry> {{
  private readonly entries = new Map<string, Item{number} & Entry>();

  constructor(
    private readonly prefix: string = "m{number}",
    protected readonly limit: number = {number} + 10,
  ) {{}}

  add(value: unknown): Item{number} & Entry {{
    const item = schema{number}.parse(value);
    if (this.entries.size >= this.limit) throw new RangeError(`${{this.prefix}} is full`);
    const entry = {{ ...item, id: `${{this.prefix}}-${{nanoid(8)}}` }};
    this.entries.set(entry.id, entry);
    return entry;
  }}

  get(id: string): (Item{number} & Entry) | undefined {{
    return this.entries.get(id);
  }}

  summary(): Summary{number}<Item{number} & Entry> {{
    const all = [...this.entries.values()];
    const by: Partial<Record<Kind{number}, (Item{number} & Entry)[]>> = {{}};
    for (const item of all) (by[item.kind] ??= []).push(item);
    return {{ first: all[0], total: all.reduce((sum, {{ price }}) => sum + price, 0), by }};
  }}
}}

export function describe{number}(service: Service{number} = new Service{number}()): string {{
  const {{ total, first }} = service.summary();
  const rest = {rest};
  return [`{number}:${{total}}:${{first?.name ?? "none"}}`, ...rest].join(",");
}}
"""
TYPES = """\
export interface Entry {
  readonly id: string;
}

export interface Repository<T extends Entry> {
  add(value: unknown): T;
  get(id: string): T | undefined;
}
"""
VERSION = """\
const number: number = {0};
export const version: string = `${{number}}`;
"""
INDEX = """\
import {{ Hono }} from "hono";
import {{ AutoRouter }} from "itty-router";
import {{ SignJWT }} from "jose";
import {{ version }} from "./version";
{imports}
const app = new Hono();
const old = AutoRouter({{ base: "/old" }});
old.get("/:name", ({{ params }}: {{ params: {{ name: string }} }}) => params.name);

app.get("/", (c) => c.text(version));
app.all("/old/*", (c) => old.fetch(c.req.raw));
app.get("/all", (c) => c.json([{calls}]));
app.get("/token", async (c) => {{
  const key = new TextEncoder().encode("a key of the benchmark: 32 bytes");
  return c.text(await new SignJWT({{ version }}).setProtectedHeader({{ alg: "HS256" }}).sign(key));
}});

export default app;
"""


def measure(bench):
    report = bench.report
    folder = bench.tools.project(bench.folder("typescript"))
    generate(folder)
    for part in (deployments, saves):
        with bench.part_of_scope():
            part(bench, folder)
    report.say(f"{MODULES} modules of TypeScript; packages: {', '.join(PROJECT)}.")


def generate(folder):
    """Writes the modules: types, version, index, and those that form chains of ten."""
    (models := folder / "src/models").mkdir(parents=True)
    numbers = range(MODULES - 3)
    for number in numbers:
        has_next = number % 10 < 9 and number + 1 in numbers
        text = MODULE.format(
            number=number,
            imports=f'import {{ describe{number + 1} }} from "./m{number + 1}";\n'
            if has_next
            else "",
            rest=f"[describe{number + 1}()]" if has_next else "[] as string[]",
        )
        (models / f"m{number}.ts").write_text(text)
    heads = [number for number in numbers if number % 10 == 0]
    imports = "".join(f'import {{ describe{n} }} from "./models/m{n}";\n' for n in heads)
    calls = ", ".join(f"describe{n}()" for n in heads)
    (folder / "src/index.ts").write_text(INDEX.format(imports=imports, calls=calls))
    (folder / "src/types.ts").write_text(TYPES)
    (folder / "src/version.ts").write_text(VERSION.format(0))
    (folder / "tsconfig.json").write_text(
        json.dumps({"compilerOptions": {"module": "esnext", "isolatedModules": True}})
    )


def deployments(bench, folder):
    """Measures `faasw deploy` from its start to its end, with the engine warm."""
    node = bench.node()
    node.command("engine", "warm", "js")
    bundle, took, bundled, peers = bench.folder("bundle") / "bundle.js", [], [], []

    def own(name):
        node.deploy(folder, name)

    def peer(name):
        begun = time.perf_counter()
        bench.tools.esbuild(folder / "src/index.ts", bundle, *ESBUILD)
        bundled.append(time.perf_counter() - begun)
        node.deploy(bundle, name)

    # The first round is not counted.
    for number in range(bench.slow_rounds + 1):
        # A changed module, so that nothing knows the whole project.
        (folder / "src/version.ts").write_text(VERSION.format(number))
        ways = [(own, took, f"own-{number}"), (peer, peers, f"peer-{number}")]
        for deploy, times, name in ways[:: -1 if number % 2 else 1]:
            # Wait until the images of earlier deployments are written.
            node.settle()
            begun = time.perf_counter()
            deploy(name)
            times.append(time.perf_counter() - begun)
            if (told := node.ask(name).body) != str(number).encode():
                raise Failed(f"{name} answers {told!r}")
    works(node, "own-0")
    ratio = Figure([one / other for one, other in zip(took[1:], peers[1:])])
    took, peers, bundled = (Figure(times[1:]) for times in (took, peers, bundled))
    report = bench.report
    report.say("### A TypeScript project")
    report.table(
        "`faasw deploy`, ms", "esbuild and its deployment, ms", "of it esbuild, ms", "ratio"
    )
    report.row(ms(took), ms(peers), ms(bundled), ratio.told())
    report.keep("typescript", "deploy", took=took, peer=peers, esbuild=bundled, ratio=ratio)
    report.goal(f"TypeScript: deployment of {MODULES} modules", took, DEPLOY, " ms", 1e3)


def works(node, name):
    """Fails unless all modules and packages of a deployment answer."""
    wanted = {
        "all": rb'\["0:0:none,1:0:none,.*"\]',
        "old/name": rb'"name"',
        "token": rb"[\w-]+\.[\w-]+\.[\w-]+",
    }
    for path, pattern in wanted.items():
        answer = node.ask(f"{name}/{path}", end="")
        if not re.fullmatch(pattern, answer.body):
            raise Failed(f"/{path} of the project answers {answer.body[:300]!r}")


def saves(bench, folder):
    """Measures the time from a save to the answer, under `up --watch`."""
    version = folder / "src/version.ts"
    version.write_text(VERSION.format(0))
    node = Up(bench, [folder], "--name", "project", "--watch")
    took = Figure(saving.saves(bench, node, "/project/", version, VERSION))
    report = bench.report
    report.say(f"From a save of a module to its answer, with `up --watch`: {ms(took)} ms.")
    report.keep("typescript", "save", took=took)
    report.goal("TypeScript: from a save to its answer", took, SAVE, " ms", 1e3)
