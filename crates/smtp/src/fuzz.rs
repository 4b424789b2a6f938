//! Entry points for fuzzers, also used by the property tests: each takes arbitrary bytes and panics when an invariant is broken.

use std::sync::Arc;

use crate::client::{Client, ClientConfig, ClientOutput, EightBit, Login, Outgoing};
use crate::command::{Command, Extensions};
use crate::dsn::{EnvelopeId, Notify, OriginalRecipient};
use crate::session::{
    Accepted, AuthAnswer, Body, CloseReason, Config, Counters, DataAnswer, Output, Peer, Role,
    Session, TlsInfo,
};
use crate::text::TextScanner;
use crate::trace::WallTime;
use crate::{Domain, ForwardPath, HostName, Mailbox, Refusal, ReversePath, Time};

/// What a session did, in a form that must not depend on how its input was split or when its questions were answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace {
    /// All that was sent.
    pub sent: Vec<u8>,
    /// All that was asked and told; chunks are joined.
    pub asked: Vec<Output>,
    /// Why it was closed.
    pub closed: Option<CloseReason>,
    /// The counters.
    pub counters: Counters,
}

/// A configuration with small limits, so that short inputs meet them.
#[must_use]
pub fn small_config() -> Config {
    let host = Domain::new("mx.example.org").unwrap_or_else(|_| unreachable!("a valid domain"));
    let mut config = Config::new(host);
    config.starttls = true;
    config.auth_without_tls = true;
    config.offer_dsn = true;
    config.offer_requiretls = true;
    config.offer_future_release = Some(1_000);
    let limits = &mut config.limits;
    limits.command_line_bytes_max = 64;
    limits.auth_line_bytes_max = 80;
    limits.input_buffer_bytes_max = 128;
    limits.output_buffer_bytes_max = 64;
    limits.recipients_max = 3;
    limits.recipients_refused_max = 3;
    limits.message_bytes_max = 100;
    limits.discard_bytes_max = 100;
    limits.text_line_bytes_max = 20;
    limits.bdat_chunk_bytes_max = 150;
    limits.data_unacknowledged_bytes_max = 50;
    limits.received_hops_max = 2;
    limits.commands_max = 60;
    limits.transactions_max = 4;
    config
}

/// The longest reply: EHLO's.
const REPLY_BYTES_MAX: usize = 1_024;

/// The trace of a session that is given `input` in pieces of `piece`. `lazy`: each question is answered only when the machine has nothing more to
/// say, and chunks are acknowledged late.
#[must_use]
pub fn drive(role: Role, config: &Config, input: &[u8], piece: usize, lazy: bool) -> Trace {
    let limits = config.limits.clone();
    let peer = Peer {
        ip: [192, 0, 2, 1].into(),
        tls: None,
    };
    let mut session = Session::new(role, Arc::new(config.clone()), peer, Time::ZERO);
    session.offer_auth("PLAIN LOGIN".to_owned());
    session.set_wall_time(Time::ZERO, WallTime::new(1_795_190_400, 0));
    let mut trace = Trace {
        sent: Vec::new(),
        asked: Vec::new(),
        closed: None,
        counters: Counters::default(),
    };
    let mut rest = input;
    let mut in_message = false;
    loop {
        let mut question = None;
        let mut unacknowledged = 0;
        while let Some(output) = session.poll() {
            assert!(trace.closed.is_none(), "output after the close");
            assert!(question.is_none() || !is_question(&output), "two questions");
            let held = limits
                .input_buffer_bytes_max
                .max(limits.auth_line_bytes_max)
                + limits.output_buffer_bytes_max;
            assert!(
                session.buffered_bytes() <= held + REPLY_BYTES_MAX * limits.recipients_max,
                "buffered without bound"
            );
            match &output {
                Output::Send(bytes) => trace.sent.extend(bytes),
                Output::Close(reason) => trace.closed = Some(*reason),
                Output::DataChunk(bytes) => {
                    assert!(in_message && !bytes.is_empty());
                    unacknowledged += bytes.len();
                    if !lazy {
                        session.acknowledge(Time::ZERO, core::mem::take(&mut unacknowledged));
                    }
                }
                Output::DataEnd(_) | Output::DataAbort(_) => {
                    assert!(core::mem::take(&mut in_message), "the end of no message");
                }
                _ => {}
            }
            match output {
                Output::DataChunk(bytes) => match trace.asked.last_mut() {
                    Some(Output::DataChunk(joined)) => joined.extend(bytes),
                    _ => trace.asked.push(Output::DataChunk(bytes)),
                },
                Output::Send(_) | Output::Close(_) => {}
                output => {
                    trace.asked.push(output.clone());
                    if is_question(&output) && lazy {
                        question = Some(output);
                    } else if is_question(&output) {
                        in_message |= answer(&mut session, &output);
                    }
                }
            }
        }
        if unacknowledged > 0 {
            session.acknowledge(Time::ZERO, unacknowledged);
        }
        if let Some(question) = question {
            assert!(!session.wants_input(), "input while a question is open");
            in_message |= answer(&mut session, &question);
            continue;
        }
        if unacknowledged > 0 {
            continue;
        }
        if rest.is_empty() || trace.closed.is_some() {
            break;
        }
        let taken = session.input(Time::ZERO, &rest[..piece.clamp(1, rest.len())]);
        assert!(taken > 0, "a session that neither speaks nor listens");
        rest = &rest[taken..];
    }
    session.on_eof(Time::ZERO);
    while let Some(output) = session.poll() {
        in_message &= !matches!(output, Output::DataAbort(_));
    }
    assert!(!in_message, "a message without an end");
    assert_eq!(session.buffered_bytes(), 0);
    trace.counters = *session.counters();
    trace
}

