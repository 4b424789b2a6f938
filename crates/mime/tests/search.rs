//! Search against a naive one: each text is decoded whole, then looked through.
use base64::Engine as _;
use proptest::prelude::*;
use whimbrel_mime::search::{Needle, Scope, TextSearcher};
use whimbrel_mime::{Limits, Parser};

const CHARSETS: &[&str] = &[
    "utf-8",
    "utf-16le",
    "utf-16be",
    "iso-8859-7",
    "windows-1251",
    "gb18030",
    "shift_jis",
    "euc-kr",
    "koi8-r",
    "utf-7",
];
const ENCODINGS: &[&str] = &["8bit", "base64", "quoted-printable"];

#[derive(Clone, Debug)]
struct Text {
    charset: usize,
    encoding: usize,
    /// Folds that differ in length or do not exist are not among its characters, so that lower case is enough here.
    text: String,
    image: bool,
}

fn texts() -> impl Strategy<Value = Vec<Text>> {
    let text = (
        0..CHARSETS.len(),
        0..ENCODINGS.len(),
        "[aAbBαΑβΒдДжЖ ]{0,60}",
        prop::bool::weighted(0.2),
    )
        .prop_map(|(charset, encoding, text, image)| Text {
            charset,
            encoding,
            text,
            image,
        });
    proptest::collection::vec(text, 1..5)
}

/// Bytes in a charset. The characters that it does not have become numbers.
fn in_charset(charset: &str, text: &str) -> Vec<u8> {
    match charset {
        "utf-16le" => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        "utf-16be" => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        "utf-7" => text
            .chars()
            .flat_map(|c| match c.is_ascii() {
                true => vec![c as u8],
                false => {
                    let unit = (c as u32 as u16).to_be_bytes();
                    format!(
                        "+{}-",
                        base64::engine::general_purpose::STANDARD_NO_PAD.encode(unit)
                    )
                    .into_bytes()
                }
            })
            .collect(),
        _ => encoding_rs::Encoding::for_label(charset.as_bytes())
            .unwrap()
            .encode(text)
            .0
            .into_owned(),
    }
}

fn naive_decode(charset: &str, bytes: &[u8], text: &str) -> String {
    match charset {
        "utf-7" => text.to_owned(),
        _ => encoding_rs::Encoding::for_label(charset.as_bytes())
            .unwrap()
            .decode(bytes)
            .0
            .into_owned(),
    }
}

fn transfer_encoded(encoding: &str, bytes: &[u8]) -> Vec<u8> {
    match encoding {
        "base64" => {
            let text = base64::engine::general_purpose::STANDARD.encode(bytes);
            text.as_bytes()
                .chunks(20)
                .flat_map(|line| [line, b"\r\n"].concat())
                .collect()
        }
        "quoted-printable" => bytes
            .chunks(9)
            .flat_map(|line| {
                let mut line: Vec<u8> = line
                    .iter()
                    .flat_map(|&b| {
                        if b.is_ascii_alphanumeric() {
                            vec![b]
                        } else {
                            format!("={b:02X}").into_bytes()
                        }
                    })
                    .collect();
                line.extend_from_slice(b"=\r\n");
                line
            })
            .collect(),
        _ => bytes.to_vec(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn agrees_with_a_naive_search(
        texts in texts(), subject in "[a-cA-C]{0,6}", needle in "[abαβдж ]{1,4}", second in "[aAбБжЖ]{2}", step in 1usize..50
    ) {
        let mut message = format!("X-Top: {subject}\r\nContent-Type: multipart/mixed; boundary=\"=B=\"\r\n\r\n").into_bytes();
        let (mut headers, mut decoded) = (Vec::new(), Vec::new());
        for text in &texts {
            let (charset, encoding) = (CHARSETS[text.charset], ENCODINGS[text.encoding]);
            let kind = if text.image { "image/x" } else { "text/x" };
            // All of the MIME header is text, too, for TEXT.
            let header = format!("Content-Type: {kind}; charset=\"{charset}\"\r\nContent-Transfer-Encoding: {encoding}\r\n");
            message.extend_from_slice(format!("--=B=\r\n{header}\r\n").as_bytes());
            let bytes = in_charset(charset, &text.text);
            message.extend_from_slice(&transfer_encoded(encoding, &bytes));
            message.extend_from_slice(b"\r\n");
            headers.extend(header.lines().map(str::to_lowercase));
            if !text.image {
                decoded.push(naive_decode(charset, &bytes, &text.text).to_lowercase());
            }
        }
        message.extend_from_slice(b"--=B=--\r\n");
        let mut parser = Parser::new(&Limits::default());
        parser.push(&message);
        let summary = parser.finish();
        for scope in [Scope::Body, Scope::Text] {
            if scope == Scope::Text {
                decoded.push(format!("x-top: {subject}").to_lowercase());
                decoded.push("content-type: multipart/mixed; boundary=\"=b=\"".to_owned());
                decoded.append(&mut headers);
            }
            let needles = [needle.clone(), second.clone()];
            let mut searcher = TextSearcher::new(&summary, scope, &needles.each_ref().map(|n| Needle::new(n)));
            while let Some(span) = searcher.next_range() {
                let bytes = &message[span.start as usize..span.end() as usize];
                bytes.chunks(step).for_each(|piece| searcher.push(piece));
            }
            let expected = needles.map(|needle| decoded.iter().any(|text| text.contains(&needle.to_lowercase())));
            prop_assert_eq!(searcher.matched(), &expected[..]);
        }
    }
}
