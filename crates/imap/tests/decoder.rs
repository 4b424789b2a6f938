//! The decoder as a session sees it: literals, continuations, refusals, limits, any split.
//!
//! size: a table of inputs and events for one machine, over one way to show them.

use proptest::prelude::*;
use whimbrel_imap::fuzz::{
    Owned, Session, events, fuzz_decoder, fuzz_words, held_bytes_max, small_limits,
};
use whimbrel_imap::{CommandBody, Decoder, Event, Limits};

const STRANGER: Session = Session {
    authenticated: false,
    utf8: false,
    refuse: false,
};
const USER: Session = Session {
    authenticated: true,
    utf8: false,
    refuse: false,
};
const REFUSING: Session = Session {
    authenticated: true,
    utf8: false,
    refuse: true,
};

/// A short form of events: tag and kind.
fn show(event: &Owned) -> String {
    match event {
        Owned::Command(c) => {
            let name = format!("{:?}", c.body);
            let name: String = name
                .chars()
                .take_while(char::is_ascii_alphanumeric)
                .collect();
            format!("{} {}", c.tag, name)
        }
        Owned::Continue(tag, size) => format!("{tag} + {size}"),
        Owned::Append(a) => match &a.replaces {
            None => format!("{} APPEND {}", a.tag, a.mailbox),
            Some(r) => {
                let whimbrel_imap::core::MessageSet::Numbers(set) = &r.set else {
                    panic!("{r:?}")
                };
                let mut text = Vec::new();
                set.encode(&mut text);
                let uid = if r.uid { "UID " } else { "" };
                let number = String::from_utf8(text).unwrap();
                format!("{} {uid}REPLACE {number} {}", a.tag, a.mailbox)
            }
        },
        Owned::Message(m) if m.catenate => "catenate".into(),
        Owned::Message(m) => match m.import {
            Some(import) => format!("message import {}", u128::from_be_bytes(import.id)),
            None => "message".into(),
        },
        Owned::Literal(l) => format!(
            "octets {}{}{}{}{}",
            l.size,
            if l.synchronising { "" } else { "+" },
            if l.binary { " binary" } else { "" },
            if l.utf8 { " utf8" } else { "" },
            if l.too_big { " too big" } else { "" }
        ),
        Owned::Url(url) => format!("url {url}"),
        Owned::MessageEnd => "whole".into(),
        Owned::Chunk(bytes) => format!("chunk {}", bytes.escape_ascii()),
        Owned::AppendEnd => "end".into(),
        Owned::Sasl(whimbrel_imap::SaslReply::Cancel) => "cancel".into(),
        Owned::Sasl(whimbrel_imap::SaslReply::Data(s)) => {
            format!("sasl {}", s.expose().escape_ascii())
        }
        Owned::Done => "done".into(),
        Owned::Bad(tag, text) => format!("{} BAD {text}", tag.as_ref().map_or("*", |t| t.as_str())),
        Owned::Fatal(text) => format!("BYE {text}"),
    }
}

#[track_caller]
fn check(session: Session, input: &[u8], expected: &[&str]) {
    check_limits(&Limits::default(), session, input, expected);
}

#[track_caller]
fn check_limits(limits: &Limits, session: Session, input: &[u8], expected: &[&str]) {
    for length in [input.len(), 1, 3, 7] {
        let found: Vec<_> = events(input, &[length], limits, session)
            .iter()
            .map(show)
            .collect();
        assert_eq!(
            found,
            expected,
            "{} in pieces of {length}",
            input[..input.len().min(200)].escape_ascii()
        );
    }
}

#[test]
fn commands_pipelined() {
    check(USER, b"a NOOP\r\nb NOOP\r\nc NOO", &["a Noop", "b Noop"]);
    check(
        STRANGER,
        b"a LOGIN {4}\r\nanne {3}\r\nabc\r\nb NOOP\r\n",
        &["a + 4", "a + 3", "a Login", "b Noop"],
    );
    check(
        STRANGER,
        b"a LOGIN {4+}\r\nanne {3+}\r\nabc\r\n",
        &["a Login"],
    );
    check(
        USER,
        b"a SELECT {0}\r\n\r\n",
        &["a + 0", "a BAD mailbox name is empty"],
    );
    check(
        USER,
        b"a SEARCH TEXT {7+}\r\na\r\nb NO SEEN\r\n",
        &["a Search"],
    );
}

