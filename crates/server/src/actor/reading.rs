//! Reads for a machine, which run beside it.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use tokio::sync::mpsc;
use whimbrel_service::{
    machine::{Building, Input, Machine, Ticket},
    peers::PeerInput,
};
use whimbrel_storage::{KeyRange, LogStore, PartitionId, ScanLimit, StoreError};

use super::{Actor, Shared};
use crate::{
    metrics::{self, Fault},
    router::Work,
};

/// The way back to the machine.
type Pages = mpsc::Sender<(Input, Work)>;

impl<M, S> Actor<M, S>
where
    M: Machine + Send + 'static,
    S: LogStore + Clone,
{
    /// Runs a job beside the machine, when there is a place for it. A panic stops the node.
    fn beside<F>(&self, job: impl FnOnce(Arc<Shared<S>>, Pages, Work) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let shared = Arc::clone(&self.shared);
        let pages = self.to_pages.clone();
        let work = self.shared.board.work().begin();
        let guard = self.stops();
        tokio::spawn(async move {
            let _guard = guard;
            let Ok(_place) = Arc::clone(&shared.loads).acquire_owned().await else {
                return;
            };
            job(shared, pages, work).await;
        });
    }

    /// Reads from the store.
    pub(super) fn read(
        &self,
        ticket: Ticket,
        reading: impl Future<Output = Result<PeerInput, StoreError>> + Send + 'static,
    ) {
        self.beside(async move |shared, pages, work| {
            let input = match reading.await {
                Ok(input) => Input::Peer(input),
                Err(error) if error.stops_node() => {
                    (shared.fatal)(&format!("reading a log failed: {error}"));
                    return;
                }
                Err(error) => {
                    metrics::fault(Fault::Load);
                    Input::LoadFailed(ticket, error)
                }
            };
            // The machine is gone only when the node stops.
            let _ = pages.send((input, work)).await;
        });
    }

    /// Builds an account from its rows, on a thread of its own.
    pub(super) fn build(&self, ticket: Ticket, building: Building) {
        let guard = self.stops();
        self.beside(async move |_, pages, work| {
            let built = tokio::task::spawn_blocking(move || {
                let _guard = guard;
                Input::Built(ticket, building.run())
            });
            // A panic has stopped the node. The machine is gone only then, too.
            if let Ok(built) = built.await {
                let _ = pages.send((built, work)).await;
            }
        });
    }

    /// Scans rows, page by page.
    pub(super) fn load(&self, ticket: Ticket, partition: PartitionId, from: Vec<u8>, to: Vec<u8>) {
        self.beside(async move |shared, pages, work| {
            let mut range = KeyRange {
                start: Bytes::from(from),
                end: Some(Bytes::from(to)),
            };
            loop {
                let (input, next) = match shared
                    .store
                    .scan(partition, range.clone(), ScanLimit::default())
                    .await
                {
                    Ok(page) => {
                        let rows = page
                            .rows
                            .into_iter()
                            .map(|(key, value)| (key.into(), value))
                            .collect();
                        (
                            Input::Loaded {
                                ticket,
                                rows,
                                done: page.next.is_none(),
                            },
                            page.next,
                        )
                    }
                    Err(error) if error.stops_node() => {
                        (shared.fatal)(&format!("a scan failed: {error}"));
                        return;
                    }
                    Err(error) => {
                        metrics::fault(Fault::Load);
                        (Input::LoadFailed(ticket, error), None)
                    }
                };
                // The machine is gone only when the node stops.
                if pages.send((input, work.begin())).await.is_err() {
                    return;
                }
                match next {
                    Some(start) => range.start = start,
                    None => return,
                }
            }
        });
    }
}
