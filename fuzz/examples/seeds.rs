//! Makes the seeds in `corpus/`: what clients and servers say in the scripts of the IMAP session, and messages, conversations and encodings that
//! are well made. `cargo run --example seeds`, in the directory of this workspace.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use whimbrel_crdt::{Batch, Hash, Incarnation, PartitionId, Section, Stamp, VersionVector};
use whimbrel_mime::{Limits, Parser};
use whimbrel_service::content::Content;

/// Lines of a script that make one seed.
const LINES: usize = 30;

const MESSAGES: &[&str] = &[
    "From: Carl <carl@example.net>\r\nTo: anne@example.org, \"B, C\" <b@example.org>\r\nSubject: =?utf-8?q?gr=C3=BC=C3=9Fe?= =?utf-8?b?w6Q=?=\r\nDate: Mon, 02 Nov 2026 10:00:00 +0000\r\nMessage-ID: <a@b>\r\n\r\ntext\r\n",
    "Content-Type: multipart/mixed; boundary=\"b\"\r\n\r\npreamble\r\n--b\r\n\r\none\r\n--b\r\nContent-Type: text/html; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=E4=\r\n=F6\r\n--b--\r\nepilogue",
    "Content-Type: message/rfc822\r\n\r\nSubject: inner\r\nContent-Type: multipart/digest; boundary=x\r\n\r\n--x\r\n\r\nSubject: deepest\r\n\r\ntext\r\n--x--\r\n",
    "Content-Type: text/plain; name*0*=utf-8'en'a%20; name*1=b; name*2*=%c3%a4\r\nContent-Disposition: attachment; filename=\"a.b\"; size=3\r\nContent-Language: en, de\r\nContent-ID: <x>\r\nContent-MD5: abc\r\nContent-Location: x\r\n\r\nbody",
    "To: friends: a@b, c <d@e>;, undisclosed:;\nFrom: <@r,@s:a@b>\nSender: (comment (nested)) x@y (z)\nReply-To: \"q\\\"q\" <\"l o c\"@[1.2.3.4]>\nCc: =?x?q?a?= <a@b>\n\nx",
    "Subject: a\r\n b\r\n\tc\r\nX-Odd : y\r\nnot a field\r\nReceived: from a by b; Thu, 1 Jan 1970 00:00:00 GMT\r\n\r\n--b\r\n--b--\r\n",
    "Content-Type: multipart/alternative; boundary=a\r\n\r\n--a\r\nContent-Type: multipart/mixed; boundary=ab\r\n\r\n--ab\r\n\r\nx\r\n--a\r\nContent-Transfer-Encoding: base64\r\nContent-Type: text/plain; charset=utf-7\r\n\r\nK0FPUS0=\r\n--a--",
];

const HEADERS: &[&str] = &[
    "=?utf-8?q?a_b=20c?= =?utf-8?b?w6TDtg==?= rest",
    "=?iso-2022-jp*en?b?GyRCJCIbKEI=?=",
    "=?utf-8?q?=?x =?=?q?=00?=",
];

const MAIL: &[&str] = &[
    "EHLO a\r\nMAIL FROM:<a@b> SIZE=9\r\nRCPT TO:<bob@x>\r\nDATA\r\nSubject: x\r\n\r\n..\r\n.\r\nQUIT\r\n",
    "LHLO a\r\nMAIL FROM:<> BODY=8BITMIME SMTPUTF8\r\nRCPT TO:<\"a b\"@x>\r\nRCPT TO:<u@x>\r\nBDAT 3\r\nabcBDAT 2 LAST\r\n\r\nRSET\r\n",
    "EHLO [1.2.3.4]\r\nSTARTTLS\r\nNOOP\r\n",
    "EHLO a\r\nAUTH PLAIN AGEAYg==\r\nAUTH LOGIN\r\nYQ==\r\nYg==\r\nMAIL FROM:<a@b> AUTH=<>\r\nVRFY x\r\nEXPN x\r\nHELP\r\n",
    "HELO a\r\nMAIL FROM:<f@x>\r\nRCPT TO:<a@b>\r\nRCPT TO:<postmaster>\r\nDATA\r\nReceived: x\r\nReceived: y\r\nDelivered-To: a@b\r\n\r\n\r\n.\r\n",
];