#[test]
fn line_ends() {
    // A line ends in CRLF. A bare LF ends it, too, but then the line is bad; a bare CR makes it bad and does not end it.
    check(
        USER,
        b"a NOOP\nb NOOP\r\n",
        &["a BAD line does not end in CRLF", "b Noop"],
    );
    check(
        USER,
        b"a NOOP\rb NOOP\r\nc NOOP\r\n",
        &["a BAD CR without LF in a line", "c Noop"],
    );
    check(
        USER,
        b"a NOOP\r\r\nc NOOP\r\n",
        &["a BAD CR without LF in a line", "c Noop"],
    );
    check(
        USER,
        b"\r\n\n\r\r\nc NOOP\r\n",
        &[
            "* BAD invalid tag",
            "* BAD line does not end in CRLF",
            "* BAD CR without LF in a line",
            "c Noop",
        ],
    );
    check(
        USER,
        b"a SELECT {3+}\nabc\r\nc NOOP\r\n",
        &["a BAD line does not end in CRLF", "c Noop"],
    );
    check(
        USER,
        b"a SELECT \"b\nc NOOP\r\n",
        &["a BAD line does not end in CRLF", "c Noop"],
    );
    check(
        USER,
        b"a SELECT \"b\0c\"\r\nc NOOP\r\n",
        &["a BAD NUL in a line", "c Noop"],
    );
    check(
        USER,
        b"a SELECT {3+}\r\na\0c\r\nc NOOP\r\n",
        &["a BAD NUL in literal", "c Noop"],
    );
}

#[test]
fn tags() {
    check(USER, b"NOOP\r\n", &["NOOP BAD expected a space"]);
    check(
        USER,
        b"+ NOOP\r\n* NOOP\r\n(a NOOP\r\n NOOP\r\n",
        &["* BAD invalid tag"; 4],
    );
    check(
        USER,
        format!("{} NOOP\r\n", "a".repeat(129)).as_bytes(),
        &["* BAD invalid tag"],
    );
}

#[test]
fn appends() {
    check(
        USER,
        b"a APPEND x {5}\r\nhello\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 5",
            "chunk hello",
            "whole",
            "end",
            "b Noop",
        ],
    );
    check(
        USER,
        b"a APPEND x (\\Seen) X-WHIMBREL-IMPORT 0000000000000000000000000000010a 0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b {1+}\r\nx {0}\r\n",
        &[
            "a APPEND x",
            "message import 266",
            "octets 1+",
            "chunk x",
            "whole",
            "message",
            "octets 0",
        ],
    );
    for id in [
        "",
        "10a",
        "0000000000000000000000000000010g",
        "0000000000000000000000000000010a0",
    ] {
        check(
            USER,
            format!("a APPEND x X-WHIMBREL-IMPORT {id} {{1+}}\r\nx\r\n").as_bytes(),
            &["a APPEND x", "a BAD expected 32 hexadecimal digits"],
        );
    }
    let id = "0000000000000000000000000000010a";
    for hash in ["0b".repeat(31), "0g".repeat(32), String::new()] {
        check(
            USER,
            format!("a APPEND x X-WHIMBREL-IMPORT {id} {hash} {{1+}}\r\nx\r\n").as_bytes(),
            &["a APPEND x", "a BAD expected 64 hexadecimal digits"],
        );
    }
    check(
        USER,
        b"a append x {5+}\r\nhello\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 5+",
            "chunk hello",
            "whole",
            "end",
            "b Noop",
        ],
    );
    check(
        USER,
        b"a APPEND {1}\r\nx {0}\r\n\r\n",
        &["a + 1", "a APPEND x", "message", "octets 0", "whole", "end"],
    );
    check(
        USER,
        b"a APPEND x {5}\r\nhelloX\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 5",
            "chunk hello",
            "whole",
            "a BAD unexpected text after the message",
            "b Noop",
        ],
    );
    check(
        USER,
        b"a APPEND x\r\nb NOOP\r\n",
        &["a APPEND x", "a BAD expected the message", "b Noop"],
    );
    check(
        USER,
        b"a APPEND\r\nb NOOP\r\n",
        &["a BAD expected a space", "b Noop"],
    );
    for size in ["2+", "2"] {
        let text = format!(
            "a APPEND x \"1-Foo-2020\" {{{size}}}\r\n{}b NOOP\r\n",
            if size == "2" { "" } else { "hi\r\n" }
        );
        check(
            USER,
            text.as_bytes(),
            &["a APPEND x", "a BAD invalid date-time", "b Noop"],
        );
    }
    check(
        USER,
        b"a APPEND x ~{2+}\r\n\0i\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 2+ binary",
            "chunk \\x00i",
            "whole",
            "end",
            "b Noop",
        ],
    );
    check(
        USER,
        b"a APPEND x UTF8 (~{2+}\r\nhi)\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 2+ utf8",
            "chunk hi",
            "whole",
            "end",
            "b Noop",
        ],
    );
    check(
        USER,
        b"a APPEND x UTF8 (~{2+}\r\nhi\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 2+ utf8",
            "chunk hi",
            "a BAD expected )",
            "b Noop",
        ],
    );
    check(
        USER,
        b"a APPEND x UTF8 ({2+}\r\nhi)\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "a BAD UTF8 wants a literal of the form ~{n}",
            "b Noop",
        ],
    );
    let all = events(
        b"a APPEND x (\\Seen $A) \" 7-Feb-1994 21:52:25 -0800\" {1}\r\n",
        &[99],
        &Limits::default(),
        USER,
    );
    let [_, Owned::Message(message), _] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        message.flags.iter().map(|f| f.as_str()).collect::<Vec<_>>(),
        ["\\Seen", "$A"]
    );
    assert_eq!(message.date.unwrap().unix_seconds(), 760_686_745);
}

