//! Row 18: patterns of LIST that make a matcher try again and again.
//!
//! That a character of a name costs a fixed number of steps is counted in `crates/imap/src/command/list.rs`. Here a matcher that back-tracks
//! would never answer: the deadline of the client is what objects.

use super::{Watch, lean};

/// Names as long as may be, at which such patterns are nearly matched.
fn names() -> Vec<String> {
    let mut names: Vec<String> = (0..20).map(|n| format!("{}{n}", "a".repeat(900))).collect();
    names.push(vec!["aaaaaaaaaaaaaaaa"; 30].join("/"));
    names
}

#[test]
#[ignore = "long: hostile clients"]
fn row_18_patterns_that_back_track() {
    let server = lean().start();
    let watch = Watch::start(&server);
    let mut imap = server.anne();
    for name in names() {
        let _ = imap
            .command(&format!("CREATE {name}"))
            .unwrap()
            .ok("CREATE");
    }
    for (pattern, expected) in [
        ("*%".repeat(200) + "b", 0),
        ("%*".repeat(200) + "b", 0),
        ("*a".repeat(250) + "b", 0),
        ("%a".repeat(250) + "b", 0),
        ("*a%".repeat(170) + "b", 0),
        ("%/".repeat(29) + "%a%a%a%a%a%a%a%a%b", 0),
        // The long ones and the levels of the deep one that have so many, whatever is between.
        ("*a".repeat(250) + "*", 20 + 15),
        ("%/".repeat(29) + "%", 1),
    ] {
        for command in [
            format!("LIST \"\" \"{pattern}\""),
            format!("LSUB \"\" \"{pattern}\""),
            format!("LIST \"{}\" \"{pattern}\"", "a".repeat(20)),
            format!(
                "LIST (SUBSCRIBED RECURSIVEMATCH) \"\" ({}) RETURN (CHILDREN STATUS (MESSAGES))",
                vec![format!("\"{pattern}\""); 7].join(" ")
            ),
        ] {
            let reply = imap.command(&command).unwrap().ok("LIST");
            if command.starts_with("LIST \"\"") {
                assert_eq!(reply.data("LIST").len(), expected, "{pattern}");
            }
        }
    }
    watch.end();
}
