//! NATS JetStream under the same load: each node has a work queue of its own with up to three replicas, of which it is one, led by it, and a consumer whose
//! acknowledgements are confirmed. So the streams share nothing but the machines.
//!
//! Each node has one connection to the server beside it. Servers speak to each other over the ways.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Experiment, Load,
    processes::{Mesh, Processes, until},
    window::{self, Flags},
};
use crate::{
    error::{Result, Trouble, io_at, wrong},
    servers::free_port,
};

/// For servers to find each other and choose who leads.
const START_MAX: Duration = Duration::from_secs(60);
/// For what is under way to be answered.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(60);
/// Nobody answers for so long: a request is asked again.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Between two looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A message that was refused is published again after so long.
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// Messages delivered and not acknowledged: more than there are producers.
const ACKS_MAX: u32 = 100_000;
const REPLICAS_MAX: usize = 3;

/// When a server syncs what it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syncs {
    /// Before each answer.
    Always,
    /// As its default is: every two minutes.
    Default,
}

struct Servers {
    processes: Processes,
    mesh: Mesh,
    /// For clients.
    ports: Vec<u16>,
}

fn replicas(load: &Load) -> usize {
    load.nodes.min(REPLICAS_MAX)
}

impl Servers {
    fn start(program: &Path, syncs: Syncs, load: &Load, directory: &Path) -> Result<Servers> {
        let mesh = Mesh::new(load)?;
        let ports: Vec<u16> = (0..load.nodes)
            .map(|_| free_port())
            .collect::<Result<_>>()?;
        let routes: Vec<String> = mesh
            .reached
            .iter()
            .map(|port| format!("\"nats://127.0.0.1:{port}\""))
            .collect();
        let mut processes = Processes::default();
        for (node, port) in ports.iter().enumerate() {
            let tags: Vec<String> = (0..replicas(load))
                .map(|back| format!("\"of{}\"", (node + load.nodes - back) % load.nodes))
                .collect();
            let store = directory.join(format!("nats-{node}"));
            let sync = match syncs {
                Syncs::Always => "sync_interval: always",
                Syncs::Default => "",
            };
            let mut text = format!(
                "server_name: \"n{node}\"\nlisten: \"127.0.0.1:{port}\"\nserver_tags: [{}]\n\
                 jetstream {{ store_dir: {store:?}\n {sync} }}\n",
                tags.join(", ")
            );
            if load.nodes > 1 {
                text += &format!(
                    "cluster {{ name: queue\n listen: \"127.0.0.1:{}\"\n advertise: \"127.0.0.1:{}\"\n routes: [{}] }}\n",
                    mesh.ports[node],
                    mesh.reached[node],
                    routes.join(", ")
                );
            }
            let config = directory.join(format!("nats-{node}.conf"));
            fs::write(&config, text).map_err(io_at(config.display()))?;
            let mut command = Command::new(program);
            command.arg("-c").arg(&config);
            let log = directory.join(format!("nats-{node}.log"));
            let pid = processes.start(command, &log)?;
            mesh.started(pid);
        }
        Ok(Servers {
            processes,
            mesh,
            ports,
        })
    }

