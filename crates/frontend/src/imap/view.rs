//! What a session knows of the selected mailbox: one UID a message, and what the client was told.
//!
//! A message's sequence number is its place in [`View::uids`] plus one. They change only where EXPUNGE and EXISTS are
//! written (see [`super::sync`]), so a place found at the begin of a command holds to its end.

use whimbrel_imap::core::{Flag as WireFlag, Keyword as WireKeyword, MessageSet, SequenceSet};
use whimbrel_service::api::{Flag, Flags, Keyword, MailboxId, MailboxName, Row, Selected, Uids};

use super::{packed, ranges::Ranges};

/// The selected mailbox as the client sees it.
pub(super) struct View {
    pub(super) name: MailboxName,
    pub(super) id: MailboxId,
    /// Selected by EXAMINE.
    pub(super) read_only: bool,
    /// UIDs, ascending; shared with the account and other sessions until one of them changes its own.
    pub(super) uids: Uids,
    pub(super) uid_validity: u32,
    pub(super) uid_next: u32,
    pub(super) highest_modseq: u64,
    /// Up to where changes were told.
    pub(super) as_of: u64,
    /// Up to here the client knows everything: less than HIGHESTMODSEQ when an EXPUNGE could not be told, or not all has been told yet.
    pub(super) known_to: u64,
    /// Keywords that FLAGS has told, sorted.
    pub(super) keywords: Vec<Keyword>,
    /// `$` (RFC 5182) as inclusive ranges of UIDs. What comes later has a greater UID than all of them, and what goes leaves them, so
    /// that they need no care.
    pub(super) saved: Vec<(u32, u32)>,
    /// Something has changed that the client was perhaps not told.
    pub(super) dirty: bool,
    /// Own flag changes that were told (or must not be) with the MODSEQ they got: UID and MODSEQ, ascending by UID.
    pub(super) told: Vec<(u32, u64)>,
    /// Who has enabled QRESYNC was told a HIGHESTMODSEQ below what it has seen, because an EXPUNGE could not be told.
    pub(super) held_back: bool,
    /// This session has deleted or renamed the mailbox: it goes back to the authenticated state without ado.
    pub(super) left: bool,
    /// The UIDNEXT that was told here before this session, until the client may have a UID from it: a greater one it has from another node.
    pub(super) told_before: Option<u32>,
    /// In IDLE: [`View::uids`] is empty.
    resting: Option<Resting>,
}

/// Where the UIDs are while a session holds no index.
enum Resting {
    /// Here, packed.
    Packed(Box<[u8]>),
    /// With the owner: [`whimbrel_service::api::MailboxCall::Known`].
    Away,
}

/// Longer than this, packed UIDs are not kept: as much as the rest of an idle session takes.
const PACKED_BYTES_MAX: usize = 1024;

/// A sequence number beyond the number of messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoSuchNumber;

impl View {
    pub(super) fn new(
        name: MailboxName,
        read_only: bool,
        selected: Selected,
        keywords_max: usize,
    ) -> View {
        let mut keywords = selected.keywords;
        keywords.sort();
        keywords.dedup();
        keywords.truncate(keywords_max);
        View {
            name,
            id: selected.status.id,
            read_only,
            uids: selected.uids,
            uid_validity: selected.status.uid_validity,
            uid_next: selected.status.uid_next,
            highest_modseq: selected.status.highest_modseq,
            as_of: selected.as_of,
            known_to: selected.status.highest_modseq,
            told_before: Some(selected.told),
            keywords,
            saved: Vec::new(),
            dirty: false,
            told: Vec::new(),
            held_back: false,
            left: false,
            resting: None,
        }
    }

    /// Holds no index until [`View::wake`] or [`View::recall`]; nothing may be asked of it meanwhile.
    pub(super) fn rest(&mut self) {
        let uids = std::mem::take(&mut self.uids);
        let packed = packed::pack(uids.iter());
        // The owner knows what the client knows when all was told.
        self.resting = Some(if packed.len() <= PACKED_BYTES_MAX || self.dirty {
            Resting::Packed(packed)
        } else {
            Resting::Away
        });
        self.told.shrink_to_fit();
    }

