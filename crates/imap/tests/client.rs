//! The client against the decoder and the encoder: what one writes the other reads as the same; what is malformed is refused.
//!
//! size: a table of commands and responses, there and back, over one set of generators.
use proptest::prelude::*;
use whimbrel_imap::client::{Append, BadName, Client, FetchData, NonSynchronising, Response};
use whimbrel_imap::command::{
    Fetch, FetchItem, HeaderFields, Partial, Qresync, Search, SearchKey, SearchReturn, Section,
    SectionText, Select, Sort, SortCriterion, SortKey, SpecialUse, StatusItem, Store, Thread,
    ThreadAlgorithm,
};
use whimbrel_imap::core::{
    Date, DateTime, Flag, InvalidName, Keyword, MailboxName, MessageSet, ObjectId, PartialRange,
    Secret, SequenceSet, StoreOperation,
};
use whimbrel_imap::{Command, CommandBody, Decoder, Event, Limits, encode};
use whimbrel_mime::{
    Address, Content, Disposition, Envelope, Fields, Message, Octets, Param, Part, Span, Summary,
    View,
};

fn greeted(utf8: bool) -> Client {
    let mut client = Client::new();
    client.push(b"* OK hello\r\n");
    client.next().unwrap().unwrap();
    client.set_utf8(utf8);
    client
}

/// The responses of which `bytes` are made.
fn read(bytes: &[u8], utf8: bool) -> Vec<Response> {
    let mut client = greeted(utf8);
    let mut found = Vec::new();
    for chunk in bytes.chunks(7) {
        client.push(chunk);
        while let Some(response) = client.next().unwrap_or_else(|e| panic!("{e}")) {
            found.push(response);
        }
    }
    found
}

fn read_one(bytes: &[u8], utf8: bool) -> Response {
    let mut all = read(bytes, utf8);
    assert_eq!(all.len(), 1, "{}", bytes.escape_ascii());
    all.remove(0)
}

