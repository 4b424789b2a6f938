//! Messages made to be expensive. What is counted is work (bytes looked at more than once) and what is kept, not time.

use crate::summary::{Address, Content, Envelope, Octets, Part};
use crate::{Limits, Parser, Summary};

/// Parses pieces; gives the summary, the bytes pushed and the work done.
fn parse<'a>(limits: &Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Summary, u64, u64) {
    let mut parser = Parser::new(limits);
    let mut size = 0;
    for piece in pieces {
        parser.push(piece);
        size += piece.len() as u64;
    }
    let work = parser.work();
    let summary = parser.finish();
    assert_eq!(summary.size, size);
    let encoded = summary.encode();
    assert!(
        encoded.len() <= limits.summary_bytes_max,
        "{} bytes",
        encoded.len()
    );
    assert_eq!(Summary::decode(&encoded).unwrap(), summary);
    (summary, size, work)
}

fn depth(part: &Part) -> usize {
    1 + match &part.content {
        Content::Basic | Content::Text => 0,
        Content::Multipart(parts) => parts.iter().map(depth).max().unwrap_or(0),
        Content::Message(message) => depth(&message.body),
    }
}

fn count(part: &Part) -> usize {
    1 + match &part.content {
        Content::Basic | Content::Text => 0,
        Content::Multipart(parts) => parts.iter().map(count).sum(),
        Content::Message(message) => count(&message.body),
    }
}

#[test]
fn half_a_million_addresses() {
    let limits = Limits::default();
    for address in [
        "a@b, ",
        "<@,",
        "a <b@c> (d), ",
        "(",
        "\"",
        "g: ",
        "g:a@b;",
        "@[",
        "a . ",
        ",",
        "\0",
    ] {
        let field = format!(
            "From: x@y\r\nTo: {}\r\nSubject: s\r\n\r\n",
            address.repeat(500_000)
        );
        let (summary, size, work) = parse(&limits, field.as_bytes().chunks(65_536));
        let envelope = &summary.message.envelope;
        assert_eq!(envelope.from.len(), 1, "From is before the limit");
        assert!(envelope.to.len() <= limits.addresses_max);
        assert!(work <= limits.header_bytes_max as u64 && work <= size);
    }
    // In many fields, so that the limit of the block does not help.
    let field = "To: a@b\r\n".repeat(500_000) + "\r\n";
    let (summary, _, work) = parse(&limits, field.as_bytes().chunks(65_536));
    assert!(summary.message.envelope.to.len() <= limits.addresses_max);
    assert!(work <= limits.header_bytes_max as u64);
}

#[test]
fn addresses_are_read_once() {
    // The work of the address parser itself: it must not look far ahead for every address. With the limit of the block
    // raised, a field of 2 MB that was quadratic would take 10^12 steps.
    let limits = Limits {
        header_bytes_max: 4 << 20,
        addresses_max: usize::MAX,
        ..Limits::default()
    };
    for address in ["<@,", "a@[,", "(a", "a<b", "\"a", "g:", "a . b ", "<a@b"] {
        let field = format!("Bcc: {}\r\n\r\n", address.repeat(2_000_000 / address.len()));
        parse(&limits, field.as_bytes().chunks(65_536));
    }
}

