//! What the administrator can ask (`whimbrel account`, `whimbrel alias`), offline or through the admin socket.

use whimbrel_directory::{OwnQuota, QuotaChange};
use whimbrel_mailbox::AccountId;

use crate::scram::ScramKeys;

/// A question of the administrator.
#[derive(Clone, Debug)]
pub enum AdminCall {
    /// Adds an account; its domain becomes ours with it.
    AddAccount {
        /// `anne@example.org`
        address: String,
        /// argon2id verifier as a PHC string, computed by the driver.
        verifier: String,
        /// The keys of SCRAM for the same password, if there are to be any.
        scram: Option<ScramKeys>,
        /// The new account's id: 128 random bits from the driver.
        account: AccountId,
    },
    /// Removes an account and all of its mail.
    RemoveAccount {
        /// Which.
        address: String,
    },
    /// Sets a new verifier.
    SetVerifier {
        /// Which.
        address: String,
        /// PHC string.
        verifier: String,
        /// As of [`AdminCall::AddAccount`].
        scram: Option<ScramKeys>,
        /// Sessions that are logged in stay; else they end.
        keeps_sessions: bool,
    },
    /// Sets what an account may hold.
    SetQuota {
        /// Which.
        address: String,
        /// What changes.
        change: QuotaChange,
    },
    /// What an account may hold, where that is not what every account may.
    ShowQuota {
        /// Which.
        address: String,
    },
    /// All accounts.
    ListAccounts,
    /// Lets mail for `from` (an address, or `@domain` for all that has no other receiver) go to `to`, too.
    AddAlias {
        /// `info@example.org` or `@example.org`
        from: String,
        /// A local account or alias.
        to: String,
        /// If `from` is an account its mail goes to `to` instead.
        instead: bool,
    },
    /// Takes that back; without `to`, all of `from`'s.
    RemoveAlias {
        /// As added.
        from: String,
        /// As added.
        to: Option<String>,
    },
    /// All aliases.
    ListAliases,
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminReply {
    /// It is done, and on disk.
    Done,
    /// It is not: what to tell the administrator.
    Refused(String),
    /// To [`AdminCall::ListAccounts`].
    Accounts(Vec<AccountLine>),
    /// To [`AdminCall::ShowQuota`].
    Quota(OwnQuota),
    /// To [`AdminCall::ListAliases`]: from, to.
    Aliases(Vec<(String, String)>),
}

/// One account, for the administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountLine {
    /// Its address.
    pub address: String,
    /// Its id.
    pub account: AccountId,
    /// Seconds since 1970.
    pub created: u64,
    /// Whether another account, made earlier elsewhere, holds the address.
    pub set_aside: bool,
}