/// Sends what the client has to a decoder, answers continuations, and gives the command (or the message of APPEND).
fn carry(client: &mut Client, utf8: bool) -> (Option<Command>, Vec<u8>) {
    let mut decoder = Decoder::new(Limits::default());
    decoder.set_authenticated(true);
    decoder.set_utf8(utf8);
    let (mut command, mut message) = (None, Vec::new());
    loop {
        let sent = client.take_output();
        if sent.is_empty() {
            assert!(decoder.is_empty());
            return (command, message);
        }
        decoder.push(&sent);
        while let Some(event) = decoder.next() {
            match event {
                Event::Continue { .. } => client.push(b"+ go on\r\n"),
                Event::AppendBegin(_) | Event::AppendMessage(_) | Event::AppendMessageEnd => {}
                Event::AppendLiteral(literal) => {
                    if literal.synchronising {
                        client.push(b"+ go on\r\n");
                    }
                    decoder.accept_literal();
                }
                Event::AppendChunk(bytes) => message.extend_from_slice(bytes),
                Event::AppendEnd => {}
                Event::Command(found) => command = Some(found),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(client.next(), Ok(None));
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z]{0,8}".prop_map(String::into_bytes),
        "[ -~]{0,12}".prop_map(String::into_bytes),
        "\\PC{0,6}".prop_map(String::into_bytes),
        prop::collection::vec(1u8..=255, 0..12),
        Just(b"NIL".to_vec()),
        Just(b"{5}".to_vec()),
    ]
}

fn mailbox() -> impl Strategy<Value = MailboxName> {
    prop_oneof![
        "[a-z/&*%\" \\\\]{1,8}",
        "\\PC{1,6}",
        Just("INBOX".to_owned())
    ]
    .prop_filter_map("a name", |name| MailboxName::new(&name).ok())
}

fn numbers() -> impl Strategy<Value = SequenceSet> {
    prop::collection::vec((1u32.., 0u32..9), 1..5).prop_map(|ranges| {
        SequenceSet::from_ranges(ranges.into_iter().map(|(a, n)| (a, a.saturating_add(n))))
    })
}

fn message_set() -> impl Strategy<Value = MessageSet> {
    prop_oneof![
        Just(MessageSet::Saved),
        Just(MessageSet::Numbers(
            SequenceSet::parse(b"3,7:*", 9).unwrap()
        )),
        numbers().prop_map(MessageSet::Numbers),
    ]
}

fn flags() -> impl Strategy<Value = Vec<Flag>> {
    let all = [
        "\\Seen",
        "\\Answered",
        "\\Flagged",
        "\\Deleted",
        "\\Draft",
        "$Forwarded",
        "work",
    ];
    prop::sample::subsequence(all.to_vec(), 0..7).prop_map(|names| {
        names
            .into_iter()
            .map(|n| Flag::new(n.as_bytes()).unwrap())
            .collect()
    })
}

fn date() -> impl Strategy<Value = Date> {
    (-700_000i64..2_900_000).prop_map(Date::from_days_since_epoch)
}

fn date_time() -> impl Strategy<Value = DateTime> {
    (0i64..4_000_000_000, -1_000i16..1_000).prop_map(|(s, z)| DateTime::with_zone(s, z))
}

fn key() -> impl Strategy<Value = SearchKey> {
    let simple = prop_oneof![
        Just(SearchKey::All),
        Just(SearchKey::Seen),
        Just(SearchKey::Undraft),
        message_set().prop_map(SearchKey::Sequence),
        message_set().prop_map(SearchKey::Uid),
        date().prop_map(SearchKey::Since),
        date().prop_map(SearchKey::SentBefore),
        text().prop_map(SearchKey::Text),
        text().prop_map(SearchKey::Subject),
        ("[A-Za-z-]{1,9}", text()).prop_map(|(n, t)| SearchKey::Header(n, t)),
        (0..=i64::MAX as u64).prop_map(SearchKey::Larger),
        (0..=i64::MAX as u64).prop_map(SearchKey::ModSeq),
        (1..=u32::MAX).prop_map(SearchKey::Older),
        (1..=u32::MAX).prop_map(SearchKey::Younger),
        "[A-Za-z0-9_-]{1,9}"
            .prop_map(|id| SearchKey::EmailId(ObjectId::new(id.as_bytes()).unwrap())),
        "[A-Za-z0-9_-]{1,9}"
            .prop_map(|id| SearchKey::ThreadId(ObjectId::new(id.as_bytes()).unwrap())),
        date().prop_map(SearchKey::SavedOn),
        Just(SearchKey::SaveDateSupported),
        "[a-z$]{1,9}".prop_map(|k| SearchKey::Keyword(Keyword::new(k.as_bytes()).unwrap())),
    ];
    simple.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(
                inner
                    .clone()
                    .prop_filter("flat", |k| !matches!(k, SearchKey::And(_))),
                2..4
            )
            .prop_map(SearchKey::And),
            prop::collection::vec(
                inner
                    .clone()
                    .prop_filter("flat", |k| !matches!(k, SearchKey::Or(_))),
                2..4
            )
            .prop_map(SearchKey::Or),
            inner
                .prop_filter("flat", |k| !matches!(k, SearchKey::Not(_)))
                .prop_map(|k| SearchKey::Not(Box::new(k))),
        ]
    })
}

fn criteria() -> impl Strategy<Value = Vec<SortCriterion>> {
    use SortKey::{Arrival, Cc, Date, DisplayFrom, DisplayTo, From, Size, Subject, To};
    let keys = vec![
        Arrival,
        Cc,
        Date,
        DisplayFrom,
        DisplayTo,
        From,
        Size,
        Subject,
        To,
    ];
    let keys = prop::sample::subsequence(keys, 1..=9).prop_shuffle();
    (keys, prop::collection::vec(any::<bool>(), 9)).prop_map(|(keys, reverse)| {
        let criteria = keys.into_iter().zip(reverse);
        criteria
            .map(|(key, reverse)| SortCriterion { reverse, key })
            .collect()
    })
}

fn section() -> impl Strategy<Value = Section> {
    let names = prop::collection::vec("[!-9;-~]{1,6}", 1..4);
    let text = prop_oneof![
        Just(None),
        Just(Some(SectionText::Header)),
        Just(Some(SectionText::Text)),
        Just(Some(SectionText::Mime)),
        (any::<bool>(), names)
            .prop_map(|(not, names)| Some(SectionText::HeaderFields(HeaderFields { not, names }))),
    ];
    (prop::collection::vec(1u32.., 0..4), text).prop_map(|(part, text)| {
        let text = text.filter(|t| *t != SectionText::Mime || !part.is_empty());
        Section { part, text }
    })
}

