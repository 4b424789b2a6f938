//! Sessions of the RFCs, replayed: the decoder takes each line of the client, the client machine each line of the server.
//!
//! Lines begin with `C: ` or `S: `; a line that begins with four spaces goes on with the literal of the same side. Sizes are of
//! the lines as they stand here, CRLF included; `<SP>` is a space at the end of a line.
use whimbrel_imap::client::{Client, Response};
use whimbrel_imap::core::Tag;
use whimbrel_imap::{CommandBody, Decoder, Event, Limits};

struct Replay {
    decoder: Decoder,
    client: Client,
    commands: usize,
    responses: Vec<Response>,
}

impl Replay {
    fn client_line(&mut self, line: &str) {
        if let Some(tag) = line
            .split(' ')
            .next()
            .and_then(|word| Tag::new(word.as_bytes()))
            .filter(|_| line.contains(' '))
        {
            // Only its bookkeeping: the line itself goes to the decoder.
            self.client.raw_as(tag, b"");
        }
        self.decoder.push(line.as_bytes());
        self.decoder.push(b"\r\n");
        while let Some(event) = self.decoder.next() {
            match event {
                Event::Command(command) => {
                    self.commands += 1;
                    match command.body {
                        CommandBody::Idle => self.decoder.expect_done(),
                        CommandBody::Authenticate { initial: None, .. } => {
                            self.decoder.expect_sasl()
                        }
                        CommandBody::Login { .. } => self.decoder.set_authenticated(true),
                        CommandBody::Enable(names)
                            if names.iter().any(|n| n == "IMAP4REV2" || n == "UTF8=ACCEPT") =>
                        {
                            self.decoder.set_utf8(true);
                            self.client.set_utf8(true);
                        }
                        _ => {}
                    }
                }
                Event::AppendLiteral(_) => self.decoder.accept_literal(),
                Event::AppendEnd => self.commands += 1,
                Event::AppendBegin(_)
                | Event::AppendMessage(_)
                | Event::AppendUrl(_)
                | Event::AppendMessageEnd => {}
                Event::AppendChunk(_) | Event::Continue { .. } | Event::Sasl(_) | Event::Done => {}
                bad @ (Event::Bad { .. } | Event::Fatal { .. }) => panic!("{bad:?} after {line}"),
            }
        }
    }

    fn server_line(&mut self, line: &str) {
        self.client.push(line.as_bytes());
        self.client.push(b"\r\n");
        while let Some(response) = self.client.next().unwrap_or_else(|e| panic!("{e}")) {
            self.responses.push(response);
        }
    }
}

/// Replays `text`: there must be so many commands and responses, and nothing that is not understood.
#[track_caller]
fn check(text: &str, commands: usize, responses: usize) -> Vec<Response> {
    let mut decoder = Decoder::new(Limits::default());
    decoder.set_authenticated(true);
    let mut replay = Replay {
        decoder,
        client: Client::new(),
        commands: 0,
        responses: Vec::new(),
    };
    let starts_with_greeting = text.trim_start().starts_with("S: * OK IMAP");
    if !starts_with_greeting {
        replay.server_line("* OK hello");
        replay.responses.clear();
    }
    let mut from_client = true;
    for line in text
        .replace("<SP>", " ")
        .lines()
        .filter(|line| !line.is_empty())
    {
        let line = match (line.strip_prefix("C: "), line.strip_prefix("S: ")) {
            (Some(line), _) => {
                from_client = true;
                line
            }
            (_, Some(line)) => {
                from_client = false;
                line
            }
            _ => line
                .strip_prefix("    ")
                .unwrap_or_else(|| panic!("{line}")),
        };
        if from_client {
            replay.client_line(line)
        } else {
            replay.server_line(line)
        }
    }
    assert!(replay.decoder.is_empty());
    assert_eq!(
        (replay.commands, replay.responses.len()),
        (commands, responses)
    );
    replay.responses
}

