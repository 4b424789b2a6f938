//! What one tuple costs, whatever the number of nodes: writes, frames, and who has it.

use whimbrel_queue::Frame;

use crate::world::{self, Message, SECOND, World};

#[test]
pub fn a_tuple_costs_the_same_in_every_cluster() {
    for count in [3, 5, 7] {
        for copies in 0..=2 {
            let mut world = World::new(count, world::config(copies));
            world.link_all();
            world.drain();
            world.pass(SECOND);
            world.drain();
            let before = world.synced;
            let id = world.put(0, true);
            world.tuples.get_mut(&id).unwrap().held_back = true;
            let stores = world
                .channels
                .values()
                .flatten()
                .filter(|message| matches!(message, Message::Frame(Frame::Store(_))));
            assert_eq!(stores.count(), copies, "{count} nodes");
            world.drain();
            assert!(world.tuples[&id].accepted);
            assert_eq!(world.synced - before, 1 + copies as u64, "{count} nodes");
            let holders = world
                .sites
                .iter()
                .filter(|site| site.disk.records.contains_key(&id));
            assert_eq!(holders.count(), 1 + copies, "{count} nodes");
            world.consume(0, id);
            world.done(0, id);
            world.drain();
            assert_eq!(
                world.synced - before,
                2 + 2 * copies as u64,
                "{count} nodes"
            );
            assert_eq!(world.leftover(), None);
            assert_eq!(world.breach, None);
        }
    }
}