/// A part of a message id names another message, a part of an address another person: only whole ones are left out.
#[test]
fn lists_are_cut_between_their_members() {
    let ids = |envelope: &Envelope| {
        let text = |of: &Option<Octets>| {
            of.as_ref()
                .map(|of| String::from_utf8(of.to_vec()).unwrap())
        };
        (text(&envelope.message_id), text(&envelope.in_reply_to))
    };
    let hosts = |list: &[Address]| -> Vec<String> {
        let text = |of: &Option<Octets>| String::from_utf8(of.as_ref().unwrap().to_vec()).unwrap();
        list.iter()
            .map(|one| format!("{}@{}", text(&one.mailbox), text(&one.host)))
            .collect()
    };
    let limits = Limits::default();
    let all: Vec<_> = (0..500).map(|n| format!("<id{n}@example.org>")).collect();
    let people: Vec<_> = (0..1900).map(|n| format!("user{n}@example.org")).collect();
    for between in [" ", "", "\r\n ", ", "] {
        let header = format!(
            "Message-ID: {}\r\nIn-Reply-To: {}\r\nTo: {}\r\nCc: x@y\r\n\r\n",
            all[..2].join(between),
            all.join(between),
            people.join(",\r\n ")
        );
        let (summary, ..) = parse(&limits, [header.as_bytes()]);
        let envelope = &summary.message.envelope;
        let between = between.replace("\r\n", "");
        let (message_id, replied) = ids(envelope);
        assert_eq!(message_id, Some(all[..2].join(&between)));
        let replied = replied.unwrap();
        let count = replied.matches('<').count();
        assert_eq!(replied, all[..count].join(&between));
        assert!((2000..2043).contains(&replied.len()), "{}", replied.len());
        let to = hosts(&envelope.to);
        assert_eq!(to, people[..to.len()]);
        assert!((600..700).contains(&to.len()), "{}", to.len());
        assert_eq!(hosts(&envelope.cc), ["x@y"]);
    }
    // One that is too long by itself, before a shorter one and behind one.
    let long = format!("<{}@x>", "i".repeat(5_000));
    for (header, expected) in [
        (
            format!("Message-ID: {long}\r\nIn-Reply-To: {long}\r\n\r\n"),
            (None, None),
        ),
        (
            format!("Message-ID: {long}\r\nIn-Reply-To: <a@x>{long}\r\nMessage-ID: <b@x>\r\n\r\n"),
            (Some("<b@x>"), Some("<a@x>")),
        ),
        (
            format!("Message-ID: <b@x>\r\nMessage-ID: {long}\r\nIn-Reply-To:\r\n\r\n"),
            (None, Some("")),
        ),
    ] {
        let (summary, ..) = parse(&limits, [header.as_bytes()]);
        let (message_id, replied) = ids(&summary.message.envelope);
        assert_eq!((message_id.as_deref(), replied.as_deref()), expected);
    }
    // By the limit of the header, wherever that falls.
    let header = "In-Reply-To: <aa@bb> <cc@dd>\r\nTo: aa@bb, N <cc@dd>, ee@ff\r\n\r\n";
    let mut found = std::collections::BTreeSet::new();
    for header_bytes_max in 0..=header.len() {
        let limits = Limits {
            header_bytes_max,
            ..Limits::default()
        };
        let (summary, ..) = parse(&limits, [header.as_bytes()]);
        let envelope = &summary.message.envelope;
        let replied = ids(envelope).1.unwrap_or_default();
        assert!(
            ["", "<aa@bb>", "<aa@bb> <cc@dd>"].contains(&&*replied),
            "{replied}"
        );
        let to = hosts(&envelope.to);
        assert_eq!(to, ["aa@bb", "cc@dd", "ee@ff"][..to.len()]);
        found.insert((replied.len(), to.len()));
    }
    assert_eq!(
        Vec::from_iter(found),
        [(0, 0), (7, 0), (15, 0), (15, 1), (15, 2), (15, 3)]
    );
}

#[test]
fn a_header_line_of_50_megabytes() {
    let limits = Limits::default();
    let piece = vec![b'x'; 1 << 20];
    let pieces = [&b"From: a@b\r\nSubject: "[..]]
        .into_iter()
        .chain((0..50).map(|_| &piece[..]));
    let (summary, size, work) = parse(&limits, pieces.chain([&b"\r\nTo: c@d\r\n\r\nbody"[..]]));
    assert_eq!(summary.message.body.header.len, size - 4);
    assert_eq!(summary.message.envelope.from.len(), 1);
    assert!(
        summary.message.envelope.subject.as_ref().unwrap().len() < limits.summary_bytes_max / 32
    );
    assert!(
        summary.message.envelope.to.is_empty(),
        "beyond header_bytes_max"
    );
    assert!(!summary.fields.complete);
    assert!(work <= limits.header_bytes_max as u64);
}

#[test]
fn hundreds_of_thousands_of_fields() {
    let limits = Limits {
        header_fields_max: 10,
        ..Limits::default()
    };
    let field = "X: y\r\n".repeat(9)
        + "Subject: in\r\nSubject: out\r\n"
        + &"X: y\r\n".repeat(300_000)
        + "\r\n";
    let (summary, _, work) = parse(&limits, field.as_bytes().chunks(65_536));
    assert_eq!(summary.message.envelope.subject, Some("in".into()));
    assert!(!summary.fields.complete);
    assert!(work < 200);
    let header = "Subject: x\r\n".repeat(300_000) + "\r\n";
    parse(&Limits::default(), header.as_bytes().chunks(65_536));
}

#[test]
fn a_hundred_thousand_continuations() {
    let limits = Limits::default();
    for piece in [
        "; n*NUMBER=x",
        "; n*NUMBER*=%41",
        "; n=x",
        ";",
        "; n*0=x",
        "; \"",
        "; (",
        "; a=",
    ] {
        let params: String = (0..100_000)
            .map(|n| piece.replace("NUMBER", &n.to_string()))
            .collect();
        let header =
            format!("Content-Type: text/plain{params}\r\nContent-Disposition: x{params}\r\n\r\n");
        let (summary, _, work) = parse(&limits, header.as_bytes().chunks(65_536));
        let part = &summary.message.body;
        assert!(part.params.len() <= limits.params_max + 1);
        assert!(work <= limits.header_bytes_max as u64);
    }
    let languages = format!("Content-Language: {}\r\n\r\n", "en,".repeat(100_000));
    let (summary, ..) = parse(&limits, [languages.as_bytes()]);
    assert_eq!(summary.message.body.language.len(), limits.params_max);
}

