//! What administrators ask for: planned, or refused with each of the reasons.

use crate::node;

use node::{Node, named};
use whimbrel_directory::{
    AddressError, Op, QuotaChange, Refusal, Resolution, resolve::ALIAS_TARGETS_MAX,
};

fn bad(text: &str, cause: AddressError) -> Refusal {
    Refusal::Address {
        text: text.into(),
        cause,
    }
}

#[test]
fn accounts_are_refused_for_each_reason() {
    let mut node = Node::new(1);
    node.add(5, "Anne@X.org", 1);
    let anne = || named("anne@x.org");
    let bob = || named("bob@x.org");
    let add = |text: &str| {
        node.directory
            .plan_add_account(text, [2; 16], 6, 0, String::new())
            .map(|ops| ops.len())
    };
    assert_eq!(add("bob@x.org"), Ok(1), "the domain is ours already");
    assert_eq!(add("bob@y.org"), Ok(2), "the domain comes with it");
    assert_eq!(add("ANNE@x.org"), Err(Refusal::AccountExists(anne())));
    for (text, cause) in [
        ("anne", AddressError::Form),
        ("@x.org", AddressError::Form),
        ("anne@", AddressError::Form),
        ("a b@x.org", AddressError::Character),
        ("anne@x..org", AddressError::Character),
    ] {
        assert_eq!(add(text), Err(bad(text, cause)));
        assert_eq!(
            node.directory.plan_remove_account(text),
            Err(bad(text, cause))
        );
        assert_eq!(
            node.directory.plan_set_credential(text, "v", false),
            Err(bad(text, cause))
        );
    }
    assert_eq!(
        node.directory.plan_remove_account("bob@x.org"),
        Err(Refusal::NoAccount(bob()))
    );
    assert_eq!(
        node.directory.plan_set_credential("bob@x.org", "v", false),
        Err(Refusal::NoAccount(bob()))
    );
    let change = QuotaChange {
        bytes: Some(Some(5)),
        ..QuotaChange::default()
    };
    let set = node.directory.plan_set_quota("ANNE@x.org", change);
    assert!(matches!(&set.unwrap()[..], [Op::SetQuota { quota, .. }] if quota.bytes == Some(5)));
    assert!(node.directory.plan_set_quota("bob@x.org", change).is_err());
    assert!(node.directory.quota_of("bob@x.org").is_err());
    let set = node.directory.plan_set_credential("ANNE@x.org", "v", false);
    node.make(6, set.unwrap());
    assert_eq!(
        node.directory.holder(&anne()).unwrap().1.credential.value,
        "v".into()
    );
    node.remove("anne@x.org");
    assert_eq!(
        node.directory.plan_remove_account("anne@x.org"),
        Err(Refusal::NoAccount(anne()))
    );
}

/// Mail comes for `xn--bcher-kva.example`: an address under the other spelling gets none. What is there from before can be read, and be removed.
#[test]
fn domains_are_named_as_in_dns() {
    let mut node = Node::new(1);
    node.add(5, "anne@xn--bcher-kva.example", 1);
    let add = |node: &Node, text: &str| {
        node.directory
            .plan_add_account(text, [2; 16], 6, 0, String::new())
            .map(|ops| ops.len())
    };
    let refused = Refusal::NotInDns(named("info@bücher.example"));
    assert_eq!(add(&node, "Info@Bücher.example"), Err(refused.clone()));
    assert!(refused.to_string().contains("xn--"), "{refused}");
    assert_eq!(add(&node, "bücher@XN--bcher-kva.example"), Ok(1));
    let alias = |node: &Node, from: &str, to: &str| {
        node.directory
            .plan_add_alias(from, to, true)
            .map(|ops| ops.len())
    };
    let anne = "anne@xn--bcher-kva.example";
    assert_eq!(alias(&node, "info@bücher.example", anne), Err(refused));
    let all =
        Refusal::NotInDns(whimbrel_directory::Address::parse_alias("@bücher.example").unwrap());
    assert_eq!(alias(&node, "@bücher.example", anne), Err(all));
    assert_eq!(alias(&node, "info@xn--bcher-kva.example", anne), Ok(1));

    let op = whimbrel_directory::Op::AddAccount {
        account: [3; 16],
        address: "old@bücher.example".into(),
        created: 1,
        uid_validity: 1,
        credential: String::new().into(),
    };
    node.make(7, vec![op]);
    assert!(
        node.directory
            .holder(&named("old@bücher.example"))
            .is_some()
    );
    assert_eq!(
        alias(&node, "old@xn--bcher-kva.example", "old@bücher.example"),
        Ok(1)
    );
    node.remove("old@bücher.example");
    assert!(
        node.directory
            .holder(&named("old@bücher.example"))
            .is_none()
    );
}

