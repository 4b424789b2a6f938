//! Laws of the parser on random messages, against a naive reference.
use crate::reference;

use proptest::prelude::*;
use reference::{LINES, RefPart};
use whimbrel_mime::section::resolve;
use whimbrel_mime::{Content, HeaderFilter, Limits, Parser, Part, SectionText, Span, Summary};

/// Messages of lines that mean something to a parser, with either line end, the last line with or without one.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let line = (0..LINES.len(), any::<bool>());
    (
        proptest::collection::vec(line, 0..60),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(lines, open, multipart)| {
            let mut message = Vec::new();
            if multipart {
                message.extend_from_slice(b"Content-Type: multipart/mixed; boundary=A\r\n\r\n");
            }
            for (line, crlf) in lines {
                message.extend_from_slice(LINES[line].as_bytes());
                message.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
            }
            if open {
                message.pop();
            }
            message
        })
}

fn parse(message: &[u8], limits: &Limits) -> Summary {
    let mut parser = Parser::new(limits);
    parser.push(message);
    parser.finish()
}

fn parse_in_pieces(message: &[u8], cuts: &[prop::sample::Index], limits: &Limits) -> Summary {
    let mut cuts: Vec<_> = cuts
        .iter()
        .map(|cut| cut.index(message.len() + 1))
        .collect();
    cuts.sort_unstable();
    cuts.push(message.len());
    let mut parser = Parser::new(limits);
    let mut at = 0;
    for cut in cuts {
        parser.push(&message[at..cut]);
        at = cut;
    }
    parser.finish()
}

fn bytes(message: &[u8], span: Span) -> &[u8] {
    &message[span.start as usize..span.end() as usize]
}

/// Compares a part with that of the reference, all sections of it, and goes on to what is inside.
fn compare(
    message: &[u8],
    summary: &Summary,
    part: &Part,
    expected: &RefPart,
    path: &mut Vec<u32>,
    outermost: bool,
) {
    let kind = match &part.content {
        Content::Basic => "image",
        Content::Text => "text",
        Content::Multipart(_) if part.is("multipart", "digest") => "digest",
        Content::Multipart(_) => "multipart",
        Content::Message(_) => "message",
    };
    assert_eq!(kind, expected.kind);
    let range = |span: Span| span.start as usize..span.end() as usize;
    assert_eq!(range(part.header), expected.header, "header of {path:?}");
    assert_eq!(range(part.body), expected.body, "body of {path:?}");
    assert_eq!(
        part.lines,
        message[expected.body.clone()]
            .iter()
            .filter(|&&b| b == b'\n')
            .count() as u64
    );
    let section = |text| resolve(summary, path, text).map(|found| bytes(message, found.span));
    if !outermost {
        assert_eq!(
            section(SectionText::MessageOrBody),
            Some(&message[expected.body.clone()])
        );
        assert_eq!(
            section(SectionText::Mime),
            Some(&message[expected.header.clone()])
        );
    }
    let inner = expected.children.first().filter(|_| kind == "message");
    if !outermost {
        assert_eq!(
            section(SectionText::Header),
            inner.map(|inner| &message[inner.header.clone()])
        );
        assert_eq!(
            section(SectionText::Text),
            inner.map(|inner| &message[inner.body.clone()])
        );
    }
    match &part.content {
        Content::Basic | Content::Text => {}
        Content::Multipart(parts) => {
            assert_eq!(parts.len(), expected.children.len());
            for (at, (part, expected)) in parts.iter().zip(&expected.children).enumerate() {
                path.push(at as u32 + 1);
                compare(message, summary, part, expected, path, false);
                path.pop();
            }
        }
        Content::Message(message_part) => {
            let (body, expected) = (&message_part.body, &expected.children[0]);
            // Parts of an embedded multipart are counted directly below the message.
            if matches!(body.content, Content::Multipart(_)) {
                compare(message, summary, body, expected, path, true);
            } else {
                path.push(1);
                compare(message, summary, body, expected, path, false);
                path.pop();
            }
        }
    }
}

fn nested(part: &Part, outer: Span) {
    for span in [part.header, part.body] {
        assert!(span.start >= outer.start && span.end() <= outer.end());
    }
    assert!(part.header.end() == part.body.start);
    match &part.content {
        Content::Basic | Content::Text => {}
        Content::Multipart(parts) => {
            assert!(!parts.is_empty());
            assert!(
                parts
                    .windows(2)
                    .all(|pair| pair[0].body.end() <= pair[1].header.start)
            );
            parts.iter().for_each(|inner| nested(inner, part.body));
        }
        Content::Message(message) => nested(&message.body, part.body),
    }
}