#[test]
fn ten_thousand_levels() {
    let limits = Limits::default();
    let mut nested = String::new();
    for level in 0..10_000 {
        nested +=
            &format!("Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n");
    }
    let (summary, size, work) = parse(&limits, nested.as_bytes().chunks(65_536));
    assert_eq!(
        depth(&summary.message.body),
        limits.nesting_max + 1,
        "a placeholder is in the deepest"
    );
    assert!(work <= size * limits.nesting_max as u64);
    let deepest = Limits {
        nesting_max: usize::MAX,
        ..limits
    };
    let (summary, ..) = parse(&deepest, nested.as_bytes().chunks(65_536));
    assert_eq!(depth(&summary.message.body), Limits::NESTING_MAX + 1);
}

#[test]
fn nested_unclosed_messages() {
    let limits = Limits::default();
    let nested = "Content-Type: message/rfc822\n\n".repeat(100_000);
    let (summary, ..) = parse(&limits, nested.as_bytes().chunks(65_536));
    assert_eq!(depth(&summary.message.body), limits.nesting_max + 1);
    let multipart = "Content-Type: multipart/digest; boundary=a\n\n--a\n\n".repeat(100_000);
    let (summary, size, work) = parse(&limits, multipart.as_bytes().chunks(65_536));
    assert!(depth(&summary.message.body) <= limits.nesting_max + 1);
    assert!(work <= size * limits.nesting_max as u64);
}

#[test]
fn a_million_lines_like_boundaries() {
    let limits = Limits::default();
    let head = |count: usize| {
        let mut head = String::new();
        for level in 0..count {
            head += &format!(
                "Content-Type: multipart/mixed; boundary=bbbbbbbbb{level}\n\n--bbbbbbbbb{level}\n"
            );
        }
        head
    };
    for (line, depth) in [
        ("--bbbbbbbbb\n", 40),
        ("--\n", 40),
        ("-\n", 40),
        ("--bbbbbbbbc\n", 40),
        ("--bbbbbbbbb0\n", 1),
    ] {
        let lines = line.repeat(1_000_000);
        let head = head(depth);
        let (summary, size, work) = parse(&limits, [head.as_bytes(), lines.as_bytes()]);
        assert!(count(&summary.message.body) <= limits.parts_max + 1);
        assert!(work <= size * depth as u64, "{line}");
    }
    let long = format!(
        "Content-Type: multipart/mixed; boundary={}\n\n",
        "b".repeat(100_000)
    );
    let lines = format!("--{}\n", "b".repeat(255)).repeat(10_000);
    let (_, size, work) = parse(&limits, [long.as_bytes(), lines.as_bytes()]);
    assert!(work <= size);
}

#[test]
fn parts_beyond_the_limit_stay_in_the_last() {
    let limits = Limits {
        parts_max: 4,
        ..Limits::default()
    };
    let message = format!(
        "Content-Type: multipart/mixed; boundary=B\n\n{}--B--\nepilogue\n",
        "--B\n\nx\n".repeat(100)
    );
    let (summary, ..) = parse(&limits, [message.as_bytes()]);
    let Content::Multipart(parts) = &summary.message.body.content else {
        panic!("a multipart")
    };
    assert_eq!(parts.len(), 3);
    assert_eq!(
        parts[2].body.len,
        1 + 97 * 7,
        "all that follows, up to the closing delimiter"
    );
}

#[test]
fn the_smallest_summary_holds_any_message() {
    let mut limits = Limits {
        summary_bytes_max: Limits::SUMMARY_BYTES_MIN,
        ..Limits::default()
    };
    let long = "x".repeat(5000);
    let part = format!(
        "--B\nContent-Type: {long}/{long}\nContent-ID: {long}\n\nx\n--B\nContent-Type: message/rfc822; a={long}\n\n\
        Subject: {long}\nTo: {long}@{long}\n\n"
    );
    let header =
        format!("From: {long}\nSubject: {long}\nX-Label: {long}\nList-{long}: x\nDate: short\n");
    let message = format!(
        "{header}Content-Type: multipart/mixed; boundary=B; c={long}\n\n{}",
        part.repeat(100)
    );
    let (summary, ..) = parse(&limits, [message.as_bytes()]);
    assert_eq!(summary.message.envelope.date, Some("short".into()));
    assert!(summary.fields.is_complete(b"date") || !summary.fields.complete);
    assert!(!summary.fields.is_complete(b"from"));
    // Whatever the limit says, the encoding has room for the least.
    limits.summary_bytes_max = 0;
    let mut parser = Parser::new(&limits);
    parser.push(message.as_bytes());
    assert!(parser.finish().encode().len() <= Limits::SUMMARY_BYTES_MIN);
}

#[test]
fn the_prefix_keeps_the_bound() {
    let limits = Limits {
        summary_bytes_max: Limits::SUMMARY_BYTES_MIN,
        ..Limits::default()
    };
    let list = |name: &str| format!("{name}: {}\n", "a@b,".repeat(2000));
    let header =
        list("To") + &list("From") + &"X-Label: y\n".repeat(1000) + &"Subject: y\n".repeat(1000);
    let (summary, ..) = parse(&limits, [header.as_bytes(), b"\nx"]);
    let summary = summary.with_prefix(header.as_bytes(), &limits);
    assert!(summary.encode().len() <= Limits::SUMMARY_BYTES_MIN);
    assert_eq!(Summary::decode(&summary.encode()).unwrap(), summary);
}
