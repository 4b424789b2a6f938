//! IMAP on the admin socket: the administrator's session for an account, for import and export.
//!
//! It is a session like any other, counted and bounded as those are, except that it needs no password and may import messages.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use tokio::net::UnixStream;
use whimbrel_frontend::session::{Peer, Session};
use whimbrel_mailbox::AccountId;

use crate::{
    driver::{Connection, Context},
    listen::{Places, Protocol},
    metrics::{self, Stage},
    registry::Registry,
    store_calls::Store,
    transport::Transport,
};

/// Makes the administrator's sessions.
pub type MakeSession = Arc<dyn Fn(Peer, AccountId) -> Box<dyn Session + Send> + Send + Sync>;

/// Serves a connection on which a session was granted.
pub type Serve = Box<dyn FnOnce(UnixStream) + Send>;

/// Grants a session of an account; the error is the reason why not.
pub type Sessions = Arc<dyn Fn(AccountId) -> Result<Serve, &'static str> + Send + Sync>;

pub(crate) fn sessions<S: Store>(
    context: Arc<Context<S>>,
    places: Arc<Places>,
    registry: Arc<Registry>,
    make: MakeSession,
) -> Sessions {
    Arc::new(move |account| {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let place = places
            .enter(address, false)
            .map_err(|_| "too many connections, try again later")?;
        let mut registered = registry.enter();
        registered.is_administrators();
        if !registered.log_in(account) {
            return Err("the account has as many connections as it may");
        }
        let session = make(
            Peer {
                session: registered.id,
                address,
                tls: None,
            },
            account,
        );
        let connection = Connection {
            session,
            address,
            protocol: Protocol::Imap,
            registered,
            place,
            context: Arc::clone(&context),
            open: metrics::open(Protocol::Imap.name(), Stage::Authenticated),
        };
        Ok(Box::new(move |stream| {
            tokio::spawn(connection.run(Transport::Local(stream)));
        }))
    })
}