fn fetch() -> impl Strategy<Value = Fetch> {
    let partial = prop::option::of((0..=i64::MAX as u64, 1..=i64::MAX as u64));
    let section = (section(), partial, any::<bool>()).prop_map(|(section, partial, peek)| {
        FetchItem::Section {
            section,
            partial: partial.map(|(offset, length)| Partial { offset, length }),
            peek,
        }
    });
    (
        any::<bool>(),
        message_set(),
        section,
        prop::option::of(1..=i64::MAX as u64),
        partial_range(),
    )
        .prop_map(|(uid, set, section, changed_since, range)| {
            use FetchItem::{
                Body, BodyStructure, EmailId, Envelope, InternalDate, ModSeq, Rfc822, Rfc822Size,
                SaveDate, ThreadId, Uid,
            };
            let FetchItem::Section {
                section: Section { part, .. },
                partial,
                peek,
            } = section.clone()
            else {
                unreachable!("made above")
            };
            let size = FetchItem::BinarySize { part: part.clone() };
            let binary = FetchItem::Binary {
                part,
                partial,
                peek,
            };
            let items = vec![
                section,
                binary,
                size,
                Body,
                BodyStructure,
                Envelope,
                InternalDate,
                FetchItem::Preview { lazy: uid },
                Rfc822,
                Rfc822Size,
                ModSeq,
                EmailId,
                SaveDate,
                ThreadId,
                Uid,
            ];
            Fetch {
                uid,
                set,
                items,
                changed_since,
                vanished: uid && changed_since.is_some(),
                partial: range.filter(|_| uid),
            }
        })
}

fn partial_range() -> impl Strategy<Value = Option<PartialRange>> {
    prop::option::of((1u32.., 1u32.., any::<bool>())).prop_map(|range| {
        range.map(|(first, last, from_end)| PartialRange {
            first,
            last,
            from_end,
        })
    })
}

fn body() -> impl Strategy<Value = CommandBody> {
    let status = || prop::sample::subsequence(StatusItem::ALL.to_vec(), 1..8);
    let select = (
        mailbox(),
        any::<bool>(),
        prop::option::of((
            1u32..,
            1..=i64::MAX as u64,
            prop::option::of(numbers()),
            any::<bool>(),
        )),
    )
        .prop_map(|(mailbox, condstore, known)| Select {
            mailbox,
            condstore,
            qresync: known.map(|(uid_validity, mod_seq, uids, pairs)| Qresync {
                uid_validity,
                mod_seq,
                sequence_match: uids.clone().filter(|_| pairs).map(|u| (u.clone(), u)),
                known_uids: uids,
            }),
        });
    let store = (
        any::<bool>(),
        message_set(),
        prop::option::of(0..=i64::MAX as u64),
        0..3,
        any::<bool>(),
        flags(),
    )
        .prop_map(
            |(uid, set, unchanged_since, operation, silent, flags)| Store {
                uid,
                set,
                unchanged_since,
                operation: [
                    StoreOperation::Replace,
                    StoreOperation::Add,
                    StoreOperation::Remove,
                ][operation as usize],
                silent,
                flags,
            },
        );
    let returns = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        partial_range(),
    )
        .prop_map(|(min, max, count, save, partial)| SearchReturn {
            min,
            max,
            all: partial.is_none(),
            count,
            save,
            partial,
        });
    let search = (
        any::<bool>(),
        prop::option::of(returns),
        prop::option::of(Just("KOI8-R".to_owned())),
        key(),
    )
        .prop_map(|(uid, returns, charset, key)| Search {
            uid,
            returns,
            charset,
            key,
        })
        .boxed();
    let search_for_sort = search.clone();
    prop_oneof![
        Just(CommandBody::Namespace),
        ("\\PC{0,8}", text()).prop_map(|(user, p)| CommandBody::Login {
            user,
            password: Secret::new(p)
        }),
        prop::option::of(text()).prop_map(|initial| CommandBody::Authenticate {
            mechanism: "PLAIN".into(),
            initial: initial.map(Secret::new)
        }),
        ("[a-z]{1,9}", prop::option::of("\\PC{0,9}"))
            .prop_map(|pair| CommandBody::Id(Some(vec![pair]))),
        (select, any::<bool>()).prop_map(|(s, examine)| if examine {
            CommandBody::Examine(s)
        } else {
            CommandBody::Select(s)
        }),
        (
            mailbox(),
            prop::sample::subsequence(SpecialUse::ALL.to_vec(), 0..4)
        )
            .prop_map(|(mailbox, special_use)| {
                CommandBody::Create {
                    mailbox,
                    special_use,
                    unknown_use: false,
                }
            }),
        (mailbox(), mailbox()).prop_map(|(from, to)| CommandBody::Rename { from, to }),
        (mailbox(), status()).prop_map(|(mailbox, items)| CommandBody::Status { mailbox, items }),
        message_set().prop_map(|set| CommandBody::Expunge { uids: Some(set) }),
        search.prop_map(CommandBody::Search),
        (search_for_sort, criteria()).prop_map(|(search, criteria)| CommandBody::Sort(Sort {
            uid: search.uid,
            returns: search.returns.map(|returns| SearchReturn {
                save: false,
                all: returns.partial.is_none()
                    && (returns.all || !(returns.min || returns.max || returns.count)),
                ..returns
            }),
            criteria,
            charset: "UTF-8".into(),
            key: search.key,
        })),
        (any::<bool>(), any::<bool>(), key()).prop_map(|(uid, references, key)| {
            CommandBody::Thread(Thread {
                uid,
                algorithm: if references {
                    ThreadAlgorithm::References
                } else {
                    ThreadAlgorithm::OrderedSubject
                },
                charset: "US-ASCII".into(),
                key,
            })
        }),
        fetch().prop_map(CommandBody::Fetch),
        store.prop_map(CommandBody::Store),
        (any::<bool>(), message_set(), mailbox())
            .prop_map(|(uid, set, mailbox)| CommandBody::Copy { uid, set, mailbox }),
        (any::<bool>(), message_set(), mailbox())
            .prop_map(|(uid, set, mailbox)| CommandBody::Move { uid, set, mailbox }),
    ]
}

