//! Where the rows of an account lie in the store.

use bytes::Bytes;
use whimbrel_crdt::PartitionId;
use whimbrel_mailbox::{AccountId, LoadError, MessageId, RowKey};

/// Before every account row, so that nothing else of the partition is among them.
const ACCOUNT_ROW: u8 = b'a';

/// The partition of an account: the first byte of BLAKE3 of its id (docs/design.md#glossary).
#[must_use]
pub fn partition_of(account: AccountId) -> PartitionId {
    PartitionId::accounts(blake3::hash(&account.0).as_bytes()[0])
}

/// Key of one row.
#[must_use]
pub fn row_key(account: AccountId, row: &RowKey) -> Bytes {
    [&[ACCOUNT_ROW], &account.0[..], &row.to_bytes()]
        .concat()
        .into()
}

/// Key of the content row of a message.
#[must_use]
pub fn content_key(account: AccountId, origin: MessageId) -> Bytes {
    row_key(account, &RowKey::Content(origin))
}

/// What [`crate::api::Call::Contents`] answers with, from the value under [`content_key`].
///
/// # Errors
/// When the row is damaged.
pub fn content_of_row(value: &Bytes) -> Result<Bytes, LoadError> {
    whimbrel_mailbox::Content::summary_in(value).map(|summary| value.slice_ref(summary))
}

/// First key and first key beyond of the rows that are loaded with the account.
pub(super) fn loaded_range(account: AccountId) -> (Vec<u8>, Vec<u8>) {
    let prefix = [&[ACCOUNT_ROW], &account.0[..]].concat();
    let end = [prefix.as_slice(), &[RowKey::CONTENT_PREFIX]].concat();
    (prefix, end)
}

/// Before the number of a part of a batch that is held for an account: above all rows that make it.
const HELD_PREFIX: u8 = 0x90;

/// Key of the row that holds a part of a batch.
pub(super) fn held_key(account: AccountId, number: u64) -> Bytes {
    [
        &[ACCOUNT_ROW],
        &account.0[..],
        &[HELD_PREFIX],
        &number.to_be_bytes(),
    ]
    .concat()
    .into()
}

/// First key and first key beyond of what is held for the account.
pub(super) fn held_range(account: AccountId) -> (Vec<u8>, Vec<u8>) {
    let prefix = [&[ACCOUNT_ROW], &account.0[..]].concat();
    let first = [prefix.as_slice(), &[HELD_PREFIX]].concat();
    let end = [prefix.as_slice(), &[HELD_PREFIX + 1]].concat();
    (first, end)
}

/// Whether a row of an account holds a part of a batch.
pub(crate) fn is_held(key: &[u8]) -> bool {
    key.get(17) == Some(&HELD_PREFIX)
}

/// Before every row that came with a state and is not joined yet: then the state's name, and the key of the row at its donor.
const COMING: u8 = b'h';

/// First key and first key beyond of what a state is made of.
pub(super) fn state_range() -> (Vec<u8>, Vec<u8>) {
    (vec![ACCOUNT_ROW], vec![ACCOUNT_ROW + 1])
}

/// Whether a row goes with a state: what was announced and shown under names is each node's own.
pub(super) fn is_of_state(key: &[u8]) -> bool {
    let own = matches!(row_of_key(key), Ok(RowKey::Mark(_) | RowKey::Vanished(_)));
    key.first() == Some(&ACCOUNT_ROW) && key.len() > 17 && !is_held(key) && !own
}

/// Key under which a row of a state is kept until it is joined.
pub(crate) fn coming_key(state: u64, key: &[u8]) -> Vec<u8> {
    [&[COMING], &state.to_be_bytes()[..], key].concat()
}

/// The key of a coming row at its donor.
pub(crate) fn key_of_coming(key: &[u8]) -> &[u8] {
    key.get(9..).unwrap_or_default()
}

/// The state with which a coming row came.
pub(crate) fn state_of_coming(key: &[u8]) -> u64 {
    let name = key.get(1..9).and_then(|name| name.try_into().ok());
    name.map_or(0, u64::from_be_bytes)
}

/// First key and first key beyond of all rows of a state.
pub(super) fn coming_range(state: u64) -> (Vec<u8>, Vec<u8>) {
    (coming_key(state, &[]), coming_key(state, &[0xff]))
}

/// Of an account's coming rows: all, those that are loaded with it, or those of contents.
pub(super) fn coming_of(state: u64, (from, to): (Vec<u8>, Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (coming_key(state, &from), coming_key(state, &to))
}

/// First key and first key beyond of the content rows of the account.
pub(super) fn content_range(account: AccountId) -> (Vec<u8>, Vec<u8>) {
    let (_, from) = loaded_range(account);
    let (to, _) = held_range(account);
    (from, to)
}

/// Whether a row is one that came with a state and is not joined yet.
#[must_use]
pub fn is_coming(key: &[u8]) -> bool {
    key.first() == Some(&COMING)
}

/// First key and first key beyond of all rows of the account.
pub(super) fn whole_range(account: AccountId) -> (Vec<u8>, Vec<u8>) {
    let prefix = [&[ACCOUNT_ROW], &account.0[..]].concat();
    let end = [prefix.as_slice(), &[0xff; 64]].concat();
    (prefix, end)
}

/// The account that a row of a partition belongs to; `None`: it is no account's.
pub(crate) fn account_of_key(key: &[u8]) -> Option<AccountId> {
    let (tag, rest) = key.split_first()?;
    (*tag == ACCOUNT_ROW).then_some(AccountId(*rest.first_chunk()?))
}

/// The inverse of [`row_key`] for a key of this account.
pub(crate) fn row_of_key(key: &[u8]) -> Result<RowKey, LoadError> {
    RowKey::from_bytes(key.get(17..).unwrap_or_default())
}