const MAIL_REPLIES: &[&str] = &[
    "220 a ESMTP\r\n250-a\r\n250-PIPELINING\r\n250-CHUNKING\r\n250-SIZE 100\r\n250 STARTTLS\r\n220 go\r\n250 a\r\n250 2.1.0 ok\r\n250 ok\r\n550 5.1.1 no\r\n354 go\r\n250 done\r\n",
    "220 a\r\n502 no\r\n250 a\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 x\r\n250 one\r\n450 4.2.0 two\r\n221 bye\r\n",
];

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = root.join("corpus");
    let crates = root.join("../crates");
    scripts(&crates.join("frontend/tests/imap/scripts"), &corpus)?;
    for (at, message) in MESSAGES.iter().enumerate() {
        for (name, choice) in [("default", 0x20), ("small", 0x21)] {
            seed(
                &corpus,
                "mime",
                &format!("{name}-{at}"),
                &[64, choice],
                message.as_bytes(),
            )?;
        }
    }
    for (at, header) in HEADERS.iter().enumerate() {
        seed(
            &corpus,
            "mime",
            &format!("header-{at}"),
            &[0, 4, 1],
            header.as_bytes(),
        )?;
    }
    for (at, talk) in MAIL.iter().enumerate() {
        for role in 0..3u8 {
            let choice = [30, role + 3 * 5];
            seed(
                &corpus,
                "smtp_session",
                &format!("talk-{at}-{role}"),
                &choice,
                talk.as_bytes(),
            )?;
        }
    }
    for (at, talk) in MAIL_REPLIES.iter().enumerate() {
        for choice in [0, 7] {
            seed(
                &corpus,
                "smtp_session",
                &format!("replies-{at}-{choice}"),
                &[0, choice | 0x50],
                talk.as_bytes(),
            )?;
        }
    }
    seed(
        &corpus,
        "smtp_session",
        "command",
        &[10],
        b"RCPT TO:<\"a\\ b\"@[IPv6:::1]> NOTIFY=NEVER",
    )?;
    seed(
        &corpus,
        "smtp_session",
        "text",
        &[20],
        b"a\r\n..b\r\n.\r\nc\rd\n",
    )?;
    logins(&corpus)?;
    encodings(&crates, &corpus)
}

/// Messages of SASL, divided by 0xFF, and lines of POP3.
fn logins(corpus: &Path) -> std::io::Result<()> {
    let bound = b"p=tls-exporter,,n=anne,r=nonce\xFFc=cD10bHMtZXhwb3J0ZXIsLAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=,r=nonceserver,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\xFF";
    seed(corpus, "sasl", "bound", &[4], bound)?;
    let scram = b"n,,n=a=2Cb,r=nonce,x=y\xFFc=biws,r=nonceserver,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\xFF";
    seed(corpus, "sasl", "scram", &[1], scram)?;
    seed(
        corpus,
        "sasl",
        "acting",
        &[1 | 64],
        &[b"\xFF", &scram[..]].concat(),
    )?;
    seed(corpus, "sasl", "plain", &[2], b"anne\0anne\0secret")?;
    seed(corpus, "sasl", "login", &[3 | 64], b"anne\xFFsecret")?;
    let lines = b"CAPA\r\nUSER anne|Archive\r\nPASS a b\r\nSTAT\r\nLIST 1\r\nUIDL\r\nTOP 1 10\r\nRETR 1\r\nDELE 1\r\nAUTH PLAIN AGEAYg==\r\nAUTH PLAIN\r\n*\r\nAPOP a b\r\nUTF8\r\nSTLS\r\nQUIT\r\n";
    seed(corpus, "pop3", "lines", &[64, 5], lines)?;
    seed(
        corpus,
        "pop3",
        "body",
        &[0, 0xF3],
        b"a: b\r\n\r\n.\r\n..\n.x\rend",
    )
}

fn seed(corpus: &Path, target: &str, name: &str, head: &[u8], data: &[u8]) -> std::io::Result<()> {
    let directory = corpus.join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(name), [head, data].concat())
}

/// What is said in the scripts: by clients for the decoder and the session, by the server for the client.
fn scripts(directory: &Path, corpus: &Path) -> std::io::Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    files.sort();
    for file in files {
        let stem = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        for line in fs::read_to_string(&file)?.lines() {
            if let Some((_, text)) = line.split_once("C: ") {
                asked.push(unescaped(text));
            } else if let Some((_, text)) = line.split_once("S: ") {
                answered.push(unescaped(&text.replace("...", "x")));
            }
        }
        for (at, lines) in asked.chunks(LINES).enumerate() {
            let name = format!("{stem}-{at}");
            seed(corpus, "imap_decoder", &name, &[20, 0x19], &lines.concat())?;
            seed(
                corpus,
                "imap_session",
                &name,
                &[6 | 9 << 3],
                &lines.concat(),
            )?;
            if at % 4 == 0 {
                seed(
                    corpus,
                    "imap_session",
                    &format!("{name}-owner"),
                    &[7 | 9 << 3],
                    &lines.concat(),
                )?;
                seed(
                    corpus,
                    "imap_decoder",
                    &format!("{name}-command"),
                    &[10],
                    &lines.concat(),
                )?;
            }
        }
        for (at, lines) in answered.chunks(LINES).enumerate() {
            seed(
                corpus,
                "imap_client",
                &format!("{stem}-{at}"),
                &[10],
                &lines.concat(),
            )?;
        }
    }
    seed(corpus, "imap_decoder", "words", &[0], b"INBOX/&AOQ-,1:3,*")
}