/// RFC 3502.
#[test]
fn appends_of_several_messages() {
    check(
        USER,
        b"a APPEND x {2+}\r\nhi (\\Seen) \" 7-Feb-1994 21:52:25 -0800\" {3}\r\nhoy ~{1+}\r\n!\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 2+",
            "chunk hi",
            "whole",
            "message",
            "octets 3",
            "chunk hoy",
            "whole",
            "message",
            "octets 1+ binary",
            "chunk !",
            "whole",
            "end",
            "b Noop",
        ],
    );
    check(
        USER,
        b"a APPEND x {2+}\r\nhi (\\Seen)\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 2+",
            "chunk hi",
            "whole",
            "a BAD expected the message",
            "b Noop",
        ],
    );
}

/// RFC 4469.
#[test]
fn catenates() {
    check(
        USER,
        b"a APPEND x (\\Seen) CATENATE (URL \"/a;UID=1\" TEXT {2+}\r\nhi URL u TEXT ~{1}\r\n! UTF8 (~{1+}\r\n?))\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "catenate",
            "url /a;UID=1",
            "octets 2+",
            "chunk hi",
            "url u",
            "octets 1 binary",
            "chunk !",
            "octets 1+ utf8",
            "chunk ?",
            "whole",
            "end",
            "b Noop",
        ],
    );
    // No literal, and several messages.
    check(
        USER,
        b"a APPEND x CATENATE (URL a) CATENATE (url b URL c) {1+}\r\nx\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "catenate",
            "url a",
            "whole",
            "catenate",
            "url b",
            "url c",
            "whole",
            "message",
            "octets 1+",
            "chunk x",
            "whole",
            "end",
            "b Noop",
        ],
    );
    // A URL as a literal is held, even where the mailbox is called URL.
    check(
        USER,
        b"a APPEND URL CATENATE (URL {3}\r\n/a; URL {2+}\r\n/b)\r\nb NOOP\r\n",
        &[
            "a APPEND URL",
            "catenate",
            "a + 3",
            "url /a;",
            "url /b",
            "whole",
            "end",
            "b Noop",
        ],
    );
    for (text, refusal) in [
        ("()", "expected TEXT, URL or UTF8"),
        ("(TEXT x)", "TEXT wants a literal"),
        ("(URL a", "expected )"),
        ("(URL a )", "expected TEXT, URL or UTF8"),
    ] {
        let found = events(
            format!("a APPEND x CATENATE {text}\r\nb NOOP\r\n").as_bytes(),
            &[1],
            &Limits::default(),
            USER,
        );
        let bad = format!("a BAD {refusal}");
        assert_eq!(show(&found[found.len() - 2]), bad, "{text}");
    }
    let limits = small_limits();
    check_limits(
        &limits,
        USER,
        format!(
            "a APPEND x CATENATE (URL {{101+}}\r\n{})\r\nb NOOP\r\n",
            "x".repeat(101)
        )
        .as_bytes(),
        &[
            "a APPEND x",
            "catenate",
            "a BAD literal is too large",
            "b Noop",
        ],
    );
    // Each stretch of text between two literals may be as long as a command, and no longer.
    let text = "URL 12345678901234567890 ".repeat(30);
    check_limits(
        &limits,
        USER,
        format!("a APPEND x CATENATE (TEXT {{1+}}\r\nx {text})\r\nb NOOP\r\n").as_bytes(),
        &[
            "a APPEND x",
            "catenate",
            "octets 1+",
            "chunk x",
            "a BAD command is too long",
            "b Noop",
        ],
    );
}

