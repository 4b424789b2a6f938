//! Entry points for fuzzers; the property tests use them, too.

use crate::client::{self, Client, NonSynchronising, Response};
use crate::command::ListPattern;
use crate::core::{MailboxName, SequenceSet, Tag};
use crate::{
    AppendBegin, AppendLiteral, AppendMessage, Command, CommandBody, Decoder, Event, Limits,
    SaslReply,
};

/// An [`Event`] that owns its bytes; chunks of a message are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Owned {
    Command(Command),
    Continue(Tag, u64),
    Append(AppendBegin),
    Message(AppendMessage),
    Literal(AppendLiteral),
    Chunk(Vec<u8>),
    Url(String),
    MessageEnd,
    AppendEnd,
    Sasl(SaslReply),
    Done,
    Bad(Option<Tag>, &'static str),
    Fatal(&'static str),
}

/// How a session under test behaves.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Session {
    pub authenticated: bool,
    pub utf8: bool,
    /// Refuse every literal that can be refused.
    pub refuse: bool,
}

/// Small limits, so that inputs of a few KB come to them.
pub fn small_limits() -> Limits {
    Limits {
        command_bytes_max_before_login: 200,
        command_bytes_max: 600,
        sequence_set_bytes_max: 900,
        sequence_set_ranges_max: 60,
        literal_bytes_max_before_login: 50,
        literal_bytes_max: 100,
        literal_count_max: 4,
        append_bytes_max: 400,
        skip_bytes_max: 2_000,
        nesting_depth_max: 5,
        search_keys_max: 8,
        fetch_items_max: 8,
        header_fields_max: 4,
        section_depth_max: 4,
        flags_max: 4,
        list_patterns_max: 3,
        list_pattern_bytes_max: 40,
    }
}

/// The most bytes that a decoder with these limits may hold beyond twice what was pushed at once.
pub fn held_bytes_max(limits: &Limits) -> usize {
    // Vectors grow by doubling; a set that is read has a quarter more ranges than it may keep.
    let ranges = limits.sequence_set_ranges_max * 5 / 4 + 64;
    2 * limits
        .command_bytes_max
        .max(limits.command_bytes_max_before_login)
        + 2 * (ranges + limits.sequence_set_ranges_max) * 8
        + 2_048
}

/// All events of `input`, pushed in pieces of these lengths (the last one again and again).
pub fn events(input: &[u8], lengths: &[usize], limits: &Limits, session: Session) -> Vec<Owned> {
    let mut decoder = Decoder::new(limits.clone());
    decoder.set_authenticated(session.authenticated);
    decoder.set_utf8(session.utf8);
    let mut found = Vec::new();
    let mut rest = input;
    let mut lengths = lengths
        .iter()
        .copied()
        .chain(std::iter::repeat(*lengths.last().unwrap_or(&1)));
    let held_max = held_bytes_max(limits);
    while !rest.is_empty() {
        let length = lengths.next().unwrap_or(1).clamp(1, rest.len());
        decoder.push(&rest[..length]);
        rest = &rest[length..];
        while drain(&mut decoder, &mut found, session) {}
        assert!(
            decoder.buffered_bytes() <= held_max + 2 * length,
            "{} bytes held after {found:?}",
            decoder.buffered_bytes()
        );
    }
    found
}

/// Takes one event and answers it; `false` when there is none.
fn drain(decoder: &mut Decoder, found: &mut Vec<Owned>, session: Session) -> bool {
    let Some(event) = decoder.next() else {
        return false;
    };
    let owned = match event {
        Event::Command(command) => Owned::Command(command),
        Event::Continue { tag, size } => Owned::Continue(tag, size),
        Event::AppendBegin(begin) => Owned::Append(begin),
        Event::AppendMessage(message) => Owned::Message(message),
        Event::AppendLiteral(literal) => Owned::Literal(literal),
        Event::AppendUrl(url) => Owned::Url(url),
        Event::AppendMessageEnd => Owned::MessageEnd,
        Event::AppendChunk(bytes) => Owned::Chunk(bytes.to_vec()),
        Event::AppendEnd => Owned::AppendEnd,
        Event::Sasl(reply) => Owned::Sasl(reply),
        Event::Done => Owned::Done,
        Event::Bad { tag, text } => Owned::Bad(tag, text),
        Event::Fatal { text } => Owned::Fatal(text),
    };
    match &owned {
        Owned::Continue(..) if session.refuse => decoder.refuse_literal(),
        // What a session does with a stranger.
        Owned::Append(_) if session.refuse && !session.authenticated => decoder.refuse_literal(),
        Owned::Literal(literal) if session.refuse || literal.too_big => decoder.refuse_literal(),
        Owned::Literal(_) => decoder.accept_literal(),
        // A session may give up anywhere.
        Owned::Url(_) | Owned::MessageEnd if session.refuse => decoder.refuse_literal(),
        Owned::Command(command) => match &command.body {
            crate::CommandBody::Idle => decoder.expect_done(),
            crate::CommandBody::Authenticate { initial: None, .. } => decoder.expect_sasl(),
            _ => {}
        },
        _ => {}
    }
    if let (Some(Owned::Chunk(all)), Owned::Chunk(more)) = (found.last_mut(), &owned) {
        all.extend_from_slice(more);
    } else {
        found.push(owned);
    }
    true
}