/// Text of a script as bytes: variables are numbers, escapes are undone as far as seeds need them.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once('$') {
        out.push_str(head);
        let name = tail
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(tail.len());
        out.push_str(if name == 0 { "$" } else { "64" });
        rest = tail[name..].strip_prefix('$').unwrap_or(&tail[name..]);
    }
    out.push_str(rest);
    let mut bytes = out
        .replace("\\r", "\r")
        .replace("\\n", "\n")
        .replace("\\\\", "\\")
        .into_bytes();
    bytes.extend_from_slice(b"\r\n");
    bytes
}

fn encodings(crates: &Path, corpus: &Path) -> std::io::Result<()> {
    let put = |which: u8, name: &str, data: &[u8]| seed(corpus, "encodings", name, &[which], data);
    put(
        0,
        "batch",
        &fs::read(crates.join("crdt/fixtures/batch-v1.cbor"))?,
    )?;
    let operations = fs::read(crates.join("mailbox/fixtures/ops-v1.cbor"))?;
    put(1, "operations", &operations)?;
    put(
        5,
        "directory",
        &fs::read(crates.join("directory/fixtures/ops-v1.cbor"))?,
    )?;
    put(0, "batch-of-operations", &batch(&operations))?;
    put(3, "rows", &rows())?;
    let mut parser = Parser::new(&Limits::default());
    parser.push(MESSAGES[1].as_bytes());
    let summary = parser.finish().encode();
    seed(corpus, "mime", "summary", &[0, 4, 1], &summary)?;
    let content = Content {
        prefix: Bytes::from_static(b"Delivered-To: a@b\r\n"),
        summary: summary.into(),
    };
    put(6, "content", &content.encode())?;
    put(9, "head", &[7; 48])?;
    put(10, "journal", &[1, 1, 1, 1, 2, 0, 90, 3, 2, 0, 80, 3])?;
    put(10, "raw-journal", b"\0\x01\x01\0\0\0")?;
    put(11, "blob", &[1; 48])
}

/// All rows of an account in which everything has happened once: those of [`whimbrel_mailbox::fuzz::rows`].
fn rows() -> Vec<u8> {
    use whimbrel_mailbox::{
        AccountId, CreateMailbox, MailboxName, NewId, Op, Peers, Replica, Step,
    };
    let origin = Incarnation::new(7).expect("not zero");
    let mut applied = VersionVector::new();
    applied.advance(origin, 4);
    let name = MailboxName::new("INBOX/a").expect("a name");
    let ops = vec![
        Op::Open {
            created: 1_700_000_000,
            uidvalidity_floor: 5,
        },
        Op::CreateMailbox(CreateMailbox {
            id: NewId::Fresh,
            name: name.clone(),
            special_use: None,
        }),
    ];
    let mut replica = Replica::new(AccountId([1; 16]), 3);
    let step = Step {
        origin,
        first: 1,
        hlc: 1,
        deps: &VersionVector::new(),
        applied: &applied,
        now_micros: 1,
        peers: &Peers::none(),
    };
    replica.apply(&step, ops).expect("nothing is missing");
    let mut out = Vec::new();
    for (key, value) in replica.all_rows() {
        for piece in [key.to_bytes(), value] {
            out.push(u8::try_from(piece.len()).expect("rows of this account are short"));
            out.extend(piece);
        }
    }
    out
}

fn batch(operations: &[u8]) -> Vec<u8> {
    let origin = Incarnation::new(7).expect("not zero");
    let count = whimbrel_mailbox::Op::decode_all(operations)
        .expect("the fixture is read")
        .len() as u32;
    let batch = Batch {
        partition: PartitionId(1),
        origin,
        first: 1,
        count,
        previous: Hash([0; 32]),
        deps: VersionVector::new(),
        stamp: Stamp { hlc: 1, origin },
        sections: vec![Section {
            subject: [1; 16],
            counter: 0,
            count,
            ops: operations.to_vec(),
        }],
        blobs: Vec::new(),
    };
    batch.seal().bytes
}