/// What is reached by a long way and a short one is as far away as the first of the two says; a new alias may be the first.
#[test]
fn an_alias_is_judged_where_it_will_stand() {
    let mut node = Node::new(1);
    node.add(5, "p8@x.org", 1);
    let mut links: Vec<(String, String)> = (3..8)
        .rev()
        .map(|n| (format!("p{n}"), format!("p{}", n + 1)))
        .collect();
    links.extend(
        [("a", "p3"), ("c", "a"), ("h", "c"), ("0", "a")].map(|(f, t)| (f.into(), t.into())),
    );
    for (from, to) in links {
        let added = node.alias(&format!("{from}@x.org"), &format!("{to}@x.org"));
        assert_eq!(added, Ok(()), "{from} -> {to}");
    }
    // h, c, 0, a, p3, ...: one too many.
    let refused = Err(Refusal::Loop(named("h@x.org")));
    assert_eq!(node.alias("c@x.org", "0@x.org"), refused);
    let found = node.directory.resolve("h", "x.org");
    assert!(matches!(found, Resolution::Local(_)), "{found:?}");
}

#[test]
fn aliases_are_refused_for_each_reason() {
    let mut node = Node::new(1);
    node.add(5, "anne@x.org", 1);
    node.add(6, "bob@x.org", 2);
    let table: &[(&str, &str, Result<(), Refusal>)] = &[
        ("Info@X.org", "ANNE@x.org", Ok(())),
        (
            "info@x.org",
            "anne@x.org",
            Err(Refusal::AliasExists(
                named("info@x.org"),
                named("anne@x.org"),
            )),
        ),
        ("info@x.org", "bob@x.org", Ok(())),
        ("info", "bob@x.org", Err(bad("info", AddressError::Form))),
        ("a@x.org", "bob@", Err(bad("bob@", AddressError::Form))),
        // A catch-all receives, nothing leads to it by name.
        ("a@x.org", "@x.org", Err(bad("@x.org", AddressError::Form))),
        (
            "a@x.org",
            "carl@x.org",
            Err(Refusal::NoTarget(named("carl@x.org"))),
        ),
        (
            "a@x.org",
            "anne@elsewhere.org",
            Err(Refusal::NoTarget(named("anne@elsewhere.org"))),
        ),
        (
            "a@x.org",
            "a@x.org",
            Err(Refusal::ToItself(named("a@x.org"))),
        ),
        ("help@y.org", "info@x.org", Ok(())),
        (
            "info@x.org",
            "help@y.org",
            Err(Refusal::Loop(named("info@x.org"))),
        ),
        (
            "anne@x.org",
            "help@y.org",
            Err(Refusal::Loop(named("anne@x.org"))),
        ),
        ("bob@x.org", "bob@x.org", Ok(())),
        ("bob@x.org", "bob+all@x.org", Ok(())),
        ("bob@x.org", "anne@x.org", Ok(())),
        ("@x.org", "anne@x.org", Ok(())),
        // What only the catch-all would receive is no target.
        (
            "a@x.org",
            "whoever@x.org",
            Err(Refusal::NoTarget(named("whoever@x.org"))),
        ),
        ("a@x.org", "anne+lists@x.org", Ok(())),
        (
            "anne@x.org",
            "a@x.org",
            Err(Refusal::Loop(named("anne@x.org"))),
        ),
        (
            "a@x.org",
            "carl+lists@x.org",
            Err(Refusal::NoTarget(named("carl+lists@x.org"))),
        ),
        ("anne@x.org", "anne+all@x.org", Ok(())),
    ];
    for (from, to, expected) in table {
        assert_eq!(node.alias(from, to), *expected, "{from} -> {to}");
    }
    assert!(node.directory.has_domain(named("a@y.org").domain()));
    // Whatever was planned leads somewhere.
    for (from, _, expected) in table {
        if expected.is_ok() {
            let from = named(from);
            let found = node.directory.resolve(from.local(), from.domain().as_str());
            assert!(matches!(found, Resolution::Local(_)), "{from}: {found:?}");
        }
    }
}

