//! What follows from an older copy of a disk for what was announced after it was made.
//!
//! A node whose disk was replaced by an older copy does not know what it announced meanwhile. It goes on as another replica
//! would: under a new incarnation (so that no id is made twice) and with another slot (so that no UID is given twice, and no
//! MODSEQ of the lost time is believed). What is left is docs/design.md#rule-3: new UIDs must lie above every UIDNEXT of the lost time. So the first
//! time an account is loaded under the new incarnation, its counter leaps ahead and all marks follow
//! ([`Replica::plan_renewal`]); and a client that names an even greater UID of the lost time is believed
//! ([`Replica::lost`], docs/design.md#rule-6).
//!
//! When all slots are used up their round begins anew, and with it an epoch of every account (docs/design.md#rule-7).

use whimbrel_crdt::{Incarnation, mutants::broken};

use crate::{At, MailboxName, Replica, RowKey, Takeover};

/// Who this node is, for its accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreRecovery {
    /// The present incarnation: an account that was last loaded under another one is renewed.
    pub incarnation: Incarnation,
    /// How often the slots have been used up: an account that is behind begins a new epoch.
    pub round: u32,
    /// How far the counter leaps ahead: more UIDs than an account is given, beyond what its age allows (one in 32 s), between the
    /// making of a copy and the loss of what came after.
    pub lead: u32,
}

/// Under whom the account was loaded last, and what was lost before that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// `None`: not known; some other one.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) round: u32,
    /// The slot of that incarnation.
    pub(crate) slot: u8,
    /// MODSEQs below this one were given by an earlier incarnation, or are not of this history.
    pub(crate) since: u64,
    /// Slots of earlier incarnations, each of which may have announced more than is known here.
    pub(crate) retired: Vec<Retired>,
}

/// A slot that is used no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub(crate) slot: u8,
    /// Its claims are plausible up to this counter.
    pub(crate) counter_max: u32,
    /// What its holder surely knew: for each slot the greatest counter claimed when the copy was made.
    pub(crate) known: Vec<(u8, u32)>,
}

/// What a renewal comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The counter is at least this.
    Ahead(u32),
    /// A new epoch.
    Epoch,
}

impl Replica {
    /// A new account: nothing was announced of it before.
    pub fn begin(&mut self, renewal: &RestoreRecovery) {
        self.lineage = Lineage {
            incarnation: Some(renewal.incarnation),
            round: renewal.round,
            slot: self.slot,
            since: 0,
            retired: Vec::new(),
        };
        self.dirty_keys.insert(RowKey::Account);
    }

    /// The same of an account that this node may have had before and dropped: no MODSEQ of then is believed, which were all below the one of this time.
    pub fn begin_again(&mut self, renewal: &RestoreRecovery, above_micros: u64) {
        self.begin(renewal);
        self.lineage.since = self.modseq(above_micros);
    }

    /// Whether the account was last loaded under another incarnation.
    pub fn needs_renewal(&self, renewal: &RestoreRecovery) -> bool {
        let was_renewed = !self.lineage.retired.is_empty();
        let is_forgotten = was_renewed && broken("second-restore-not-renewed");
        self.lineage.incarnation != Some(renewal.incarnation) && !is_forgotten
    }

    /// Before something is joined to an account that is to be renewed, or applied to it: what comes so must not become visible below what was announced
    /// in the lost time. The marks rise at once to where the renewal will bring them, or to where it would in what comes, if that is further.
    pub fn lead(&mut self, at: &At, renewal: &RestoreRecovery, coming: Option<&Replica>) {
        if !self.needs_renewal(renewal) {
            return;
        }
        // Marks are of an epoch: in a later one this node may have announced something, too, of which the copy knows nothing.
        if let Some(coming) = coming {
            self.raise_epoch(coming.epoch);
        }
        let plans = [Some(&*self), coming].into_iter().flatten();
        let counters = plans.filter_map(|of| match of.plan_renewal(at, renewal).outcome {
            Renewed::Ahead(counter) => Some(counter),
            Renewed::Epoch => None,
        });
        if let Some(counter) = counters.max() {
            self.raise_marks_to(counter);
        }
    }

    /// As if a UID of our slot had been given: a client that names what was announced to it, one below it, is believed elsewhere
    /// (docs/design.md#rule-6), as it is by any UID of a member.
    fn raise_marks_to(&mut self, counter: u32) {
        let given = counter.saturating_mul(64) + u32::from(self.slot);
        self.raise_all_marks(given.saturating_add(1));
    }