    /// Makes a node's queue, led by that node.
    fn make_queue(&self, load: &Load, node: usize) -> Result<Client> {
        let mut client = until(START_MAX, "NATS answers", || {
            Client::connect(self.ports[node], node).map(Some)
        })?;
        let (stream, consumer) = (format!("Q{node}"), format!("C{node}"));
        let make = json!({
            "name": stream, "subjects": [format!("q.{node}")], "retention": "workqueue", "storage": "file",
            "num_replicas": replicas(load), "placement": { "tags": [format!("of{node}")] },
        });
        let consume = json!({
            "stream_name": stream,
            "config": {
                "durable_name": consumer, "deliver_subject": client.deliveries(), "ack_policy": "explicit",
                "max_ack_pending": ACKS_MAX, "ack_wait": Duration::from_secs(120).as_nanos() as u64,
            },
        });
        let lead = json!({ "placement": { "preferred": format!("n{node}") } });
        client.ask(&format!("STREAM.CREATE.{stream}"), &make)?;
        let leader = |client: &mut Client, what: &str| {
            let info = format!("{what}.INFO.{stream}");
            let (info, step) = match what {
                "STREAM" => (info, format!("STREAM.LEADER.STEPDOWN.{stream}")),
                _ => (
                    format!("{info}.{consumer}"),
                    format!("CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}"),
                ),
            };
            until(START_MAX, "NATS has the leader that is wanted", || {
                let said = client.ask(&info, &Value::Null)?;
                let cluster = &said["cluster"];
                let current = |one: &Value| one["current"] == true && one["offline"] != true;
                let others = cluster["replicas"].as_array();
                let all = others.is_none_or(|others| others.iter().all(current));
                match cluster["leader"].as_str() {
                    Some(leader) if leader == format!("n{node}") => Ok(all.then_some(())),
                    Some(_) => client.ask(&step, &lead).map(|_| None),
                    None => Ok((load.nodes == 1).then_some(())),
                }
            })
        };
        leader(&mut client, "STREAM")?;
        let create = format!("CONSUMER.DURABLE.CREATE.{stream}.{consumer}");
        client.ask(&create, &consume)?;
        leader(&mut client, "CONSUMER")?;
        Ok(client)
    }
}

/// A message from the server.
struct Message {
    subject: String,
    reply: Option<String>,
    body: Vec<u8>,
}

/// A connection.
struct Client {
    stream: TcpStream,
    node: usize,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Client {
    fn connect(port: u16, node: usize) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(io_at("NATS"))?;
        stream.set_nodelay(true).map_err(io_at("NATS"))?;
        let mut client = Client {
            stream,
            node,
            out: Vec::new(),
            input: Vec::new(),
        };
        let hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"1\",\"protocol\":1}\r\n";
        client.out.extend_from_slice(hello.as_bytes());
        for (number, subject) in [client.inbox(">"), client.deliveries()].iter().enumerate() {
            let subscribe = format!("SUB {subject} {number}\r\n");
            client.out.extend_from_slice(subscribe.as_bytes());
        }
        Ok(client)
    }

    fn inbox(&self, part: &str) -> String {
        format!("_INBOX.{}.{part}", self.node)
    }

    /// Under which the consumer's messages come. A subject below the inbox gets none.
    fn deliveries(&self) -> String {
        format!("deliver.{}", self.node)
    }

    fn publish(&mut self, subject: &str, reply: &str, body: &[u8]) {
        let head = format!("PUB {subject} {reply} {}\r\n", body.len());
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(body);
        self.out.extend_from_slice(b"\r\n");
    }

    fn flush(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(io_at("write to NATS"))
    }

    /// Waits for something, no longer than this; what has come.
    fn messages(&mut self, at_most: Duration) -> Result<Vec<Message>> {
        self.stream
            .set_read_timeout(Some(at_most))
            .map_err(io_at("NATS"))?;
        let mut chunk = [0; 64 << 10];
        let length = match self.stream.read(&mut chunk) {
            Ok(0) => return wrong("NATS has closed the connection"),
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(error) => return Err(io_at("read from NATS")(error)),
        };
        self.input.extend_from_slice(&chunk[..length]);
        let input = std::mem::take(&mut self.input);
        let (messages, used, pings) = split(&input)?;
        for _ in 0..pings {
            self.out.extend_from_slice(b"PONG\r\n");
        }
        self.input = input[used..].to_vec();
        Ok(messages)
    }