fn literals() -> impl Strategy<Value = NonSynchronising> {
    prop::sample::select(vec![
        NonSynchronising::Never,
        NonSynchronising::Small,
        NonSynchronising::Always,
    ])
}

/// Text as `mime` keeps it: no CR, LF, NUL.
fn octets() -> impl Strategy<Value = Octets> {
    text().prop_map(|t| {
        t.into_iter()
            .filter(|b| !matches!(b, b'\r' | b'\n' | 0))
            .collect::<Vec<u8>>()
            .into()
    })
}

fn address() -> impl Strategy<Value = Address> {
    let o = || prop::option::of(octets());
    (o(), o(), o(), o()).prop_map(|(name, route, mailbox, host)| Address {
        name,
        route,
        mailbox,
        host,
    })
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let list = || prop::collection::vec(address(), 1..3);
    let o = || prop::option::of(octets());
    (
        o(),
        o(),
        list(),
        list(),
        list(),
        prop::collection::vec(address(), 0..3),
        o(),
        o(),
    )
        .prop_map(
            |(date, subject, from, given_sender, given_reply_to, to, in_reply_to, message_id)| {
                Envelope {
                    date,
                    subject,
                    from,
                    given_sender,
                    given_reply_to,
                    cc: to.clone(),
                    to,
                    bcc: Vec::new(),
                    in_reply_to,
                    message_id,
                }
            },
        )
}

fn part() -> impl Strategy<Value = Part> {
    let params = || prop::collection::vec((octets(), octets()), 0..3);
    let make_params = |list: Vec<(Octets, Octets)>| {
        list.into_iter()
            .map(|(name, value)| Param { name, value })
            .collect()
    };
    let base = (
        params(),
        prop::option::of(octets()),
        prop::option::of((octets(), params())),
        prop::collection::vec(octets(), 0..3),
    )
        .prop_map(move |(params, location, disposition, language)| Part {
            media_type: "TEXT".into(),
            subtype: "PLAIN".into(),
            params: make_params(params),
            id: None,
            description: location.clone(),
            encoding: "BASE64".into(),
            md5: None,
            disposition: disposition.map(|(kind, params)| Disposition {
                kind,
                params: make_params(params),
            }),
            // One of NIL cannot be told from none.
            language,
            location,
            header: Span::default(),
            body: Span { start: 0, len: 77 },
            lines: 3,
            content: Content::Text,
        });
    let leaf = (base, any::<bool>()).prop_map(|(part, text)| {
        if text {
            part
        } else {
            Part {
                media_type: "IMAGE".into(),
                lines: 0,
                content: Content::Basic,
                ..part
            }
        }
    });
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), prop::collection::vec(inner.clone(), 1..4)).prop_map(
                |(part, parts)| Part {
                    media_type: "MULTIPART".into(),
                    subtype: "MIXED".into(),
                    encoding: "7BIT".into(),
                    description: None,
                    lines: 0,
                    body: Span::default(),
                    content: Content::Multipart(parts),
                    id: None,
                    ..part
                }
            ),
            (inner.clone(), envelope(), inner).prop_map(|(part, envelope, body)| Part {
                media_type: "MESSAGE".into(),
                subtype: "RFC822".into(),
                lines: 9,
                body: Span { start: 0, len: 77 },
                content: Content::Message(Box::new(Message { envelope, body })),
                ..part
            }),
        ]
    })
}

