//! Connected sessions: passes events to them, and counts those of each account.
//!
//! An event is a bit, not a message: a session that is slow to ask for changes costs no memory, however much changes.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;
use whimbrel_mailbox::AccountId;
use whimbrel_service::api::{Ended, Event, SessionId};

const CHANGED: u8 = 1;
const SHUTDOWN: u8 = 2;
const PASSWORD_CHANGED: u8 = 4;
const ACCOUNT_REMOVED: u8 = 8;

/// How many past endings ([`Registry::end`]) are remembered for logins under way: a login takes less time than so many endings.
const ENDS_KEPT_MAX: usize = 1024;

/// Locks that sessions are spread over: owners notify in parallel.
const SHARDS: usize = 16;

/// Events for one session.
#[derive(Debug, Default)]
pub struct Signal {
    events: AtomicU8,
    wake: Notify,
    /// Another node serves this session, or will serve it.
    passes: AtomicBool,
    /// The account of the session.
    account: Mutex<Option<AccountId>>,
    /// This node does not serve the account any more.
    turned_out: AtomicBool,
    /// The administrator's session, without a login by password.
    administrators: AtomicBool,
}

impl Signal {
    fn is_served_here(&self) -> bool {
        !self.passes.load(Ordering::SeqCst)
    }

    fn is_of(&self, of: impl Fn(AccountId) -> bool) -> bool {
        let account = self.account.lock();
        account
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(of)
    }

    fn is_now_of(&self, account: Option<AccountId>) {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner) = account;
        self.turned_out.store(false, Ordering::SeqCst);
        self.events
            .fetch_and(!(PASSWORD_CHANGED | ACCOUNT_REMOVED), Ordering::AcqRel);
    }

    fn end(&self, why: Ended) {
        if why != Ended::PasswordChanged || !self.administrators.load(Ordering::SeqCst) {
            self.raise(Event::Ended(why));
        }
    }

    /// Raises an event; twice before the session looks is the same as once.
    pub fn raise(&self, event: Event) {
        let bit = match event {
            Event::Changed => CHANGED,
            Event::Shutdown => SHUTDOWN,
            Event::Ended(Ended::PasswordChanged) => PASSWORD_CHANGED,
            Event::Ended(Ended::AccountRemoved) => ACCOUNT_REMOVED,
        };
        self.events.fetch_or(bit, Ordering::AcqRel);
        self.wake.notify_one();
    }

    /// Waits for an event.
    pub async fn next(&self) -> Event {
        loop {
            if let Some(event) = self.take() {
                return event;
            }
            self.wake.notified().await;
        }
    }

    /// An event, if there is one.
    pub fn take(&self) -> Option<Event> {
        // The end comes first, with its true reason: changes do not matter then.
        for (bit, event) in [
            (ACCOUNT_REMOVED, Event::Ended(Ended::AccountRemoved)),
            (PASSWORD_CHANGED, Event::Ended(Ended::PasswordChanged)),
            (SHUTDOWN, Event::Shutdown),
            (CHANGED, Event::Changed),
        ] {
            if self.events.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                return Some(event);
            }
        }
        None
    }
}

/// What the sessions of an account share.
#[derive(Debug, Default)]
struct Shared {
    sessions: usize,
    /// Held by the session that does a slice of long work.
    slice: Slice,
}

/// Held while a slice of long work is done: the slices of one account are done one after the other, however many of its sessions have some. They come
/// in the order of asking.
pub type Slice = Arc<tokio::sync::Mutex<()>>;

/// All sessions of the process.
#[derive(Debug)]
pub struct Registry {
    next: AtomicU64,
    closing: AtomicBool,
    /// Sessions are served by other nodes: this node drains.
    draining: AtomicBool,
    sessions: [Mutex<HashMap<u64, Arc<Signal>>>; SHARDS],
    /// What the sessions of an account share, for each account that has some. Never iterated.
    accounts: Mutex<HashMap<AccountId, Shared>>,
    /// Accounts whose sessions were ended, in that order.
    ends: Mutex<Ends>,
    per_account_max: usize,
}