    /// Carries a renewal out, as far as it is this replica's own: marks and history. To be called before the operations of
    /// [`Self::plan_renewal`] are applied, in whose write the rows must be, but for [`Self::take_first_rows`].
    pub fn renew(&mut self, renewal: &RestoreRecovery, renewed: Renewed, now_micros: u64) {
        let before = std::mem::take(&mut self.lineage);
        let mut retired = before.retired;
        match renewed {
            Renewed::Epoch => retired.clear(),
            Renewed::Ahead(counter) => {
                // Unknown before lineages were kept: then any slot that claimed something may have been ours.
                let slots = match before.incarnation {
                    Some(_) => vec![before.slot],
                    None => self.claimed.keys().copied().collect(),
                };
                let known = self.claimed();
                for slot in slots.into_iter() {
                    retired.retain(|other| other.slot != slot);
                    retired.push(Retired {
                        slot,
                        counter_max: counter.saturating_add(crate::plan::NAMED_AHEAD_MAX),
                        known: known.clone(),
                    });
                }
                self.raise_marks_to(counter);
            }
        }
        for cut in std::mem::take(&mut self.history) {
            self.dirty_keys.insert(RowKey::Vanished(cut.modseq));
        }
        self.history_uids = 0;
        let modseq = self.modseq(now_micros);
        self.history_from = modseq;
        // All that is visible counts as changed now: a MODSEQ of another slot is announced no more.
        let numbers: Vec<u32> = self.boxes.iter().map(|(number, _)| number).collect();
        for number in numbers {
            self.boxes[number].base_modseq = modseq;
            self.mark_mailbox_dirty(number);
        }
        for state in self.names.values_mut() {
            state.highest = modseq;
        }
        self.lineage = Lineage {
            incarnation: Some(renewal.incarnation),
            round: renewal.round,
            slot: self.slot,
            since: modseq,
            retired,
        };
        self.dirty_keys.insert(RowKey::Account);
    }

    /// Rows of a renewal that are to be written before all others, right after [`Self::renew`]: of ten thousand mailboxes with long names all are
    /// more than one write has room for.
    ///
    /// After a crash between the two writes the account is renewed again, for its own row is not among these. The second renewal is not behind
    /// the first, whose marks are on disk already: no time of a change is, so that its lead is at least the same. An epoch has no lead, and sets
    /// marks back.
    pub fn take_first_rows(&mut self, renewed: Renewed) -> Vec<(RowKey, Option<Vec<u8>>)> {
        match renewed {
            Renewed::Ahead(_) => self.take_dirty_marks(),
            Renewed::Epoch => self.take_dirty_boxes(),
        }
    }

    /// Counts as announced, under every name that there is or was: UIDNEXT `mark`.
    fn raise_all_marks(&mut self, mark: u32) {
        self.floor = self.floor.max(mark);
        for (name, state) in &mut self.names {
            state.mark = state.mark.max(mark);
            self.dirty_keys.insert(RowKey::Mark(name.clone()));
        }
        let floor = self.floor;
        let folded = self.gone_marks.extract_if(.., |_, mark| *mark <= floor);
        let folded: Vec<MailboxName> = folded.map(|(name, _)| name).collect();
        self.dirty_keys.extend(folded.into_iter().map(RowKey::Mark));
    }

    /// What follows for [`Self::plan_takeover`] from numbers that a client names under a name: those that an earlier incarnation may have
    /// announced in the time that was lost, and that lie above what was announced here. `None`, the usual case: nothing follows.
    ///
    /// A number is a UID, or one more (a UIDNEXT).
    pub fn lost(&self, name: &MailboxName, numbers: &[u32]) -> Option<Takeover> {
        // What is visible and was not announced yet may go again: only the mark counts.
        let mark = self.announced_uidnext(name);
        let mut named: Option<(u32, &Retired)> = None;
        for number in numbers {
            for uid in [*number, number.saturating_sub(1)] {
                // A copy that was put back twice does not know which slot was drawn the first time.
                let mut retired = self.lineage.retired.iter();
                let of = retired
                    .find(|retired| u32::from(retired.slot) == uid % 64)
                    .or(self.lineage.retired.first())
                    .filter(|retired| uid / 64 <= retired.counter_max);
                if let Some(of) = of
                    && uid >= mark
                    && named.is_none_or(|(greatest, _)| greatest < uid)
                {
                    named = Some((uid, of));
                }
            }
        }
        let (uid, of) = named?;
        Some(Takeover {
            named: vec![(name.clone(), uid)],
            announced: of.known.clone(),
        })
    }
}