/// Any bytes: no panic, no more memory than permitted, the same events however they are split.
pub fn fuzz_decoder(input: &[u8]) {
    let Some((&mode, input)) = input.split_first() else {
        return;
    };
    let session = Session {
        authenticated: mode & 1 != 0,
        utf8: mode & 2 != 0,
        refuse: mode & 4 != 0,
    };
    let limits = if mode & 8 == 0 {
        small_limits()
    } else {
        Limits::default()
    };
    let whole = events(input, &[input.len()], &limits, session);
    assert_eq!(whole, events(input, &[1], &limits, session));
    assert_eq!(
        whole,
        events(input, &[usize::from(mode >> 4) + 2], &limits, session)
    );
}

/// Any bytes as words of the protocol: what is accepted has one spelling.
pub fn fuzz_words(input: &[u8]) {
    for utf8 in [false, true] {
        if let Ok(name) = MailboxName::from_wire(input, utf8) {
            let mut out = Vec::new();
            crate::encode::strings::mailbox(&mut out, name.as_str(), utf8);
            assert!(name.is_inbox() || out.len() >= input.len());
        }
    }
    if let Ok(set) = SequenceSet::parse(input, 1_000) {
        let mut out = Vec::new();
        set.encode(&mut out);
        assert_eq!(SequenceSet::parse(&out, 1_000), Ok(set));
    }
    if let Some(tag) = Tag::new(input) {
        assert_eq!(tag.as_str().as_bytes(), input);
    }
}

/// Any bytes as commands: what was read as one is written by the client and read as the same.
pub fn fuzz_commands(input: &[u8]) {
    let limits = Limits::default();
    for utf8 in [false, true] {
        let session = Session {
            authenticated: true,
            utf8,
            refuse: false,
        };
        for event in events(input, &[input.len()], &limits, session) {
            let Owned::Command(command) = event else {
                continue;
            };
            // Which special use it was that is not known is forgotten, and which pattern that no name can have.
            let forgotten = match &command.body {
                CommandBody::Create { unknown_use, .. } => *unknown_use,
                CommandBody::List(list) => list.patterns.contains(&ListPattern::nothing()),
                CommandBody::Lsub { pattern, .. } => *pattern == ListPattern::nothing(),
                _ => false,
            };
            if forgotten {
                continue;
            }
            let mut client = Client::new();
            client.set_utf8(utf8);
            client.set_literals(NonSynchronising::Always);
            client.push(b"* OK hello\r\n");
            let _ = client.next();
            client.command(&command.body);
            let written = client.take_output();
            let again = events(&written, &[written.len()], &limits, session);
            assert!(
                matches!(again.as_slice(), [Owned::Command(again)] if again.body == command.body),
                "{command:?} is written {} and read {again:?}",
                written.escape_ascii()
            );
        }
    }
}

/// What a client reads from a server that says anything, pushed in pieces of this length, up to the first mistake. `Err` is the mistake.
pub fn responses(
    input: &[u8],
    length: usize,
    utf8: bool,
    lenient: bool,
) -> (Vec<Response>, Option<&'static str>) {
    let mut client = Client::with_limits(client::Limits {
        lenient,
        ..client::Limits::default()
    });
    client.set_utf8(utf8);
    client.push(b"* OK hello\r\n");
    let _ = client.next();
    // Whatever is tagged so is the answer to this.
    client.raw_as(Tag::new(b"a").expect("a tag"), b"X");
    let mut found = Vec::new();
    for piece in input.chunks(length.max(1)) {
        client.push(piece);
        loop {
            match client.next() {
                Ok(Some(response)) => found.push(response),
                Ok(None) => break,
                Err(mistake) => return (found, Some(mistake.what)),
            }
        }
    }
    (found, None)
}

/// A client against a server that says anything: the same however it is cut.
pub fn fuzz_client(input: &[u8]) {
    let Some((&mode, input)) = input.split_first() else {
        return;
    };
    let utf8 = mode & 1 != 0;
    let [strict, lenient] = [false, true].map(|lenient| {
        let whole = responses(input, input.len(), utf8, lenient);
        assert_eq!(whole, responses(input, 1, utf8, lenient));
        let length = usize::from(mode >> 1) + 2;
        assert_eq!(whole, responses(input, length, utf8, lenient));
        whole
    });
    // What is as it should be means the same to both.
    assert!(lenient.0.starts_with(&strict.0), "{strict:?} {lenient:?}");
}
