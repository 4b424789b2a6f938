//! The report of a wait that timed out: what was waited for, and what each region showed last.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Debug, Write as _},
};

use super::regions::{Line, Looked, View, Views};

/// The complete report. `shown`: a line or more for each region.
pub(super) fn message(what: &str, seconds: u64, shown: &str) -> String {
    format!("waited {seconds} s until {what}; in the end the regions showed:{shown}")
}

/// What each region answered, as it is.
pub(super) fn plain<T: Debug>(shown: &[(&str, T)]) -> String {
    let line = |(name, answer): &(&str, T)| format!("\n  {name}: {answer:?}");
    shown.iter().map(line).collect()
}

/// All mailboxes of each region, and each message in which it differs from the first one that could be read.
pub(super) fn views(shown: &[(&str, Looked)]) -> String {
    let mut readable = shown
        .iter()
        .filter_map(|(name, looked)| Some((*name, looked.as_ref().ok()?)));
    let first = readable.next();
    let mut text = String::new();
    for (name, looked) in shown {
        let views = match looked {
            Ok(views) => views,
            Err(cause) => {
                let _ = write!(text, "\n  {name}: cannot be read: {cause}");
                continue;
            }
        };
        for (mailbox, view) in views {
            let uids: String = view.lines.iter().map(|of| format!(" {}", of.uid)).collect();
            let (validity, count) = (view.validity, view.lines.len());
            let _ = write!(
                text,
                "\n  {name}: {mailbox}, UIDVALIDITY {validity}: {count} messages, UIDs{uids}"
            );
        }
        if let Some((first, theirs)) = first.filter(|(first, _)| first != name) {
            text.push_str(&differences((name, views), (first, theirs)));
        }
    }
    text
}

fn differences((name, views): (&str, &Views), (first, theirs): (&str, &Views)) -> String {
    let mut text = String::new();
    let mailboxes: BTreeSet<&String> = views.keys().chain(theirs.keys()).collect();
    for mailbox in mailboxes {
        let (here, there) = (views.get(mailbox), theirs.get(mailbox));
        for (is_here, has, has_not) in [
            (here.is_some(), first, name),
            (there.is_some(), name, first),
        ] {
            if !is_here {
                let _ = write!(text, "\n    {mailbox} is in {has}, not in {has_not}");
            }
        }
        let (here, there) = (lines(here), lines(there));
        let uids: BTreeSet<&u32> = here.keys().chain(there.keys()).collect();
        for uid in uids {
            let (here, there) = (here.get(uid), there.get(uid));
            if here != there {
                let (here, there) = (told(here), told(there));
                let _ = write!(
                    text,
                    "\n    {mailbox}, UID {uid}: {here} in {name}, {there} in {first}"
                );
            }
        }
    }
    text
}

fn lines(view: Option<&View>) -> BTreeMap<u32, &Line> {
    let lines = view.into_iter().flat_map(|view| &view.lines);
    lines.map(|line| (line.uid, line)).collect()
}

fn told(line: Option<&&Line>) -> String {
    line.map_or_else(
        || "nothing".into(),
        |line| {
            let flags = line.flags.iter().map(|flag| format!(" {flag}"));
            format!("{:?}{}", line.subject, flags.collect::<String>())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(lines: &[(u32, &str, &str)]) -> View {
        let line = |(uid, subject, flags): &(u32, &str, &str)| Line {
            uid: *uid,
            flags: flags.split_whitespace().map(str::to_owned).collect(),
            subject: (*subject).to_owned(),
        };
        View {
            validity: 7,
            lines: lines.iter().map(line).collect(),
        }
    }

    #[test]
    fn what_differs_is_told_by_region_mailbox_and_uid() {
        let europe = Views::from([
            (
                "INBOX".to_owned(),
                view(&[(1, "one", "\\Seen"), (2, "two", ""), (4, "four", "")]),
            ),
            ("Archive".to_owned(), view(&[])),
        ]);
        let america = Views::from([(
            "INBOX".to_owned(),
            view(&[(1, "one", "\\Answered \\Seen"), (2, "two", "")]),
        )]);
        let shown = [
            ("asia", Err("refused".to_owned())),
            ("europe", Ok(europe.clone())),
            ("america", Ok(america)),
            ("africa", Ok(europe)),
        ];
        assert_eq!(
            message("they agree", 60, &views(&shown)),
            "waited 60 s until they agree; in the end the regions showed:\
             \n  asia: cannot be read: refused\
             \n  europe: Archive, UIDVALIDITY 7: 0 messages, UIDs\
             \n  europe: INBOX, UIDVALIDITY 7: 3 messages, UIDs 1 2 4\
             \n  america: INBOX, UIDVALIDITY 7: 2 messages, UIDs 1 2\
             \n    Archive is in europe, not in america\
             \n    INBOX, UID 1: \"one\" \\Answered \\Seen in america, \"one\" \\Seen in europe\
             \n    INBOX, UID 4: nothing in america, \"four\" in europe\
             \n  africa: Archive, UIDVALIDITY 7: 0 messages, UIDs\
             \n  africa: INBOX, UIDVALIDITY 7: 3 messages, UIDs 1 2 4"
        );
        assert_eq!(
            plain(&[("europe", vec!["america"]), ("america", vec![])]),
            "\n  europe: [\"america\"]\n  america: []"
        );
    }
}
