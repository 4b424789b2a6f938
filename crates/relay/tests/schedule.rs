//! When entries are attempted.

use std::time::Duration;

use whimbrel_relay::schedule::{
    Config, DURATION_MAX, JITTER_PERCENT_MAX, Next, Schedule, ScheduleError, Timed, WAIT_MIN,
    WAITS_MAX,
};
use whimbrel_testkit::Rng;

use crate::Case;

pub const ALL: &[Case] = &[
    ("the row of attempts", the_row_of_attempts),
    ("waits keep to the jitter", waits_keep_to_the_jitter),
    ("later is never earlier", later_is_never_earlier),
    ("overdue entries are spread", overdue_entries_are_spread),
    ("an adopter goes on", an_adopter_goes_on_where_the_age_is),
    (
        "expired entries are attempted once",
        expired_entries_are_attempted_once,
    ),
    (
        "a lost connection waits",
        a_connection_lost_behind_the_dot_waits,
    ),
    ("told once", the_sender_is_told_once_that_it_is_late),
];

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

fn schedule() -> Schedule {
    Schedule::new(Config::default()).unwrap()
}

fn entry(number: u64) -> Timed {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    Timed {
        id,
        null_sender: false,
        hold: Duration::ZERO,
        lost: None,
    }
}

/// All attempts of an entry that always fails at once.
fn row(schedule: &Schedule, entry: &Timed) -> (Vec<Duration>, Duration) {
    let mut row = vec![schedule.first(entry)];
    loop {
        match schedule.next(entry, *row.last().unwrap()) {
            Next::Attempt(age) => row.push(age),
            Next::Expire(age) => return (row, age),
        }
    }
}

#[test]
fn the_row_of_attempts() {
    let config = Config {
        jitter_percent: 0,
        ..Config::default()
    };
    let plain = Schedule::new(config).unwrap();
    let (ages, expiry) = row(&plain, &entry(1));
    let minutes: Vec<u64> = ages.iter().map(|age| age.as_secs() / 60).collect();
    assert_eq!(minutes[..9], [0, 5, 15, 35, 75, 135, 255, 375, 495]);
    assert_eq!(expiry, 5 * DAY);
    assert_eq!(*minutes.last().unwrap(), 7_095);
    let null = Timed {
        null_sender: true,
        ..entry(1)
    };
    assert_eq!(row(&plain, &null).1, DAY);
    // A hold moves everything.
    let held = Timed {
        hold: 60 * DAY,
        ..entry(1)
    };
    let (later, end) = row(&plain, &held);
    assert_eq!(later.len(), ages.len());
    assert!(
        later
            .iter()
            .zip(&ages)
            .all(|(later, age)| *later == *age + 60 * DAY)
    );
    assert_eq!(end, 65 * DAY);
    assert_eq!(plain.found(&held, 3 * DAY), Next::Attempt(60 * DAY));
    assert_eq!(plain.hold(60 * DAY), Ok(60 * DAY));
    assert_eq!(
        plain.hold(60 * DAY + Duration::from_nanos(1)),
        Err(ScheduleError::Hold)
    );
}

#[test]
fn waits_keep_to_the_jitter() {
    let schedule = schedule();
    let nominal: Vec<u32> = [5, 10, 20, 40, 60].into_iter().chain([120; 100]).collect();
    let mut firsts = Vec::new();
    for number in 0..1_000 {
        let (ages, _) = row(&schedule, &entry(number));
        for (pair, minutes) in ages.windows(2).zip(&nominal) {
            let wait = (pair[1] - pair[0]).as_secs_f64() / (MINUTE * *minutes).as_secs_f64();
            assert!((0.899_999..=1.100_001).contains(&wait), "{number}: {wait}");
        }
        firsts.push(ages[1]);
    }
    // Entries of one moment are not attempted together again: the second attempts lie over a minute, in no second more than a few.
    firsts.sort();
    assert!(firsts[999] - firsts[0] > Duration::from_secs(55));
    let busiest = firsts.iter().map(|first| first.as_secs());
    assert!(
        busiest
            .clone()
            .all(|second| busiest.clone().filter(|other| *other == second).count() < 50)
    );
}

#[test]
fn later_is_never_earlier() {
    let schedule = schedule();
    let mut rng = Rng::new(3);
    for number in 0..2_000 {
        let entry = entry(number);
        let age = Duration::from_millis(rng.below(6 * 86_400_000));
        let later = age + Duration::from_millis(rng.below(7_200_000));
        for what in [Schedule::next, Schedule::found] {
            let (one, other) = (what(&schedule, &entry, age), what(&schedule, &entry, later));
            assert!(one.age() <= other.age(), "{age:?} {later:?}");
            assert!(one.age() >= age);
        }
        if let Next::Attempt(next) = schedule.next(&entry, age) {
            let wait = match age {
                age if age < 2 * MINUTE => 5 * MINUTE,
                age if age < 6 * HOUR => MINUTE,
                _ => 2 * HOUR,
            };
            assert!(next - age >= wait * 9 / 20, "{age:?} {next:?}");
            assert!(next - age <= 2 * HOUR * 33 / 20);
        }
    }
    // Age has no end.
    assert_eq!(
        schedule.next(&entry(1), 100 * DURATION_MAX),
        Next::Expire(100 * DURATION_MAX)
    );
}

