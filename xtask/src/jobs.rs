//! Several commands at a time: each one's output is kept until it ends, and printed whole only when something in it failed.

use std::{
    collections::{BTreeMap, VecDeque},
    process::Command,
    sync::{
        Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::step::{self, Count, Counting};

/// Silence after which the jobs under way are named.
const SILENCE: Duration = Duration::from_secs(30);

/// One command.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
    pub(crate) counting: Counting,
}

impl Job {
    pub(crate) fn new(name: impl Into<String>, command: Command, counting: Counting) -> Job {
        Job {
            name: name.into(),
            command,
            counting,
        }
    }
}

/// What came of one job.
pub(crate) struct Done {
    pub(crate) name: String,
    pub(crate) count: Count,
    pub(crate) seconds: f64,
}

/// As many commands at a time as the machine has cores.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs all, in their order, so many at a time. Long ones should come first.
pub(crate) fn run(jobs: Vec<Job>, at_once: usize) -> Vec<Done> {
    let all = jobs.len();
    let waiting = Mutex::new(VecDeque::from(jobs));
    let (sender, receiver) = mpsc::channel();
    let mut done: Vec<Done> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..at_once.min(all) {
            let (waiting, sender) = (&waiting, sender.clone());
            scope.spawn(move || {
                while let Some(job) = waiting.lock().ok().and_then(|mut jobs| jobs.pop_front()) {
                    work(job, &sender);
                }
            });
        }
        drop(sender);
        let mut under_way: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            match receiver.recv_timeout(SILENCE) {
                Ok(Told::Begun(name)) => {
                    under_way.insert(name, Instant::now());
                }
                Ok(Told::Ended(ended, output)) => {
                    under_way.remove(&ended.name);
                    print(&ended, &output, done.len() + 1, all);
                    done.push(ended);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let names = under_way
                        .iter()
                        .map(|(name, begun)| format!("{name} {} s", begun.elapsed().as_secs()));
                    println!("   under way: {}", names.collect::<Vec<_>>().join(", "));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    // A job whose worker is gone has no result.
    for _ in done.len()..all {
        done.push(Done {
            name: "lost".to_owned(),
            count: Count::FAILED,
            seconds: 0.0,
        });
    }
    done
}

enum Told {
    Begun(String),
    Ended(Done, Vec<String>),
}

fn work(mut job: Job, sender: &mpsc::Sender<Told>) {
    let begun = Instant::now();
    // Whoever listens is in `run`, which outlives this.
    let _ = sender.send(Told::Begun(job.name.clone()));
    let (count, output) = step::kept(&mut job.command, job.counting);
    let ended = Done {
        name: job.name,
        count,
        seconds: begun.elapsed().as_secs_f64(),
    };
    let _ = sender.send(Told::Ended(ended, output));
}

fn print(ended: &Done, output: &[String], at: usize, all: usize) {
    let Done {
        name,
        count,
        seconds,
    } = ended;
    if count.failed > 0 {
        for line in output {
            println!("{line}");
        }
    }
    let (passed, failed) = (count.passed, count.failed);
    println!("-- [{at}/{all}] {name}: {passed} passed, {failed} failed, {seconds:.1} s");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job::new(name, command, Counting::Status)
    }

    #[test]
    fn every_job_has_its_result() {
        let jobs = vec![
            shell("good", "echo x; echo y >&2"),
            shell("bad", "exit 3"),
            Job::new("none", Command::new("/no/such/program"), Counting::Status),
            shell("last", "true"),
        ];
        let mut done = run(jobs, 2);
        done.sort_by(|one, other| one.name.cmp(&other.name));
        let found: Vec<(&str, u64)> = done
            .iter()
            .map(|done| (done.name.as_str(), done.count.failed))
            .collect();
        assert_eq!(found, [("bad", 1), ("good", 0), ("last", 0), ("none", 1)]);
    }
}
