//! What the administrator's sessions import (`docs/decisions/0042`).

use std::{net::IpAddr, sync::Arc};

use whimbrel_frontend::{
    imap::{ImapSession, Limits},
    session::{Action, Peer, Session},
};
use whimbrel_service::{
    api::{AccountId, Call, EntryId, SessionId},
    machine::Now,
    owner::import_upload,
};

const ANNE: AccountId = AccountId([7; 16]);

/// Any node uploads the message under one name.
#[test]
fn an_upload_is_called_as_what_it_is_elsewhere() {
    let now = Now {
        wall_micros: 1_700_000_000_000_000,
        mono_micros: 1,
    };
    let peer = Peer {
        session: SessionId(3),
        address: IpAddr::from([127, 0, 0, 1]),
        tls: None,
    };
    let entry = "0123456789abcdef0123456789abcdef";
    let named = import_upload(
        EntryId(u128::from_str_radix(entry, 16).unwrap().to_be_bytes()),
        ANNE,
        &[0xab; 32],
    );
    let hash = "ab".repeat(32);
    for (import, upload) in [
        (format!(" X-WHIMBREL-IMPORT {entry} {hash}"), Some(named)),
        (String::new(), None),
    ] {
        let limits = Arc::new(Limits::default());
        let mut session = ImapSession::of_administrator(peer.clone(), limits, ANNE, now);
        let append = format!("a APPEND INBOX{import} {{3+}}\r\n");
        session.on_bytes(now, append.as_bytes());
        let mut created = None;
        while let Some(action) = session.poll(now) {
            if let Action::Call(call) = action {
                created = Some(call);
            }
        }
        assert!(
            matches!(created, Some(Call::BlobCreate(of)) if of == upload),
            "{created:?}"
        );
    }
}