fn encoded(envelope: Envelope, body: Part) -> Vec<u8> {
    let summary = Summary {
        prefix_len: 0,
        size: 77,
        lines: 0,
        message: Message { envelope, body },
        fields: Fields::default(),
        preview: None,
    };
    summary.encode()
}

/// BODYSTRUCTURE, or BODY. What is inside a multipart has to lie in it; its own length is not told.
fn structure(part: &Part, extended: bool, utf8: bool) -> Vec<u8> {
    fn widen(part: &mut Part) {
        match &mut part.content {
            Content::Basic | Content::Text => {}
            Content::Multipart(parts) => {
                parts.iter_mut().for_each(widen);
                part.body = Span { start: 0, len: 77 };
            }
            Content::Message(message) => widen(&mut message.body),
        }
    }
    let mut body = part.clone();
    widen(&mut body);
    let encoded = encoded(Envelope::default(), body);
    let view = View::new(&encoded).unwrap();
    let mut made = Vec::new();
    encode::structure::body(&mut made, &view.body(), extended, utf8).unwrap();
    made
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn commands_arrive_as_they_were_meant(body in body(), literals in literals(), utf8: bool) {
        let mut client = greeted(utf8);
        client.set_literals(literals);
        let tag = client.command(&body);
        let (command, _) = carry(&mut client, utf8);
        prop_assert_eq!(command, Some(Command { tag, body }));
    }

    #[test]
    fn messages_arrive_as_they_were_sent(
        mailbox in mailbox(), flags in flags(), date in prop::option::of(date_time()),
        message in prop::collection::vec(any::<u8>(), 0..200), literals in literals(), utf8: bool,
    ) {
        let mut client = greeted(utf8);
        client.set_literals(literals);
        client.append(&Append { mailbox: &mailbox, flags: &flags, date, message: &message });
        prop_assert_eq!(carry(&mut client, utf8), (None, message));
    }

    #[test]
    fn names_and_texts_go_there_and_back(name in mailbox(), words in "\\PC{1,20}", utf8: bool) {
        let mut out = Vec::new();
        let item = encode::ListResponse {
            name: name.as_str(),
            delimiter: Some('/'),
            data: encode::ListData::default(),
            child_info_subscribed: true,
            old_name: Some(name.as_str()),
        };
        encode::list(&mut out, &item, utf8);
        let Response::List(found) = read_one(&out, utf8) else { panic!() };
        prop_assert_eq!((&found.name[..], found.old_name.as_deref()), (name.as_str(), Some(name.as_str())));
        prop_assert_eq!(found.child_info, ["SUBSCRIBED"]);
        out.clear();
        let values = encode::StatusValues { append_limit: 7, deleted_size: 8, messages: 1, recent: 0, uid_next: 2, uid_validity: 3, unseen: 4, deleted: 5, size: 6, highest_mod_seq: 7, mailbox_id: ObjectId::new(b"F-8_a") };
        encode::status_data(&mut out, name.as_str(), &StatusItem::ALL, &values, utf8);
        let Response::MailboxStatus { mailbox, items, mailbox_id } = read_one(&out, utf8) else { panic!() };
        prop_assert_eq!((mailbox.as_str(), items.len()), (name.as_str(), 10));
        prop_assert_eq!(mailbox_id, values.mailbox_id);
        out.clear();
        encode::untagged(&mut out, encode::Kind::No, None, &words, utf8);
        let all = read(&out, utf8);
        prop_assert_eq!(all.len(), 1);
    }

    #[test]
    fn envelopes_go_there_and_back(envelope in envelope(), utf8: bool) {
        let mut out = Vec::new();
        let mut fetch = encode::FetchWriter::begin(&mut out, 1);
        let encoded = encoded(envelope.clone(), Part::default());
        let mut made = Vec::new();
        encode::structure::envelope(&mut made, &View::new(&encoded).unwrap().envelope().unwrap(), utf8);
        fetch.envelope(&mut out, &made);
        fetch.end(&mut out);
        let Response::Fetch { items, .. } = read_one(&out, utf8) else { panic!() };
        prop_assert_eq!(items, [FetchData::Envelope(envelope)]);
    }

    #[test]
    fn structures_go_there_and_back(part in part(), utf8: bool) {
        let mut out = Vec::new();
        let mut fetch = encode::FetchWriter::begin(&mut out, 1);
        fetch.body_structure(&mut out, &structure(&part, true, utf8));
        fetch.body_basic(&mut out, &structure(&part, false, utf8));
        fetch.end(&mut out);
        let Response::Fetch { items, .. } = read_one(&out, utf8) else { panic!() };
        let [FetchData::BodyStructure(found), FetchData::Body(basic)] = &items[..] else { panic!() };
        prop_assert_eq!(found, &part);
        prop_assert_eq!(structure(basic, false, utf8), structure(&part, false, utf8));
    }

    #[test]
    fn fetch_items_go_there_and_back(
        flags in flags(), date in date_time(), section in section(), data in text(),
        uid in 1u32.., size: u64, origin in prop::option::of(any::<u64>()), binary: Vec<u8>,
    ) {
        let mut out = Vec::new();
        let mut fetch = encode::FetchWriter::begin(&mut out, 7);
        fetch.flags(&mut out, &flags, true);
        fetch.internal_date(&mut out, date);
        fetch.uid(&mut out, uid);
        fetch.size(&mut out, size);
        fetch.mod_seq(&mut out, 5);
        let id = ObjectId::new(format!("M-{uid}_").as_bytes()).unwrap();
        fetch.email_id(&mut out, &id);
        fetch.thread_id(&mut out, None);
        fetch.save_date(&mut out, date);
        fetch.body(&mut out, &section, origin, encode::BodyAnswer::Literal(data.len() as u64));
        out.extend_from_slice(&data);
        fetch.body(&mut out, &section, origin, encode::BodyAnswer::Bytes(&data));
        fetch.body(&mut out, &section, origin, encode::BodyAnswer::Nil);
        fetch.binary_size(&mut out, &section.part, size >> 1);
        fetch.preview(&mut out, Some("a \"ü"));
        fetch.preview(&mut out, Some(""));
        fetch.preview(&mut out, None);
        fetch.binary(&mut out, &section.part, origin, encode::BodyAnswer::Literal(data.len() as u64));
        out.extend_from_slice(&data);
        fetch.binary(&mut out, &section.part, origin, encode::BodyAnswer::Literal8(binary.len() as u64));
        out.extend_from_slice(&binary);
        fetch.binary(&mut out, &section.part, origin, encode::BodyAnswer::Nil);
        fetch.end(&mut out);
        let Response::Fetch { sequence: 7, items } = read_one(&out, false) else { panic!() };
        let mut names: Vec<String> = flags.iter().map(ToString::to_string).collect();
        names.push("\\Recent".into());
        let body = |data: Option<&Vec<u8>>| FetchData::Section { section: section.clone(), origin, data: data.cloned() };
        let decoded = |data: Option<&Vec<u8>>, literal8| FetchData::Binary { part: section.part.clone(), origin, data: data.cloned(), literal8 };
        prop_assert_eq!(items, [
            FetchData::Flags(names), FetchData::InternalDate(date), FetchData::Uid(uid), FetchData::Size(size),
            FetchData::ModSeq(5), FetchData::EmailId(id), FetchData::ThreadId(None), FetchData::SaveDate(Some(date)), body(Some(&data)), body(Some(&data)), body(None),
            FetchData::BinarySize { part: section.part.clone(), size: size >> 1 },
            FetchData::Preview(Some("a \"ü".into())), FetchData::Preview(Some(String::new())), FetchData::Preview(None),
            decoded(Some(&data), false), decoded(Some(&binary), true), decoded(None, false),
        ]);
    }

    #[test]
    fn any_bytes_do_no_harm(input in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"* ()\"{}[]\r\n1OKFETCH".to_vec())], 0..200)) {
        let mut client = greeted(true);
        client.push(&input);
        client.push(b"\r\n");
        while let Ok(Some(_)) = client.next() {}
    }
}