    /// A request to JetStream; its answer, which must be no error.
    fn ask(&mut self, what: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let subject = format!("$JS.API.{what}");
        let inbox = self.inbox("api");
        until(START_MAX, what, || {
            self.publish(&subject, &inbox, body.as_bytes());
            self.flush()?;
            let began = Instant::now();
            while began.elapsed() < ANSWER_WAIT {
                for message in self.messages(LOOK_EVERY)? {
                    if message.subject != inbox {
                        continue;
                    }
                    let said: Value = serde_json::from_slice(&message.body)
                        .map_err(|error| Trouble::Wrong(format!("NATS: {error}")))?;
                    return match said["error"].is_null() {
                        true => Ok(Some(said)),
                        false => wrong(said["error"].to_string()),
                    };
                }
                self.flush()?;
            }
            Ok(None)
        })
    }
}

/// Whole messages in a buffer, how many bytes they and other lines have, and how many of these were pings.
fn split(input: &[u8]) -> Result<(Vec<Message>, usize, usize)> {
    let (mut messages, mut used, mut pings) = (Vec::new(), 0, 0);
    while let Some(end) = input[used..].windows(2).position(|two| two == b"\r\n") {
        let line = String::from_utf8_lossy(&input[used..used + end]);
        let begin = used + end + 2;
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("MSG") => {
                let words: Vec<&str> = words.collect();
                let (subject, reply, length) = match words[..] {
                    [subject, _, length] => (subject, None, length),
                    [subject, _, reply, length] => (subject, Some(reply), length),
                    _ => return wrong(format!("NATS: {line}")),
                };
                let Ok(length) = length.parse::<usize>() else {
                    return wrong(format!("NATS: {line}"));
                };
                let Some(body) = input.get(begin..begin + length + 2) else {
                    break;
                };
                messages.push(Message {
                    subject: subject.to_owned(),
                    reply: reply.map(str::to_owned),
                    body: body[..length].to_vec(),
                });
                used = begin + length + 2;
                continue;
            }
            Some("PING") => pings += 1,
            Some("INFO" | "PONG" | "+OK") => {}
            _ => return wrong(format!("NATS: {line}")),
        }
        used = begin;
    }
    Ok((messages, used, pings))
}

/// A node's producers and its consumer.
struct Producers<'a> {
    client: Client,
    flags: &'a Flags,
    payload: Vec<u8>,
    put_at: Vec<Instant>,
    refused: Vec<(Instant, usize)>,
    seen: Seen,
    accepted: u64,
    done: u64,
}

/// What they saw.
#[derive(Default)]
struct Seen {
    accept_micros: Vec<u32>,
    refused: u64,
}

impl Producers<'_> {
    fn put(&mut self, producer: usize) {
        self.put_at[producer] = Instant::now();
        self.publish(producer);
    }

    fn publish(&mut self, producer: usize) {
        let subject = format!("q.{}", self.client.node);
        let reply = self.client.inbox(&format!("p.{producer}"));
        let payload = std::mem::take(&mut self.payload);
        self.client.publish(&subject, &reply, &payload);
        self.payload = payload;
    }

    fn message(&mut self, message: Message) -> Result<()> {
        if let Some(reply) = message.reply {
            // To be worked on, under the subject it was published with: done at once.
            if message.body.len() != self.payload.len() {
                return wrong("NATS has changed a message");
            }
            let confirm = self.client.inbox("a");
            self.client.publish(&reply, &confirm, b"+ACK");
            return Ok(());
        }
        let parts: Vec<&str> = message.subject.split('.').collect();
        match (parts.get(2).copied(), parts.get(3)) {
            (Some("p"), Some(producer)) => {
                let producer: usize = producer.parse().unwrap_or(0);
                let said: Value = serde_json::from_slice(&message.body)
                    .map_err(|error| Trouble::Wrong(format!("NATS: {error}")))?;
                if said["seq"].as_u64().is_none() {
                    self.seen.refused += 1;
                    let at = Instant::now() + RETRY_AFTER;
                    self.refused.push((at, producer));
                    return Ok(());
                }
                self.accepted += 1;
                if Flags::are(&self.flags.measuring) {
                    let micros = self.put_at[producer].elapsed().as_micros();
                    let micros = u32::try_from(micros).unwrap_or(u32::MAX);
                    self.seen.accept_micros.push(micros);
                }
                if !Flags::are(&self.flags.stopped) {
                    self.put(producer);
                }
            }
            (Some("a"), _) => {
                self.done += 1;
                self.flags.done.fetch_add(1, Ordering::Relaxed);
            }
            // The answer to a request that was asked twice.
            _ => {}
        }
        Ok(())
    }

    fn run(mut self, producers: usize) -> Result<Seen> {
        (0..producers).for_each(|producer| self.put(producer));
        let mut stopped_at = None;
        loop {
            let now = Instant::now();
            let due = |(at, _): &mut (Instant, usize)| *at <= now;
            let again: Vec<_> = self.refused.extract_if(.., due).collect();
            for (_, producer) in again {
                self.publish(producer);
            }
            self.client.flush()?;
            if Flags::are(&self.flags.stopped) {
                let since = stopped_at.get_or_insert(now).elapsed();
                let all_answered = since > ANSWER_WAIT && self.refused.is_empty();
                if self.done >= self.accepted && all_answered {
                    return Ok(self.seen);
                }
                if since > DRAIN_WAIT_MAX || Flags::are(&self.flags.failed) {
                    return wrong(format!(
                        "NATS: {} messages accepted, {} done",
                        self.accepted, self.done
                    ));
                }
            }
            for message in self.client.messages(LOOK_EVERY)? {
                self.message(message)?;
            }
        }
    }
}