    /// As it was before [`View::rest`], if it rests. False: the owner is to be asked first, and told to [`View::recall`].
    pub(super) fn wake(&mut self) -> bool {
        match &self.resting {
            None => true,
            Some(Resting::Packed(packed)) => {
                self.uids = packed::unpack(packed).collect();
                self.resting = None;
                true
            }
            Some(Resting::Away) => false,
        }
    }

    /// Wakes with what the owner says.
    pub(super) fn recall(&mut self, uids: Vec<u32>) {
        self.uids = Uids::from(&*uids);
        self.resting = None;
    }

    /// How many messages.
    pub(super) fn count(&self) -> u32 {
        self.uids.len() as u32
    }

    /// The UID at a place.
    pub(super) fn uid(&self, place: u32) -> u32 {
        self.uids
            .get(place as usize)
            .expect("places are of messages that are there")
    }

    /// The place of a UID.
    pub(super) fn place(&self, uid: u32) -> Option<u32> {
        self.uids.place(uid).map(|place| place as u32)
    }

    /// The places that a set names. A UID that does not exist "is ignored without any error message" (RFC 9051, 6.4.9); for a
    /// sequence number "greater than the number of messages" the answer is BAD (RFC 9051, 9, seq-number).
    pub(super) fn places(&self, set: &MessageSet, uid: bool) -> Result<Ranges, NoSuchNumber> {
        match set {
            MessageSet::Saved => Ok(self.places_of_saved()),
            MessageSet::Numbers(set) if uid => Ok(self.places_of_set(set)),
            MessageSet::Numbers(set) => {
                let count = self.count();
                let beyond = set.greatest_named().is_some_and(|n| n > count)
                    || (set.star().is_some() && count == 0);
                if beyond {
                    Err(NoSuchNumber)
                } else {
                    Ok(self.clipped(set))
                }
            }
            MessageSet::NumbersAndSaved(set) => {
                let numbers = self.places(&MessageSet::Numbers(set.clone()), uid)?;
                Ok(numbers.or(&self.places_of_saved()))
            }
        }
    }

    /// As [`View::places`], for SEARCH: numbers beyond the last message match nothing.
    pub(super) fn places_clipped(&self, set: &MessageSet, uid: bool) -> Ranges {
        match set {
            MessageSet::Numbers(set) if !uid => self.clipped(set),
            MessageSet::NumbersAndSaved(set) if !uid => {
                self.clipped(set).or(&self.places_of_saved())
            }
            _ => self.places(set, true).unwrap_or_default(),
        }
    }

    fn places_of_saved(&self) -> Ranges {
        self.places_of_uids(self.saved.iter().copied())
    }

    fn clipped(&self, set: &SequenceSet) -> Ranges {
        let count = self.count();
        let mut places = Ranges::default();
        if count > 0 {
            for (first, last) in set.resolve(count) {
                places.push(first - 1, last.min(count));
            }
        }
        places
    }

    /// The places of these UIDs (ascending; unknown ones do not matter).
    pub(super) fn places_of_list(&self, uids: &[u32]) -> Ranges {
        self.places_of_uids(uids.iter().map(|&uid| (uid, uid)))
    }

    /// The UIDs that a set names, there or not, as ranges. `*` is the greatest that there ever was: a client that names all it may know with
    /// `1:*` wants to hear of the last ones, too, when just they are gone.
    pub(super) fn known(&self, set: &MessageSet) -> Vec<(u32, u32)> {
        let largest = self.uid_next.saturating_sub(1).max(1);
        match set {
            MessageSet::Saved => self.saved.clone(),
            MessageSet::Numbers(set) => set.resolve(largest).collect(),
            MessageSet::NumbersAndSaved(set) => {
                let saved = self.saved.iter().copied();
                let all = SequenceSet::from_ranges(set.resolve(largest).chain(saved));
                all.ranges().to_vec()
            }
        }
    }