#[test]
fn numbers_and_codes_go_there_and_back() {
    use encode::{Code, ESearch, Kind};
    use whimbrel_imap::client::ReplyCode;
    use whimbrel_imap::core::Tag;
    let set = SequenceSet::from_ranges([(1, 3), (9, 9)]);
    let tag = Tag::new(b"x").unwrap();
    let mut out = Vec::new();
    ESearch {
        uid: true,
        min: Some(1),
        max: Some(9),
        count: Some(4),
        all: Some(&set),
        mod_seq: Some(8),
        ..ESearch::new(&tag, true)
    }
    .encode(&mut out);
    out.extend_from_slice(b"* ESEARCH UID PARTIAL (-1:-4 1:3,9)\r\n");
    out.extend_from_slice(b"* ESEARCH PARTIAL (7:9 NIL)\r\n");
    encode::search(&mut out, &[3, 1], Some(8));
    out.extend_from_slice(b"* SORT 3 1 (MODSEQ 8)\r\n");
    encode::vanished_begin(&mut out, true);
    set.encode(&mut out);
    out.extend_from_slice(b"\r\n");
    encode::untagged(
        &mut out,
        Kind::Ok,
        Some(Code::AppendUid(5, &set)),
        "done",
        false,
    );
    encode::untagged(
        &mut out,
        Kind::Ok,
        Some(Code::CopyUid(
            5,
            encode::status::UidList(&[9, 1, 2]),
            encode::status::UidList(&[4, 5, 6]),
        )),
        "done",
        false,
    );
    encode::untagged(
        &mut out,
        Kind::Ok,
        Some(Code::PermanentFlags(&[Flag::Seen], true)),
        "done",
        false,
    );
    encode::id(&mut out, &[("name", Some("Whimbrel"))]);
    assert_eq!(
        read(&out, false),
        [
            Response::ESearch {
                tag: Some("x".into()),
                uid: true,
                min: Some(1),
                max: Some(9),
                count: Some(4),
                all: Some(set.clone()),
                partial: None,
                mod_seq: Some(8)
            },
            Response::ESearch {
                tag: None,
                uid: true,
                min: None,
                max: None,
                count: None,
                all: None,
                partial: Some(set.clone()),
                mod_seq: None
            },
            Response::ESearch {
                tag: None,
                uid: false,
                min: None,
                max: None,
                count: None,
                all: None,
                partial: Some(SequenceSet::default()),
                mod_seq: None
            },
            Response::Search {
                numbers: vec![3, 1],
                mod_seq: Some(8)
            },
            Response::Sort {
                numbers: vec![3, 1],
                mod_seq: Some(8)
            },
            Response::Vanished {
                earlier: true,
                uids: set.clone()
            },
            Response::Status {
                kind: Kind::Ok,
                code: Some(ReplyCode::AppendUid(5, set)),
                text: "done".into()
            },
            Response::Status {
                kind: Kind::Ok,
                code: Some(ReplyCode::CopyUid(5, vec![(9, 4), (1, 5), (2, 6)])),
                text: "done".into()
            },
            Response::Status {
                kind: Kind::Ok,
                code: Some(ReplyCode::PermanentFlags(vec![
                    "\\Seen".into(),
                    "\\*".into()
                ])),
                text: "done".into()
            },
            Response::Id(vec![("name".into(), Some("Whimbrel".into()))]),
        ]
    );
}