#[test]
fn removing_aliases() {
    let mut node = Node::new(1);
    node.add(5, "anne@x.org", 1);
    node.add(6, "bob@x.org", 2);
    for to in ["anne@x.org", "bob@x.org"] {
        node.alias("info@x.org", to).unwrap();
        node.alias("@x.org", to).unwrap();
    }
    let plan = |node: &Node, from: &str, to: Option<&str>| {
        node.directory
            .plan_remove_alias(from, to)
            .map(|ops| ops.len())
    };
    let none = |alias: &str| Err(Refusal::NoAlias(alias.to_owned()));
    assert_eq!(plan(&node, "INFO@x.org", None), Ok(2));
    assert_eq!(plan(&node, "INFO@x.org", Some("BOB@x.org")), Ok(1));
    assert_eq!(plan(&node, "@x.org", Some("bob@x.org")), Ok(1));
    assert_eq!(
        plan(&node, "info@x.org", Some("carl@x.org")),
        none("info@x.org -> carl@x.org")
    );
    assert_eq!(plan(&node, "anne@x.org", None), none("anne@x.org"));
    assert_eq!(
        plan(&node, "info", None),
        Err(bad("info", AddressError::Form))
    );
    assert_eq!(
        plan(&node, "info@x.org", Some("x")),
        Err(bad("x", AddressError::Form))
    );
    let ops = node
        .directory
        .plan_remove_alias("info@x.org", Some("bob@x.org"));
    node.make(7, ops.unwrap());
    assert_eq!(
        node.directory
            .alias_targets("info@x.org")
            .collect::<Vec<_>>(),
        ["anne@x.org"]
    );
    let ops = node.directory.plan_remove_alias("info@x.org", None);
    node.make(8, ops.unwrap());
    assert_eq!(node.directory.alias_targets("info@x.org").count(), 0);
    assert_eq!(node.directory.alias_targets("@x.org").count(), 2);
}

