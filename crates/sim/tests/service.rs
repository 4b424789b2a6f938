//! The service's machines on one node: what each call does, across crashes, full disks and removals.
//!
//! size: short scenarios over one set of helpers; each was a defect or a rule once.

use whimbrel_crdt::Incarnation;
use whimbrel_service::{
    admin::{AdminCall, AdminReply},
    api::{
        AccountId, Asker, Authenticate, BlobName, Call, Changes, Date, Delivery, Entry, Event,
        Failure, Flag, FlagChange, Flags, Mailbox, MailboxCall, MailboxName, NewMail, Reply,
        Resolution, Row, Selected, SessionId, Status,
    },
    content::Content,
    machine::RequestId,
    owner,
    queue::{self, entry_id},
    scram::derive,
};
use whimbrel_sim::node::{Identity, Node, Outcome, VERIFIER_PREFIX};

/// A node, and calls that wait for their answers.
struct World {
    node: Node,
    next: u64,
    events: Vec<(SessionId, Event)>,
}

const ANNE: AccountId = AccountId([1; 16]);

fn name(text: &str) -> MailboxName {
    MailboxName::new(text).unwrap()
}

fn world() -> World {
    let mut world = World {
        node: Node::new(1),
        next: 0,
        events: Vec::new(),
    };
    let add = AdminCall::AddAccount {
        address: "anne@example.org".into(),
        verifier: format!("{VERIFIER_PREFIX}secret"),
        scram: None,
        account: ANNE,
    };
    assert_eq!(world.admin(add), AdminReply::Done);
    world
}

impl World {
    fn call(&mut self, call: Call) -> Reply {
        self.next += 1;
        let request = RequestId(self.next);
        self.node.call(request, call);
        loop {
            assert!(self.node.step(), "no answer");
            while let Some(outcome) = self.node.outcome() {
                match outcome {
                    Outcome::Reply(to, reply) if to == request => return reply,
                    Outcome::Notify(session, event) => self.events.push((session, event)),
                    Outcome::Stopped(cause) => panic!("stopped: {cause}"),
                    _ => {}
                }
            }
        }
    }

    fn admin(&mut self, call: AdminCall) -> AdminReply {
        self.next += 1;
        let request = RequestId(self.next);
        self.node.admin(request, call);
        loop {
            assert!(self.node.step(), "no answer");
            while let Some(outcome) = self.node.outcome() {
                if let Outcome::Admin(to, reply) = outcome
                    && to == request
                {
                    return reply;
                }
            }
        }
    }

    fn mailbox(&mut self, call: MailboxCall) -> Reply {
        self.call(Call::mailbox(ANNE, call))
    }

    fn upload(&mut self, body: &str) -> BlobName {
        let Reply::Upload(upload) = self.call(Call::BlobCreate(None)) else {
            panic!()
        };
        assert!(matches!(
            self.call(Call::BlobWrite {
                upload,
                bytes: body.to_owned().into()
            }),
            Reply::Done
        ));
        let Reply::Blob(blob) = self.call(Call::BlobFinish { upload }) else {
            panic!()
        };
        blob
    }

    fn append(&mut self, to: &str, body: &str) -> u32 {
        let blob = self.upload(body);
        let content = Content {
            prefix: "".into(),
            summary: body.to_owned().into(),
        }
        .encode();
        let call = MailboxCall::Append {
            session: SessionId(1),
            name: name(to),
            messages: vec![NewMail {
                flags: Flags::none(),
                date: Date {
                    seconds: 1,
                    zone_minutes: 0,
                },
                size: u32::try_from(body.len()).unwrap(),
                open_end: false,
                blob,
                content,
            }],
            replaces: None,
        };
        match self.mailbox(call) {
            Reply::Appended { uids, .. } => uids[0],
            other => panic!("{other:?}"),
        }
    }

    fn select(&mut self, session: u64, mailbox: &str) -> Selected {
        match self.mailbox(MailboxCall::Select {
            session: SessionId(session),
            name: name(mailbox),
            read_only: false,
        }) {
            Reply::Selected(selected) => selected,
            other => panic!("{other:?}"),
        }
    }

    fn changes(&mut self, session: u64, since: u64, expunges: bool) -> Changes {
        match self.mailbox(MailboxCall::Changes {
            session: SessionId(session),
            since,
            expunges,
        }) {
            Reply::Changes(changes) => changes,
            other => panic!("{other:?}"),
        }
    }