/// chatmail/relay #979: after a downtime all deferred mail was attempted at once.
#[test]
fn overdue_entries_are_spread() {
    let schedule = schedule();
    let mut minutes = [0; 10];
    for number in 0..10_000 {
        let down = 3 * HOUR + Duration::from_secs(number % 100);
        let Next::Attempt(age) = schedule.found(&entry(number), down) else {
            panic!("given up");
        };
        let after = usize::try_from((age - down).as_secs() / 60).unwrap();
        minutes[after] += 1;
    }
    assert!(
        minutes.iter().all(|count| (800..1_300).contains(count)),
        "{minutes:?}"
    );
    // What has only just come waits no longer than it has waited.
    let young = schedule.found(&entry(1), Duration::from_secs(4));
    assert!(young.age() <= Duration::from_secs(8));
}

/// maddy #678, vSMTP #424: a counter of attempts that restarts makes endless retries.
#[test]
fn an_adopter_goes_on_where_the_age_is() {
    let schedule = schedule();
    for number in 0..200 {
        let entry = entry(number);
        let (ages, expiry) = row(&schedule, &entry);
        // Another node adopts it some time after any of these attempts, attempts once soon, and falls into the same row.
        for (at, pair) in ages.windows(2).enumerate() {
            let adopted = pair[0] + (pair[1] - pair[0]) / 3;
            let found = schedule.found(&entry, adopted);
            assert!(
                matches!(found, Next::Attempt(age) if age <= pair[1]),
                "{at}"
            );
            let rest: Vec<_> = ages[at + 1..].to_vec();
            let next = schedule.next(&entry, found.age()).age();
            assert!(rest.contains(&next) || next == expiry, "{at}");
            assert!(next >= pair[1]);
        }
    }
}

#[test]
fn expired_entries_are_attempted_once() {
    let schedule = schedule();
    let entry = entry(4);
    let Next::Attempt(age) = schedule.found(&entry, 6 * DAY) else {
        panic!("given up without an attempt");
    };
    assert!(age <= 6 * DAY + 10 * MINUTE);
    assert_eq!(schedule.next(&entry, age), Next::Expire(age));
}

/// postal #3016, freescout #5457, kpi #7435, pimalaya #45, maddy #23.
#[test]
fn a_connection_lost_behind_the_dot_waits() {
    let schedule = schedule();
    let entry = Timed {
        lost: Some(Duration::ZERO),
        ..entry(5)
    };
    let next = Next::Attempt(15 * MINUTE);
    assert_eq!(schedule.next(&entry, Duration::ZERO), next);
    // So does whoever adopts it.
    assert_eq!(schedule.found(&entry, 2 * MINUTE), next);
    // It is no reason to wait for longer than usual.
    assert_eq!(
        schedule.next(&entry, 80 * MINUTE),
        schedule.next(
            &Timed {
                lost: None,
                ..entry
            },
            80 * MINUTE
        )
    );
}

#[test]
fn the_sender_is_told_once_that_it_is_late() {
    let schedule = schedule();
    let entry = entry(6);
    let check =
        |age, told, expected| assert_eq!(schedule.is_late(&entry, age, told), expected, "{age:?}");
    check(4 * HOUR - MINUTE, false, false);
    check(4 * HOUR, false, true);
    check(4 * HOUR, true, false);
    check(5 * DAY - MINUTE, false, true);
    // Then it fails, which is told instead.
    check(5 * DAY, false, false);
    let null = Timed {
        null_sender: true,
        ..entry
    };
    assert!(!schedule.is_late(&null, 5 * HOUR, false));
    let held = Timed {
        hold: 2 * DAY,
        ..entry
    };
    assert!(!schedule.is_late(&held, 2 * DAY, false));
    assert!(schedule.is_late(&held, 2 * DAY + 4 * HOUR, false));
    let config = Config {
        expiry: HOUR,
        ..Config::default()
    };
    assert_eq!(Schedule::new(config).unwrap().late(&entry), None);
}

#[test]
fn configurations_have_limits() {
    let check = |change: fn(&mut Config), expected| {
        let mut config = Config::default();
        change(&mut config);
        assert_eq!(Schedule::new(config).err(), expected);
    };
    check(|_| (), None);
    check(|config| config.waits = Vec::new(), None);
    check(|config| config.waits = vec![MINUTE; WAITS_MAX], None);
    check(
        |config| config.waits = vec![MINUTE; WAITS_MAX + 1],
        Some(ScheduleError::TooManyWaits),
    );
    check(
        |config| config.repeat = WAIT_MIN / 2,
        Some(ScheduleError::TooShort),
    );
    check(
        |config| config.waits[0] = Duration::ZERO,
        Some(ScheduleError::TooShort),
    );
    check(
        |config| config.expiry = DURATION_MAX * 2,
        Some(ScheduleError::TooLong),
    );
    check(
        |config| config.hold_max = DURATION_MAX * 2,
        Some(ScheduleError::TooLong),
    );
    check(
        |config| config.jitter_percent = JITTER_PERCENT_MAX + 1,
        Some(ScheduleError::Jitter),
    );
}
