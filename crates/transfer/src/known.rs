//! Files that programs keep beside the mail, and that hold none: an import leaves them out, and says what they are.
//!
//! What is not in these lists may be mail: it is skipped, with a warning.

/// What a file beside the messages of a Maildir is, by its name.
#[must_use]
pub fn in_maildir(name: &str) -> Option<&'static str> {
    Some(match name {
        "maildirfolder" => "it marks a folder",
        "maildirsize" => "it counts for a quota",
        "subscriptions" | "subscriptions.lock" | "courierimapsubscribed" => "it lists folders",
        "dovecot-keywords" | "dovecot-keywords.lock" => "it names keywords",
        "courierimapuiddb" | "courierpop3dsizelist" => "it is an index of Courier",
        "courierimapacl" | "shared-maildirs" => "it is about sharing",
        ".mbsyncstate" | ".uidvalidity" | ".isyncuidmap.db" | ".customflags" => {
            "it is about synchronization"
        }
        _ if is_dovecots(name) => "it is an index of Dovecot",
        _ if name.starts_with(".mbsyncstate.") => "it is about synchronization",
        _ if has_end(name, ".msf") => "it is an index of Thunderbird",
        _ => return of_a_file_system(name),
    })
}

/// What a directory is that holds neither messages nor folders, by its name.
#[must_use]
pub fn directory(name: &str) -> Option<&'static str> {
    Some(match name {
        "courierimapkeywords" => "it holds keywords",
        "courierimaphieracl" => "it is about sharing",
        "xapian-indexes" | "lucene-indexes" | ".notmuch" => "it is an index for searches",
        ".imap" => "it is an index of Dovecot",
        _ if has_end(name, ".mozmsgs") => "it is an index for searches",
        _ => return None,
    })
}

/// What a file among mbox files is, by its name, when it is no mbox.
#[must_use]
pub fn in_mbox_tree(name: &str) -> Option<&'static str> {
    Some(match name {
        "popstate.dat" => "it lists what Thunderbird has fetched by POP3",
        "msgFilterRules.dat" | "rules.dat" => "it holds filters",
        "filterlog.html" | "junklog.html" => "it is a log of filters",
        "training.dat" | "traits.dat" => "it is about junk mail",
        "virtualFolders.dat" => "it holds searches",
        "feeds.json" | "feeditems.json" | "feeds.rdf" | "feeditems.rdf" => "it lists feeds",
        "table_of_contents" => "it is an index of Apple Mail",
        "Info.plist" | ".mailboxlist" | ".subscriptions" | ".subscriptions.lock" => {
            "it is about folders"
        }
        _ if is_dovecots(name) => "it is an index of Dovecot",
        _ if has_end(name, ".msf") || has_end(name, ".snm") => "it is an index of Thunderbird",
        _ if has_end(name, ".lock") => "it is a lock",
        // Of an export that was killed: the next one makes it anew.
        ".whimbrel-part" => "it is a part of a file",
        _ => return of_a_file_system(name),
    })
}

fn has_end(name: &str, end: &str) -> bool {
    name.len() > end.len() && name.ends_with(end)
}

fn is_dovecots(name: &str) -> bool {
    const BEGINS: [&str; 6] = [
        "dovecot.index",
        "dovecot.list.index",
        "dovecot.mailbox.log",
        "dovecot-uidlist",
        "dovecot-uidvalidity",
        "dovecot-acl",
    ];
    BEGINS.iter().any(|begin| name.starts_with(begin))
}

fn of_a_file_system(name: &str) -> Option<&'static str> {
    let is_known = matches!(
        name,
        ".DS_Store" | "Thumbs.db" | "desktop.ini" | ".directory"
    ) || name.starts_with("._");
    is_known.then_some("it is of a file manager")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_no_mail() {
        for name in [
            "maildirfolder",
            "dovecot-uidlist",
            "dovecot.index.log.2",
            "dovecot-uidvalidity.5f3e",
            ".DS_Store",
        ] {
            assert!(in_maildir(name).is_some(), "{name}");
        }
        for name in ["cur", "1700000000.x.host:2,S", "dovecot", ".Sent", "mail"] {
            assert_eq!(in_maildir(name), None, "{name}");
        }
        for name in ["Inbox.msf", "popstate.dat", "table_of_contents", "._Sent"] {
            assert!(in_mbox_tree(name).is_some(), "{name}");
        }
        for name in ["Inbox", ".msf", ".lock", "mbox", "maildirfolder", "x.mbox"] {
            assert_eq!(in_mbox_tree(name), None, "{name}");
        }
        assert!(directory("Inbox.mozmsgs").is_some() && directory(".imap").is_some());
        assert!(directory("Sent").is_none() && directory(".mozmsgs").is_none());
    }
}