    /// The greatest UID of which a client tells the right sequence number: "the client knows of any expunges up to, and including, the
    /// message" (RFC 7162, 3.2.5.2). 0 if there is none. `numbers` and `uids` have as many elements; costs no more than the messages there are.
    pub(super) fn matched(&self, numbers: &SequenceSet, uids: &SequenceSet) -> u32 {
        let count = self.count();
        let numbers = numbers
            .ranges()
            .iter()
            .flat_map(|&(first, last)| first..=last);
        let uids = uids.ranges().iter().flat_map(|&(first, last)| first..=last);
        numbers
            .zip(uids)
            .take_while(|&(number, _)| number <= count)
            .filter(|&(number, uid)| self.uid(number - 1) == uid)
            .last()
            .map_or(0, |(_, uid)| uid)
    }

    fn places_of_set(&self, set: &SequenceSet) -> Ranges {
        // "or, if the mailbox is empty, the mailbox's current UIDNEXT value" (RFC 9051, 9): names no message either way.
        let largest = self.uids.last().unwrap_or(self.uid_next.max(1));
        self.places_of_uids(set.resolve(largest))
    }

    /// `ranges` ascend.
    fn places_of_uids(&self, ranges: impl Iterator<Item = (u32, u32)>) -> Ranges {
        let mut places = Ranges::default();
        for (first, last) in ranges {
            let from = self.uids.place_from(first);
            let end = match self.uids.get(from) {
                Some(uid) if uid > last => from,
                // Most ranges are one message.
                Some(uid) if uid == last => from + 1,
                _ => last
                    .checked_add(1)
                    .map_or(self.uids.len(), |next| self.uids.place_from(next)),
            };
            places.push(from as u32, end as u32);
        }
        places
    }

    /// Removes these UIDs (ascending; unknown ones do not matter); of each that was there, `told` learns the sequence number that it had
    /// before, and the UID.
    pub(super) fn remove(&mut self, uids: &[u32], mut told: impl FnMut(u32, u32)) {
        self.uids
            .remove_all(uids, |place, uid| told(place as u32 + 1, uid));
    }

    /// The UIDs known here that are not among `present` (ascending).
    pub(super) fn missing_from(&self, present: &[u32]) -> Vec<u32> {
        let mut present = present.iter().copied().peekable();
        let mut missing = Vec::new();
        for uid in self.uids.iter() {
            while present.peek().is_some_and(|&p| p < uid) {
                present.next();
            }
            if present.peek() != Some(&uid) {
                missing.push(uid);
            }
        }
        missing
    }

    /// Adds new UIDs (ascending); says whether there were any.
    pub(super) fn arrive(&mut self, uids: &[u32]) -> bool {
        let last = self.uids.last().unwrap_or(0);
        let new = &uids[uids.partition_point(|&uid| uid <= last)..];
        for &uid in new {
            self.uids.insert(uid);
        }
        !new.is_empty()
    }

    /// Remembers keywords of messages; says whether one is new, so that FLAGS is due.
    pub(super) fn learn_keywords(&mut self, rows: &[Row], keywords_max: usize) -> bool {
        let mut new = false;
        for keyword in rows.iter().flat_map(|row| row.flags.keywords()) {
            let known = self.keywords.binary_search_by(|of| of.cmp_as_flag(keyword));
            if let Err(at) = known
                && self.keywords.len() < keywords_max
            {
                self.keywords.insert(at, keyword.clone());
                new = true;
            }
        }
        new
    }

    /// The flags of the FLAGS response.
    pub(super) fn flags(&self) -> Vec<WireFlag> {
        let mut flags = vec![
            WireFlag::Answered,
            WireFlag::Flagged,
            WireFlag::Deleted,
            WireFlag::Seen,
            WireFlag::Draft,
        ];
        flags.extend(self.keywords.iter().filter_map(wire_keyword));
        flags
    }
}