fn is_question(output: &Output) -> bool {
    !matches!(
        output,
        Output::Send(_) | Output::DataChunk(_) | Output::DataAbort(_) | Output::Close(_)
    )
}

/// Answers by the question's text; true when a message begins.
fn answer(session: &mut Session, question: &Output) -> bool {
    let now = Time::ZERO;
    let decide = |text: String| {
        if text.contains('u') {
            Err(Refusal::unknown_recipient())
        } else {
            Ok(())
        }
    };
    match question {
        Output::StartTls => session.tls_started(
            now,
            TlsInfo {
                version: "v".into(),
                cipher: "c".into(),
            },
        ),
        Output::AuthBegin { initial: None, .. } => {
            session.answer_auth(now, AuthAnswer::Challenge(b"?".to_vec()));
        }
        Output::AuthBegin {
            initial: Some(message),
            ..
        }
        | Output::AuthResponse(message) => {
            let answer = match message.0.first() {
                Some(b'a') => AuthAnswer::Accepted,
                Some(0) => AuthAnswer::Challenge(message.0.to_vec()),
                None => AuthAnswer::Broken(Refusal::try_later()),
                _ => AuthAnswer::Rejected,
            };
            session.answer_auth(now, answer);
        }
        Output::Mail(mail) => session.answer_mail(now, decide(mail.from.to_string())),
        Output::Rcpt(to) => session.answer_rcpt(now, decide(to.path.to_string())),
        Output::DataBegin(envelope) => {
            let full = envelope.mail.from.to_string().contains('f');
            session.answer_data_begin(
                now,
                if full {
                    Err(Refusal::no_space())
                } else {
                    Ok(())
                },
            );
            return !full;
        }
        Output::DataEnd(_) => {
            session.answer_data_end(now, DataAnswer::All(Ok(Accepted::default())))
        }
        _ => {}
    }
    false
}

/// A session: the first byte chooses role and split.
pub fn session(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let role = [Role::Smtp, Role::Lmtp, Role::Submission][usize::from(choice % 3)];
    let piece = usize::from(choice / 3 % 16) + 1;
    let config = small_config();
    let by_octets = drive(role, &config, input, 1, false);
    let by_pieces = drive(role, &config, input, piece, true);
    if input
        .to_ascii_uppercase()
        .windows(8)
        .any(|w| w == b"STARTTLS")
    {
        // What stands behind STARTTLS is told from what follows the handshake by the piece it came in.
        return;
    }
    assert_eq!(by_octets, by_pieces);
    assert_eq!(by_octets, drive(role, &config, input, usize::MAX, false));
    for line in by_octets.sent.split_inclusive(|&b| b == b'\n') {
        assert!(
            line.ends_with(b"\r\n")
                && line.len() <= 512
                && !line[..line.len() - 2].contains(&b'\r'),
            "malformed reply line"
        );
    }
}

