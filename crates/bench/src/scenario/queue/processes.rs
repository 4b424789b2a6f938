//! Processes of other systems: found, started, ended.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{Load, Network, cities};
use crate::{
    error::{Result, Trouble, io_at, wrong},
    lag::way::Ways,
    process::{self, Tree},
    servers::free_port,
};

/// A process ends within this when asked to; else it is killed.
const STOP_MAX: Duration = Duration::from_secs(20);

/// The program with this name, from the paths of the environment.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// What a program says of its version: its first line.
pub(super) fn version(program: &Path) -> Result<String> {
    let done = Command::new(program)
        .arg("--version")
        .output()
        .map_err(io_at(program.display()))?;
    let said = String::from_utf8_lossy(&done.stdout);
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

/// The processes of a run.
#[derive(Default)]
pub(super) struct Processes(Vec<Child>);

impl Processes {
    /// Starts one; what it says goes into a file. Its number.
    pub(super) fn start(&mut self, mut command: Command, log: &Path) -> Result<u32> {
        let file = File::create(log).map_err(io_at(log.display()))?;
        command.stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(io_at("a log"))?);
        command.stderr(file);
        let child = command.spawn().map_err(io_at(format!("{command:?}")))?;
        let pid = child.id();
        self.0.push(child);
        Ok(pid)
    }

    /// CPU of all so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        let all = self.0.iter().map(|child| Tree::new(child.id()));
        all.map(Tree::cpu_seconds).sum()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &self.0 {
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let began = Instant::now();
        for child in &mut self.0 {
            while let Ok(None) = child.try_wait()
                && began.elapsed() < STOP_MAX
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            // Nothing to be done if it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Where the nodes of a run reach each other.
///
/// All of them reach one under the same address, since they tell each other of it. Who connects is seen by whose process it is.
pub(super) struct Mesh {
    pub(super) ways: Ways,
    /// At which each listens.
    pub(super) ports: Vec<u16>,
    /// At which each is reached.
    pub(super) reached: Vec<u16>,
    pids: Arc<Mutex<Vec<u32>>>,
}

impl Mesh {
    pub(super) fn new(load: &Load) -> Result<Mesh> {
        let ways = Ways::default();
        let ports: Vec<u16> = (0..load.nodes)
            .map(|_| free_port())
            .collect::<Result<_>>()?;
        let mut reached = ports.clone();
        let pids: Arc<Mutex<Vec<u32>>> = Arc::default();
        if load.network == Network::Cities {
            cities::delay(&ways, load.nodes);
            for (node, port) in reached.iter_mut().enumerate() {
                let pids = pids.clone();
                let who = move |from| {
                    let pids = pids.lock().unwrap_or_else(PoisonError::into_inner);
                    process::owner_of_port(from, &pids)
                };
                *port = ways.open_for(node, *port, who)?;
            }
        }
        Ok(Mesh {
            ways,
            ports,
            reached,
            pids,
        })
    }

    /// The next node is this process.
    pub(super) fn started(&self, pid: u32) {
        let mut pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        pids.push(pid);
    }
}

/// A request by HTTP/1.0 with an empty or a JSON body; the body of the answer.
pub(super) fn http(port: u16, method: &str, path: &str, body: &str) -> Result<String> {
    let wait = Duration::from_secs(10);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(io_at("HTTP"))?;
    let request = format!(
        "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    stream
        .set_read_timeout(Some(wait))
        .and_then(|()| stream.write_all(request.as_bytes()))
        .and_then(|()| stream.read_to_string(&mut answer))
        .map_err(io_at("HTTP"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => wrong(format!("{method} {path}: {answer}")),
    }
}

/// Tries until it gives something, or for so long.
pub(super) fn until<T>(
    at_most: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        let seen = look();
        match seen {
            Ok(Some(found)) => return Ok(found),
            Ok(None) if began.elapsed() > at_most => return wrong(what),
            Err(error) if began.elapsed() > at_most => {
                return Err(Trouble::Wrong(format!("{what}: {error}")));
            }
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
