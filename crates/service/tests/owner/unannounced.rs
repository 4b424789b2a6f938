//! What a session was to be told and was not, as the commit failed that its answer waited for: it is told next time.

use whimbrel_service::api::{Changes, Failure, Flags, MailboxCall, Reply, SessionId};

use super::world::{World, name};

const WATCHER: SessionId = SessionId(3);

fn changes(world: &mut World, expunges: bool) -> Result<Changes, Failure> {
    let session = WATCHER;
    let since = 0;
    let call = MailboxCall::Changes {
        session,
        since,
        expunges,
    };
    match world.call(call) {
        Reply::Changes(changes) => Ok(changes),
        Reply::Failed(failure) => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn watched() -> World {
    let mut world = World::new();
    world.fill("INBOX", 2);
    world.call(MailboxCall::Select {
        session: WATCHER,
        name: name("INBOX"),
        read_only: false,
    });
    world
}

/// The answer tells a UIDNEXT that nobody was told, and so it waits for a commit, which is refused; what the session asks next is what it was not told.
#[test]
pub(crate) fn new_mail_is_told_after_a_full_disk() {
    let mut world = watched();
    world.deliver(3);
    for _ in 0..2 {
        world.refuses = 1;
        assert_eq!(changes(&mut world, true).err(), Some(Failure::Storage));
    }
    let told = changes(&mut world, true).unwrap();
    assert_eq!(told.arrived.len(), 1);
    assert_eq!(changes(&mut world, true).unwrap().arrived, []);
}

/// So it is of what has vanished.
#[test]
fn what_has_vanished_is_told_after_a_full_disk() {
    let mut world = watched();
    let uids = world.uids("INBOX");
    let remove = MailboxCall::Remove {
        name: name("INBOX"),
        uids: uids.clone(),
    };
    world.call(remove);
    world.deliver(3);
    world.refuses = 1;
    assert_eq!(changes(&mut world, true).err(), Some(Failure::Storage));
    let told = changes(&mut world, true).unwrap();
    assert_eq!((told.vanished, told.arrived.len()), (uids, 1));
    assert_eq!(changes(&mut world, true).unwrap().vanished, []);
}

/// What was told before the commit that failed is told once.
#[test]
fn what_was_told_is_not_told_again() {
    let mut world = watched();
    world.deliver(3);
    assert_eq!(changes(&mut world, true).unwrap().arrived.len(), 1);
    world.refuses = 1;
    let refused = world.append("INBOX", 1, 1, &Flags::none());
    assert!(matches!(refused, Reply::Failed(Failure::Storage)));
    assert_eq!(changes(&mut world, true).unwrap().arrived, []);
}