/// RFC 8508.
#[test]
fn replaces() {
    check(
        USER,
        b"a REPLACE 4 x {2+}\r\nhi\r\nb uid replace * x {1+}\r\nx\r\n",
        &[
            "a REPLACE 4 x",
            "message",
            "octets 2+",
            "chunk hi",
            "whole",
            "end",
            "b UID REPLACE * x",
            "message",
            "octets 1+",
            "chunk x",
            "whole",
            "end",
        ],
    );
    check(
        USER,
        b"a REPLACE 4 x {2+}\r\nhi {1+}\r\nx\r\nb NOOP\r\n",
        &[
            "a REPLACE 4 x",
            "message",
            "octets 2+",
            "chunk hi",
            "whole",
            "a BAD REPLACE takes one message",
            "b Noop",
        ],
    );
    check(
        USER,
        b"a UID REPLACE 4 {1}\r\nx CATENATE (URL y)\r\n",
        &[
            "a + 1",
            "a UID REPLACE 4 x",
            "catenate",
            "url y",
            "whole",
            "end",
        ],
    );
    for set in ["1:2", "1,2", "0", "", "$"] {
        check(
            USER,
            format!("a REPLACE {set} x {{2+}}\r\nhi\r\nb NOOP\r\n").as_bytes(),
            &["a BAD REPLACE wants one number", "b Noop"],
        );
    }
}

#[test]
fn refused_literals() {
    check(
        REFUSING,
        b"a APPEND x {5}\r\nb NOOP\r\n",
        &["a APPEND x", "message", "octets 5", "b Noop"],
    );
    for rest in [
        "",
        " {3+}\r\nabc x",
        " {3}",
        " CATENATE (TEXT {3+}\r\nabc URL {1+}\r\nx)",
    ] {
        check(
            REFUSING,
            format!("a APPEND x {{5+}}\r\nhello{rest}\r\nb NOOP\r\n").as_bytes(),
            &["a APPEND x", "message", "octets 5+", "b Noop"],
        );
    }
    // Given up in the middle, with more of it on its way, or all of it there.
    for rest in [
        " TEXT {3+}\r\nabc)",
        " TEXT {3}",
        " URL {3+}\r\nabc)",
        " URL {3}",
        " URL x)",
        "",
    ] {
        check(
            REFUSING,
            format!("a APPEND x CATENATE (URL u{rest}\r\nb NOOP\r\n").as_bytes(),
            &["a APPEND x", "catenate", "url u", "b Noop"],
        );
    }
    check(REFUSING, b"a LOGIN {5}\r\nb NOOP\r\n", &["a + 5", "b Noop"]);
    let limits = Limits {
        append_bytes_max: 4,
        skip_bytes_max: 20,
        ..Limits::default()
    };
    check_limits(
        &limits,
        USER,
        b"a APPEND x {5+}\r\nhello\r\nb NOOP\r\n",
        &["a APPEND x", "message", "octets 5+ too big", "b Noop"],
    );
    check_limits(
        &limits,
        USER,
        b"a APPEND x {5}\r\nb NOOP\r\n",
        &["a APPEND x", "message", "octets 5 too big", "b Noop"],
    );
    check_limits(
        &limits,
        USER,
        b"a APPEND x {21+}\r\nb NOOP\r\n",
        &[
            "a APPEND x",
            "message",
            "octets 21+ too big",
            "BYE literal is too large",
        ],
    );
}

/// A session may give up while a message comes in.
#[test]
fn a_message_is_refused_in_its_middle() {
    for rest in ["lo\r\n", "lo {3+}\r\nabc\r\n", "lo {3}\r\n"] {
        let mut decoder = Decoder::new(Limits::default());
        decoder.set_authenticated(true);
        decoder.push(b"a APPEND x {5+}\r\nhel");
        while let Some(event) = decoder.next() {
            match event {
                Event::AppendLiteral(_) => decoder.accept_literal(),
                Event::AppendChunk(_) => decoder.refuse_literal(),
                _ => {}
            }
        }
        decoder.push(rest.as_bytes());
        assert!(decoder.next().is_none(), "{rest}");
        decoder.push(b"b NOOP\r\n");
        assert!(matches!(decoder.next(), Some(Event::Command(_))), "{rest}");
        // Nothing is in hand any more: nothing is refused.
        decoder.refuse_literal();
        decoder.push(b"c NOOP\r\n");
        assert!(matches!(decoder.next(), Some(Event::Command(_))), "{rest}");
    }
}

