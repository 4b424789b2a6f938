//! What seeds draw.

use std::collections::BTreeMap;

/// So many seeds must have drawn all of it, wherever they begin: as many as CI runs.
pub const COVERED_AFTER_SEEDS: u64 = 500;

/// A client without QRESYNC overlooks at most one message in so many moves to another node, for a while or until it reads all again
/// (docs/replication.md): where many seeds say more, something is wrong that no single one shows.
pub const MOVES_PER_OVERLOOKED: u64 = 25;

/// What of that is counted.
pub(super) const OVERLOOKED: &str = "cluster: overlooked without QRESYNC, for a while or again";
pub(super) const OVERLOOKED_AFTER_CHANGES: &str = "cluster: overlooked, members having changed";
pub(super) const MOVED: &str = "cluster: client goes to another node";

/// Whether more was overlooked than that.
#[must_use]
pub fn overlooks(coverage: &BTreeMap<&'static str, u64>) -> bool {
    let count = |what: &str| coverage.get(what).copied().unwrap_or(0);
    let overlooked = count(OVERLOOKED) + count(OVERLOOKED_AFTER_CHANGES);
    overlooked * MOVES_PER_OVERLOOKED > count(MOVED)
}

/// Everything that a run of many seeds must have drawn.
pub const COVERAGE: [&str; 151] = [
    "cluster: looked at a guest",
    "cluster: APPEND",
    "cluster: APPEND of several",
    "cluster: COPY or MOVE",
    "cluster: CREATE",
    "cluster: DELETE",
    "cluster: DELETE goes on",
    "cluster: EXPUNGE",
    "cluster: EXPUNGE goes on",
    "cluster: LIST",
    "cluster: MOVE goes on",
    "cluster: NOOP",
    "cluster: RENAME",
    "cluster: RENAME goes on",
    "cluster: REPLACE",
    "cluster: SELECT",
    "cluster: STATUS",
    "cluster: STATUS of many",
    "cluster: STATUS tells what is shown",
    "cluster: STORE",
    "cluster: STORE, UNCHANGEDSINCE",
    "cluster: SUBSCRIBE",
    "cluster: UID EXPUNGE",
    "cluster: UNSELECT",
    "cluster: a dead node is removed",
    "cluster: a guest is used",
    "cluster: a living node is removed",
    "cluster: a node comes back to a partition",
    "cluster: a node has left a partition",
    "cluster: a node is let in",
    "cluster: a node is stopped",
    "cluster: a node stays after all",
    "cluster: a removed node comes back",
    "cluster: a removed node does not start",
    "cluster: holders are asked for the logs of a removed node",
    "cluster: a removed node hears of it",
    "cluster: account made",
    "cluster: account removed",
    "cluster: accounts joined",
    "cluster: alias added",
    "cluster: alias removed",
    "cluster: answered",
    "cluster: batches",
    "cluster: burst",
    "cluster: changes since a MODSEQ",
    "cluster: checked against whole logs",
    "cluster: claims made again",
    "cluster: claims made by takeovers",
    MOVED,
    "cluster: client moves at every step",
    "cluster: clock far off",
    "cluster: clock jump",
    "cluster: clocks skewed",
    "cluster: crash",
    "cluster: cut",
    "cluster: cut, a group",
    "cluster: cut, one link",
    "cluster: delivery",
    "cluster: delivery made by another node",
    "cluster: delivery to several addresses",
    "cluster: disk hangs",
    "cluster: disk lost",
    "cluster: disk lost under load",
    "cluster: disks go one after the other",
    "cluster: done on one node",
    "cluster: expunged and gone",
    "cluster: failed sync",
    "cluster: flags cleared",
    "cluster: flap",
    "cluster: frame of a stream that has ended",
    "cluster: free slots are given on",
    "cluster: full disk",
    "cluster: import",
    "cluster: import again",
    "cluster: import again, with other bytes",
    "cluster: import of several",
    "cluster: known UIDs",
    "cluster: latencies of regions",
    "cluster: logs are short",
    "cluster: nodes",
    "cluster: not confirmed",
    "cluster: older disk noticed by peers",
    "cluster: older disk put back",
    "cluster: one way lost",
    "cluster: own name, COPY",
    "cluster: own name, CREATE",
    "cluster: own name, DELETE",
    "cluster: own name, RENAME",
    "cluster: own name, SUBSCRIBE",
    "cluster: own name, gone",
    "cluster: own name, subscribed or not",
    "cluster: own name, there",
    "cluster: password set",
    "cluster: quiescent protocol clients",
    "cluster: refused commit",
    "cluster: refused for a clock",
    "cluster: removed by POP3",
    "cluster: search by flags",
    "cluster: slow disk",
    "cluster: states given",
    "cluster: states taken",
    "cluster: takeovers",
    "cluster: the logs of a removed node are closed",
    "cluster: there where others were removed",
    "cluster: too few nodes",
    "cluster: turned away by a new node",
    "cluster: two disks lost at once",
    "cluster: what a lost disk alone had is gone",
    "cluster: what a removed node acknowledged is held",
    "cluster: what a removed node alone had is gone",
    "cluster: written quietly",
    "client: APPEND",
    "client: COPY",
    "client: CREATE",
    "client: ENABLE",
    "client: EXAMINE",
    "client: EXPUNGE",
    "client: FETCH",
    "client: FETCH 1:*",
    "client: FETCH BODY",
    "client: FETCH CHANGEDSINCE",
    "client: FETCH of what is new",
    "client: IDLE",
    "client: LIST",
    "client: LOGIN",
    "client: MODIFIED",
    "client: MOVE",
    "client: NOOP",
    "client: RENAME",
    "client: SEARCH",
    "client: SELECT",
    "client: SELECT CONDSTORE",
    "client: SELECT QRESYNC",
    "client: STATUS",
    "client: STORE",
    "client: STORE UNCHANGEDSINCE",
    "client: STORE, silent",
    "client: client goes to another node",
    "client: connection broken",
    "client: flags resynchronised",
    "client: mailbox read",
    "client: mailbox resynchronised",
    "client: mailboxes known in the end",
    "client: moved",
    "client: moved with QRESYNC",
    "client: nobody to relay to",
    "client: relay ended",
    "client: relayed",
    "lost: acknowledged in the last moment",
    "lost: given up",
    "lost: told to come back, and taken over",
];