    fn status(&mut self, mailbox: &str) -> Status {
        match self.mailbox(MailboxCall::Status {
            name: name(mailbox),
        }) {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    fn rows(&mut self, mailbox: &str, uids: &[u32]) -> Vec<Row> {
        match self.mailbox(MailboxCall::Rows {
            name: name(mailbox),
            uids: uids.to_vec(),
        }) {
            Reply::Rows(rows) => rows,
            other => panic!("{other:?}"),
        }
    }

    fn store(&mut self, mailbox: &str, uids: &[u32], change: FlagChange, flag: Flag) -> Vec<Row> {
        let mut flags = Flags::none();
        flags.insert(flag);
        let call = MailboxCall::Store {
            session: SessionId(1),
            name: name(mailbox),
            uids: uids.to_vec(),
            change,
            flags,
            unchanged_since: None,
        };
        match self.mailbox(call) {
            Reply::Stored { rows, .. } => rows,
            other => panic!("{other:?}"),
        }
    }

    fn expunge(&mut self, mailbox: &str) -> Vec<u32> {
        let call = MailboxCall::Expunge {
            session: SessionId(1),
            name: name(mailbox),
            uids: None,
            up_to: u32::MAX,
        };
        match self.mailbox(call) {
            Reply::Expunged { uids, .. } => uids,
            other => panic!("{other:?}"),
        }
    }

    /// The body of each message in a mailbox.
    fn bodies(&mut self, mailbox: &str) -> Vec<String> {
        let uids = self.select(99, mailbox).uids.to_vec();
        let rows = self.rows(mailbox, &uids);
        rows.iter().map(|row| self.body(row)).collect()
    }

    fn body(&mut self, row: &Row) -> String {
        match self.call(Call::BlobRead {
            blob: row.blob,
            offset: 0,
            len: 1000,
        }) {
            Reply::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn accept(&mut self, body: &str, target: &str) -> Reply {
        let blob = self.upload(body);
        let content = Content {
            prefix: "".into(),
            summary: body.to_owned().into(),
        }
        .encode();
        let delivery = Delivery {
            account: ANNE,
            target: name(target),
            content,
            size: u32::try_from(body.len()).unwrap(),
            open_end: false,
            sent: false,
        };
        self.call(Call::Accept(Entry {
            id: entry_id(&blob.upload),
            sender: "bob@example.org".into(),
            deliveries: vec![delivery],
            blob,
            date: Date {
                seconds: 5,
                zone_minutes: 0,
            },
        }))
    }

    fn quiet(&mut self) {
        let until = self.node.time() + 1_000_000;
        self.node.advance_to(until);
        while let Some(outcome) = self.node.outcome() {
            assert!(!matches!(outcome, Outcome::Stopped(_)), "{outcome:?}");
        }
    }
}

#[test]
fn machines_tell_figures_of_themselves() {
    let mut world = world();
    assert_eq!(world.node.figures().accounts_loaded, 0);
    let first = world.append("INBOX", "one");
    let before = world.node.figures();
    assert_eq!(
        (before.directory_accounts, before.directory_domains),
        (1, 1)
    );
    assert_eq!((before.accounts_loaded, before.accounts_loads), (1, 1));
    assert!(before.accounts_bytes > 0 && before.log_operations > 0);
    assert_eq!((before.log_partitions, before.uids_reassigned), (1, 0));
    let _ = world.select(1, "INBOX");
    assert_eq!(world.node.figures().watchers, 1);
    // What was told of the name is above the message that comes to it.
    for to in ["Old", "New"] {
        let done = world.mailbox(MailboxCall::Create {
            name: name(to),
            special_use: None,
        });
        assert!(matches!(done, Reply::Created(_)), "{done:?}");
    }
    let moved = world.mailbox(MailboxCall::Copy {
        session: SessionId(1),
        name: name("INBOX"),
        uids: vec![first],
        to: name("Old"),
        remove: true,
    });
    assert!(matches!(moved, Reply::Copied { .. }));
    world.append("New", "two");
    let _ = world.select(1, "New");
    let done = world.mailbox(MailboxCall::Delete { name: name("New") });
    assert!(matches!(done, Reply::Done), "{done:?}");
    let done = world.mailbox(MailboxCall::Rename {
        from: name("Old"),
        to: name("New"),
        rest: None,
    });
    assert!(matches!(done, Reply::Done), "{done:?}");
    let after = world.node.figures();
    assert_eq!(after.uids_reassigned, 1);
    assert!(after.log_operations > before.log_operations);
}

#[test]
fn evictions_are_counted() {
    let config = owner::Config {
        accounts_bytes_max: 1,
        ..owner::Config::default()
    };
    let mut world = world();
    world.node = Node::with(1, config, queue::Limits::default());
    let add = AdminCall::AddAccount {
        address: "anne@example.org".into(),
        verifier: format!("{VERIFIER_PREFIX}secret"),
        scram: None,
        account: ANNE,
    };
    assert_eq!(world.admin(add), AdminReply::Done);
    for _ in 0..3 {
        world.append("INBOX", "one");
    }
    let _ = world.mailbox(MailboxCall::list());
    let figures = world.node.figures();
    assert!(figures.accounts_evicted >= 2, "{figures:?}");
    assert_eq!(
        figures.accounts_loads,
        figures.accounts_evicted + figures.accounts_loaded
    );
}

#[test]
fn a_new_account_has_its_folders() {
    let mut world = world();
    let Reply::Mailboxes {
        names: mailboxes, ..
    } = world.mailbox(MailboxCall::list())
    else {
        panic!()
    };
    let names: Vec<&str> = mailboxes
        .iter()
        .map(|mailbox| mailbox.name.as_str())
        .collect();
    for folder in ["INBOX", "Archive", "Drafts", "Junk", "Sent", "Trash"] {
        assert!(names.contains(&folder), "{folder} in {names:?}");
        let is_it = |mailbox: &&Mailbox| mailbox.name.as_str() == folder;
        let found = mailboxes.iter().find(is_it);
        assert!(found.is_some_and(|mailbox| mailbox.subscribed), "{folder}");
    }
    assert_eq!(world.status("INBOX").messages, 0);
    let refused = world.call(Call::mailbox(AccountId([9; 16]), MailboxCall::list()));
    assert!(
        matches!(refused, Reply::Failed(Failure::NoSuchAccount)),
        "{refused:?}"
    );
}

#[test]
fn what_was_acknowledged_survives_any_crash() {
    let mut world = world();
    let mut uids = Vec::new();
    for round in 0..5 {
        uids.push(world.append("INBOX", &format!("message {round}")));
        world.node.crash(round);
        assert_eq!(world.select(1, "INBOX").uids.to_vec(), uids);
    }
    assert!(uids.is_sorted());
    world.store("INBOX", &uids[1..2], FlagChange::Add, Flag::Deleted);
    assert_eq!(world.expunge("INBOX"), uids[1..2]);
    world.node.crash(9);
    assert_eq!(
        world.bodies("INBOX"),
        ["message 0", "message 2", "message 3", "message 4"]
    );
}

#[test]
fn a_watching_session_is_told_what_others_do() {
    let mut world = world();
    let first = world.append("INBOX", "one");
    let selected = world.select(2, "INBOX");
    assert_eq!(selected.uids.to_vec(), [first]);
    let second = world.append("INBOX", "two");
    assert_eq!(world.events, [(SessionId(2), Event::Changed)]);
    let changes = world.changes(2, selected.as_of, true);
    assert_eq!(
        (changes.arrived.as_slice(), changes.changed.len()),
        ([second].as_slice(), 0)
    );
    assert!(second >= selected.status.uid_next, "U2");

    world.store("INBOX", &[first], FlagChange::Add, Flag::Seen);
    world.store("INBOX", &[second], FlagChange::Add, Flag::Deleted);
    world.expunge("INBOX");
    let held = world.changes(2, changes.as_of, false);
    assert_eq!(held.vanished, [0u32; 0]);
    assert_eq!(
        held.changed.iter().map(|row| row.uid).collect::<Vec<_>>(),
        [first]
    );
    assert!(held.changed[0].flags.contains(&Flag::Seen));
    let told = world.changes(2, held.as_of, true);
    assert_eq!(
        (told.vanished.as_slice(), told.changed.len()),
        ([second].as_slice(), 0)
    );
    let nothing = world.changes(2, told.as_of, true);
    assert_eq!(
        (
            nothing.vanished.len(),
            nothing.arrived.len(),
            nothing.changed.len()
        ),
        (0, 0, 0)
    );
}

#[test]
fn a_message_that_came_and_went_between_two_looks_is_not_told_of() {
    let mut world = world();
    let selected = world.select(2, "INBOX");
    let uid = world.append("INBOX", "short");
    world.store("INBOX", &[uid], FlagChange::Add, Flag::Deleted);
    world.expunge("INBOX");
    let changes = world.changes(2, selected.as_of, true);
    assert_eq!((changes.arrived.len(), changes.vanished.len()), (0, 0));
}

#[test]
fn copy_and_move_keep_bodies() {
    let mut world = world();
    let uid = world.append("INBOX", "text");
    let copy = MailboxCall::Copy {
        session: SessionId(1),
        name: name("INBOX"),
        uids: vec![uid],
        to: name("Archive"),
        remove: false,
    };
    let Reply::Copied { uids, .. } = world.mailbox(copy) else {
        panic!()
    };
    assert_eq!(uids.len(), 1);
    let mv = MailboxCall::Copy {
        session: SessionId(1),
        name: name("INBOX"),
        uids: vec![uid],
        to: name("Trash"),
        remove: true,
    };
    assert!(matches!(world.mailbox(mv), Reply::Copied { .. }));
    assert_eq!(world.bodies("INBOX"), [""; 0]);
    assert_eq!(world.bodies("Archive"), ["text"]);
    assert_eq!(world.bodies("Trash"), ["text"]);
    let nowhere = MailboxCall::Copy {
        session: SessionId(1),
        name: name("INBOX"),
        uids: vec![],
        to: name("Nope"),
        remove: false,
    };
    assert!(matches!(
        world.mailbox(nowhere),
        Reply::Failed(Failure::NoSuchMailbox)
    ));
}

#[test]
fn bodies_go_when_nothing_names_them() {
    let mut world = world();
    let uid = world.append("INBOX", "text");
    let copy = MailboxCall::Copy {
        session: SessionId(1),
        name: name("INBOX"),
        uids: vec![uid],
        to: name("Archive"),
        remove: false,
    };
    world.mailbox(copy);
    let row = world.rows("INBOX", &[uid]).remove(0);
    world.store("INBOX", &[uid], FlagChange::Add, Flag::Deleted);
    world.expunge("INBOX");
    let until = world.node.time() + 200_000_000;
    world.node.advance_to(until);
    assert_eq!(world.body(&row), "text", "the copy still names it");
    let copied = world.select(1, "Archive").uids.to_vec();
    world.store("Archive", &copied, FlagChange::Add, Flag::Deleted);
    world.expunge("Archive");
    world.quiet();
    assert_eq!(
        world.body(&row),
        "text",
        "who is reading it can go on for a while"
    );
    let until = world.node.time() + 200_000_000;
    world.node.advance_to(until);
    let gone = world.call(Call::BlobRead {
        blob: row.blob,
        offset: 0,
        len: 10,
    });
    assert!(matches!(gone, Reply::Failed(_)), "{gone:?}");
    let contents = world.call(Call::Contents {
        account: ANNE,
        origins: vec![row.origin],
    });
    assert!(
        matches!(&contents, Reply::Contents(rows) if rows[0].is_none()),
        "{contents:?}"
    );
}

#[test]
fn an_accepted_message_is_delivered_once_whatever_crashes() {
    for seed in 0..50 {
        let mut world = world();
        assert!(matches!(world.accept("mail", "INBOX"), Reply::Done));
        for crash in 0..3 {
            let until = world.node.time() + (seed * 397 + crash * 1009) % 4000;
            world.node.advance_to(until);
            world.node.crash(seed * 7 + crash);
        }
        world.quiet();
        assert_eq!(world.bodies("INBOX"), ["mail"], "seed {seed}");
        // What was expunged does not come back with a later crash.
        let uids = world.select(1, "INBOX").uids.to_vec();
        world.store("INBOX", &uids, FlagChange::Add, Flag::Deleted);
        world.expunge("INBOX");
        world.node.crash(seed);
        world.quiet();
        assert_eq!(world.bodies("INBOX"), [""; 0], "seed {seed}");
        assert_eq!(world.node.queue_len(), 0);
    }
}

/// Two targets of one transaction in one account are two messages with one blob.
#[test]
fn one_blob_of_two_messages_stays_until_both_are_gone() {
    let mut world = world();
    let blob = world.upload("twice");
    let content = Content {
        prefix: "".into(),
        summary: "twice".into(),
    }
    .encode();
    let delivery = |target| Delivery {
        account: ANNE,
        target: name(target),
        content: content.clone(),
        size: 5,
        open_end: false,
        sent: false,
    };
    let entry = Entry {
        id: entry_id(&blob.upload),
        sender: String::new(),
        deliveries: vec![delivery("INBOX"), delivery("Junk")],
        blob,
        date: Date {
            seconds: 5,
            zone_minutes: 0,
        },
    };
    assert!(matches!(world.call(Call::Accept(entry)), Reply::Done));
    world.quiet();
    for (mailbox, still) in [("INBOX", true), ("Junk", false)] {
        let uids = world.select(1, mailbox).uids.to_vec();
        assert_eq!(uids.len(), 1);
        world.store(mailbox, &uids, FlagChange::Add, Flag::Deleted);
        world.expunge(mailbox);
        let until = world.node.time() + 200_000_000;
        world.node.advance_to(until);
        let read = world.call(Call::BlobRead {
            blob,
            offset: 0,
            len: 10,
        });
        assert_eq!(
            matches!(read, Reply::Bytes(_)),
            still,
            "after {mailbox}: {read:?}"
        );
    }
}

#[test]
fn a_wish_for_a_mailbox_that_does_not_exist_ends_in_inbox() {
    let mut world = world();
    world.mailbox(MailboxCall::Create {
        name: name("lists"),
        special_use: None,
    });
    world.accept("a", "lists");
    world.accept("b", "nowhere");
    world.quiet();
    assert_eq!(world.bodies("lists"), ["a"]);
    assert_eq!(world.bodies("INBOX"), ["b"]);
}

#[test]
fn a_full_disk_is_a_temporary_error_and_nothing_is_lost() {
    let mut world = world();
    let kept = world.append("INBOX", "kept");
    let blob = world.upload("never");
    world.node.disk.faults.full = true;
    let content = Content {
        prefix: "".into(),
        summary: "never".into(),
    }
    .encode();
    let append = MailboxCall::Append {
        session: SessionId(1),
        name: name("INBOX"),
        messages: vec![NewMail {
            flags: Flags::none(),
            date: Date {
                seconds: 1,
                zone_minutes: 0,
            },
            size: 5,
            open_end: false,
            blob,
            content,
        }],
        replaces: None,
    };
    for _ in 0..3 {
        let reply = world.mailbox(append.clone());
        assert!(
            matches!(reply, Reply::Failed(Failure::Storage)),
            "{reply:?}"
        );
    }
    let refused = world.admin(AdminCall::AddAlias {
        from: "a@example.org".into(),
        to: "anne@example.org".into(),
        instead: true,
    });
    assert!(matches!(refused, AdminReply::Refused(_)), "{refused:?}");
    assert_eq!(world.bodies("INBOX"), ["kept"], "reading goes on");
    world.node.disk.faults.full = false;
    assert_eq!(world.select(1, "INBOX").uids.to_vec(), [kept]);
    let again = world.append("INBOX", "again");
    assert!(again > kept);
    assert_eq!(
        world.admin(AdminCall::ListAliases),
        AdminReply::Aliases(vec![])
    );
    let added = world.admin(AdminCall::AddAlias {
        from: "a@example.org".into(),
        to: "anne@example.org".into(),
        instead: true,
    });
    assert_eq!(added, AdminReply::Done);
    world.node.crash(3);
    assert_eq!(world.bodies("INBOX"), ["kept", "again"]);
}

/// Below the reserve nothing is added, and users can make room; with less than the engine needs they cannot.
#[test]
fn below_the_reserve_room_can_be_made() {
    let mut world = world();
    let uids = ["a", "b", "c"].map(|body| world.append("INBOX", body));
    let box_of = |mailbox| MailboxCall::Create {
        name: name(mailbox),
        special_use: None,
    };
    assert!(matches!(world.mailbox(box_of("box")), Reply::Created(_)));
    world.append("box", "d");
    let store = |flag: Flag| MailboxCall::Store {
        session: SessionId(1),
        name: name("INBOX"),
        uids: uids[..2].to_vec(),
        change: FlagChange::Add,
        flags: [flag].into_iter().collect(),
        unchanged_since: None,
    };
    let refused = |reply: &Reply| matches!(reply, Reply::Failed(Failure::Storage));
    world.node.disk.faults.below_reserve = true;
    for call in [box_of("more"), store(Flag::Seen)] {
        let reply = world.mailbox(call);
        assert!(refused(&reply), "{reply:?}");
    }
    let reply = world.mailbox(store(Flag::Deleted));
    assert!(matches!(reply, Reply::Stored { .. }), "{reply:?}");
    assert_eq!(world.expunge("INBOX"), uids[..2]);
    let delete = MailboxCall::Delete { name: name("box") };
    assert!(matches!(world.mailbox(delete), Reply::Done));
    assert_eq!(world.node.disk.blob_list(None, 10).len(), 4);
    // Their bytes go when it is time for that.
    world.node.advance_to(world.node.time() + 120_000_000);
    assert_eq!(world.node.disk.blob_list(None, 10).len(), 1);
    world.node.crash(3);
    assert_eq!(world.bodies("INBOX"), ["c"]);
    world.node.disk.faults.full = true;
    let reply = world.mailbox(store(Flag::Deleted));
    assert!(
        matches!(reply, Reply::Stored { .. }),
        "these are gone: {reply:?}"
    );
    let last = MailboxCall::Remove {
        name: name("INBOX"),
        uids: uids[2..].to_vec(),
    };
    let reply = world.mailbox(last);
    assert!(refused(&reply), "{reply:?}");
}

/// Found by the simulator: a RENAME was told to have failed because something written before it was refused, and took effect all the same. Who
/// only looks is served, though a mark is written for it.
#[test]
fn what_is_told_to_have_failed_leaves_nothing_behind() {
    let mut world = world();
    world.append("INBOX", "text");
    world.quiet();
    let calls = [
        MailboxCall::Subscribe {
            name: name("Lists"),
            subscribed: true,
        },
        MailboxCall::Rename {
            from: name("Archive"),
            to: name("renamed"),
            rest: None,
        },
    ];
    // Delivered and not told of yet, so that SELECT has a mark to write.
    assert!(matches!(world.accept("mail", "INBOX"), Reply::Done));
    world.quiet();
    world.node.disk.faults.full = true;
    let select = MailboxCall::Select {
        session: SessionId(3),
        name: name("INBOX"),
        read_only: false,
    };
    let looked = world.mailbox(select);
    assert!(matches!(looked, Reply::Selected(_)), "{looked:?}");
    for (request, call) in (500..).zip(calls) {
        world
            .node
            .call(RequestId(request), Call::mailbox(ANNE, call));
    }
    world.node.step();
    world.node.disk.faults.full = false;
    let mut replies = Vec::new();
    while replies.len() < 2 {
        assert!(world.node.step(), "no answer");
        while let Some(outcome) = world.node.outcome() {
            if let Outcome::Reply(request, reply) = outcome {
                replies.push((request.0, format!("{reply:?}")));
            }
        }
    }
    assert_eq!(
        replies,
        [
            (500, "Failed(Storage)".into()),
            (501, "Failed(Storage)".into())
        ]
    );
    world.quiet();
    assert_eq!(world.status("Archive").messages, 0);
    assert!(matches!(
        world.mailbox(MailboxCall::Status {
            name: name("renamed")
        }),
        Reply::Failed(Failure::NoSuchMailbox)
    ));
    // Found by the simulator, too: the partition takes writes again.
    world.append("Archive", "again");
}

#[test]
fn a_failed_sync_stops_the_node_and_acknowledges_nothing() {
    let mut world = world();
    world.node.disk.faults.sync_fails = true;
    world.node.call(
        RequestId(1000),
        Call::mailbox(
            ANNE,
            MailboxCall::Create {
                name: name("x"),
                special_use: None,
            },
        ),
    );
    let mut stopped = false;
    while world.node.step() {}
    while let Some(outcome) = world.node.outcome() {
        assert!(!matches!(outcome, Outcome::Reply(..)), "{outcome:?}");
        stopped |= matches!(outcome, Outcome::Stopped(_));
    }
    assert!(stopped);
}

#[test]
fn a_removed_account_takes_its_mail_with_it() {
    let mut world = world();
    let uid = world.append("INBOX", "text");
    let row = world.rows("INBOX", &[uid]).remove(0);
    let first = world.select(5, "INBOX").status.uid_validity;
    assert_eq!(
        world.admin(AdminCall::RemoveAccount {
            address: "anne@example.org".into()
        }),
        AdminReply::Done
    );
    world.node.crash(1);
    world.quiet();
    assert!(matches!(
        world.mailbox(MailboxCall::list()),
        Reply::Failed(Failure::NoSuchAccount)
    ));
    assert!(matches!(
        world.call(Call::BlobRead {
            blob: row.blob,
            offset: 0,
            len: 1
        }),
        Reply::Failed(_)
    ));
    let again = AccountId([2; 16]);
    let add = AdminCall::AddAccount {
        address: "anne@example.org".into(),
        verifier: "x".into(),
        scram: None,
        account: again,
    };
    assert_eq!(world.admin(add), AdminReply::Done);
    let select = MailboxCall::Select {
        session: SessionId(6),
        name: name("INBOX"),
        read_only: true,
    };
    let Reply::Selected(selected) = world.call(Call::mailbox(again, select)) else {
        panic!()
    };
    assert!(
        selected.status.uid_validity > first,
        "UIDVALIDITY of a second account with the address is greater"
    );
    assert_eq!(selected.uids.to_vec(), [0u32; 0]);
}

#[test]
fn logins_are_checked_cached_and_throttled() {
    let mut world = world();
    let login = |world: &mut World, user: &str, password: &str| {
        let ask = Authenticate {
            login: user.into(),
            password: password.as_bytes().to_vec().into(),
            peer: [10, 0, 0, 1].into(),
        };
        let before = world.node.time();
        let reply = world.call(Call::Authenticate(ask));
        (reply, world.node.time() - before)
    };
    let (reply, paid) = login(&mut world, "Anne@Example.org", "secret");
    assert!(
        matches!(&reply, Reply::Authenticated { account: ANNE, login } if login == "anne@example.org"),
        "{reply:?}"
    );
    let (reply, cached) = login(&mut world, "Anne@Example.org", "secret");
    assert!(matches!(reply, Reply::Authenticated { account: ANNE, .. }));
    assert!(
        paid >= 20_000 && cached < 20_000,
        "paid {paid}, then {cached}"
    );

    let set = AdminCall::SetVerifier {
        address: "anne@example.org".into(),
        verifier: format!("{VERIFIER_PREFIX}new"),
        scram: None,
        keeps_sessions: false,
    };
    assert_eq!(world.admin(set), AdminReply::Done);
    assert!(matches!(
        login(&mut world, "Anne@Example.org", "secret").0,
        Reply::Failed(Failure::Credentials)
    ));
    assert!(matches!(
        login(&mut world, "anne@example.org", "new").0,
        Reply::Authenticated { .. }
    ));
    assert!(matches!(
        login(&mut world, "nobody@example.org", "x").0,
        Reply::Failed(Failure::Credentials)
    ));
    for _ in 0..18 {
        assert!(matches!(
            login(&mut world, "anne@example.org", "wrong").0,
            Reply::Failed(Failure::Credentials)
        ));
    }
    let (reply, free) = login(&mut world, "anne@example.org", "wrong");
    assert!(
        matches!(reply, Reply::Failed(Failure::Throttled)),
        "{reply:?}"
    );
    assert!(free < 20_000, "refused before work");
    // A password that was right from there a moment ago is taken all the same, and costs no work either.
    let (reply, free) = login(&mut world, "anne@example.org", "new");
    assert!(matches!(reply, Reply::Authenticated { .. }), "{reply:?}");
    assert!(free < 20_000, "it is remembered");
}

#[test]
fn addresses_resolve() {
    let mut world = world();
    for (from, to) in [
        ("info@example.org", "anne@example.org"),
        ("@example.org", "info@example.org"),
    ] {
        assert_eq!(
            world.admin(AdminCall::AddAlias {
                from: from.into(),
                to: to.into(),
                instead: true,
            }),
            AdminReply::Done
        );
    }
    let mut resolve = |local: &str, domain: Option<&str>| match world.call(Call::Resolve {
        local: local.into(),
        domain: domain.map(Into::into),
        asker: Asker::Front,
    }) {
        Reply::Resolved(Resolution::Local(targets)) => targets
            .iter()
            .map(|t| format!("{} {:?}", t.address, t.detail))
            .collect::<Vec<_>>()
            .join(", "),
        Reply::Resolved(other) => format!("{other:?}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        resolve("ANNE", Some("Example.org")),
        "anne@example.org None"
    );
    assert_eq!(
        resolve("anne+Lists", Some("example.org")),
        "anne@example.org Some(\"Lists\")"
    );
    assert_eq!(
        resolve("info+x", Some("example.org")),
        "anne@example.org Some(\"x\")"
    );
    assert_eq!(
        resolve("whoever", Some("example.org")),
        "anne@example.org None"
    );
    assert_eq!(resolve("anne", Some("elsewhere.example")), "NotOurs");
    assert_eq!(resolve("postmaster", None), "anne@example.org None");
}

/// RFC 5802, and nobody learns which names there are, however often the node starts.
#[test]
fn salts_of_names_that_do_not_exist_stay_as_they_are() {
    let mut world = world();
    let ask = |world: &mut World, login: &str| {
        let begin = Call::ScramBegin {
            login: login.into(),
            peer: [10, 0, 0, 1].into(),
        };
        match world.call(begin) {
            Reply::ScramChallenge {
                salt,
                iterations,
                nonce,
            } => (salt, iterations, nonce),
            other => panic!("{other:?}"),
        }
    };
    let keys = derive("secret", [3; 16], 5000.try_into().unwrap()).unwrap();
    let bob = AdminCall::AddAccount {
        address: "bob@example.org".into(),
        verifier: "x".into(),
        scram: Some(keys),
        account: AccountId([2; 16]),
    };
    assert_eq!(world.admin(bob), AdminReply::Done);
    let names = ["carl@example.org", "anne@example.org", "dora", ""];
    let before = names.map(|name| ask(&mut world, name));
    world.node.crash(5);
    let after = names.map(|name| ask(&mut world, name));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((before.0, before.1), (after.0, after.1));
        assert_ne!(before.2, after.2, "nonces are new");
    }
    let mut salts: Vec<_> = before.iter().map(|(salt, ..)| *salt).collect();
    salts.sort_unstable();
    salts.dedup();
    assert_eq!(salts.len(), names.len(), "each has its own");
    // All spellings of a name are one, whether there is such an account or not.
    for (one, other) in [
        ("bob@example.org", "BOB@Example.ORG."),
        ("carl@example.org", "Carl@EXAMPLE.org."),
        ("Z\u{fc}rich", "zu\u{308}rich"),
    ] {
        assert_eq!(ask(&mut world, one).0, ask(&mut world, other).0, "{one}");
    }
    assert_eq!(ask(&mut world, "bob@example.org").0, [3; 16]);
    assert_eq!(ask(&mut world, "bob@example.org").1, 5000);
    // A new password without keys takes them away.
    let set = AdminCall::SetVerifier {
        address: "bob@example.org".into(),
        verifier: "y".into(),
        scram: None,
        keeps_sessions: false,
    };
    assert_eq!(world.admin(set), AdminReply::Done);
    assert_ne!(ask(&mut world, "bob@example.org").0, [3; 16]);
}

/// Found by seed 72317, whose model did not know it: what was renamed away and back has new UIDs, and a client that has not heard of that
/// acts by the old ones on the same messages (docs/design.md#rule-2).
#[test]
fn what_was_renamed_away_and_back_is_still_named_by_its_old_uids() {
    let mut world = world();
    let known: Vec<u32> = ["a", "b", "c"]
        .iter()
        .map(|body| world.append("Archive", body))
        .collect();
    assert_eq!(world.select(1, "Archive").uids.to_vec(), known);
    for (from, to) in [("Archive", "away"), ("away", "Archive")] {
        let rename = MailboxCall::Rename {
            from: name(from),
            to: name(to),
            rest: None,
        };
        assert!(matches!(world.mailbox(rename), Reply::Done));
    }
    let copy = |uids: &[u32], remove| MailboxCall::Copy {
        session: SessionId(1),
        name: name("Archive"),
        uids: uids.to_vec(),
        to: name("Junk"),
        remove,
    };
    let Reply::Copied { uids: copied, .. } = world.mailbox(copy(&known[1..2], false)) else {
        panic!()
    };
    let told: Vec<u32> = copied.iter().map(|(from, _)| *from).collect();
    assert_eq!(told, known[1..2], "it knows no other UID of it");
    assert_eq!(world.bodies("Junk"), ["b"]);
    let stored = world.store("Archive", &known[..1], FlagChange::Add, Flag::Flagged);
    assert_eq!(stored.len(), 1);
    assert!(matches!(
        world.mailbox(copy(&known[2..], true)),
        Reply::Copied { uids, .. } if uids.len() == 1
    ));
    assert_eq!(world.bodies("Archive"), ["a", "b"]);
    assert_eq!(world.bodies("Junk"), ["b", "c"]);
}

fn identity(number: u64, slot: u8, round: u32) -> Identity {
    Identity {
        incarnation: Incarnation::from_hash(number),
        slot,
        round,
    }
}

#[test]
fn an_older_disk_put_back_gives_no_uid_twice() {
    let mut world = world();
    let kept = world.append("INBOX", "kept");
    world.store("INBOX", &[kept], FlagChange::Add, Flag::Seen);
    world.quiet();
    let copy = world.node.disk.copy();
    let lost: Vec<u32> = (0..20).map(|_| world.append("INBOX", "lost")).collect();
    world.accept("lost", "INBOX");
    world.quiet();
    let before = world.select(1, "INBOX");
    world.node.put_back(copy, identity(77, 9, 0));
    let after = world.select(1, "INBOX");
    assert_eq!(after.uids.to_vec(), [kept]);
    assert_eq!(after.status.uid_validity, before.status.uid_validity);
    assert!(after.status.uid_next >= before.status.uid_next);
    assert!(after.status.highest_modseq > before.status.highest_modseq);
    let new = world.append("INBOX", "new");
    assert!(new >= before.status.uid_next && !lost.contains(&new));
    // A MODSEQ of the lost time permits nothing.
    let mut flags = Flags::none();
    flags.insert(Flag::Flagged);
    let mut store = |since: u64| {
        let call = MailboxCall::Store {
            session: SessionId(1),
            name: name("INBOX"),
            uids: vec![kept],
            change: FlagChange::Add,
            flags: flags.clone(),
            unchanged_since: Some(since),
        };
        match world.mailbox(call) {
            Reply::Stored { modified, .. } => modified,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(store(before.status.highest_modseq + (1 << 40)), [kept]);
    assert_eq!(store(after.status.highest_modseq), [0u32; 0]);
    // It is renewed once, and goes on as any other.
    world.node.crash(5);
    world.quiet();
    assert!(world.append("INBOX", "later") < new + 64 * 100);
}

#[test]
fn when_all_slots_were_used_clients_begin_anew() {
    let mut world = world();
    world.append("INBOX", "kept");
    let before = world.select(1, "INBOX");
    world.quiet();
    let copy = world.node.disk.copy();
    world.node.put_back(copy, identity(78, 7, 1));
    let after = world.select(1, "INBOX");
    assert!(after.status.uid_validity > before.status.uid_validity);
    assert_eq!(world.bodies("INBOX"), ["kept"]);
    // An account made anew under the address has a greater one still, even within the second.
    let removed = world.admin(AdminCall::RemoveAccount {
        address: "anne@example.org".into(),
    });
    assert_eq!(removed, AdminReply::Done);
    world.node.wall_offset_micros -= 3_600_000_000;
    let account = AccountId([2; 16]);
    let add = AdminCall::AddAccount {
        address: "anne@example.org".into(),
        verifier: "x".into(),
        scram: None,
        account,
    };
    assert_eq!(world.admin(add), AdminReply::Done);
    let call = MailboxCall::Status {
        name: name("INBOX"),
    };
    match world.call(Call::mailbox(account, call)) {
        Reply::Status(status) => {
            assert!(
                status.uid_validity > after.status.uid_validity,
                "{status:?}"
            );
        }
        other => panic!("{other:?}"),
    }
}