#[test]
fn bad_commands_take_their_literals_with_them() {
    check(
        USER,
        b"a FOO {3+}\r\nabc {3+}\r\nabc\r\nb NOOP\r\n",
        &["a BAD unknown command", "b Noop"],
    );
    check(
        USER,
        b"a FOO {3}\r\nb NOOP\r\n",
        &["a BAD unknown command", "b Noop"],
    );
    check(
        USER,
        b"a SELECT x\0 {3+}\r\na\nc {3}\r\nb NOOP\r\n",
        &["a BAD NUL in a line", "b Noop"],
    );
    check(
        USER,
        b"a SELECT x\0 \"{3+}\r\nb NOOP\r\n",
        &["a BAD NUL in a line", "b Noop"],
    );
    check(
        USER,
        b"a SELECT x\0 \"\\\"{3+}\r\nb NOOP\r\n",
        &["a BAD NUL in a line", "b Noop"],
    );
    check(
        USER,
        b"a SELECT x ~{3+}\r\nabc\r\nb NOOP\r\n",
        &[
            "a BAD a literal of the form ~{n} is not allowed here",
            "b Noop",
        ],
    );
    check(
        USER,
        b"{3+}\r\nabc\r\nb NOOP\r\n",
        &["* BAD invalid tag", "b Noop"],
    );
}

#[test]
fn sasl_and_idle() {
    check(
        STRANGER,
        b"a AUTHENTICATE PLAIN\r\nAGEAYg==\r\nb NOOP\r\n",
        &["a Authenticate", "sasl \\x00a\\x00b", "b Noop"],
    );
    check(
        STRANGER,
        b"a AUTHENTICATE PLAIN\r\n*\r\nb NOOP\r\n",
        &["a Authenticate", "cancel", "b Noop"],
    );
    check(
        STRANGER,
        b"a AUTHENTICATE PLAIN\r\n\r\n",
        &["a Authenticate", "sasl "],
    );
    check(
        STRANGER,
        b"a AUTHENTICATE PLAIN\r\nb {5+}\r\nb NOOP\r\n",
        &["a Authenticate", "a BAD invalid base64", "b Noop"],
    );
    check(
        STRANGER,
        b"a AUTHENTICATE PLAIN\r\nAG\0\r\nb NOOP\r\n",
        &["a Authenticate", "a BAD NUL in a line", "b Noop"],
    );
    check(
        USER,
        b"a IDLE\r\ndone\r\nb NOOP\r\n",
        &["a Idle", "done", "b Noop"],
    );
    check(
        USER,
        b"a IDLE\r\nb NOOP\r\nc NOOP\r\n",
        &["a Idle", "a BAD expected DONE", "c Noop"],
    );
    check(
        USER,
        b"a NOOP\r\nDONE\r\n",
        &["a Noop", "DONE BAD expected a space"],
    );
}

#[test]
fn nothing_is_left_after_starttls_unless_it_was_sent() {
    let mut decoder = Decoder::new(Limits::default());
    decoder.push(b"a STARTTLS\r\n");
    assert!(matches!(decoder.next(), Some(Event::Command(c)) if c.body == CommandBody::StartTls));
    assert!(decoder.is_empty());
    for more in [&b"b NOOP\r\n"[..], b"b", b"\r"] {
        decoder.push(b"a STARTTLS\r\n");
        decoder.push(more);
        assert!(matches!(decoder.next(), Some(Event::Command(_))));
        assert!(!decoder.is_empty(), "{more:?}");
        decoder = Decoder::new(Limits::default());
    }
    decoder.push(b"b");
    assert!(decoder.next().is_none());
    assert!(!decoder.is_empty());
}