/// What may happen, and is too rare for so many seeds to show it: each takes two or three of the others, one on top of the other.
#[cfg(test)]
const RARE: [&str; 4] = [
    "cluster: a guest's UIDVALIDITY rises",
    "cluster: a removed node is removed again",
    "cluster: older disk without an account",
    "cluster: what rests on what nobody has is given up",
];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// All that is noted anywhere, as it stands in the sources.
    fn noted(directory: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                noted(&path, found);
            } else if !path.ends_with("coverage.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let texts = text.split('"').filter(|text| is_note(text));
                found.extend(texts.map(str::to_owned));
            }
        }
    }

    fn is_note(text: &str) -> bool {
        let kinds = ["cluster: ", "client: ", "lost: "];
        let is_named = |kind: &&str| text.len() > kind.len() && text.starts_with(*kind);
        kinds.iter().any(is_named) && !text.contains(['\n', '{'])
    }

    /// What is noted and not listed would never be missed.
    #[test]
    fn whatever_is_noted_is_listed() {
        let mut found = Vec::new();
        noted(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut found,
        );
        assert!(found.len() >= COVERAGE.len());
        let named = [OVERLOOKED, OVERLOOKED_AFTER_CHANGES, MOVED];
        for note in found
            .iter()
            .map(String::as_str)
            .filter(|note| !named.contains(note))
        {
            assert!(
                COVERAGE.contains(&note) || RARE.contains(&note),
                "{note:?} is in no list"
            );
        }
        for note in COVERAGE.iter().chain(&RARE) {
            let is_noted = found.iter().any(|found| found == note) || named.contains(note);
            assert!(is_noted, "{note:?} is never noted");
        }
    }
}
