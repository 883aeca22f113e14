//! The kernels of `tests/fixtures/compute/compute-cgi`, with their parameters and answers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The kind of work that a kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Computing, on memory that is present: a microVM should cost nothing.
    Computing,
    /// Allocating memory: page faults, which a microVM takes twice.
    Paging,
}

/// A kernel of the function.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Name of the kernel, which is also its path.
    pub name: &'static str,
    /// Description of what the kernel measures, for the table.
    pub what: &'static str,
    /// The amount of work: 10 to 50 ms natively, for kernels that compute.
    pub amount: u64,
    /// The kind of work.
    pub work: Work,
}

/// Every kernel, in the order of the table.
pub const KERNELS: [Kernel; 8] = [
    computing("fib", "calls", 32),
    computing("memsum", "1 MiB, in order", 100),
    computing("mix", "32 KiB, at random", 3_000_000),
    computing("simd", "vectors", 5_000_000),
    computing("indirect", "calls by table", 10_000_000),
    computing("warm", "4 MiB, by lines", 100),
    paging("touch", "first touch of 16 MiB", 256),
    paging("grow", "growing by 16 MiB", 256),
];

const fn computing(name: &'static str, what: &'static str, amount: u64) -> Kernel {
    Kernel {
        name,
        what,
        amount,
        work: Work::Computing,
    }
}

const fn paging(name: &'static str, what: &'static str, amount: u64) -> Kernel {
    Kernel {
        name,
        what,
        amount,
        work: Work::Paging,
    }
}

impl Kernel {
    /// Returns CGI's QUERY_STRING for this kernel.
    pub fn query(&self) -> String {
        format!("n={}", self.amount)
    }
}

/// A kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// A value that depends on all of the work and on nothing else.
    pub result: u64,
    /// Duration by the function's own clock.
    pub took: Duration,
}

impl Answer {
    /// Parses the answer from a response's body.
    pub fn parse(body: &str) -> Result<Self> {
        let number = |name: &str| -> Result<u64> {
            body.lines()
                .filter_map(|line| line.split_once(' '))
                .find_map(|(field, value)| (field == name).then_some(value))
                .with_context(|| format!("the function's answer has no `{name}`"))?
                .parse()
                .with_context(|| format!("the function's `{name}` is no number"))
        };
        let answer = Self {
            result: number("result")?,
            took: Duration::from_nanos(number("nanoseconds")?),
        };
        ensure!(
            answer.result != u64::MAX,
            "the function got no memory for this kernel"
        );
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_by_name() {
        let answer = Answer::parse("kernel fib\nn 32\nresult 2178309\nnanoseconds 1500\n").unwrap();
        assert_eq!(answer.result, 2_178_309);
        assert_eq!(answer.took, Duration::from_nanos(1500));
    }

    #[test]
    fn anything_else_is_named() {
        for (body, words) in [
            ("hello\n", "no `result`"),
            ("result x\nnanoseconds 1\n", "`result` is no number"),
            ("result 1\n", "no `nanoseconds`"),
            ("result 18446744073709551615\nnanoseconds 1\n", "no memory"),
        ] {
            let error = Answer::parse(body).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