#[test]
fn limits_before_login() {
    let limits = Limits {
        literal_count_max: 100,
        ..small_limits()
    };
    let check = |input: &[u8], expected: &[&str]| check_limits(&limits, STRANGER, input, expected);
    check(
        format!("a LOGIN a {}", "b".repeat(200)).as_bytes(),
        &["BYE command is too long"],
    );
    check(
        b"a LOGIN {51}\r\nb NOOP\r\n",
        &["a BAD literal is too large", "b Noop"],
    );
    check(
        b"a LOGIN {201+}\r\nb NOOP\r\n",
        &["BYE literal is too large"],
    );
    check(
        b"a LOGIN {99999999999999999999999+}\r\nb NOOP\r\n",
        &["BYE literal is too large"],
    );
    check(
        b"a APPEND x {300+}\r\n",
        &["a APPEND x", "message", "octets 300+"],
    );
    // A state that goes round the limit: literals and lines count together.
    let piece = format!(" {{40+}}\r\n{}", "x".repeat(40));
    check(
        format!("a LOGIN{}\r\n", piece.repeat(6)).as_bytes(),
        &["a BAD literal is too large"],
    );
    check(
        format!("a LOGIN{}", piece.repeat(20)).as_bytes(),
        &["BYE literal is too large"],
    );
    check(
        format!("a AUTHENTICATE PLAIN\r\n{}", "A".repeat(201)).as_bytes(),
        &["a Authenticate", "BYE command is too long"],
    );
    check(
        format!("a FOO {}\r\nb NOOP\r\n", "(".repeat(150)).as_bytes(),
        &["a BAD unknown command", "b Noop"],
    );
    // The limit of a set that is not held as text is no way round it.
    check(
        format!("a SEARCH {}", "1,".repeat(200)).as_bytes(),
        &["BYE command is too long"],
    );
}

/// RFC 2971, 3.3: thirty fields with names of 30 octets and values of 1024. A stranger is not given the memory for that, and the answer.
#[test]
fn the_longest_id_before_login() {
    let id = |name: &str, value: &str, fields: usize| {
        let field = format!("{name} {value}");
        let fields = vec![field; fields].join(" ");
        format!("a ID ({fields})\r\nb NOOP\r\n")
    };
    let quoted = |octet: &str, octets: usize| format!("\"{}\"", octet.repeat(octets));
    let limits = Limits::default();
    let check = |input: &str, expected: &[&str]| {
        check_limits(&limits, STRANGER, input.as_bytes(), expected);
    };
    let done: &[&str] = &["a Id", "b Noop"];
    check(&id(&quoted("n", 30), &quoted("v", 1024), 30), done);
    check(&id(&quoted("\\\"", 30), &quoted("\\\\", 1024), 30), done);
    let literal = |octet: &str, octets: usize, plus: &str| {
        format!("{{{octets}{plus}}}\r\n{}", octet.repeat(octets))
    };
    let (name, value) = (literal("n", 30, "+"), literal("v", 1024, "+"));
    check(&id(&name, &value, 30), done);
    // A client that waits is told to go on, with each of them.
    let (name, value) = (literal("n", 30, ""), literal("v", 1024, ""));
    let waits = ["a + 30", "a + 1024"].repeat(30);
    check(&id(&name, &value, 30), &[&waits[..], done].concat());
    let endless = id(&quoted("n", 30), &quoted("v", 1024), 80);
    check(&endless, &["BYE command is too long"]);
    let endless = id(&name, &value, 80);
    let told = events(endless.as_bytes(), &[1000], &limits, STRANGER);
    assert!(matches!(told.last(), Some(Owned::Fatal(_))), "{told:?}");
    // Little is held of it: `events` looks after each piece.
    let long = id(&quoted("n", 30), &quoted("v", 1024), 30);
    check_limits(&small_limits(), STRANGER, long.as_bytes(), done);
}

#[test]
fn a_stranger_who_is_refused_cannot_send_a_message() {
    let refusing = Session {
        refuse: true,
        ..STRANGER
    };
    check_limits(
        &small_limits(),
        refusing,
        b"a APPEND x {300+}\r\n",
        &["a APPEND x", "BYE literal is too large"],
    );
}

