//! Threads that defer work.

use crate::answer;
use crate::support::scripts::{PYTHON, asked};
use faasw_runtime::platform::LogStream;

#[test]
fn threads_that_defer_work_run() {
    let text = "
import threading, queue, contextvars, _thread
variable = contextvars.ContextVar('v', default='outside')
def handler(request):
    told = []
    def work(n):
        told.append((n, threading.current_thread().name, variable.get()))
    variable.set('inside')
    for n in range(2):
        thread = threading.Thread(target=work, args=(n,), name=f't{n}', daemon=n == 1)
        assert not thread.is_alive()
        thread.start()
        thread.join(1)
        assert not thread.is_alive() and thread.ident
    assert threading.current_thread() is threading.main_thread()
    assert threading.enumerate() == [threading.main_thread()]
    def fails():
        raise ValueError('in the thread')
    threading.Thread(target=fails).start()
    timers = [threading.Timer(second, told.append, [second]) for second in (9, 2, 5)]
    for timer in timers:
        timer.start()
    timers[2].cancel()
    event = threading.Event()
    threading.Timer(3, event.set).start()
    assert event.wait(20) and event.wait()
    assert not threading.Event().wait(0.5)
    lock = threading.Lock()
    with lock:
        assert lock.locked() and not lock.acquire(False) and not lock.acquire(timeout=0.1)
    lines = queue.Queue(2)
    lines.put(1), lines.put(2)
    told.append(lines.get())
    timers[0].join()
    _thread.start_new_thread(told.append, ('raw',))
    threading.Timer(1, print, ['after the response']).start()
    return repr(told)
";
    let ready = PYTHON.answered(&[("a.py", text.as_bytes())], asked("/"));
    let body = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    assert_eq!(
        body,
        "[(0, 't0', 'outside'), (1, 't1', 'outside'), 2, 1, 9, 'raw']"
    );
    let log = String::from_utf8(ready.platform().logged(LogStream::Err)).unwrap();
    assert!(log.contains("ValueError: in the thread"), "{log}");
    let log = String::from_utf8(ready.platform().logged(LogStream::Out)).unwrap();
    assert_eq!(log, "after the response\n");
}

#[test]
fn threads_have_no_running_loop() {
    let text = "
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
async def inner():
    await asyncio.sleep(0.001)
    return asyncio.current_task().get_name()
def work(name):
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner() as runner:
            return runner.get_loop().run_until_complete(runner.get_loop().create_task(inner(), \
                                                                                    name=name))
def fails():
    raise ValueError('no')
async def handler(request):
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    told = [await asyncio.to_thread(work, 'a')]
    with ThreadPoolExecutor() as pool:
        told.append(pool.submit(work, 'b').result())
    threading.Thread(target=lambda: told.append(work('c'))).start()
    try:
        await asyncio.to_thread(fails)
    except ValueError as error:
        told.append(str(error))
    assert asyncio.get_running_loop() is loop and asyncio.current_task() is task
    await asyncio.sleep(0.001)
    return repr(told)
";
    assert_eq!(answer(text, asked("/")), "['a', 'b', 'c', 'no']");
}

#[test]
fn a_pool_of_threads_is_initialised_once_and_shut_down() {
    let text = "
from concurrent.futures import ThreadPoolExecutor
told = []
def tell(call):
    try:
        told.append(call())
    except Exception as error:
        told.append(f'{type(error).__name__}: {error}')
def handler(request):
    with ThreadPoolExecutor(2, initializer=told.append, initargs=('begun',)) as pool:
        told.extend(pool.map(abs, (-1, -2)))
    tell(lambda: pool.submit(print))
    pool = ThreadPoolExecutor(initializer=lambda: 1 / 0)
    tell(pool.submit(print).result)
    tell(lambda: pool.submit(print))
    return '; '.join(map(str, told))
";
    let broken = "BrokenThreadPool: A thread initializer failed, the thread pool is not usable \
                  anymore";
    assert_eq!(
        answer(text, asked("/")),
        format!(
            "begun; 1; 2; RuntimeError: cannot schedule new futures after shutdown; {broken}; \
             {broken}"
        )
    );
}

#[test]
fn what_needs_a_second_thread_says_so() {
    let text = "
import asyncio, concurrent.futures, multiprocessing, os, queue, subprocess, threading
def held():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def wait():
    with condition:
        condition.wait()
condition = threading.Condition()
class Repeated(threading.Timer):
    def run(self):
        while True:
            pass
full = queue.Queue(1)
full.put(1)
cases = [
    held, wait, threading.Event().wait, queue.Queue().get, queue.SimpleQueue().get,
    lambda: full.put(2), full.join, threading.Semaphore(0).acquire, threading.Barrier(2).wait,
    concurrent.futures.Future().result, Repeated(1, print).start,
    lambda: subprocess.run(['ls']), lambda: os.popen('ls'),
    multiprocessing.Process(target=print).start,
    lambda: concurrent.futures.ProcessPoolExecutor().submit(print),
]
def handler(request):
    told = []
    for case in cases:
        try:
            case()
            told.append('no error')
        except Exception as error:
            told.append(f'{type(error).__name__}: {error}')
    return told
";
    let told = answer(text, asked("/"));
    let told: Vec<&str> = told.trim_matches(['[', ']']).split("\", \"").collect();
    assert_eq!(told.len(), 15, "{told:?}");
    for line in &told[..10] {
        assert!(
            line.contains("RuntimeError: this would wait for ever: a function has one"),
            "{told:?}"
        );
    }
    assert!(told[10].contains("a function has one"), "{told:?}");
    for line in &told[11..] {
        assert!(line.contains("process"), "{line}");
    }
}