#[test]
fn names_that_no_mailbox_has_cost_no_others() {
    #[track_caller]
    fn check(input: &[u8], utf8: bool, begin: &str, why: InvalidName) {
        let mut client = greeted(utf8);
        client.push(input);
        client.push(b"* LIST () \"/\" good\r\n");
        let begin = begin.to_owned();
        assert_eq!(
            client.next(),
            Ok(Some(Response::Unlisted(BadName { begin, why })))
        );
        let Ok(Some(Response::List(item))) = client.next() else {
            panic!("the next one was not read");
        };
        assert_eq!(item.name, "good");
    }
    use InvalidName::{Control, TooLong, Utf7, Utf8};
    check(b"* LIST () \"/\" \"a & b\"\r\n", false, "a & b", Utf7);
    check(b"* LSUB () \"/\" \"&\"\r\n", false, "&", Utf7);
    check(b"* LIST () \"/\" \"F\xfcr\"\r\n", false, "F\\xfcr", Utf7);
    check(b"* LIST () \"/\" F\xfcr\r\n", false, "F\\xfcr", Utf7);
    check(b"* LIST () \"/\" F\xfcr\r\n", true, "F\\xfcr", Utf8);
    check(
        b"* LIST () \"/\" {5}\r\na\r\nb\x1b (\"OLDNAME\" (\"c\"))\r\n",
        true,
        "a\\r\\nb\\x1b",
        Control,
    );
    let long = "x".repeat(3000);
    let line = format!("* LIST () \"/\" {long}\r\n");
    check(line.as_bytes(), true, &long[..100], TooLong);
}