/// A client against a server that says anything: the first two bytes choose how the client behaves, and the split. Each message given is
/// told of once, and what is held is bounded.
pub fn client(data: &[u8]) {
    let Some((&[choice, more], input)) = data.split_first_chunk() else {
        return;
    };
    let (Ok(name), Ok(to)) = (HostName::new("c"), Mailbox::parse("a@x")) else {
        unreachable!("valid names")
    };
    let mut config = ClientConfig::new(name);
    config.lmtp = choice & 1 != 0;
    config.chunking = choice & 2 != 0;
    config.pipelining = choice & 4 != 0;
    config.tls = more & 1 != 0;
    config.login = Login::new("n", "p").filter(|_| more & 2 != 0);
    if more & 4 != 0 {
        config.eight_bit = EightBit::Refuse;
    }
    let to = ForwardPath::Mailbox(to);
    let mut message = Outgoing::new(ReversePath::Null, vec![to.clone(), to.clone(), to]);
    message.size = Some(10);
    message.require_tls = more & 8 != 0;
    message.envid = EnvelopeId::new("a b");
    message.body = Body::EightBitMime;
    if let Some(rcpt) = message.recipients.first_mut() {
        rcpt.notify = Some(Notify::default());
        rcpt.orcpt = OriginalRecipient::new("é@x");
    }
    let mut client = Client::new(config, Time::ZERO);
    let (mut given, mut told, mut closed) = (0, 0, false);
    for (step, piece) in input.chunks(usize::from(choice / 8) + 1).enumerate() {
        let now = Time::from_secs(step as u64);
        client.input(now, piece);
        while let Some(output) = client.poll() {
            assert!(!closed, "output after the close");
            match output {
                ClientOutput::Send(bytes) => assert!(!bytes.is_empty()),
                ClientOutput::StartTls => client.tls_started(now),
                ClientOutput::StartTlsRefused(_) => {}
                ClientOutput::Ready(_) if given < 5 => {
                    given += 1;
                    client.send(now, message.clone());
                }
                ClientOutput::Ready(_) => client.quit(now),
                ClientOutput::WantBody => {
                    client.body(now, b".\r\n");
                    client.body_end(now);
                }
                ClientOutput::Done(outcome) => {
                    told += 1;
                    assert_eq!(outcome.recipients.len(), message.recipients.len());
                }
                ClientOutput::Close(ended) => {
                    closed = true;
                    told += ended.is_err_and(|failure| failure.unfinished.is_some()) as u32;
                    assert_eq!(given, told, "a message without an end");
                }
            }
        }
        assert_eq!(client.deadline().is_none(), closed);
    }
    client.on_eof();
    while let Some(output) = client.poll() {
        assert!(!closed, "output after the close");
        if let ClientOutput::Close(ended) = output {
            closed = true;
            told += ended.is_err_and(|failure| failure.unfinished.is_some()) as u32;
        } else if let ClientOutput::Done(_) = output {
            told += 1;
        }
    }
    assert!(closed && given == told, "a message without an end");
}

/// Commands and addresses: what is parsed is printable and parses back.
pub fn command(data: &[u8]) {
    let all = Extensions {
        dsn: true,
        require_tls: true,
        future_release: true,
    };
    if let Ok(command) = Command::parse(data, all) {
        let written = match &command {
            Command::Mail(mail) => format!("MAIL {mail}"),
            Command::Rcpt(rcpt) => format!("RCPT {rcpt}"),
            _ => return,
        };
        assert!(!written.contains(char::is_control));
        assert_eq!(Command::parse(written.as_bytes(), all), Ok(command));
    }
    if let Ok(text) = core::str::from_utf8(data)
        && let Ok(mailbox) = Mailbox::parse(text)
    {
        assert_eq!(Mailbox::parse(&mailbox.to_string()), Ok(mailbox));
    }
}

/// The text scanner: whole and by octets it gives the same, and what it gives has no bare line ends.
pub fn text(data: &[u8]) {
    let run = |size: usize| {
        let mut scanner = TextScanner::data(30);
        let mut out = Vec::new();
        for piece in data.chunks(size) {
            if scanner.feed(piece, &mut out).end {
                break;
            }
        }
        (out, scanner.fault())
    };
    let (out, fault) = run(data.len().max(1));
    assert_eq!(run(1), (out.clone(), fault));
    let mut again = TextScanner::chunks(usize::MAX);
    again.feed(&out, &mut Vec::new());
    assert_eq!(again.fault(), None);
}
