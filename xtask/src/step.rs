//! Running one step of a chore: its output goes to the terminal as it comes, its results are counted.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::Instant,
};

/// How many checks passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Count {
    pub(crate) const PASSED: Count = Count {
        passed: 1,
        failed: 0,
    };
    pub(crate) const FAILED: Count = Count {
        passed: 0,
        failed: 1,
    };

    pub(crate) fn plus(self, other: Count) -> Count {
        Count {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
        }
    }
}

/// What a check of our own found: how many things it looked at, and what is wrong, a line each.
pub(crate) struct Findings {
    pub(crate) looked_at: usize,
    pub(crate) wrong: Vec<String>,
}

/// Tells the findings of a check. It counts as one.
pub(crate) fn report(name: &str, findings: Findings) -> Count {
    for line in &findings.wrong {
        println!("{name}: {line}");
    }
    println!(
        "{name}: {} looked at, {} wrong",
        findings.looked_at,
        findings.wrong.len()
    );
    // A check that saw nothing has checked nothing.
    if findings.wrong.is_empty() && findings.looked_at > 0 {
        Count::PASSED
    } else {
        Count::FAILED
    }
}

/// How the lines of a command's output are counted.
#[derive(Clone, Copy)]
pub(crate) enum Counting {
    /// The exit status alone: one.
    Status,
    /// The lines `test result:` of cargo test.
    CargoTest,
    /// The same of one program, which may have no tests.
    Units,
    /// The line `sim: seeds=N failed=M ...`.
    Sim,
    /// The line `mutants: N caught, M survived`.
    Mutants,
    /// The line `oracle: histories=N disagreements=M ...`.
    Oracle,
    /// The line `explore: bounds=N violations=M ...`.
    Explore,
}

/// Runs a command and counts its results.
pub(crate) fn run(command: &mut Command, counting: Counting) -> Count {
    let started = Instant::now();
    let shown = shown(command);
    println!("$ {shown}");
    let (out, err) = (
        |line: &str| println!("{line}"),
        |line: &str| eprintln!("{line}"),
    );
    let (status, counted) = match watched(command, counting, out, err) {
        Ok(done) => done,
        Err(error) => {
            println!("$ {shown}: could not be started: {error}");
            return Count::FAILED;
        }
    };
    println!(
        "$ {shown}: {} after {:.1} s",
        if status { "done" } else { "FAILED" },
        started.elapsed().as_secs_f64()
    );
    settle(status, counted, counting)
}

/// What status and lines together mean: a failure that no line told of counts, and so does a silence that should have been a count.
fn settle(success: bool, counted: Count, counting: Counting) -> Count {
    if matches!(counting, Counting::Status) {
        return if success {
            Count::PASSED
        } else {
            Count::FAILED
        };
    }
    let may_be_none = matches!(counting, Counting::Units);
    if counted.failed == 0 && (!success || (counted.passed == 0 && !may_be_none)) {
        counted.plus(Count::FAILED)
    } else {
        counted
    }
}

/// Runs a command and gives its output, of both streams as it came, with the count of its results.
pub(crate) fn kept(command: &mut Command, counting: Counting) -> (Count, Vec<String>) {
    let shown = shown(command);
    let output = Mutex::new(vec![format!("$ {shown}")]);
    let keep = |line: &str| {
        if let Ok(mut output) = output.lock() {
            output.push(line.to_owned());
        }
    };
    let watched = watched(command, counting, keep, keep);
    let mut output = output.into_inner().unwrap_or_default();
    match watched {
        Ok((status, counted)) => (settle(status, counted, counting), output),
        Err(error) => {
            output.push(format!("$ {shown}: could not be started: {error}"));
            (Count::FAILED, output)
        }
    }
}

fn watched(
    command: &mut Command,
    counting: Counting,
    out: impl Fn(&str),
    err: impl Fn(&str) + Send,
) -> std::io::Result<(bool, Count)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut count = Count::default();
    // Both pipes are read at once: a command that fills one while we wait at the other would stand still.
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Some(stderr) = stderr {
                let _ = each_line(stderr, err);
            }
        });
        stdout.map_or(Ok(()), |stdout| {
            each_line(stdout, |line| {
                out(line);
                count = count.plus(counted(line, counting));
            })
        })
    })?;
    std::io::stdout().flush()?;
    Ok((child.wait()?.success(), count))
}

fn each_line(from: impl std::io::Read, mut then: impl FnMut(&str)) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        then(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
    Ok(())
}