#[test]
fn rfc9051_section_8() {
    check(
        r##"
S: * OK IMAP4rev2 Service Ready
C: a001 login mrc secret
S: a001 OK LOGIN completed
C: a002 select inbox
S: * 18 EXISTS
S: * FLAGS (\Answered \Flagged \Deleted \Seen \Draft)
S: * OK [UIDVALIDITY 3857529045] UIDs valid
S: * OK [UIDNEXT 4392] Predicted next UID
S: a002 OK [READ-WRITE] SELECT completed
C: a003 fetch 12 full
S: * 12 FETCH (FLAGS (\Seen) INTERNALDATE "17-Jul-1996 02:44:25 -0700" RFC822.SIZE 4286 ENVELOPE ("Wed, 17 Jul 1996 02:23:25 -0700 (PDT)" "IMAP4rev2 WG mtg summary and minutes" (("Terry Gray" NIL "gray" "cac.washington.edu")) (("Terry Gray" NIL "gray" "cac.washington.edu")) (("Terry Gray" NIL "gray" "cac.washington.edu")) ((NIL NIL "imap" "cac.washington.edu")) ((NIL NIL "minutes" "CNRI.Reston.VA.US")("John Klensin" NIL "KLENSIN" "MIT.EDU")) NIL NIL "<B27397-0100000@cac.washington.ed>") BODY ("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 3028 92))
S: a003 OK FETCH completed
C: a004 fetch 12 body[header]
S: * 12 FETCH (BODY[HEADER] {33}
    Subject: minutes
    Lines: second
S: )
S: a004 OK FETCH completed
C: a005 store 12 +flags \deleted
S: * 12 FETCH (FLAGS (\Seen \Deleted))
S: a005 OK +FLAGS completed
C: a006 logout
S: * BYE IMAP4rev2 server terminating connection
S: a006 OK LOGOUT completed
"##,
        6,
        15,
    );
}

#[test]
fn rfc9051_commands() {
    check(
        r##"
C: abcd CAPABILITY
S: * CAPABILITY IMAP4rev2 STARTTLS AUTH=GSSAPI LOGINDISABLED
S: abcd OK CAPABILITY completed
C: a002 NOOP
S: * 22 EXPUNGE
S: * 23 EXISTS
S: * 14 FETCH (UID 1305 FLAGS (\Seen \Deleted))
S: a002 OK NOOP completed
C: A002 AUTHENTICATE PLAIN
S: +<SP>
C: dGVzdAB0ZXN0AHRlc3Q=
S: A002 OK Success
C: a1 ENABLE IMAP4rev2 CONDSTORE
S: * ENABLED IMAP4rev2 CONDSTORE
S: a1 OK ENABLE completed
C: A142 SELECT INBOX
S: * 172 EXISTS
S: * OK [UIDVALIDITY 3857529045] UIDs valid
S: * OK [UIDNEXT 4392] Predicted next UID
S: * FLAGS (\Answered \Flagged \Deleted \Seen \Draft)
S: * OK [PERMANENTFLAGS (\Deleted \Seen \*)] Limited
S: * LIST () "/" INBOX
S: A142 OK [READ-WRITE] SELECT completed
C: A932 EXAMINE blurdybloop
S: * OK [CLOSED] Previous mailbox is now closed
S: * 17 EXISTS
S: A932 OK [READ-ONLY] EXAMINE completed
C: A003 CREATE owatagusiam/
S: A003 OK CREATE completed
C: A683 DELETE foo
S: A683 NO [HASCHILDREN] Name "foo" has inferior hierarchical names
C: A683 RENAME blurdybloop sarasoop
S: * LIST () "/" "sarasoop" ("OLDNAME" ("blurdybloop"))
S: A683 OK RENAME completed
C: A002 SUBSCRIBE #news.comp.mail.mime
S: A002 OK SUBSCRIBE completed
C: A101 LIST "" ""
S: * LIST (\Noselect) "/" ""
S: A101 OK LIST Completed
C: A103 LIST (SUBSCRIBED REMOTE) "" "*" RETURN (CHILDREN STATUS (MESSAGES UNSEEN))
S: * LIST (\Subscribed \HasNoChildren) "/" "INBOX"
S: * STATUS "INBOX" (MESSAGES 17 UNSEEN 16)
S: * LIST (\Subscribed \NonExistent) "/" "Fruit/Peach" (CHILDINFO ("SUBSCRIBED"))
S: A103 OK done
C: A001 NAMESPACE
S: * NAMESPACE (("" "/")) (("~" "/")) (("#shared/" "/")("#public/" "/")("#ftp/" "/")("#news." "."))
S: A001 OK NAMESPACE command completed
C: A042 STATUS blurdybloop (UIDNEXT MESSAGES SIZE)
S: * STATUS blurdybloop (MESSAGES 231 UIDNEXT 44292 SIZE 9000000000)
S: A042 OK STATUS completed
C: A003 APPEND saved-messages (\Seen) {66}
S: + Ready for literal data
C: Date: Mon, 7 Feb 1994 21:52:25 -0800 (PST)
    From: Fred Foobar <>
C:<SP>
S: A003 OK [APPENDUID 38505 3955] APPEND completed
C: A004 IDLE
S: + idling
S: * 4 EXISTS
C: DONE
S: A004 OK IDLE terminated
C: A005 MOVE 42:69 foo
S: * OK [COPYUID 432432 42:69 1202:1229] moved
S: * 22 EXPUNGE
S: A005 OK Done
C: A202 EXPUNGE
S: * 3 EXPUNGE
S: A202 OK EXPUNGE completed
C: A282 SEARCH RETURN (MIN COUNT) FLAGGED SINCE 1-Feb-1994 NOT FROM "Smith"
S: * ESEARCH (TAG "A282") MIN 2 COUNT 3
S: A282 OK SEARCH completed
C: A285 UID SEARCH RETURN () TEXT {6}
S: + Ready
C: фыв
S: * ESEARCH (TAG "A285") UID ALL 43
S: A285 OK SEARCH completed
C: A654 FETCH 2:4 (FLAGS BODY[HEADER.FIELDS (DATE FROM)])
S: * 2 FETCH (FLAGS (\Seen) BODY[HEADER.FIELDS (DATE FROM)] {2}
S:<SP>
S: )
S: A654 OK FETCH completed
C: A003 STORE 2:4 +FLAGS (\Deleted)
S: * 2 FETCH (FLAGS (\Deleted \Seen))
S: A003 OK STORE completed
C: A999 UID FETCH 4827313:4828442 FLAGS
S: * 23 FETCH (FLAGS (\Seen) UID 4827313)
S: A999 OK UID FETCH completed
C: A341 CLOSE
S: A341 OK CLOSE completed
C: A342 UNSELECT
S: A342 OK Unselect completed
C: a023 ID ("name" "sodr" "version" "19.34" "vendor" "Pink Floyd Music Limited")
S: * ID NIL
S: a023 OK ID completed
"##,
        26,
        60,
    );
}

#[test]
fn rfc7162() {
    let responses = check(
        r##"
C: A142 SELECT INBOX (CONDSTORE)
S: * 172 EXISTS
S: * 1 RECENT
S: * OK [UNSEEN 12] Message 12 is first unseen
S: * OK [UIDVALIDITY 3857529045] UIDs valid
S: * OK [UIDNEXT 4392] Predicted next UID
S: * FLAGS (\Answered \Flagged \Deleted \Seen \Draft)
S: * OK [PERMANENTFLAGS (\Deleted \Seen \*)] Limited
S: * OK [HIGHESTMODSEQ 715194045007] Highest
S: A142 OK [READ-WRITE] SELECT completed
C: a103 UID STORE 6,4,8 (UNCHANGEDSINCE 12121230045) +FLAGS.SILENT (\Deleted)
S: * 1 FETCH (UID 4 MODSEQ (12121231000))
S: * 4 FETCH (UID 8 MODSEQ (12121231000))
S: a103 OK [MODIFIED 6] Conditional Store completed
C: a104 STORE * (UNCHANGEDSINCE 12121230045) +FLAGS.SILENT (\Deleted $Processed)
S: * 50 FETCH (MODSEQ (12111230047))
S: a104 OK Store (conditional) completed
C: s100 UID FETCH 1:* (FLAGS) (CHANGEDSINCE 12345)
S: * 1 FETCH (UID 4 MODSEQ (65402) FLAGS (\Seen))
S: s100 OK FETCH completed
C: s101 UID FETCH 300:500 (FLAGS) (CHANGEDSINCE 12345 VANISHED)
S: * VANISHED (EARLIER) 300:310,405,411
S: * 2 FETCH (UID 6 MODSEQ (75403) FLAGS (\Deleted))
S: s101 OK FETCH completed
C: a SEARCH MODSEQ "/flags/\\draft" all 620162338
S: * SEARCH 2 5 6 7 11 12 18 19 20 23 (MODSEQ 917162500)
S: a OK Search complete
C: A043 STATUS blurdybloop (UIDNEXT MESSAGES HIGHESTMODSEQ)
S: * STATUS blurdybloop (MESSAGES 231 UIDNEXT 44292 HIGHESTMODSEQ 7011231777)
S: A043 OK STATUS completed
C: A03 SELECT INBOX (QRESYNC (67890007 90060115194045000 41:211,214:541))
S: * OK [CLOSED] Previous mailbox closed
S: * VANISHED (EARLIER) 41,43:116,118,120:211,214:540
S: A03 OK [READ-WRITE] mailbox selected
"##,
        8,
        26,
    );
    assert!(responses.contains(&Response::Search {
        numbers: vec![2, 5, 6, 7, 11, 12, 18, 19, 20, 23],
        mod_seq: Some(917_162_500)
    }));
}

#[test]
fn rfc5256_rfc5267() {
    let responses = check(
        r##"
C: A282 SORT (SUBJECT) UTF-8 SINCE 1-Feb-1994
S: * SORT 2 84 882
S: A282 OK SORT completed
C: A283 SORT (SUBJECT REVERSE DATE) UTF-8 ALL
S: * SORT 5 3 4 1 2
S: A283 OK SORT completed
C: A284 SORT (SUBJECT) US-ASCII TEXT "not in mailbox"
S: * SORT
S: A284 OK SORT completed
C: A285 THREAD ORDEREDSUBJECT UTF-8 SINCE 5-MAR-2000
S: * THREAD (166)(173)(174 (175)(176)(178)(181)(180))(194 195)(196 (197)(198))(199)
S: A285 OK THREAD completed
C: A286 THREAD ORDEREDSUBJECT US-ASCII TEXT "gewp"
S: * THREAD
S: A286 OK THREAD completed
C: A287 THREAD REFERENCES UTF-8 SINCE 5-MAR-2000
S: * THREAD ((177)(183)(182)(188 (184)(189))(185 186)(187))(190)((194)(195 196))(205 206 207)
S: A287 OK THREAD completed
C: E01 UID SORT RETURN () (REVERSE DATE) UTF-8 UNDELETED UNKEYWORD $Junk
S: * ESEARCH (TAG "E01") UID ALL 23765,23764,23763,23761
S: E01 OK Sort completed
"##,
        7,
        14,
    );
    assert!(responses.contains(&Response::Sort {
        numbers: vec![5, 3, 4, 1, 2],
        mod_seq: None
    }));
    let threads = responses.iter().filter_map(|response| match response {
        Response::Thread(nodes) => Some(nodes),
        _ => None,
    });
    let trees: Vec<Vec<(Option<u32>, Option<usize>)>> = threads
        .map(|nodes| {
            nodes
                .iter()
                .map(|node| (node.number, node.parent))
                .collect()
        })
        .collect();
    assert_eq!(trees[1], []);
    // 188 has two children and four siblings under a message that is not there.
    assert_eq!(
        trees[2][..11],
        [
            (None, None),
            (Some(177), Some(0)),
            (Some(183), Some(0)),
            (Some(182), Some(0)),
            (Some(188), Some(0)),
            (Some(184), Some(4)),
            (Some(189), Some(4)),
            (Some(185), Some(0)),
            (Some(186), Some(7)),
            (Some(187), Some(0)),
            (Some(190), None),
        ]
    );
}

#[test]
fn rfc4315_rfc5182_rfc4731() {
    check(
        r##"
C: A003 COPY 2:4 MEETING
S: A003 OK [COPYUID 38505 304,319:320 3956:3958] Done
C: A004 UID EXPUNGE 3000:3002
S: * 3 EXPUNGE
S: * 3 EXPUNGE
S: A004 OK UID EXPUNGE completed
C: A005 UID COPY 4:16 funny
S: A005 NO [TRYCREATE] no
C: A282 SEARCH RETURN (SAVE) FLAGGED SINCE 1-Feb-1994 NOT FROM "Smith"
S: A282 OK SEARCH completed, result saved
C: A283 FETCH $ (UID INTERNALDATE FLAGS)
S: A283 OK completed
C: C283 UID SEARCH UID $ SMALLER 4096
S: * SEARCH
S: C283 OK completed
C: H282 SEARCH RETURN (MIN MAX SAVE) (OR $ 1,3000:3021) TEXT hello
S: * ESEARCH (TAG "H282") MIN 2 MAX 882
S: H282 NO [NOTSAVED] no
C: M1 MOVE $ Trash
S: M1 NO [BADCHARSET (UTF-8)] The specified charset is not supported
"##,
        8,
        12,
    );
}

#[test]
fn rfc5258_rfc5819_rfc6154() {
    let responses = check(
        r##"
C: A02 LIST (SUBSCRIBED RECURSIVEMATCH) "" "%" RETURN (CHILDREN)
S: * LIST (\Marked \HasChildren) "/" "Foo" ("CHILDINFO" ("SUBSCRIBED"))
S: * LIST (\HasNoChildren \Subscribed \Remote) "/" "Bread"
S: A02 OK done
C: BBB LIST "" ("INBOX" "Drafts" "Sent/%")
S: * LIST () "/" "INBOX"
S: * LIST (\NoInferiors) "/" "Drafts"
S: BBB OK done
C: D04 LIST () "" "%" RETURN (STATUS (MESSAGES UNSEEN))
S: * LIST () "." "foo"
S: * LIST (\NoSelect) "." "bar"
S: * STATUS "foo" (MESSAGES 30 UNSEEN 29)
S: D04 OK List completed
C: t1 LIST (SPECIAL-USE) "" "*"
S: * LIST (\Sent) "/" SentMail
S: * LIST (\Marked \Drafts) "/" MyDrafts
S: t1 OK done
C: t2 CREATE MySpecial (USE (\Drafts \Sent))
S: t2 NO [USEATTR] not supported
C: t3 LSUB "#news." "comp.mail.*"
S: * LSUB () "." #news.comp.mail.mime
S: t3 OK LSUB completed
"##,
        6,
        16,
    );
    assert!(
        matches!(&responses[0], Response::List(item) if item.child_info == ["SUBSCRIBED"] && item.has("\\marked"))
    );
}
