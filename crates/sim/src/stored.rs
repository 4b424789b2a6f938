//! What a node has stored, held against its own logs as `whimbrel check` does.

use whimbrel_service::{
    api::AccountId,
    log::{AWAY_KEY, POSITION_KEY, store_partition},
    owner::keys,
    verify::{self, Replay},
};
use whimbrel_storage::{KeyRange, LogPage, Origin, ScanLimit, memory::Memory};

/// Bytes of a log that are read at a time.
const PAGE_BYTES: usize = 1 << 20;

/// What is wrong with the rows of an account; else whether they were held against all that was ever done to it.
pub(crate) fn account(disk: &Memory, account: AccountId) -> Result<bool, String> {
    let partition = keys::partition_of(account);
    let store = store_partition(partition);
    let mut rows = Vec::new();
    let mut next = Some(KeyRange::all());
    while let Some(range) = next {
        let page = disk.scan(store, &range, ScanLimit::default());
        rows.extend(page.rows);
        next = page.next.map(|start| KeyRange { start, ..range });
    }
    if rows.iter().any(|(key, _)| key == AWAY_KEY) {
        return Ok(false);
    }
    let logs = disk.log_positions(store);
    let position = rows.iter().find(|(key, _)| key == POSITION_KEY);
    let applied = verify::position(position.map(|(_, row)| row), &logs);
    let applied = applied.map_err(|fault| fault.what)?;
    let mut batches = Vec::new();
    for (origin, log) in &logs {
        let read = |from: u64| -> LogPage { disk.read_log(store, *origin, from, PAGE_BYTES) };
        let mut next = Some(log.low);
        while let Some(from) = next.filter(|from| *from < log.next) {
            let page = read(from);
            for entry in &page.entries {
                batches.push(verify::batch(partition, entry)?);
            }
            next = page.next;
        }
    }
    let begins = |of: &Origin| {
        let mut all = batches.iter().filter(|batch| batch.origin.get() == of.0);
        all.any(|batch| Replay::is_begin(batch, account))
    };
    let begun: Vec<&Origin> = logs
        .iter()
        .map(|(of, _)| of)
        .filter(|of| begins(of))
        .collect();
    let whole = logs
        .iter()
        .all(|(of, log)| begun.contains(&of) || log.low <= 1);
    let mut replay = (whole && !begun.is_empty()).then(|| Replay::new(account));
    if let Some(replay) = &mut replay {
        batches.retain(|batch| applied.get(batch.origin) >= batch.last());
        for batch in verify::ordered(batches) {
            replay.take(&batch)?;
        }
    }
    let is_replayed = replay.is_some();
    let rows = rows.into_iter().map(|(key, value)| (key.to_vec(), value));
    let rows = rows.filter(|(key, _)| verify::account_of(key) == Some(account));
    let (faults, _) = verify::account(account, rows.collect(), &applied, replay);
    match faults.iter().find(|fault| fault.is_damage) {
        Some(fault) => Err(format!(
            "stored: row {:02x?} of account {account}: {}",
            fault.key, fault.what
        )),
        None => Ok(is_replayed),
    }
}
