//! `whimbrel account` and `whimbrel alias`.

use std::io::{self, IsTerminal as _};

use whimbrel_imap::core::Date;
use whimbrel_mailbox::MAILBOXES_MAX;
use zeroize::Zeroizing;

use super::{
    Account, Alias, ConfigFile, Password, prompt,
    run::{fatal, load, print, runtime},
};
use crate::{
    admin::{
        client::ask,
        protocol::{Answer, Limit, Question},
    },
    config::{Config, LogFormat, LogLevel, LogSection, Size},
    log,
    node::{DataDir, NodeError},
    password,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn account(command: Account) -> Result<(), Failure> {
    match command {
        Account::Add {
            address,
            password,
            config,
        } => {
            let new = is_new(&config)?;
            let config = open(&config)?;
            let (kept, made) = new_password(&config, &password, &address)?;
            let (verifier, scram) = (kept.verifier, kept.scram);
            let question = Question::AccountAdd {
                address,
                verifier,
                scram,
            };
            tell(&config, question)?;
            if new {
                tell_of_new(&config);
            }
            show(made)
        }
        Account::Passwd {
            address,
            keep_sessions,
            password,
            config,
        } => {
            let config = open(&config)?;
            let (kept, made) = new_password(&config, &password, &address)?;
            let (verifier, scram) = (kept.verifier, kept.scram);
            let question = Question::AccountPasswd {
                address,
                verifier,
                scram,
                keep_sessions,
            };
            tell(&config, question)?;
            show(made)
        }
        Account::Quota {
            address,
            storage,
            messages,
            mailboxes,
            config,
        } => {
            let config = open(&config)?;
            let question = Question::AccountQuota {
                address,
                storage,
                messages,
                mailboxes,
            };
            tell(&config, question)
        }
        Account::Remove {
            address,
            yes,
            config,
        } => {
            let config = open(&config)?;
            if !yes && !prompt::confirm(&format!("Remove {address} and all of its mail?"))? {
                return Err("nothing was removed".into());
            }
            tell(&config, Question::AccountRemove { address })
        }
        Account::List { config } => tell(&open(&config)?, Question::AccountList {}),
    }
}

pub(super) fn alias(command: Alias) -> Result<(), Failure> {
    match command {
        Alias::Add {
            from,
            to,
            instead,
            config,
        } => {
            let config = open(&config)?;
            let added = from.clone();
            tell(&config, Question::AliasAdd { from, to, instead })?;
            show_targets(&config, &added)
        }
        Alias::Remove { from, to, config } => {
            tell(&open(&config)?, Question::AliasRemove { from, to })
        }
        Alias::List { config } => tell(&open(&config)?, Question::AliasList {}),
    }
}

/// Whether a command makes a new data directory. Only one with a configuration may, so that none appears wherever somebody happens to be.
pub(super) fn is_new(file: &ConfigFile) -> Result<bool, Failure> {
    let path = load(file)?.server.data_dir;
    let is_new = !DataDir::is_at(&path);
    if is_new && file.found().is_none() {
        return Err(NodeError::None { path }.into());
    }
    Ok(is_new)
}

/// On standard error: programs read the password from standard output.
pub(super) fn tell_of_new(config: &Config) {
    eprintln!(
        "made a new data directory {}",
        config.server.data_dir.display()
    );
}

/// Prints the accounts that the mail of an address reaches now.
fn show_targets(config: &Config, from: &str) -> Result<(), Failure> {
    let asked = runtime()?.block_on(ask(config, Question::AliasList {}, fatal()));
    let Answer::Aliases { aliases, .. } = asked? else {
        return Err("the aliases cannot be listed".into());
    };
    let of = aliases
        .iter()
        .filter(|(of, _)| of.eq_ignore_ascii_case(from));
    let targets: Vec<&str> = of.map(|(_, to)| to.as_str()).collect();
    let mut out = format!("mail for {from} goes to {}", targets.join(" and "));
    let asked = runtime()?.block_on(ask(config, Question::AccountList {}, fatal()));
    if let Answer::Accounts { accounts, .. } = asked?
        && accounts
            .iter()
            .any(|of| of.address.eq_ignore_ascii_case(from))
        && !targets.iter().any(|to| to.eq_ignore_ascii_case(from))
    {
        out.push_str(&format!(", and no longer to the account {from}"));
    }
    print(&(out + "\n"))
}

fn open(file: &ConfigFile) -> Result<Config, Failure> {
    let config = load(file)?;
    // The command's own output matters; of the store's log only warnings and errors.
    log::start(&LogSection {
        level: LogLevel::Warn,
        format: LogFormat::Text,
    });
    Ok(config)
}

/// What is stored of a new password, and the password itself if it was made here.
fn new_password(
    config: &Config,
    how: &Password,
    address: &str,
) -> Result<(password::Made, Option<Zeroizing<String>>), Failure> {
    let given = if how.password_stdin {
        Some(prompt::password_from(&mut io::stdin().lock())?)
    } else if io::stdin().is_terminal() {
        prompt::new_password(address)?
    } else {
        None
    };
    let (password, made) = match given {
        Some(password) => (password, None),
        None => {
            let made = password::generate();
            (Zeroizing::new(made.as_bytes().to_vec()), Some(made))
        }
    };
    let kept = password::make(&config.auth, &password)?;
    if let Some(why) = &kept.no_scram {
        eprintln!("note: SCRAM logins are not possible with this password: {why}");
    }
    Ok((kept, made))
}

fn show(made: Option<Zeroizing<String>>) -> Result<(), Failure> {
    made.map_or(Ok(()), |password| {
        print(&Zeroizing::new(format!("password: {}\n", *password)))
    })
}

fn tell(config: &Config, question: Question) -> Result<(), Failure> {
    let change = question.change();
    match runtime()?.block_on(ask(config, question, fatal()))? {
        Answer::Session { .. }
        | Answer::Cluster { .. }
        | Answer::Queue { .. }
        | Answer::Drain(_)
        | Answer::Removal(_) => Err("the server gave an unexpected answer".into()),
        Answer::Done {} => {
            // On standard error: programs read passwords and lists from standard output.
            if let Some(change) = change {
                eprintln!("{change}");
            }
            Ok(())
        }
        Answer::Quota {
            storage,
            messages,
            mailboxes,
        } => print(&quota(config, storage, messages, mailboxes)),
        Answer::Refused { reason } => Err(reason.into()),
        Answer::Accounts { accounts, .. } => {
            let mut out = String::new();
            for account in accounts {
                let aside = if account.set_aside {
                    "  set aside: another account has this address"
                } else {
                    ""
                };
                out.push_str(&format!(
                    "{}  {}  {}{aside}\n",
                    account.address,
                    account.id,
                    date(account.created)
                ));
            }
            print(&out)
        }
        Answer::Aliases { aliases, .. } => print(
            &aliases
                .iter()
                .map(|(from, to)| format!("{from}  {to}\n"))
                .collect::<String>(),
        ),
    }
}

/// The value of `--storage`.
pub(super) fn size(text: &str) -> Result<Limit, String> {
    limit(text, |text| Size::parse(text).map(|size| size.0))
}

/// The value of `--messages`.
pub(super) fn count(text: &str) -> Result<Limit, String> {
    limit(text, |text| {
        text.parse()
            .map_err(|_| format!("{text:?} is not a number, \"unlimited\" or \"default\""))
    })
}

fn limit(text: &str, read: impl Fn(&str) -> Result<u64, String>) -> Result<Limit, String> {
    match text {
        "default" => Ok(Limit::Default),
        "unlimited" => Ok(Limit::Unlimited),
        text => read(text).map(Limit::AtMost),
    }
}

/// Prints the quota of an account, a line for each limit.
fn quota(config: &Config, storage: Limit, messages: Limit, mailboxes: Limit) -> String {
    let of = &config.quota;
    let in_bytes = |bytes: u64| match [(30, "GiB"), (20, "MiB"), (10, "KiB")]
        .iter()
        .find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits)
    {
        Some((bits, unit)) => format!("{}{unit}", bytes >> bits),
        None => format!("{bytes}B"),
    };
    let line = |name: &str, limit: Limit, all: u64, text: &dyn Fn(u64) -> String| {
        let at_most = |most: u64| match most {
            0 => "unlimited".to_owned(),
            most => text(most),
        };
        let limit = match limit {
            Limit::Default => format!("{} (default)", at_most(all)),
            Limit::Unlimited => at_most(0),
            Limit::AtMost(most) => text(most),
        };
        format!("{name:<10} {limit}\n")
    };
    let number = |count: u64| count.to_string();
    let mailboxes_max = match of.mailboxes_max {
        0 => MAILBOXES_MAX,
        most => most,
    };
    [
        line("storage", storage, of.bytes_max.0, &in_bytes),
        line("messages", messages, of.messages_max as u64, &number),
        line("mailboxes", mailboxes, mailboxes_max as u64, &number),
    ]
    .concat()
}

