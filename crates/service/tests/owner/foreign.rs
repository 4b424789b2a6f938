//! What another node did, in commits that the store takes.

use whimbrel_mailbox::RowKey;

use crate::pair::Pair;

/// Node 1 has told a UIDNEXT of the new name that is above all of the messages: they go from view there, and come again under new UIDs.
#[test]
fn a_foreign_rename_of_many_messages_is_no_great_commit() {
    const MESSAGES: usize = 70_000;
    let mut pair = Pair::new();
    pair.create(0, "old");
    for _ in 0..MESSAGES / 1000 {
        pair.append(0, "old", 1000);
    }
    pair.settle();
    pair.unlink();
    pair.create(1, "new");
    pair.append(1, "new", 1);
    let told = pair.uids(1, "new");
    pair.rename(0, "old", "new");
    pair.link();
    pair.settle();
    let uids = pair.uids(1, "new");
    assert_eq!(uids.len(), MESSAGES + 1);
    assert!(uids.iter().all(|uid| *uid >= told[0]));
    assert_eq!(pair.uids(0, "new"), uids);
    pair.restart(1);
    pair.settle();
    assert_eq!(pair.uids(1, "new"), uids);
    let rows = pair.nodes[1].rows_of(|row| matches!(row, RowKey::Message(_)));
    assert_eq!(rows.len(), MESSAGES + 1);
}