#[track_caller]
fn check_bad(input: &str, what: &str) {
    let mut client = greeted(false);
    client.push(input.as_bytes());
    assert_eq!(client.next().map_err(|e| e.what), Err(what), "{input}");
}

#[test]
fn malformed_responses_are_refused() {
    check_bad("* 0 EXPUNGE\r\n", "number must not be zero");
    check_bad("* 1 FETCH ()\r\n", "FETCH of nothing");
    check_bad("* 1 FETCH (FLAGS (\\Seen)\r\n", "expected )");
    check_bad("* 1 FETCH (UID 0)\r\n", "number must not be zero");
    check_bad(
        "* 1 FETCH (BODY[] \"\u{fc}\")\r\n",
        "8-bit text in a quoted string",
    );
    check_bad("* 1 FETCH (BODY[] {1}\r\n\0)\r\n", "NUL in literal");
    check_bad("* 1 FETCH (BINARY[1] {1}\r\n\0)\r\n", "NUL in literal");
    check_bad("* 1 FETCH (BODY[1] ~{1}\r\n\0)\r\n", "expected a string");
    check_bad("* 1 FETCH (BINARY[1] ~\"a\")\r\n", "malformed literal");
    check_bad(
        "* 1 FETCH (BINARY[1.TEXT] NIL)\r\n",
        "BINARY has numbers of a part only",
    );
    check_bad("* 1 FETCH (BINARY 1)\r\n", "expected [");
    check_bad("* 1 FETCH (BINARY.SIZE[1] NIL)\r\n", "expected a number");
    check_bad("* 1 FETCH  (UID 1)\r\n", "expected (");
    check_bad("* SEARCH 1 \r\n", "expected a number");
    check_bad("* ESEARCH ALL 1:*\r\n", "* in a set from a server");
    check_bad("* ESEARCH MIN 1 MIN 2\r\n", "data of ESEARCH twice");
    check_bad("* LIST () \"//\" x\r\n", "delimiter is one character");
    check_bad("* LIST () \"/\" \r\n", "expected a word or a string");
    check_bad(
        "* STATUS \"&\" (MESSAGES 1)\r\n",
        "mailbox name is not valid modified UTF-7",
    );
    check_bad(
        "* STATUS \"\u{fc}\" (MESSAGES 1)\r\n",
        "8-bit text in a quoted string",
    );
    check_bad(
        "* CAPABILITY IDLE\r\n",
        "capabilities without IMAP4rev1 or IMAP4rev2",
    );
    check_bad("* OK [FOO] x\r\n", "expected a space");
    check_bad("* OK [FOO 1] x\r\n", "unknown response code");
    check_bad("* OK [UIDNEXT 0] x\r\n", "number must not be zero");
    check_bad(
        "* OK [COPYUID 1 1:2 3] x\r\n",
        "COPYUID of different lengths",
    );
    check_bad("* OK \r\n", "bad text for humans");
    check_bad("* PREAUTH x\r\n", "status that has no place here");
    check_bad("* FLAGS (\\Seen)\n", "expected the end of the response");
    check_bad("x1 OK done\r\n", "tag of no command");
    check_bad("+ go\r\n", "continuation that nothing waits for");
    check_bad("* XYZZY 1\r\n", "unknown response");
    let mut client = Client::new();
    client.push(b"* 1 EXISTS\r\n");
    assert_eq!(
        client.next().map_err(|e| e.what),
        Err("expected a greeting")
    );
}

#[test]
fn a_refused_literal_is_not_sent() {
    let mut client = greeted(false);
    let inbox = MailboxName::new("INBOX").unwrap();
    client.append(&Append {
        mailbox: &inbox,
        flags: &[],
        date: None,
        message: b"hello",
    });
    client.command(&CommandBody::Noop);
    assert_eq!(client.take_output(), b"c1 APPEND INBOX {5}\r\n");
    client.push(b"c1 NO [TOOBIG] no\r\n");
    assert!(matches!(client.next(), Ok(Some(Response::Tagged { .. }))));
    assert_eq!(client.take_output(), b"c2 NOOP\r\n");
}