#[test]
fn limits_after_login() {
    let limits = small_limits();
    let check =
        |input: &str, expected: &[&str]| check_limits(&limits, USER, input.as_bytes(), expected);
    check(
        &format!("a NOOP {}\r\nb NOOP\r\n", "(".repeat(900)),
        &["a BAD command is too long", "b Noop"],
    );
    check(
        &format!("a NOOP {}", "(".repeat(9_000)),
        &["BYE command is too long"],
    );
    check(
        "a SELECT {101}\r\nb NOOP\r\n",
        &["a BAD literal is too large", "b Noop"],
    );
    let hundred = "x".repeat(101);
    check(
        &format!("a SELECT {{101+}}\r\n{hundred}\r\nb NOOP\r\n"),
        &["a BAD literal is too large", "b Noop"],
    );
    check(
        "a SELECT {2001+}\r\nb NOOP\r\n",
        &["BYE literal is too large"],
    );
    check(
        &format!("a SEARCH{}\r\nb NOOP\r\n", " TO {1+}\r\na".repeat(5)),
        &["a BAD too many literals", "b Noop"],
    );
    let set: Vec<_> = (1..=61).map(|n| (n * 64).to_string()).collect();
    check(
        &format!("a UID FETCH {} UID\r\n", set[..60].join(",")),
        &["a Fetch"],
    );
    check(
        &format!("a UID FETCH {} UID\r\n", set.join(",")),
        &["a BAD too many ranges in sequence set"],
    );
    let two = format!(
        "a UID SEARCH UID {} UID {}\r\n",
        set[..40].join(","),
        set[..40].join(",")
    );
    check(&two, &["a BAD too many ranges in sequence set"]);
    check(
        &format!("a UID FETCH {}1 UID\r\nb NOOP\r\n", "1,".repeat(500)),
        &["a BAD sequence set is too long", "b Noop"],
    );
    check(
        &format!("a UID FETCH {}1 UID\r\nb NOOP\r\n", "1,".repeat(400)),
        &["a Fetch", "b Noop"],
    );
    check(
        &format!("a UID FETCH {}x UID\r\nb NOOP\r\n", "1,".repeat(400)),
        &["a BAD invalid sequence set", "b Noop"],
    );
    check(
        "a FETCH 1 BODY[1.1.1.1.1]\r\n",
        &["a BAD section is too deep"],
    );
    check(
        "a FETCH 1 BODY[HEADER.FIELDS (a b c d e)]\r\n",
        &["a BAD too many header fields"],
    );
    check("a STORE 1 FLAGS (a b c d e)\r\n", &["a BAD too many flags"]);
    check("a LIST \"\" (a b c d)\r\n", &["a BAD too many patterns"]);
    let long = "%".repeat(21);
    check(
        &format!("a LIST \"\" ({long} {long})\r\n"),
        &["a BAD patterns are too long"],
    );
    check("a SEARCH ((((SEEN))))\r\n", &["a Search"]);
    check(
        "a SEARCH (((((SEEN)))))\r\n",
        &["a BAD SEARCH is nested too deep"],
    );
    check(
        "a SEARCH 1 1 1 1 1 1 1 1 1\r\n",
        &["a BAD too many search keys"],
    );
    check(
        "a FETCH 1 (BODY[1] BODY[2] BODY[3] BODY[4] BODY[5] BODY[6] BODY[7] BODY[8] BODY[9] BODY[10] BODY[11])\r\n",
        &["a BAD too many FETCH items"],
    );
}

#[test]
fn a_million_single_uids_are_not_held_as_text() {
    let limits = Limits::default();
    let mut input = b"a UID FETCH ".to_vec();
    for n in 1..=1_000_000u32 {
        if n > 1 {
            input.push(b',');
        }
        input.extend_from_slice((4_000_000_000 + n * 64).to_string().as_bytes());
    }
    input.extend_from_slice(b" (FLAGS)\r\n");
    assert!(input.len() >= 11_000_000);
    let mut decoder = Decoder::new(limits.clone());
    decoder.set_authenticated(true);
    let mut found = None;
    let mut most = 0;
    for chunk in input.chunks(16 << 10) {
        decoder.push(chunk);
        while let Some(event) = decoder.next() {
            let Event::Command(command) = event else {
                panic!("{event:?}")
            };
            found = Some(command);
        }
        most = most.max(decoder.buffered_bytes());
    }
    let Some(CommandBody::Fetch(fetch)) = found.map(|c| c.body) else {
        panic!()
    };
    let whimbrel_imap::core::MessageSet::Numbers(set) = fetch.set else {
        panic!()
    };
    assert_eq!(set.ranges().len(), 1_000_000);
    assert!(most < 18 << 20 && most <= held_bytes_max(&limits), "{most}");
    assert!(
        decoder.buffered_bytes() <= 1_024,
        "an idle decoder gives its memory back"
    );
}

#[test]
fn declared_sizes_allocate_nothing() {
    let mut decoder = Decoder::new(Limits::default());
    decoder.set_authenticated(true);
    decoder.push(b"a SELECT {60000}\r\n");
    assert!(matches!(decoder.next(), Some(Event::Continue { .. })));
    assert!(decoder.next().is_none());
    assert!(decoder.buffered_bytes() < 1_024);
    decoder.refuse_literal();
    decoder.push(b"a APPEND x {60000000}\r\n");
    assert!(matches!(decoder.next(), Some(Event::AppendBegin(_))));
    assert!(matches!(decoder.next(), Some(Event::AppendMessage(_))));
    assert!(matches!(decoder.next(), Some(Event::AppendLiteral(_))));
    decoder.accept_literal();
    assert!(decoder.next().is_none());
    assert!(decoder.buffered_bytes() < 1_024);
}

