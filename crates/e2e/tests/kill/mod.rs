//! kill -9 under load: whatever was acknowledged is there after the restart, nothing is half there, and a client that caches by UID is
//! never deceived.
//!
//! The server's buffers are as small as they can be, so that tables are written and merged meanwhile; the files that each end leaves are checked whole.
//!
//! Several clients write at once (APPEND, STORE, MOVE, EXPUNGE, CREATE, DELETE, RENAME, deliveries by SMTP and LMTP); after a random
//! number of acknowledgements the process is killed, started again (sometimes killed once more while it recovers), and everything is
//! compared with the ledgers. `WHIMBREL_E2E_KILLS` says how often (10 otherwise), `WHIMBREL_E2E_SEED` repeats the choices.
//!
//! Reading order: [`ledger`] says what may be, [`worker`] writes, this file kills and compares.

mod ledger;
mod worker;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use ledger::{Found, Ledger};
use whimbrel_e2e::{
    imap::Node,
    message,
    process::{number, wait_for},
    random::Random,
    server::{ACCOUNTS, Builder, Server},
};

const WORKERS: usize = 4;

#[test]
fn acknowledged_writes_survive() {
    let kills = number("WHIMBREL_E2E_KILLS", 10);
    let mut random = Random::new(Random::seed_from("WHIMBREL_E2E_SEED"));
    let mut server = Builder::default()
        .set("storage", "write_buffer_bytes = \"1MiB\"")
        .start();
    let mut ledgers: Vec<Ledger> = (0..WORKERS)
        .map(|n| Ledger::new(n, n % ACCOUNTS.len()))
        .collect();
    let mut acknowledged = 0;
    for kill in 1..=kills {
        let acks = AtomicUsize::new(0);
        let target = 5 + random.below(300);
        thread::scope(|scope| {
            let workers: Vec<_> = ledgers
                .drain(..)
                .map(|ledger| {
                    let random = Random::new(random.bits());
                    let (acks, ports, tls) = (&acks, server.ports, server.tls.clone());
                    scope.spawn(move || worker::work(ledger, random, ports, &tls, acks))
                })
                .collect();
            wait_for("writes", || {
                // A worker that has ended has met something that is no kill: it says what when it is joined.
                (acks.load(Ordering::Relaxed) >= target
                    || workers.iter().any(thread::ScopedJoinHandle::is_finished))
                .then_some(())
            });
            server.kill();
            ledgers = workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker met a mistake of the server"))
                .collect();
        });
        acknowledged += acks.load(Ordering::Relaxed);
        while random.one_in(4) {
            server.launch(&[]);
            // Somewhere in its recovery; where, the clock chooses.
            thread::sleep(Duration::from_millis(random.bits() % 300));
            server.kill();
        }
        check_files(&server);
        server.start(&[]);
        compare(&server, &mut ledgers);
        println!(
            "kill {kill}: {} acknowledged, {} messages",
            acks.load(Ordering::Relaxed),
            ledgers.iter().map(Ledger::messages).sum::<usize>()
        );
        server.assert_no_panic();
    }
    assert!(acknowledged > kills, "hardly anything was written");
    assert!(tables(&server) > 0, "no buffer was ever full");
    // And an orderly end changes nothing either.
    server.stop();
    check_files(&server);
    server.start(&[]);
    compare(&server, &mut ledgers);
}

/// Tables of the tree of records.
fn tables(server: &Server) -> usize {
    let folder = server.path("data/store/lsm/keyspaces/2/tables");
    std::fs::read_dir(folder).unwrap().count()
}

/// No byte of what is on the disk is damaged; the torn end of a write that nobody was told about is no damage.
fn check_files(server: &Server) {
    let checked = server.admin(&["check"], "");
    let _ = checked.expect("a store without damage");
}

/// Compares the server with the ledgers, and lets them learn what it decided where it was free to.
fn compare(server: &Server, ledgers: &mut [Ledger]) {
    for (account, credentials) in ACCOUNTS.iter().enumerate() {
        let mut imap = server.login(*credentials).expect("login after the restart");
        let mut ours: Vec<&mut Ledger> = ledgers
            .iter_mut()
            .filter(|ledger| ledger.account == account)
            .collect();
        wait_for("what was accepted to be delivered", || {
            let found = look(server, &mut imap);
            if ours.iter().any(|ledger| ledger.waits_for_delivery(&found)) {
                return None;
            }
            for name in found.messages.keys() {
                assert!(
                    ours.iter().any(|ledger| ledger.wrote(name)),
                    "{name} is there and nobody wrote it"
                );
            }
            for ledger in &mut ours {
                if let Err(wrong) = ledger.compare(&found) {
                    panic!("{wrong}\nend of the log:\n{}", server.tail());
                }
            }
            Some(())
        });
    }
}

/// Everything in an account. All bytes must be those of their names.
fn look(server: &Server, imap: &mut whimbrel_e2e::imap::Imap) -> Found {
    let mut found = Found::default();
    let listed = imap.command("LIST \"\" *").unwrap().ok("LIST");
    for nodes in listed.data("LIST") {
        let attributes = match nodes.first() {
            Some(Node::List(list)) => list.as_slice(),
            _ => &[],
        };
        let name = nodes.get(2).map(Node::text).unwrap();
        if attributes
            .iter()
            .any(|attribute| attribute.is("\\NonExistent") || attribute.is("\\Noselect"))
        {
            continue;
        }
        let contents = server.contents(imap, &name).unwrap();
        let mut cached = Vec::new();
        for message in &contents.messages {
            let of = message::name_of(&message.bytes)
                .unwrap_or_else(|| panic!("half a message in {name}: {message:?}"));
            found
                .messages
                .entry(of.clone())
                .or_default()
                .push((name.clone(), message.clone()));
            cached.push((message.uid, of));
        }
        found
            .mailboxes
            .insert(name, (contents.validity, contents.next, cached));
    }
    found
}
