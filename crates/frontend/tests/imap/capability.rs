//! What is announced in which state: one name a line, so that each extension adds its own.

use whimbrel_service::api::STATUSES_PER_CALL_MAX;

use super::world::{Cut, World};

/// In every state.
const ALWAYS: &[&str] = &["IMAP4rev2", "IMAP4rev1", "LITERAL+", "ID", "ENABLE"];

/// In the clear, before the login.
const IN_THE_CLEAR: &[&str] = &["STARTTLS", "LOGINDISABLED"];

/// Inside TLS, before the login.
const INSIDE_TLS: &[&str] = &[
    "SASL-IR",
    "AUTH=SCRAM-SHA-256-PLUS",
    "AUTH=SCRAM-SHA-256",
    "AUTH=PLAIN",
    "AUTH=LOGIN",
];

/// After the login.
const AFTER_LOGIN: &[&str] = &[
    "IDLE",
    "NAMESPACE",
    "UNSELECT",
    "UIDPLUS",
    "MOVE",
    "CONDSTORE",
    "QRESYNC",
    "QUOTA",
    "QUOTA=RES-MAILBOX",
    "QUOTA=RES-MESSAGE",
    "QUOTA=RES-STORAGE",
    "LIST-EXTENDED",
    "LIST-STATUS",
    "CHILDREN",
    "SPECIAL-USE",
    "CREATE-SPECIAL-USE",
    "ESEARCH",
    "SEARCHRES",
    "STATUS=SIZE",
    "OBJECTID",
    "SAVEDATE",
    "PARTIAL",
    "UNAUTHENTICATE",
    "COMPRESS=DEFLATE",
    "PREVIEW",
    "WITHIN",
    "SORT",
    "SORT=DISPLAY",
    "ESORT",
    "THREAD=ORDEREDSUBJECT",
    "THREAD=REFERENCES",
    "MULTIAPPEND",
    "CATENATE",
    "REPLACE",
    "BINARY",
    "UTF8=ACCEPT",
    "APPENDLIMIT=67108864",
];

fn words(text: &str) -> Vec<String> {
    let list = text.split_once("CAPABILITY ").expect("it is told").1;
    let list = list.split([']', '\r']).next().unwrap();
    list.split(' ').map(str::to_owned).collect()
}

#[track_caller]
fn check(said: &str, expected: &[&str]) {
    let mut expected: Vec<String> = [ALWAYS, expected]
        .concat()
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let mut found = words(said);
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    found.dedup();
    assert_eq!(found.len(), expected.len(), "none is told twice");
}

/// What the connection is told after `line`, in the greeting and by CAPABILITY.
fn ask(world: &mut World, line: &[u8]) -> String {
    world.get("1").outbox.clear();
    world.send("1", line);
    String::from_utf8(std::mem::take(&mut world.get("1").outbox)).unwrap()
}

#[test]
fn what_is_announced_in_which_state() {
    let mut world = World::new(Cut::AtOnce);
    world.connect("1", false);
    let greeting = String::from_utf8(world.get("1").outbox.clone()).unwrap();
    check(&greeting, IN_THE_CLEAR);
    check(&ask(&mut world, b"a CAPABILITY\r\n"), IN_THE_CLEAR);
    ask(&mut world, b"b STARTTLS\r\n");
    world.tls("1");
    check(&ask(&mut world, b"c CAPABILITY\r\n"), INSIDE_TLS);
    // Only a successful login tells the new ones.
    assert!(!ask(&mut world, b"d LOGIN anne wrong\r\n").contains("CAPABILITY"));
    check(&ask(&mut world, b"e LOGIN anne secret\r\n"), AFTER_LOGIN);
    check(&ask(&mut world, b"f CAPABILITY\r\n"), AFTER_LOGIN);
    world.connect("1", true);
    let greeting = String::from_utf8(world.get("1").outbox.clone()).unwrap();
    check(&greeting, INSIDE_TLS);
    let answer = ask(&mut world, b"g AUTHENTICATE PLAIN AGFubmUAc2VjcmV0\r\n");
    check(&answer, AFTER_LOGIN);
}

/// What ENABLE knows is announced, whatever is enabled already.
#[test]
fn what_can_be_enabled_is_announced() {
    let mut world = World::new(Cut::AtOnce);
    world.connect("1", true);
    ask(&mut world, b"a LOGIN anne secret\r\n");
    let all = [ALWAYS, AFTER_LOGIN].concat();
    let line = format!("b ENABLE {}\r\n", all.join(" "));
    let answer = ask(&mut world, line.as_bytes());
    let enabled = answer
        .lines()
        .find_map(|line| line.strip_prefix("* ENABLED "))
        .unwrap();
    let enabled: Vec<&str> = enabled.split(' ').collect();
    for name in ["IMAP4rev2", "CONDSTORE", "QRESYNC", "UTF8=ACCEPT"] {
        assert!(enabled.contains(&name), "{name}");
    }
    check(&ask(&mut world, b"c CAPABILITY\r\n"), AFTER_LOGIN);
}

/// Figures of many mailboxes are asked for together.
#[test]
fn list_with_status_asks_for_many_at_once() {
    const MAILBOXES: usize = 150;
    let mut world = World::new(Cut::AtOnce);
    world.connect("1", true);
    let _ = ask(&mut world, b"a LOGIN anne secret\r\n");
    for n in 0..MAILBOXES {
        let create = format!("b CREATE m{n}\r\n");
        assert!(ask(&mut world, create.as_bytes()).contains("b OK"));
    }
    world.get("1").calls.clear();
    let told = ask(&mut world, b"c LIST \"\" m* RETURN (STATUS (MESSAGES))\r\n");
    assert_eq!(told.matches("* LIST").count(), MAILBOXES, "{told}");
    assert_eq!(told.matches("(MESSAGES 0)").count(), MAILBOXES);
    for n in 0..MAILBOXES {
        let figures = format!("* STATUS \"m{n}\" (MESSAGES 0)\r\n");
        let line = told.find(&format!("\"m{n}\"\r\n")).unwrap();
        assert!(
            told[line..].lines().nth(1) == Some(figures.trim_end()),
            "{told}"
        );
    }
    let calls = &world.get("1").calls;
    let [lists, all] = [calls.get("List").copied(), Some(calls.values().sum())];
    let statuses = all.unwrap_or(0) - lists.unwrap_or(0);
    assert_eq!(statuses, MAILBOXES.div_ceil(STATUSES_PER_CALL_MAX));
}

/// RFC 7889: the number is that of the configuration.
#[test]
fn append_limit() {
    let mut world = World::new(Cut::AtOnce);
    world.limits.syntax.append_bytes_max = 5;
    world.connect("1", true);
    assert!(ask(&mut world, b"a LOGIN anne secret\r\n").contains(" APPENDLIMIT=5]"));
    let status = ask(&mut world, b"b STATUS INBOX (APPENDLIMIT MESSAGES)\r\n");
    assert!(status.contains("(APPENDLIMIT 5 MESSAGES 0)"), "{status}");
    let list = ask(
        &mut world,
        b"c LIST \"\" INBOX RETURN (STATUS (APPENDLIMIT))\r\n",
    );
    assert!(
        list.contains("* STATUS \"INBOX\" (APPENDLIMIT 5)"),
        "{list}"
    );
    assert!(ask(&mut world, b"d APPEND INBOX {6+}\r\nabcdef\r\n").contains("d NO [TOOBIG]"));
    assert!(ask(&mut world, b"e APPEND INBOX {5+}\r\nabcde\r\n").contains("e OK"));
}
