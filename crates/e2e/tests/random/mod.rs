//! A random client: valid and invalid commands, cut connections, several sessions, against a model of the account that shares no code with
//! the server. No panic, no hang, no wrong tag, no wrong content.
//!
//! `WHIMBREL_E2E_COMMANDS` says how many commands (2,000 otherwise), `WHIMBREL_E2E_SEED` repeats them.
//!
//! Reading order: [`driver`] keeps sessions and judges replies; [`reads`], [`writes`], [`mailboxes`] and [`invalid`] are the commands.

mod driver;
mod invalid;
mod mailboxes;
mod reads;
mod writes;

use std::thread;

use driver::Driver;
use whimbrel_e2e::{
    process::number,
    random::Random,
    server::{ACCOUNTS, Server},
};

#[test]
fn random_commands() {
    let commands = number("WHIMBREL_E2E_COMMANDS", 2_000);
    let mut random = Random::new(Random::seed_from("WHIMBREL_E2E_SEED"));
    let mut server = Server::start_plain();
    let each = commands / ACCOUNTS.len();
    let drivers: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = ACCOUNTS
            .iter()
            .map(|account| {
                let random = Random::new(random.bits());
                let server = &server;
                scope.spawn(move || {
                    let mut driver = Driver::new(server, *account, random);
                    driver.run(each);
                    driver.into_account()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a mistake of the server"))
            .collect()
    });
    server.assert_no_panic();
    // What is true stays true over a restart.
    server.stop();
    server.start(&[]);
    for (account, credentials) in drivers.into_iter().zip(ACCOUNTS) {
        Driver::with(&server, *credentials, Random::new(1), account).compare_all();
    }
    server.stop();
}
