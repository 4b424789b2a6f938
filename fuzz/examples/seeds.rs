//! Makes the seeds in `corpus/`: what clients and servers say in the scripts of the IMAP session, and messages, conversations and encodings that
//! are well made. `cargo run --example seeds`, in the directory of this workspace.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use whimbrel_cluster::{Authority, NodeName, Token};
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
    "220 a\r\n250-a\r\n250-AUTH=LOGIN\r\n250-DSN\r\n250-REQUIRETLS\r\n250-8BITMIME\r\n250 LIMITS RCPTMAX=2 MAILMAX=1\r\n334 a\r\n334 b\r\n235 ok\r\n250 ok\r\n\
     250 ok\r\n452 4.5.3 many\r\n354 go\r\n421 down\r\n",
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
        // By octets; plain, and with all that a client can do.
        for (choice, more) in [(0, 0), (7, 3)] {
            seed(
                &corpus,
                "smtp_session",
                &format!("replies-{at}-{choice}"),
                &[0, choice, more],
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
    imported(&corpus)?;
    control(&corpus)?;
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

/// Mail of other programs.
fn imported(corpus: &Path) -> std::io::Result<()> {
    let mbox = b"Subject: x\nStatus: RO\nX-Status: AF\nX-Keywords: b a\nX-UID: 7\nContent-Length: 3\n\nStatus: R\n>From x\n>>From y\n\n\
        From a b Fri Jan 02 00:00 1970\n\nc\n\nFrom here on\n\nFrom a Thu Jan  1 02:00:00 1970 +0200\nA: b\n\n\
        From a Thu Jan  1 02:00:00 EST 1970\r\nX-Keywords:\r\n more\r\n\r\nx\n\r\n";
    for choice in 0..3 {
        seed(
            corpus,
            "transfer",
            &format!("mbox-{choice}"),
            &[0, choice + 3 * 6],
            mbox,
        )?;
    }
    let message =
        b"A: 1\r\nStatus: RO\r\n more\r\nX-Imapbase : 1\r\n\r\nFrom x\r\n>From y\r\n\rz\nend";
    seed(
        corpus,
        "transfer",
        "message",
        &[100, 6, 0, 0, 0, 7, 0, 0, 0],
        message,
    )?;
    seed(corpus, "transfer", "lines", &[140, 3], b"a\nb\r\n\n\rc\n")?;
    let maildir = "0 $Label1\n1 NonJunk\n25 last\n\01700000000.M1P2.host.whimbrel,S=7:2,DFPRSTabz,x\0.Entw&APw-rfe.a\\2eb.c\\5cd";
    for (name, list) in [
        (
            "first",
            "A\nA.B\nINBOX.Sent\ninbox/x\nFu\u{308}r\na*b\na_b\n",
        ),
        ("second", "V\t2\n\nA\tB.c\nEntw&APw-rfe\nx\u{1}ty\n"),
    ] {
        let courier = "$Label1\ntwo words\n\n1.a.host:0 1\n";
        let names = format!("{maildir}\0{courier}\0{list}");
        seed(
            corpus,
            "transfer",
            &format!("names-{name}"),
            &[150],
            names.as_bytes(),
        )?;
    }
    Ok(())
}

/// What administrators, scrapers and nodes say.
fn control(corpus: &Path) -> std::io::Result<()> {
    let put = |which: u8, name: &str, head: &[u8], data: &[u8]| {
        seed(corpus, "control", name, &[&[which], head].concat(), data)
    };
    let verifier = "$argon2id$v=19$m=1024,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let key = "A".repeat(43) + "=";
    let keys = format!("SCRAM-SHA-256$4096:AAAAAAAAAAAAAAAAAAAAAA==${key}:{key}");
    let questions = [
        format!(
            r#"{{"ask":"account-add","address":"anne@x.org","verifier":"{verifier}","scram":"{keys}"}}"#
        ),
        format!(
            r#"{{"ask":"account-passwd","address":"anne@x.org","verifier":"{verifier}","scram":null}}"#
        ),
        r#"{"ask":"account-remove","address":"a@x"}"#.to_owned(),
        r#"{"ask":"alias-add","from":"@x","to":"a@x"}"#.to_owned(),
        r#"{"ask":"alias-remove","from":"@x","to":null}"#.to_owned(),
        r#"{"ask":"session","address":"a@x"}"#.to_owned(),
        r#"{"ask":"account-list"}"#.to_owned(),
    ];
    for (at, question) in questions.iter().enumerate() {
        put(
            0,
            &format!("question-{at}"),
            &[128 + 7],
            question.as_bytes(),
        )?;
    }
    let answers = [
        r#"{"answer":"accounts","accounts":[{"address":"a@x","id":"01","created":7,"set_aside":false}],"more":true}"#,
        r#"{"answer":"accounts","accounts":[],"more":false}"#,
    ];
    let frames = answers.map(|text| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat());
    put(0, "answers", &[9], &frames.concat())?;
    let refused = br#"{"answer":"refused","reason":"no"}"#;
    put(0, "refused", &[128], refused)?;
    put(
        0,
        "aliases",
        &[128],
        br#"{"answer":"aliases","aliases":[["@x","a@x"]],"more":false}"#,
    )?;
    for (at, path) in ["metrics", "healthz", "readyz", ""].iter().enumerate() {
        let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n");
        put(1, &format!("request-{at}"), &[5], request.as_bytes())?;
    }
    let file = "# x\n[server]\nhostname = 'mail.example.org'\nowners = 0x10\n[imap]\nlisten = [\"[::1]:143\"]\nlogin_timeout = '2 m'\n\
        append_byte_max = \"2MiB\"\n[limits]\nconnections_max = 1_000\n[log]\nlevel = 'debug'\n";
    put(2, "configuration", b"", file.as_bytes())?;
    put(2, "duration", b"", b"250 ms")?;
    put(2, "size", b"", b"64MiB")?;
    put(
        3,
        "address",
        b"",
        "\u{c4}nne+X@B\u{fc}cher.example.".as_bytes(),
    )?;
    put(3, "catch-all", b"", b"@Example.ORG")?;
    let chain: Vec<u8> = (1..10).flat_map(|n| [7, n, n - 1]).collect();
    put(4, "chain", b"", &chain)?;
    put(
        4,
        "details",
        b"",
        &[7, 14, 0, 7, 10, 1, 7, 2, 10, 0, 10, 0, 7, 15, 13, 1, 14, 0],
    )?;
    let token = Token {
        address: "mail.example.org:10700".to_owned(),
        sponsor: "eu-1".to_owned(),
        fingerprint: [3; 32],
        id: 9,
        secret: [7; 32],
    };
    let text = token.to_text();
    put(5, "token", &[0], text.as_bytes())?;
    let inner = text.trim_start_matches("whimbrel-join-");
    let inner = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, inner);
    put(5, "token-inner", &[64], &inner.unwrap_or_default()[4..])?;
    put(5, "name", &[0], b"eu-1")?;
    // A ping, as it was and squeezed: 16 times the same letter.
    put(6, "pack", &[4], b"\0\0\0\x07\0\0\0\x07\0\0\0\x01\0\x02\0")?;
    put(
        6,
        "pack-lz4",
        &[9],
        b"\0\0\0\x0a\0\0\0\x10\x17a\x01\0\x50aaaaa",
    )?;
    put(6, "text", &[0], MESSAGES.concat().as_bytes())?;
    let mut question = vec![0x84, 9, 0x58, 32];
    question.extend([7; 32]);
    question.extend(b"\x64eu-2\x42xy");
    put(7, "question", b"", &question)?;
    let mut answer = vec![0x82, 0, 0x84, 0x50];
    answer.extend([1; 16]);
    answer.extend(b"\x61c\x61k\x42xy");
    put(7, "answer", b"", &answer)?;
    put(7, "answer-no", b"", b"\x82\x01\x81\x62no")?;
    // Its key is drawn: one is enough.
    let path = corpus.join("control/certificate");
    if path.exists() {
        return Ok(());
    }
    let name = NodeName::new("eu-1").map_err(std::io::Error::other)?;
    let authority = Authority::found([7; 16]).map_err(std::io::Error::other)?;
    let node = authority.certify(&name).map_err(std::io::Error::other)?;
    let lines = node.certificate_pem().lines();
    let der: String = lines.filter(|line| !line.starts_with('-')).collect();
    let der = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, der);
    put(7, "certificate", b"", &der.map_err(std::io::Error::other)?)
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
