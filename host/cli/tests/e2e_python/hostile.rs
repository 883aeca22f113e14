//! Hostile or harmful scripts in Python.

use faasw::{FunctionOptions, Node};

use crate::{
    HELLO,
    common::{give_up, time_limit},
    deploy,
    e2e::{BENCH, Bench, limits},
    one, refused,
};

pub fn hostile_scripts_affect_no_other_request() {
    // Scripts that never end have little time. Scripts that end by themselves have a minute, since
    // a busy machine takes longer than 3 s.
    let within = |time| FunctionOptions::default().cpu_time(time).first_byte(time);
    deploy("good", HELLO);
    for (text, wanted) in [
        (
            "a = []\nwhile True: a.append(bytes(1 << 20))",
            "MemoryError",
        ),
        ("a = []\nwhile True: a.append([a])", "MemoryError"),
        ("import json\njson.loads('[' * 100000)", "trap"),
        (
            "import sys\nsys.stdout = sys.stderr = None\nraise ValueError('x')",
            "ValueError: x",
        ),
        (
            "import builtins\nfor name in dir(builtins): setattr(builtins, name, None)",
            "",
        ),
        ("import sys\nsys.modules.clear()\nraise ValueError('x')", ""),
        (
            "import sys\nfor module in list(sys.modules.values()): vars(module).clear()",
            "",
        ),
        (
            "class E(BaseException):\n  __class__ = property(lambda s: 1 / 0)\nraise E",
            "",
        ),
        ("import os\nos._exit(0)", ""),
    ] {
        let said = refused(text).to_string();
        assert!(said.contains(wanted), "{text}: {said}");
    }
    let handlers = [
        ("fills", "a = []\n  while True: a.append([a])", 502),
        (
            "nests",
            "a = []\n  for _ in range(100000): a = [a]\n  return repr(a)",
            502,
        ),
        (
            "floods",
            "for _ in range(5000): print('x' * 1000)\n  return ''",
            200,
        ),
        ("exits", "import os\n  os._exit(1)", 502),
        ("spins", "while True: pass", 504),
        ("sleeps", "import time\n  time.sleep(10000)", 504),
        (
            "spoils",
            "import sys\n  sys.stdout = sys.stderr = None\n  1 / 0",
            502,
        ),
    ];
    for (name, body, status) in handlers {
        let text = format!("def handler(request):\n  {body}\n");
        let time = match status {
            504 => time_limit(3),
            _ => give_up(),
        };
        BENCH.deploy(name, &one(&text), within(time));
        let answer = BENCH.get(&format!("/{name}/"));
        assert_eq!(answer.status, status, "{name}: {answer:?}");
    }
    assert_eq!(BENCH.text("/good/"), "hello");
}

/// The node sets the time limit of a top level, so this test has a node of its own.
pub fn endless_top_levels_are_rejected() {
    let mut tight = limits();
    // The good script's top level takes a small part of this.
    tight.instantiation = time_limit(5);
    let bench = Bench::start(Node::builder(), tight);
    bench.deploy("good", &one(HELLO), FunctionOptions::default());
    for text in [
        "while True: pass",
        "import time\nwhile True: time.sleep(1)",
        "import asyncio\nasync def wait():\n  while True: await \
         asyncio.sleep(0)\nasyncio.run(wait())",
    ] {
        let deploying = bench
            .node
            .deploy("bad", one(text), FunctionOptions::default());
        let deployed = bench.block_on(deploying);
        let why = deployed.map(|done| panic!("{done:?}")).unwrap_err();
        assert!(why.to_string().contains("ran longer"), "{text}: {why}");
        assert_eq!(bench.text("/good/"), "hello");
    }
    bench.end();
}