#[test]
fn a_refused_line_is_not_held() {
    // The default lets megabytes of it be dropped, and a stranger's line is cut off sooner.
    let limits = Limits::default();
    for start in ["a NOOP (", "a SEARCH SUBJECT \"", "\r\r", "a FETCH 1 ("] {
        let mut decoder = Decoder::new(limits.clone());
        decoder.set_authenticated(true);
        decoder.push(start.as_bytes());
        assert!(decoder.next().is_none());
        let piece = vec![b'x'; 4_096];
        for _ in 0..2_000 {
            decoder.push(&piece);
            assert!(decoder.next().is_none());
            assert!(decoder.buffered_bytes() <= 2 * limits.command_bytes_max + 2 * piece.len());
        }
        assert!(
            decoder.buffered_bytes() <= 2 * piece.len() + 1_024,
            "{} bytes are held of a line that was refused long ago",
            decoder.buffered_bytes()
        );
        decoder.push(b"\"\r\n");
        assert!(matches!(decoder.next(), Some(Event::Bad { .. })));
    }
}

#[test]
fn the_defaults_are_large_enough_for_the_promises() {
    let limits = Limits::default();
    assert!(
        limits.sequence_set_bytes_max >= 11_000_000 && limits.sequence_set_ranges_max >= 1_000_000
    );
    // RFC 7162, section 4: "should be prepared to accept ... 8192 octets".
    assert!(limits.command_bytes_max >= 8_192);
    assert!(held_bytes_max(&limits) <= 40 << 20);
}

/// Pieces of the protocol, good and bad, from which inputs are made.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words: &[&[u8]] = &[
        b"a ", b"\r\n", b"\n", b"\r", b" ", b"(", b")", b"\"", b"\\", b"{3}\r\n", b"{3+}\r\n", b"~{2+}\r\n", b"{0}\r\n", b"abc", b"NOOP",
        b"IDLE\r\n", b"DONE\r\n", b"AUTHENTICATE PLAIN\r\n", b"AGEAYg==\r\n", b"*\r\n", b"LOGIN ", b"SELECT ", b"APPEND x ", b"UTF8 (",
        b"FETCH ", b"UID FETCH ", b"BODY[", b"]", b"1.2", b"HEADER.FIELDS (", b"SEARCH ", b"OR ", b"NOT ", b"SEEN", b"LIST \"\" ", b"1,2:4,*",
        b"1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47,49,51,53,55,57,59,61,63,65,67,69,71,73,75,77,79,81,83,85,87,89,91,93,95,97,99,101,103,105,107,109,111,113,115,117,119,121,123,125,127,129,131",
        b"{300+}\r\n", b"{9999}\r\n", b"\0", b"STORE 1 +FLAGS (\\Seen)", b"x NOOP\r\n", b"y SELECT {3+}\r\nfoo\r\n", b"a APPEND x {3+}\r\nfoo\r\n",
        b"a APPEND x {3+}\r\nfoo", b"CATENATE (", b"TEXT ", b"URL ", b"URL u", b"REPLACE 1 x ", b"UID REPLACE * x ",
    ];
    prop_oneof![
        9 => prop::sample::select(words.to_vec()).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_split_gives_the_same_events(
        pieces in prop::collection::vec(piece(), 0..40),
        lengths in prop::collection::vec(1usize..40, 1..40),
        authenticated: bool,
        utf8: bool,
        refuse: bool,
    ) {
        let input = pieces.concat();
        let session = Session { authenticated, utf8, refuse };
        let whole = events(&input, &[input.len()], &small_limits(), session);
        prop_assert_eq!(&whole, &events(&input, &lengths, &small_limits(), session));
        prop_assert_eq!(&whole, &events(&input, &[1], &small_limits(), session));
    }

    #[test]
    fn any_bytes_do_no_harm(input in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_decoder(&input);
        fuzz_words(&input);
    }

    #[test]
    fn a_good_command_is_found_after_any_line(line in prop::collection::vec(piece(), 0..10)) {
        // Whatever went before: once a line has ended and no literal or message is due, the next command is read as it is.
        let mut input = line.concat();
        let mut decoder = Decoder::new(Limits::default());
        decoder.set_authenticated(true);
        input.extend_from_slice(b"\r\n");
        decoder.push(&input);
        while decoder.next().is_some() {}
        if decoder.is_empty() {
            decoder.push(b"z NOOP\r\n");
            let event = decoder.next();
            prop_assert!(matches!(&event, Some(Event::Command(c)) if c.tag.as_str() == "z"), "{:?}", event);
        }
    }
}