/// `2026-11-20`, in UTC.
fn date(seconds: u64) -> String {
    let days = i64::try_from(seconds / 86_400).unwrap_or(i64::MAX);
    let date = Date::from_days_since_epoch(days);
    format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let check = |text: &str, expected: Result<Limit, ()>| {
            assert_eq!(size(text).map_err(drop), expected, "{text}");
        };
        check("5GiB", Ok(Limit::AtMost(5 << 30)));
        check("0B", Ok(Limit::AtMost(0)));
        check("unlimited", Ok(Limit::Unlimited));
        check("default", Ok(Limit::Default));
        check("5", Err(()));
        check("-5GiB", Err(()));
        assert_eq!(count("100"), Ok(Limit::AtMost(100)));
        assert!(count("5GiB").is_err() && count("").is_err());
        let text = quota(
            &Config::default(),
            Limit::AtMost(5 << 30),
            Limit::Unlimited,
            Limit::Default,
        );
        assert_eq!(
            text,
            "storage    5GiB\nmessages   unlimited\nmailboxes  10000 (default)\n"
        );
    }

    #[test]
    fn dates() {
        let check = |seconds: u64, expected: &str| assert_eq!(date(seconds), expected);
        check(0, "1970-01-01");
        check(951_782_399, "2000-02-28");
        check(951_782_400, "2000-02-29");
        check(951_868_800, "2000-03-01");
        check(1_767_225_599, "2025-12-31");
        check(1_767_225_600, "2026-01-01");
        check(4_107_542_400, "2100-03-01");
    }
}
