//! Entry points for fuzzers, also used by a property test: each takes arbitrary bytes and panics when an invariant is broken.

use std::{
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use whimbrel_service::{admin::AdminCall, scram};

use crate::{
    admin::{
        client::ask_server,
        protocol::{self, ANSWER_BYTES_MAX, Answer, QUESTION_BYTES_MAX, Question},
    },
    config::Config,
    metrics::{Readiness, respond},
    password::is_verifier,
};

/// A peer whose bytes come in pieces, and no more after them.
struct Pieces<'i> {
    input: &'i [u8],
    piece: usize,
    output: Vec<u8>,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = self.piece.min(self.input.len()).min(buffer.remaining());
        let (part, rest) = self.input.split_at(bytes);
        buffer.put_slice(part);
        self.input = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// On a stream in memory nothing waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits for what is there"),
    }
}

/// Messages of the admin socket, of either side: the same however they are cut, written and read as the same. The first byte chooses the pieces, and
/// whether the rest is one frame without its length.
pub fn admin(data: &[u8]) {
    let Some((&choice, said)) = data.split_first() else {
        return;
    };
    let length = u32::try_from(said.len()).unwrap_or(u32::MAX).to_be_bytes();
    let wire = match choice {
        0..128 => said.to_vec(),
        _ => [&length, said].concat(),
    };
    let stream = |piece: usize| Pieces {
        input: &wire,
        piece,
        output: Vec::new(),
    };
    let pieces = [usize::from(choice % 128) + 1, usize::MAX];
    let ask = |piece| {
        now(protocol::read::<Question>(
            &mut stream(piece),
            QUESTION_BYTES_MAX,
        ))
    };
    let [question, whole] = pieces.map(|piece| ask(piece).map_err(|error| error.to_string()));
    assert_eq!(question, whole, "cut otherwise");
    if let Ok(question) = question {
        same_question(question);
    }
    let asked = Question::AccountList {};
    let answer = |piece| now(ask_server(&mut stream(piece), &asked));
    let [answer, whole] = pieces.map(|piece| answer(piece).map_err(|error| error.to_string()));
    assert_eq!(answer, whole, "cut otherwise");
    if let Ok(answer) = answer {
        assert!(!answer.more());
        let again: Answer = written(&answer, ANSWER_BYTES_MAX);
        assert_eq!(again, answer);
    }
}

fn written<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T, bytes_max: usize) -> T {
    let mut wire = Vec::new();
    let read = now(async {
        protocol::write(&mut wire, value).await?;
        protocol::read(&mut &wire[..], bytes_max).await
    });
    read.unwrap_or_else(|error| panic!("what was written cannot be read: {error}"))
}

fn same_question(question: Question) {
    // Escapes make the text longer.
    assert_eq!(
        written::<Question>(&question, 6 * QUESTION_BYTES_MAX),
        question
    );
    match question.into_call() {
        Ok(
            AdminCall::AddAccount {
                verifier, scram, ..
            }
            | AdminCall::SetVerifier {
                verifier, scram, ..
            },
        ) => {
            assert!(is_verifier(&verifier));
            if let Some(keys) = scram {
                assert_eq!(scram::from_text(&scram::to_text(&keys)), Some(keys));
            }
        }
        Ok(_) => {}
        Err(reason) => assert!(!reason.is_empty()),
    }
}

/// A request for figures: one answer, the same however the request is cut, or none.
pub fn request(data: &[u8]) {
    let Some((&choice, request)) = data.split_first() else {
        return;
    };
    let readiness = Readiness::default();
    let answer = |piece: usize| {
        let mut stream = Pieces {
            input: request,
            piece,
            output: Vec::new(),
        };
        let done = now(respond(&mut stream, &readiness));
        assert!(done.is_ok());
        stream.output
    };
    let whole = answer(usize::MAX);
    assert_eq!(answer(usize::from(choice) + 1), whole, "cut otherwise");
    let is_request = request.windows(4).any(|window| window == b"\r\n\r\n");
    assert_eq!(whole.is_empty(), !is_request);
    if is_request {
        let text = String::from_utf8_lossy(&whole);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.starts_with("HTTP/1.1 "));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert!(!head.contains(['\0', '\u{FFFD}']), "words of the client");
    }
}

/// A configuration file: a problem has a line of the file. A duration or a size means the same once it is written in the smallest unit.
pub fn configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(problems) = Config::parse(&text) {
        assert!(!problems.0.is_empty() && problems.0.is_sorted_by_key(|problem| problem.line));
        let lines = 1 + text.matches('\n').count();
        let within = |line: usize| (1..=lines).contains(&line);
        assert!(problems.0.iter().all(|problem| within(problem.line)));
    }
    if text.contains(['\'', '\n']) {
        return;
    }
    let duration = |text: &str| {
        let file = format!("[imap]\nlogin_timeout = '{text}'");
        Config::parse(&file)
            .ok()
            .map(|config| config.imap.login_timeout)
    };
    if let Some(read) = duration(&text) {
        assert_eq!(duration(&format!("{}ms", read.as_millis())), Some(read));
    }
    let size = |text: &str| {
        let file = format!("[imap]\nappend_bytes_max = '{text}'");
        Config::parse(&file)
            .ok()
            .map(|config| config.imap.append_bytes_max)
    };
    if let Some(read) = size(&text) {
        assert_eq!(size(&format!("{}B", read.0)), Some(read));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            super::admin(&data);
            super::request(&data);
            super::configuration(&data);
        }
    }
}
