//! Peers that could not be asked at the start what they remember of this node, or that a command did not ask which wrote to the store without a server.
//!
//! It goes on without their word, since a node that is alone serves. If its disk is an older one after all, what it writes meanwhile has numbers
//! under which they have other operations. The two cannot be told apart any more, and must not meet: by numbers alone each would take away what the
//! other has. So it is kept where the own logs ended at that start, each peer is asked again until it answers, and a disk that turns out to be older,
//! and was written to, does not start.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use whimbrel_cluster::NodeName;
use whimbrel_crdt::Incarnation;
use whimbrel_service::cluster::startup::UnverifiedPeers;

use super::{
    files::Files,
    roster_store::{State, logs_of},
    startup_identity::{older_than, remembered_by},
};
use crate::{clock::Clock, serve::StartError, store_calls::Store};

/// Before peers are asked again. Who is linked tells of the partitions that are open meanwhile.
const AGAIN: Duration = Duration::from_secs(5);
/// An answer takes some milliseconds, and a way.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Keeps where the logs of this incarnation end, before they are written to and not all were asked; what was kept for it before stays.
pub(super) async fn keep<S: Store>(
    files: &Files,
    store: &S,
    me: Incarnation,
) -> Result<(), StartError> {
    if files.unverified()?.is_some_and(|of| of.incarnation == me) {
        return Ok(());
    }
    let logs = logs_of(store, me).await;
    let logs = logs.map_err(|error| StartError::Store(error.to_string()))?;
    Ok(files.keep_unverified(&UnverifiedPeers::new(me, &logs))?)
}

/// Asks these peers until each has answered, or is no member any more.
pub(super) async fn ask_later<S: Store>(
    state: Arc<State<S>>,
    mut names: BTreeSet<NodeName>,
    clock: Clock,
) {
    let me = state.me();
    while !names.is_empty() {
        sleep(AGAIN).await;
        let peers = state.peers(&state.roster());
        names.retain(|name| peers.iter().any(|peer| peer.name == *name));
        for peer in &peers {
            if !names.contains(&peer.name) {
                continue;
            }
            let asking = remembered_by(&state, me, peer, clock);
            let Ok(Ok(answer)) = timeout(ANSWER_TIME_MAX, asking).await else {
                continue;
            };
            match older_than(&state, me, peer, &answer.remembered).await {
                Ok(None) => {
                    names.remove(&peer.name);
                }
                Ok(Some(because)) => return state.is_older(&because),
                Err(error) => tracing::warn!(%error, "cannot read the logs of this node"),
            }
        }
    }
    if let Err(error) = state.files.all_asked() {
        tracing::warn!(%error, "cannot record that all nodes have been asked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admin::{
            client::ask,
            protocol::{Answer, Question},
        },
        config::Config,
        node::DataDir,
        password::make_verifier,
        serve::{Server, Sockets},
    };

    fn config(data: &std::path::Path) -> Config {
        let text = format!(
            "[server]\ndata_dir = {data:?}\nhostname = 'localhost'\n[storage]\nfree_bytes_min = '0B'\n\
             [auth]\nargon2_memory = '1MiB'\nargon2_passes = 1\n[cluster]\nname = 'a'\n"
        );
        Config::parse(&text).unwrap()
    }

    async fn add(config: &Config, address: &str) -> Result<Answer, String> {
        let question = Question::AccountAdd {
            address: address.to_owned(),
            verifier: make_verifier(&config.auth, b"secret").unwrap(),
            scram: None,
        };
        let fatal = Arc::new(|reason: &str| panic!("{reason}"));
        let asked = ask(config, question, fatal).await;
        asked.map_err(|error| error.to_string())
    }

    async fn start(config: &Config) -> Result<Server, StartError> {
        let data = DataDir::open(&config.server.data_dir)?;
        let fatal = Arc::new(|reason: &str| panic!("{reason}"));
        Server::start(config, data, Sockets::none(), fatal, None).await
    }

    /// It asks nobody, and its disk may be an older one.
    #[tokio::test]
    async fn a_command_without_a_server_leaves_where_the_logs_ended() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        crate::cli::cluster::found(&config).await.unwrap();
        let files = Files::of(directory.path());
        let ends = || -> Option<Vec<u64>> {
            Some(files.unverified().unwrap()?.ends.into_values().collect())
        };
        assert_eq!(add(&config, "anne@example.org").await, Ok(Answer::Done {}));
        let none = Some(Vec::new());
        assert_eq!(ends(), none);
        // What was kept first is the earliest.
        assert_eq!(add(&config, "bert@example.org").await, Ok(Answer::Done {}));
        assert_eq!(ends(), none);

        // Nobody objects: it starts, and nothing is noted any more.
        assert!(start(&config).await.unwrap().stop().await);
        assert_eq!(ends(), None);
        assert_eq!(add(&config, "carl@example.org").await, Ok(Answer::Done {}));
        assert!(ends().unwrap().iter().any(|end| *end > 0));

        // Others know more of it.
        files.keep_renew("b has more").unwrap();
        let refused = start(&config).await.err().unwrap().to_string();
        assert!(refused.contains("operations were written"), "{refused}");
    }

    /// It was not written to since: the next start can go on under a new incarnation.
    #[tokio::test]
    async fn no_command_writes_to_a_disk_that_is_known_to_be_older() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        crate::cli::cluster::found(&config).await.unwrap();
        let files = Files::of(directory.path());
        files.keep_renew("b has more").unwrap();
        let refused = add(&config, "anne@example.org").await.unwrap_err();
        assert!(refused.contains("start the server"), "{refused}");
        assert_eq!(files.unverified().unwrap(), None);
        files.renewed().unwrap();
        assert_eq!(add(&config, "anne@example.org").await, Ok(Answer::Done {}));
    }
}
