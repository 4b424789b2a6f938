//! Programs from outside, and waiting for conditions.

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long anything may take. Met only by a hang: a slow machine under load stays far below.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until the condition gives something.
///
/// # Panics
/// When it gives nothing within [`DEADLINE`].
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "waited too long for {what}");
        thread::sleep(LOOK_EVERY);
    }
}

/// What a program did.
#[derive(Debug)]
pub struct Done {
    /// Whether it exited with 0.
    pub success: bool,
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it wrote.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Done {
    /// The output of a program that must have succeeded.
    #[must_use]
    pub fn expect(self, what: &str) -> String {
        assert!(
            self.success,
            "{what}: exit code {}\n{}\n{}",
            self.code, self.stdout, self.stderr
        );
        self.stdout
    }
}

/// Runs a program to its end.
///
/// # Panics
/// When it cannot be started, or does not end within [`DEADLINE`].
pub fn run(command: &mut Command, stdin: &[u8]) -> Done {
    let shown = format!("{command:?}");
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{shown}: {error}"));
    if let Some(mut pipe) = child.stdin.take() {
        // A program may end without reading what it was given.
        let _ = pipe.write_all(stdin);
    }
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let code = end_of(&mut child);
    let text = |thread: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&thread.join().unwrap_or_default()).into_owned()
    };
    let Some(code) = code else {
        panic!("{shown}: does not end\n{}\n{}", text(stdout), text(stderr));
    };
    Done {
        success: code == 0,
        code,
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// Waits for the end of a child; its exit code, -1 for a signal.
///
/// # Panics
/// When it does not end within [`DEADLINE`]; it is killed then.
pub fn ended(child: &mut Child, what: &str) -> i32 {
    let code = end_of(child);
    code.unwrap_or_else(|| panic!("{what}: does not end"))
}

/// The same; `None` when it had to be killed.
fn end_of(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.code().unwrap_or(-1));
        }
        if started.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut all);
        }
        all
    })
}

/// Sends a signal to one process.
pub fn signal(pid: u32, name: &str) {
    let done = run(
        Command::new("kill")
            .arg(format!("-{name}"))
            .arg(pid.to_string()),
        b"",
    );
    assert!(done.success, "kill -{name} {pid}: {}", done.stderr);
}

/// A number of the environment, or this one.
#[must_use]
pub fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.replace('_', "").parse().ok())
        .unwrap_or(otherwise)
}