/// HEADER.FIELDS, the naive way.
fn naive_fields(header: &[u8], names: &[&str], not: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pass = not;
    for line in header.split_inclusive(|&b| b == b'\n') {
        if line == b"\n" || line == b"\r\n" {
            out.extend_from_slice(line);
            continue;
        }
        if line[0] != b' ' {
            let text = String::from_utf8_lossy(line).into_owned();
            let name = text
                .split_once(':')
                .map(|(name, _)| name.trim_end().to_lowercase());
            pass = name.is_some_and(|name| names.iter().any(|n| n.to_lowercase() == name)) != not;
        }
        if pass {
            out.extend_from_slice(line);
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn agrees_with_the_reference(message in messages(), nesting_max in 1usize..7) {
        let summary = parse(&message, &Limits { nesting_max, ..Limits::default() });
        let expected = reference::parse(&message, nesting_max);
        let multipart = matches!(summary.message.body.content, Content::Multipart(_));
        let mut path = if multipart { vec![] } else { vec![1] };
        compare(&message, &summary, &summary.message.body, &expected, &mut path, multipart);
        prop_assert_eq!(summary.size, message.len() as u64);
        prop_assert_eq!(summary.lines, message.iter().filter(|&&b| b == b'\n').count() as u64);
        prop_assert_eq!(resolve(&summary, &[], SectionText::Header).unwrap().span.len as usize, expected.header.len());
    }

    #[test]
    fn pieces_do_not_matter(message in messages(), cuts: Vec<prop::sample::Index>) {
        let limits = Limits::default();
        prop_assert_eq!(parse_in_pieces(&message, &cuts, &limits), parse(&message, &limits));
    }

    #[test]
    fn pieces_do_not_matter_at_the_limits(
        message in messages(), cuts: Vec<prop::sample::Index>, bytes in 0usize..80, fields in 0usize..5, parts in 0usize..6
    ) {
        let limits = Limits {
            nesting_max: 3, parts_max: parts, header_bytes_max: bytes, header_fields_max: fields, addresses_max: 1,
            params_max: 1, summary_bytes_max: 0, preview_bytes_max: bytes,
        };
        let summary = parse(&message, &limits);
        prop_assert_eq!(&parse_in_pieces(&message, &cuts, &limits), &summary);
        nested(&summary.message.body, Span { start: 0, len: summary.size });
    }

    #[test]
    fn any_bytes(message: Vec<u8>, cuts: Vec<prop::sample::Index>) {
        let limits = Limits::default();
        let summary = parse(&message, &limits);
        nested(&summary.message.body, Span { start: 0, len: message.len() as u64 });
        prop_assert_eq!(&parse_in_pieces(&message, &cuts, &limits), &summary);
        prop_assert_eq!(Summary::decode(&summary.encode()).unwrap(), summary);
    }

    #[test]
    fn encoding_has_an_inverse(message in messages()) {
        let summary = parse(&message, &Limits::default());
        let encoded = summary.encode();
        prop_assert_eq!(Summary::decode(&encoded).unwrap(), summary);
        for len in 0..encoded.len() {
            prop_assert!(Summary::decode(&encoded[..len]).is_err());
        }
    }

    #[test]
    fn decoding_survives_damage(message in messages(), at: prop::sample::Index, byte: u8, noise: Vec<u8>) {
        let mut encoded = parse(&message, &Limits::default()).encode();
        let at = at.index(encoded.len());
        encoded[at] = byte;
        if let Ok(summary) = Summary::decode(&encoded) {
            nested_enough(&summary.message.body, summary.size);
            let _ = summary.encode();
        }
        let _ = Summary::decode(&noise);
    }

    #[test]
    fn prefix_and_blob_are_one_message(message in messages(), trace in 0usize..3) {
        let prefix = "Delivered-To: a@b\r\nReceived: x\n\ty\nFrom: p@q\r\n".split_inclusive('\n').take([0, 1, 4][trace]);
        let prefix: String = prefix.collect();
        prop_assume!(!message.starts_with(b" "));
        let limits = Limits::default();
        let mut expected = parse(&[prefix.as_bytes(), &message].concat(), &limits);
        expected.prefix_len = prefix.len() as u64;
        prop_assert_eq!(parse(&message, &limits).with_prefix(prefix.as_bytes(), &limits), expected);
    }

    #[test]
    fn fields_agree(message in messages(), names in proptest::sample::subsequence(
        vec!["subject", "FROM", "content-type", "list-id", "X-Odd", "--A"], 0..6), cuts: Vec<prop::sample::Index>) {
        let summary = parse(&message, &Limits::default());
        let header = bytes(&message, summary.message.body.header);
        for not in [false, true] {
            let expected = naive_fields(header, &names, not);
            let mut filter = HeaderFilter::new(&names, not);
            let mut found = Vec::new();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(header.len() + 1)).collect();
            cuts.sort_unstable();
            cuts.push(header.len());
            let mut at = 0;
            for cut in cuts {
                filter.push(&header[at..cut], &mut |b: &[u8]| found.extend_from_slice(b));
                at = cut;
            }
            filter.finish(&mut |b: &[u8]| found.extend_from_slice(b));
            prop_assert_eq!(&found, &expected);
            if !not {
                let usual = !names.contains(&"X-Odd") && !names.contains(&"--A");
                prop_assert_eq!(summary.header_fields(&names), usual.then_some(expected));
            }
        }
    }
}

/// Ranges of a decoded summary can be computed with.
fn nested_enough(part: &Part, size: u64) {
    assert!(part.header.end() <= size && part.body.end() <= size);
    match &part.content {
        Content::Basic | Content::Text => {}
        Content::Multipart(parts) => parts.iter().for_each(|part| nested_enough(part, size)),
        Content::Message(message) => nested_enough(&message.body, size),
    }
}
