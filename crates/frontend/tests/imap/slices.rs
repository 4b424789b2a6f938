//! Searches of many keys: others have their chance between slices of the work, and what is found is the same.

use super::world::{Cut, World};

const KEYS: usize = 1000;

fn world() -> World {
    let mut world = World::new(Cut::AtOnce);
    world.connect("A", true);
    world.send("A", b"l LOGIN anne secret\r\n");
    // One long message, and many short ones.
    world.fake.fill("INBOX", 500, |n| {
        let text = "hay <7> ".repeat(if n == 1 { 4096 } else { 1 });
        format!("Subject: <{n}>\r\nX-Unusual: <{n}>\r\nX-Long: {text}\r\n\r\n{text}\r\n")
            .into_bytes()
    });
    world.send("A", b"s SELECT INBOX\r\n");
    world
}

/// What a search finds, and in how many slices.
fn search(world: &mut World, program: &str) -> (String, usize) {
    let connection = world.get("A");
    connection.outbox.clear();
    connection.yields = 0;
    world.send("A", format!("f SEARCH {program}\r\n").as_bytes());
    let answer = String::from_utf8(std::mem::take(&mut world.get("A").outbox)).unwrap();
    assert!(answer.contains("f OK"), "{answer}");
    let found = answer.lines().next().unwrap();
    (found["* SEARCH".len()..].to_owned(), world.get("A").yields)
}

#[test]
fn a_search_of_many_keys_is_cut_into_slices() {
    let all: String = (1..=500).map(|n| format!(" {n}")).collect();
    let but_7 = all.replace(" 7 ", " ");
    // Each kind of key is tried on places first, then on rows, and then on what is read of messages: all of that is in slices.
    for (key, found, slices) in [
        ("NOT 1000", &*all, 28),
        ("NOT UID 1000", &all, 28),
        ("NOT LARGER 1000000", &all, 56),
        ("NOT SUBJECT <7>%", &all, 110),
        ("NOT SUBJECT <7>", &but_7, 110),
        ("NOT HEADER X-Unusual <7>%", &all, 130),
        ("1 NOT HEADER X-Long <7>%", " 1", 24),
        ("1 NOT BODY <7>%", " 1", 24),
        ("1 NOT TEXT <7>%", " 1", 24),
        ("1 NOT TEXT <7>", "", 0),
    ] {
        let mut world = world();
        let keys: Vec<String> = (0..KEYS)
            .map(|n| key.replace('%', &n.to_string()))
            .collect();
        let (answer, yields) = search(&mut world, &keys.join(" "));
        assert_eq!(answer, found, "{key}");
        assert!(yields >= slices, "{key}: {yields} slices");
        // Few keys are no work.
        let few = keys[..3].join(" ");
        assert_eq!(search(&mut world, &few), (found.to_owned(), 0), "{key}");
    }
}

#[test]
fn and_so_are_sort_and_thread() {
    for command in ["SORT (ARRIVAL) UTF-8", "THREAD ORDEREDSUBJECT UTF-8"] {
        let mut world = world();
        world.get("A").yields = 0;
        let keys = "NOT LARGER 1000000 ".repeat(KEYS);
        world.send("A", format!("f {command} {keys}ALL\r\n").as_bytes());
        assert!(world.get("A").yields >= 16, "{command}");
    }
}

/// Others have their chance while patterns are matched against names, whatever both are.
#[test]
fn a_list_of_many_patterns_is_cut_into_slices() {
    const NAMES: usize = 60;
    let mut world = World::new(Cut::AtOnce);
    world.connect("A", true);
    world.send("A", b"l LOGIN anne secret\r\n");
    for n in 0..NAMES {
        let name = format!("{n:03}{}", "y".repeat(900));
        world.send("A", format!("c CREATE {name}\r\n").as_bytes());
    }
    let patterns = format!("*{}%z ", "y*".repeat(61)).repeat(31);
    let mut list = |patterns: &str| {
        let connection = world.get("A");
        connection.outbox.clear();
        connection.yields = 0;
        world.send("A", format!("f LIST \"\" ({patterns})\r\n").as_bytes());
        let answer = String::from_utf8(std::mem::take(&mut world.get("A").outbox)).unwrap();
        assert!(answer.contains("f OK"), "{answer}");
        (answer.matches("* LIST").count(), world.get("A").yields)
    };
    let (told, yields) = list(patterns.trim_end());
    assert_eq!(told, 0);
    // A few names come at once; each costs nearly a slice.
    assert!(yields >= NAMES / 3, "{yields}");
    // One pattern is no work.
    assert_eq!(list("0*"), (NAMES, 0));
}