#[test]
fn an_alias_that_would_lead_too_far_or_to_too_many_is_refused() {
    let mut node = Node::new(1);
    node.add(5, "a0@x.org", 1);
    for link in 1..=8 {
        node.alias(&format!("a{link}@x.org"), &format!("a{}@x.org", link - 1))
            .unwrap();
    }
    assert_eq!(
        node.alias("a9@x.org", "a8@x.org"),
        Err(Refusal::Loop(named("a9@x.org")))
    );

    for number in 0..=ALIAS_TARGETS_MAX {
        let name = format!("u{number}@x.org");
        let mut key = [9; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let ops = node
            .directory
            .plan_add_account(&name, key, 7, 0, String::new());
        node.make(7, ops.unwrap());
        let expected = if number < ALIAS_TARGETS_MAX {
            Ok(())
        } else {
            Err(Refusal::Loop(named("all@x.org")))
        };
        assert_eq!(node.alias("all@x.org", &name), expected, "{number}");
    }
}

#[test]
fn a_chain_is_not_lengthened_at_its_far_end_beyond_the_limit() {
    let mut node = Node::new(1);
    for (number, name) in ["a0@x.org", "b@x.org", "c@x.org"].iter().enumerate() {
        node.add(5, name, number as u8);
    }
    // a8 > a7 > ... > a0, as long as may be.
    for link in 1..=8 {
        node.alias(&format!("a{link}@x.org"), &format!("a{}@x.org", link - 1))
            .unwrap();
    }
    node.alias("upper@x.org", "a7@x.org").unwrap();
    let too_long = |upper: &str| Err(Refusal::Loop(named(upper)));
    // It would take a8 and its like one too far, and the refusal names one of them.
    assert_eq!(node.alias("a0@x.org", "b@x.org"), too_long("a8@x.org"));
    // A second way out of the chain is no longer than the first.
    assert_eq!(node.alias("a1@x.org", "b@x.org"), Ok(()));
    assert_eq!(node.alias("b@x.org", "c@x.org"), too_long("a8@x.org"));
    // Nor is a longer way around: it counts from the top.
    node.alias("d@x.org", "c@x.org").unwrap();
    assert_eq!(node.alias("a1@x.org", "d@x.org"), too_long("a8@x.org"));
    // Two steps from the top there is room for two more.
    assert_eq!(node.alias("a6@x.org", "d@x.org"), Ok(()));
    for name in (1..=8)
        .map(|link| format!("a{link}"))
        .chain(["upper".into()])
    {
        let found = node.directory.resolve(&name, "x.org");
        assert!(matches!(found, Resolution::Local(_)), "{name}: {found:?}");
    }
    // By way of a detail that becomes an alias of its own.
    let mut node = Node::new(1);
    node.add(5, "a0@x.org", 1);
    node.add(5, "b@x.org", 2);
    node.alias("a1@x.org", "a0+z@x.org").unwrap();
    for link in 2..=8 {
        node.alias(&format!("a{link}@x.org"), &format!("a{}@x.org", link - 1))
            .unwrap();
    }
    assert_eq!(node.alias("a0+z@x.org", "b@x.org"), too_long("a8@x.org"));

    // Too many instead of too far: the list that holds the list.
    let mut node = Node::new(1);
    for number in 0..=ALIAS_TARGETS_MAX {
        let name = format!("u{number}@x.org");
        let mut key = [9; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let ops = node
            .directory
            .plan_add_account(&name, key, 7, 0, String::new());
        node.make(7, ops.unwrap());
        if number + 1 < ALIAS_TARGETS_MAX {
            node.alias("some@x.org", &name).unwrap();
        }
    }
    node.alias("all@x.org", "some@x.org").unwrap();
    node.alias("all@x.org", "u999@x.org").unwrap();
    assert_eq!(
        node.alias("some@x.org", "u1000@x.org"),
        too_long("all@x.org")
    );
    assert_eq!(node.alias("some@x.org", "u999@x.org"), Ok(()));
}

/// The mail of an account went elsewhere without a word.
#[test]
fn an_alias_does_not_take_an_accounts_mail_unasked() {
    let mut node = Node::new(1);
    let _ = node.add(1, "anne@x.org", 1);
    let _ = node.add(1, "bob@x.org", 2);
    let plan = |node: &Node, from: &str, to: &str, instead: bool| {
        let planned = node.directory.plan_add_alias(from, to, instead);
        planned.map(|_| ()).map_err(|refusal| refusal.to_string())
    };
    let refused = plan(&node, "Bob@x.org", "anne@x.org", false).unwrap_err();
    assert!(refused.contains("--instead"), "{refused}");
    assert_eq!(plan(&node, "bob@x.org", "anne@x.org", true), Ok(()));
    assert_eq!(plan(&node, "info@x.org", "anne@x.org", false), Ok(()));
    assert_eq!(plan(&node, "@x.org", "anne@x.org", false), Ok(()));
    // Both get it.
    assert_eq!(plan(&node, "bob@x.org", "bob@x.org", false), Ok(()));
    node.alias("bob@x.org", "bob@x.org").unwrap();
    assert_eq!(plan(&node, "bob@x.org", "anne@x.org", false), Ok(()));
}