fn counted(line: &str, counting: Counting) -> Count {
    match counting {
        Counting::Status => Count::default(),
        Counting::CargoTest | Counting::Units => cargo_test(line),
        Counting::Sim => fields(line, "sim:", "seeds", "failed"),
        Counting::Oracle => fields(line, "oracle:", "histories", "disagreements"),
        Counting::Explore => fields(line, "explore:", "bounds", "violations"),
        Counting::Mutants => mutants(line),
    }
}

/// `test result: ok. 3 passed; 0 failed; 0 ignored; ...`
fn cargo_test(line: &str) -> Count {
    let Some(rest) = line.strip_prefix("test result: ") else {
        return Count::default();
    };
    let Some((_, numbers)) = rest.split_once(". ") else {
        return Count::default();
    };
    let mut count = Count::default();
    for part in numbers.split("; ") {
        match part.split_once(' ') {
            Some((n, "passed")) => count.passed = n.parse().unwrap_or(0),
            Some((n, "failed")) => count.failed = n.parse().unwrap_or(0),
            _ => {}
        }
    }
    count
}

/// `sim: seeds=N failed=M ...`, `oracle: histories=N disagreements=M ...`, `explore: bounds=N violations=M ...`
fn fields(line: &str, start: &str, all: &str, failed: &str) -> Count {
    let Some(rest) = line.strip_prefix(start) else {
        return Count::default();
    };
    let field = |name: &str| {
        rest.split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let (Some(all), Some(failed)) = (field(all), field(failed)) else {
        return Count::default();
    };
    Count {
        passed: all.saturating_sub(failed),
        failed,
    }
}

/// `mutants: N caught, M survived`
fn mutants(line: &str) -> Count {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words.as_slice() {
        ["mutants:", caught, "caught,", survived, "survived", ..] => {
            match (caught.parse(), survived.parse()) {
                (Ok(passed), Ok(failed)) => Count { passed, failed },
                _ => Count::default(),
            }
        }
        _ => Count::default(),
    }
}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    if let Some(first) = words.first_mut() {
        *first = first.rsplit('/').next().unwrap_or(first).to_owned();
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counting: Counting, success: bool, lines: &[&str], expected: (u64, u64)) {
        let sum = lines.iter().fold(Count::default(), |sum, line| {
            sum.plus(counted(line, counting))
        });
        let got = settle(success, sum, counting);
        assert_eq!((got.passed, got.failed), expected, "{lines:?}");
    }

    #[test]
    fn results_are_counted() {
        let ok = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let bad = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        check(Counting::CargoTest, true, &[ok, ok], (6, 0));
        check(Counting::CargoTest, false, &[ok, bad], (6, 2));
        check(
            Counting::CargoTest,
            false,
            &["error: could not compile"],
            (0, 1),
        );
        // A runner that died after it said ok, and one that ran nothing.
        check(Counting::CargoTest, false, &[ok], (3, 1));
        check(Counting::CargoTest, true, &[], (0, 1));
        check(Counting::Units, true, &[], (0, 0));
        check(Counting::Units, false, &[], (0, 1));
        check(Counting::Status, true, &[ok], (1, 0));
        check(Counting::Status, false, &[], (0, 1));
        check(
            Counting::Sim,
            true,
            &["sim: seeds=40 failed=0 steps=9 sim_hours_per_s=3.1"],
            (40, 0),
        );
        check(
            Counting::Sim,
            false,
            &["sim: seeds=40 failed=2 steps=9 sim_hours_per_s=3.1"],
            (38, 2),
        );
        check(
            Counting::Mutants,
            true,
            &["mutants: 12 caught, 0 survived"],
            (12, 0),
        );
        check(
            Counting::Mutants,
            false,
            &["mutants: 12 caught, 1 survived"],
            (12, 1),
        );
        check(Counting::Sim, false, &["sim: seeds=lots"], (0, 1));
        let told = "oracle: seed 7: the code has 1, the model 2";
        let last = "oracle: histories=40 disagreements=1 ops=9";
        check(Counting::Oracle, false, &[told, last], (39, 1));
        // An oracle that could not be made.
        check(Counting::Oracle, false, &[], (0, 1));
    }

    #[test]
    fn a_check_that_saw_nothing_fails() {
        assert_eq!(
            report(
                "none",
                Findings {
                    looked_at: 0,
                    wrong: Vec::new()
                }
            ),
            Count::FAILED
        );
        assert_eq!(
            report(
                "some",
                Findings {
                    looked_at: 1,
                    wrong: Vec::new()
                }
            ),
            Count::PASSED
        );
        assert_eq!(
            report(
                "some",
                Findings {
                    looked_at: 1,
                    wrong: vec!["x".to_owned()]
                }
            ),
            Count::FAILED
        );
    }
}
