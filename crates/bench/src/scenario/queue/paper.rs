//! What the paper's authors measured: Brahneborg, Duvignau, Afzal, Mubeen, *GeoRep - Resilient Storage for Wide Area Networks*, 2022, section V.

use super::Network;

/// Of what machines and load these figures are.
pub(super) const SOURCE: &str = "The paper's (table 8; two nodes in cities: section V-D) are of one server with one virtual CPU for each node, on LevelDB, \
                                 of whose syncs it says nothing; Paxos is LibPaxos with two events a message.";

/// The f of its figures.
pub(super) const COPIES: usize = 1;

/// From three nodes to seven.
const LOCAL: [f64; 5] = [14_880.0, 23_246.0, 29_807.0, 32_762.0, 40_437.0];
const SEPARATED: [f64; 5] = [13_253.0, 13_230.0, 15_977.0, 21_345.0, 24_085.0];
const SEPARATED_TWO: f64 = 9_048.0;
const LOCAL_PAXOS: [f64; 5] = [22_827.0, 13_366.0, 16_021.0, 13_798.0, 9_343.0];
const SEPARATED_PAXOS: [f64; 5] = [756.0, 356.0, 217.0, 211.0, 243.0];

fn of(figures: [f64; 5], nodes: usize) -> Option<f64> {
    figures.get(nodes.checked_sub(3)?).copied()
}

/// GeoRep's messages a second.
pub(super) fn georep(network: Network, nodes: usize) -> Option<f64> {
    match network {
        Network::Local => of(LOCAL, nodes),
        Network::Cities if nodes == 2 => Some(SEPARATED_TWO),
        Network::Cities => of(SEPARATED, nodes),
    }
}

/// Those of Paxos.
pub(super) fn paxos(network: Network, nodes: usize) -> Option<f64> {
    match network {
        Network::Local => of(LOCAL_PAXOS, nodes),
        Network::Cities => of(SEPARATED_PAXOS, nodes),
    }
}