/// See [`Registry::end`].
#[derive(Debug, Default)]
struct Ends {
    /// How many endings there were.
    count: u64,
    last: VecDeque<(u64, AccountId, Ended)>,
}

impl Registry {
    /// A registry without sessions. An account may have `per_account_max`.
    #[must_use]
    pub fn new(per_account_max: usize) -> Arc<Self> {
        Arc::new(Registry {
            next: AtomicU64::new(1),
            closing: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            sessions: std::array::from_fn(|_| Mutex::default()),
            accounts: Mutex::default(),
            ends: Mutex::default(),
            per_account_max,
        })
    }

    fn shard(&self, session: SessionId) -> &Mutex<HashMap<u64, Arc<Signal>>> {
        &self.sessions[(session.0 % SHARDS as u64) as usize]
    }

    /// Enters a new session.
    pub fn enter(self: &Arc<Self>) -> Registered {
        let id = SessionId(self.next.fetch_add(1, Ordering::Relaxed));
        let signal = Arc::new(Signal::default());
        self.shard(id)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.0, Arc::clone(&signal));
        // A session that enters while all are told to go is told, too.
        if self.closing.load(Ordering::SeqCst) || self.is_draining() {
            signal.raise(Event::Shutdown);
        }
        Registered {
            id,
            signal,
            account: None,
            slice: None,
            asked_at: self.ends(),
            registry: Arc::clone(self),
        }
    }

    /// Raises an event for a session, if it still exists.
    pub fn notify(&self, session: SessionId, event: Event) {
        if let Some(signal) = self
            .shard(session)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&session.0)
        {
            signal.raise(event);
        }
    }

    /// Tells all sessions to say goodbye, also later ones.
    pub fn shutdown(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.say_goodbye(|_| true);
    }

    /// Enters a new session that another node will serve: here only the end of the process ends it.
    pub fn pass(self: &Arc<Self>) -> Registered {
        let registered = self.enter();
        registered.passes();
        if !self.closing.load(Ordering::SeqCst) {
            registered.signal.take();
        }
        registered
    }

    /// Tells all sessions that are served here to say goodbye, also later ones.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.say_goodbye(Signal::is_served_here);
    }

    /// Tells the sessions of these accounts that are served here to say goodbye. Sessions for which it is not settled yet are told when they turn out
    /// to be served here.
    pub fn turn_out(&self, of: impl Fn(AccountId) -> bool) {
        self.say_goodbye(|signal| {
            let is_of = signal.is_of(&of);
            if is_of {
                signal.turned_out.store(true, Ordering::SeqCst);
            }
            is_of && signal.is_served_here()
        });
    }

    /// Ends all sessions of an account, also relayed ones, and those whose login was checked before and is not counted yet.
    pub fn end(&self, account: AccountId, why: Ended) {
        {
            let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
            ends.count += 1;
            let count = ends.count;
            ends.last.push_back((count, account, why));
            if ends.last.len() > ENDS_KEPT_MAX {
                ends.last.pop_front();
            }
        }
        for shard in &self.sessions {
            let sessions = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for signal in sessions.values() {
                if signal.is_of(|of| of == account) {
                    signal.end(why);
                }
            }
        }
    }

    fn ends(&self) -> u64 {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.count
    }

    /// Why the sessions of an account were last ended, after the first `asked_at` endings.
    fn ended_since(&self, asked_at: u64, account: AccountId) -> Option<Ended> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = ends.last.iter().rev();
        let mut since = newest.take_while(|(at, ..)| *at > asked_at);
        since
            .find(|(_, of, _)| *of == account)
            .map(|(_, _, why)| *why)
    }

    fn say_goodbye(&self, to: impl Fn(&Signal) -> bool) {
        for shard in &self.sessions {
            let sessions = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for signal in sessions.values().filter(|signal| to(signal)) {
                signal.raise(Event::Shutdown);
            }
        }
    }

    /// Whether this node drains.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Ends the drain: sessions may come again.
    pub fn reopen(&self) {
        self.draining.store(false, Ordering::SeqCst);
    }

    /// How many sessions are served here.
    pub fn served(&self) -> usize {
        let mut served = 0;
        for shard in &self.sessions {
            let sessions = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let here = sessions.values().filter(|signal| signal.is_served_here());
            served += here.count();
        }
        served
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A session's place in the registry, given up when dropped.
#[derive(Debug)]
pub struct Registered {
    /// Its name.
    pub id: SessionId,
    /// Its events.
    pub signal: Arc<Signal>,
    account: Option<AccountId>,
    slice: Option<Slice>,
    /// How many endings there had been when its login was asked for.
    asked_at: u64,
    registry: Arc<Registry>,
}

impl Registered {
    /// The lock to hold during a slice of long work; none before the login.
    #[must_use]
    pub fn slice(&self) -> Option<&Slice> {
        self.slice.as_ref()
    }

    /// A login is about to be checked. If the account's sessions are ended before this session is counted, it ends as well.
    pub fn asks(&mut self) {
        self.asked_at = self.registry.ends();
    }

    /// Marks it as the administrator's, without a login by password.
    pub fn is_administrators(&self) {
        self.signal.administrators.store(true, Ordering::SeqCst);
    }

    /// Another node serves the session.
    pub fn passes(&self) {
        self.signal.passes.store(true, Ordering::SeqCst);
    }

    /// This node serves the session after all.
    pub fn stays(&self) {
        self.signal.passes.store(false, Ordering::SeqCst);
        // The node may have begun to drain, or left the partition, in the meantime.
        if self.registry.is_draining() || self.signal.turned_out.load(Ordering::SeqCst) {
            self.signal.raise(Event::Shutdown);
        }
    }

    /// Counts the session for an account; false if the account has as many as it may.
    pub fn log_in(&mut self, account: AccountId) -> bool {
        self.log_out();
        let mut accounts = self
            .registry
            .accounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let shared = accounts.entry(account).or_default();
        if shared.sessions >= self.registry.per_account_max {
            return false;
        }
        shared.sessions += 1;
        self.slice = Some(Arc::clone(&shared.slice));
        self.account = Some(account);
        drop(accounts);
        self.signal.is_now_of(Some(account));
        if let Some(why) = self.registry.ended_since(self.asked_at, account) {
            self.signal.end(why);
        }
        true
    }

    /// Takes the session off its account's count.
    pub fn log_out(&mut self) {
        let Some(account) = self.account.take() else {
            return;
        };
        self.slice = None;
        self.signal.is_now_of(None);
        let mut accounts = self
            .registry
            .accounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = accounts.get_mut(&account) {
            shared.sessions -= 1;
            if shared.sessions == 0 {
                accounts.remove(&account);
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.log_out();
        self.registry
            .shard(self.id)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_are_bits_and_the_end_comes_first() {
        let registry = Registry::new(10);
        let session = registry.enter();
        registry.notify(session.id, Event::Changed);
        registry.notify(session.id, Event::Changed);
        registry.shutdown();
        assert_eq!(session.signal.next().await, Event::Shutdown);
        assert_eq!(session.signal.next().await, Event::Changed);
        assert_eq!(session.signal.take(), None);
        registry.notify(SessionId(99), Event::Changed);
        let late = registry.enter();
        assert_eq!(late.signal.next().await, Event::Shutdown);
        assert_eq!(registry.len(), 2);
        drop((session, late));
        assert!(registry.is_empty());
    }

    #[test]
    fn who_is_served_elsewhere_is_not_told_to_go() {
        let registry = Registry::new(10);
        let (here, there) = (registry.enter(), registry.enter());
        there.passes();
        registry.drain();
        let late = registry.pass();
        assert_eq!((registry.len(), registry.served()), (3, 1));
        assert_eq!(registry.enter().signal.take(), Some(Event::Shutdown));
        let told = [&here, &there, &late].map(|session| session.signal.take());
        assert_eq!(told, [Some(Event::Shutdown), None, None]);
        late.stays();
        assert_eq!(late.signal.take(), Some(Event::Shutdown));
        registry.reopen();
        assert_eq!(registry.enter().signal.take(), None);
        registry.shutdown();
        assert_eq!(there.signal.take(), Some(Event::Shutdown));
        assert_eq!(registry.pass().signal.take(), Some(Event::Shutdown));
    }

    #[test]
    fn sessions_of_accounts_that_are_served_no_more_are_told() {
        let registry = Registry::new(10);
        let (anne, bob) = (AccountId([1; 16]), AccountId([2; 16]));
        let mut sessions: Vec<_> = (0..5).map(|_| registry.enter()).collect();
        for (session, account) in [(0, anne), (1, bob), (2, anne), (3, anne)] {
            assert!(sessions[session].log_in(account));
        }
        // One of her sessions is relayed, one is not settled yet, and the last one is without a login.
        sessions[2].passes();
        sessions[3].passes();
        registry.turn_out(|account| account == anne);
        let told = |session: &Registered| session.signal.take();
        let shutdown = Some(Event::Shutdown);
        let all: Vec<_> = sessions.iter().map(told).collect();
        assert_eq!(all, [shutdown, None, None, None, None]);
        sessions[3].stays();
        assert_eq!(told(&sessions[3]), shutdown, "it was found that it stays");
        // A session that logs in with another account is not hers any more.
        sessions[2].log_out();
        assert!(sessions[2].log_in(bob));
        sessions[2].stays();
        assert_eq!(told(&sessions[2]), None);
    }

    /// A login that was checked against the old password was counted after the change.
    #[test]
    fn sessions_of_an_account_end_wherever_they_are() {
        let registry = Registry::new(10);
        let (anne, bob) = (AccountId([1; 16]), AccountId([2; 16]));
        let mut sessions: Vec<_> = (0..5).map(|_| registry.enter()).collect();
        for (session, account) in [(0, anne), (1, bob), (2, anne), (3, anne)] {
            assert!(sessions[session].log_in(account));
        }
        sessions[2].passes();
        sessions[3].is_administrators();
        let told = |session: &Registered| session.signal.take();
        let all = |sessions: &[Registered]| sessions.iter().map(told).collect::<Vec<_>>();
        registry.end(anne, Ended::PasswordChanged);
        let changed = Some(Event::Ended(Ended::PasswordChanged));
        assert_eq!(all(&sessions), [changed, None, changed, None, None]);
        assert!(sessions[4].log_in(anne));
        assert_eq!(told(&sessions[4]), changed, "it was checked before");
        sessions[1].log_out();
        sessions[1].asks();
        assert!(sessions[1].log_in(anne));
        assert_eq!(told(&sessions[1]), None, "it was checked after");
        let mut brought = registry.enter();
        assert!(brought.log_in(anne));
        assert_eq!(told(&brought), None, "it came after");
        registry.shutdown();
        registry.end(anne, Ended::AccountRemoved);
        let removed = Some(Event::Ended(Ended::AccountRemoved));
        assert_eq!(told(&brought), removed);
        assert_eq!(all(&sessions), [removed; 5]);
    }

    #[test]
    fn an_account_has_so_many_sessions_and_no_more() {
        let registry = Registry::new(2);
        let (anne, bob) = (AccountId([1; 16]), AccountId([2; 16]));
        let mut sessions: Vec<_> = (0..4).map(|_| registry.enter()).collect();
        assert!(sessions[0].log_in(anne));
        assert!(sessions[1].log_in(anne));
        assert!(!sessions[2].log_in(anne));
        assert!(sessions[3].log_in(bob));
        // Another login on the same connection frees its first place.
        assert!(sessions[1].log_in(bob));
        assert!(sessions[2].log_in(anne));
        drop(sessions);
        assert!(registry.accounts.lock().unwrap().is_empty());
    }
}