fn wire_keyword(keyword: &Keyword) -> Option<WireFlag> {
    WireKeyword::new(keyword.as_str().as_bytes()).map(WireFlag::Keyword)
}

/// Flags as the encoder wants them.
pub(super) fn wire_flags(flags: &Flags) -> Vec<WireFlag> {
    let mut out = Vec::new();
    for (flag, wire) in [
        (Flag::Answered, WireFlag::Answered),
        (Flag::Flagged, WireFlag::Flagged),
        (Flag::Deleted, WireFlag::Deleted),
        (Flag::Seen, WireFlag::Seen),
        (Flag::Draft, WireFlag::Draft),
    ] {
        if flags.contains(&flag) {
            out.push(wire);
        }
    }
    out.extend(flags.keywords().iter().filter_map(wire_keyword));
    out
}

/// Flags as the service wants them.
pub(super) fn service_flags(flags: &[WireFlag]) -> Flags {
    flags
        .iter()
        .filter_map(|flag| match flag {
            WireFlag::Answered => Some(Flag::Answered),
            WireFlag::Flagged => Some(Flag::Flagged),
            WireFlag::Deleted => Some(Flag::Deleted),
            WireFlag::Seen => Some(Flag::Seen),
            WireFlag::Draft => Some(Flag::Draft),
            WireFlag::Keyword(keyword) => Keyword::new(keyword.as_str()).map(Flag::Keyword),
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use whimbrel_service::api::{MailboxId, Status};

    /// The view of a mailbox with these UIDs.
    pub(in crate::imap) fn view(uids: Vec<u32>) -> View {
        let status = Status {
            id: MailboxId::inbox(),
            uid_validity: 1,
            uid_next: uids.last().map_or(1, |uid| uid + 1),
            messages: uids.len() as u32,
            unseen: 0,
            deleted: 0,
            size: 0,
            deleted_size: 0,
            open_ends: 0,
            highest_modseq: 1,
        };
        let selected = Selected {
            status,
            uids: Uids::from(&*uids),
            first_unseen: None,
            keywords: Vec::new(),
            as_of: 0,
            told: 1,
        };
        View::new(MailboxName::inbox(), false, selected, 10)
    }

    fn set(text: &str) -> MessageSet {
        MessageSet::Numbers(SequenceSet::parse(text.as_bytes(), 100).unwrap())
    }

    #[track_caller]
    fn check(uids: &[u32], text: &str, uid: bool, expected: Option<&[u32]>) {
        let places = view(uids.to_vec()).places(&set(text), uid);
        assert_eq!(
            places
                .ok()
                .map(|places| places.iter().collect::<Vec<_>>())
                .as_deref(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn sets_name_places() {
        check(&[64, 128, 192], "1:2", false, Some(&[0, 1]));
        check(&[64, 128, 192], "*", false, Some(&[2]));
        check(&[64, 128, 192], "3:*", false, Some(&[2]));
        check(&[64, 128, 192], "4", false, None);
        check(&[64, 128, 192], "2:4", false, None);
        check(&[], "1", false, None);
        check(&[], "*", false, None);
        check(&[], "*", true, Some(&[]));
        check(&[], "1:*", true, Some(&[]));
        check(&[64, 128, 192], "64,192", true, Some(&[0, 2]));
        check(&[64, 128, 192], "*", true, Some(&[2]));
        // RFC 9051, 9: "a UID sequence range of 3291:* includes the UID of the last message in the mailbox, even if that value is
        // less than 3291".
        check(&[64, 128, 192], "3291:*", true, Some(&[2]));
        check(&[64, 128, 192], "65:127", true, Some(&[]));
        check(&[64, 128, 192], "1:4000000000", true, Some(&[0, 1, 2]));
        assert_eq!(
            view(vec![64]).places_clipped(&set("1:9"), false),
            Ranges::one(0, 1)
        );
        assert_eq!(
            view(vec![]).places_clipped(&set("1:*"), false),
            Ranges::default()
        );
    }

    proptest! {
        #[test]
        fn uid_sets_like_a_filter(
            uids in proptest::collection::btree_set(1u32..300, 0..60),
            ranges in proptest::collection::vec((1u32..310, 1u32..40), 1..12),
        ) {
            let uids: Vec<u32> = uids.into_iter().collect();
            let set = SequenceSet::from_ranges(ranges.iter().map(|&(first, len)| (first, first + len - 1)));
            let places = view(uids.clone()).places(&MessageSet::Numbers(set.clone()), true).unwrap();
            let expected: Vec<u32> = (0..uids.len() as u32).filter(|&p| set.contains(uids[p as usize], 0)).collect();
            prop_assert_eq!(places.iter().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn removed_messages_are_told_by_numbers_that_hold(
            uids in proptest::collection::btree_set(1u32..100, 0..40),
            gone in proptest::collection::btree_set(1u32..100, 0..40),
        ) {
            let mut view = view(uids.iter().copied().collect());
            let mut client: Vec<u32> = uids.iter().copied().collect();
            let mut numbers = Vec::new();
            view.remove(&gone.iter().copied().collect::<Vec<_>>(), |number, uid| numbers.push((number, uid)));
            for (number, uid) in numbers.into_iter().rev() {
                prop_assert_eq!(client.remove(number as usize - 1), uid);
                prop_assert!(gone.contains(&uid));
            }
            prop_assert_eq!(&client, &view.uids.iter().collect::<Vec<_>>());
            prop_assert!(client.iter().all(|uid| !gone.contains(uid)));
        }
    }

    #[test]
    fn numbers_that_a_client_remembers_rightly() {
        #[track_caller]
        fn check(numbers: &str, uids: &str, expected: u32) {
            let (MessageSet::Numbers(numbers), MessageSet::Numbers(uids)) =
                (set(numbers), set(uids))
            else {
                unreachable!("numbers")
            };
            assert_eq!(view(vec![64, 128, 192]).matched(&numbers, &uids), expected);
        }
        check("1", "64", 64);
        check("1:2", "64,128", 128);
        check("2:3", "64,128", 0);
        check("1,3", "64,256", 64);
        check("1,3", "65,192", 192);
        check("4", "192", 0);
        check("1:4294967295", "1:4294967295", 0);
    }

    #[test]
    fn who_rests_holds_no_index_and_wakes_as_before() {
        let uids: Vec<u32> = (1..10_000).map(|number| number * 64).collect();
        let mut view = view(uids.clone());
        view.rest();
        assert!(view.uids.is_empty());
        assert!(matches!(&view.resting, Some(Resting::Packed(packed)) if packed.len() < 16));
        assert!(view.wake());
        assert!(view.uids.iter().eq(uids.iter().copied()));
        assert!(view.wake());
        assert!(view.uids.iter().eq(uids.iter().copied()));
    }

    #[test]
    fn many_gaps_are_not_kept() {
        let uids: Vec<u32> = (1..10_000).filter(|n| n % 3 != 0).map(|n| n * 64).collect();
        let mut view = view(uids.clone());
        view.rest();
        assert!(!view.wake());
        view.recall(uids.clone());
        assert!(view.wake());
        assert!(view.uids.iter().eq(uids.iter().copied()));
        // What was not told is not known to the owner as told.
        view.dirty = true;
        view.rest();
        assert!(view.wake());
        assert!(view.uids.iter().eq(uids.iter().copied()));
    }

    #[test]
    fn what_is_known_does_not_arrive_again() {
        let mut view = view(vec![64, 128]);
        assert!(!view.arrive(&[64, 128]));
        assert!(view.arrive(&[128, 192]));
        assert!(view.uids.iter().eq([64, 128, 192]));
    }
}