/// Runs NATS under a load.
pub(super) fn run(
    program: &Path,
    syncs: Syncs,
    load: &Load,
    directory: &Path,
) -> Result<Experiment> {
    let servers = Servers::start(program, syncs, load, directory)?;
    let nodes = if load.one_node { 1 } else { load.nodes };
    let clients: Vec<Client> = (0..nodes)
        .map(|node| servers.make_queue(load, node))
        .collect::<Result<_>>()?;
    let flags = Flags::default();
    let (mut made, seen) = thread::scope(|scope| {
        let running: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let flags = &flags;
                scope.spawn(move || {
                    let producers = Producers {
                        client,
                        flags,
                        payload: vec![b'x'; load.payload_bytes],
                        put_at: vec![Instant::now(); load.producers],
                        refused: Vec::new(),
                        seen: Seen::default(),
                        accepted: 0,
                        done: 0,
                    };
                    let done = producers.run(load.producers);
                    if done.is_err() {
                        flags.failed.store(true, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        let cpu = || servers.processes.cpu_seconds();
        window::of_clients(load, &servers.mesh.ways, &flags, &cpu, running)
    })?;
    let finished = flags.done.load(Ordering::Relaxed).max(1) as f64;
    let refused: u64 = seen.iter().map(|seen| seen.refused).sum();
    let mut micros: Vec<u32> = seen
        .into_iter()
        .flat_map(|seen| seen.accept_micros)
        .collect();
    made.copies = replicas(load).div_ceil(2) - 1;
    made.accept_ms = super::quantiles(&mut micros);
    made.each = [("refused".to_owned(), refused as f64 / finished)].into();
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let input = b"INFO {}\r\nPING\r\nMSG a.b 1 3\r\nx\r\n\r\nMSG c 1 d.e 0\r\n\r\nPONG\r\n";
        for cut in 0..=input.len() {
            let (mut messages, used, mut pings) = split(&input[..cut]).unwrap();
            let (more, rest, more_pings) = split(&input[used..]).unwrap();
            messages.extend(more);
            pings += more_pings;
            assert_eq!((used + rest, pings), (input.len(), 1));
            let seen: Vec<_> = messages
                .iter()
                .map(|one| (one.subject.as_str(), one.reply.as_deref(), &one.body[..]))
                .collect();
            assert_eq!(
                seen,
                [("a.b", None, &b"x\r\n"[..]), ("c", Some("d.e"), b"")]
            );
        }
        assert!(split(b"-ERR 'no'\r\n").is_err());
        assert!(split(b"MSG a\r\n").is_err());
    }
}
