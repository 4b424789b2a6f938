use std::time::Duration;

use super::{
    read::{RENAMED, literal, parse},
    render::{documentation, example},
    schema::SECTIONS,
    *,
};

#[test]
fn an_empty_file_is_the_defaults() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.imap.listen_tls, ["127.0.0.1:10993".parse().unwrap()]);
    assert_eq!(config.imap.listen, ["127.0.0.1:10143".parse().unwrap()]);
    assert_eq!(config.pop3.listen, ["127.0.0.1:10110".parse().unwrap()]);
    assert_eq!(config.pop3.listen_tls, ["127.0.0.1:10995".parse().unwrap()]);
    assert_eq!(config.smtp.listen, ["127.0.0.1:10025".parse().unwrap()]);
    assert_eq!(config.lmtp.listen, ["127.0.0.1:10024".parse().unwrap()]);
    assert_eq!(config.metrics.listen, ["127.0.0.1:10900".parse().unwrap()]);
    assert_eq!(config.server.data_dir, Path::new("./whimbrel-data"));
    assert_eq!(config.imap.append_bytes_max, Size(64 << 20));
    assert_eq!(config.tls.handshake_timeout, Duration::from_secs(15));
}

#[test]
fn values_are_read() {
    let config = Config::parse(
        "[server]\nhostname = 'mail.example.org'\nowners = 0x10\n[imap]\nlisten = []\nlogin_timeout = '2 m'\n\
         append_bytes_max = \"2MiB\"\n[log]\nlevel = 'debug'\nformat = 'json'\n",
    )
    .unwrap();
    assert_eq!(config.hostname(), "mail.example.org");
    assert_eq!(config.owners(), 16);
    assert!(config.imap.listen.is_empty());
    assert_eq!(config.imap.login_timeout, Duration::from_secs(120));
    assert_eq!(config.imap.append_bytes_max.bytes(), 2 << 20);
    assert_eq!(config.log.level, LogLevel::Debug);
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn renamed_keys_are_refused_with_their_new_names() {
    for (old, new) in RENAMED {
        let (section, key) = old.split_once('.').unwrap();
        let problems = Config::parse(&format!("[{section}]\n{key} = 1")).unwrap_err();
        let expected = format!("line 2: the key `{old}` is called `{new}` now");
        assert!(problems.to_string().contains(&expected), "{problems}");
        let (section, key) = new.split_once('.').unwrap();
        let known = SECTIONS.iter().find(|known| known.name == section).unwrap();
        assert!(known.keys.iter().any(|known| known.name == key), "{new}");
    }
}

#[test]
fn problems_say_line_and_remedy() {
    let check = |text: &str, expected: &[&str]| {
        let problems = Config::parse(text)
            .err()
            .map(|problems| problems.to_string());
        let lines: Vec<_> = problems
            .as_deref()
            .unwrap_or("none")
            .lines()
            .map(str::trim)
            .collect();
        assert_eq!(lines, expected, "for {text:?}");
    };
    check(
        "\n[imap]\nappend_byte_max = '1MiB'",
        &["line 3: unknown key `imap.append_byte_max`, did you mean `imap.append_bytes_max`?"],
    );
    check(
        "[imapp]\n",
        &["line 1: unknown section `imapp`, did you mean `imap`?"],
    );
    check("[qqqq]\nx = 1", &["line 1: unknown section `qqqq`"]);
    check(
        "data_dir = '/x'",
        &["line 1: unknown key `data_dir`, did you mean `server.data_dir`?"],
    );
    check(
        "[smtp]\nargon2_lanes = 2",
        &["line 2: unknown key `smtp.argon2_lanes`, did you mean `auth.argon2_lanes`?"],
    );
    check("imap = 3", &["line 1: `imap` is a section: write [imap]"]);
    check(
        "[imap]\nzzzzzzzzzz = 1",
        &["line 2: unknown key `imap.zzzzzzzzzz`"],
    );
    check(
        "[smtp]\nmessage_bytes_max = 5\nerrors_max = 'x'\nreceived_hops_max = -1",
        &[
            "line 2: `smtp.message_bytes_max`: expected a size such as \"64MiB\", found integer",
            "line 3: `smtp.errors_max`: expected a number, found string",
            "line 4: `smtp.received_hops_max`: expected a number from 0 to 18446744073709551615",
        ],
    );
    check(
        "[limits]\nwrite_timeout = '3 parsecs'",
        &[
            "line 2: `limits.write_timeout`: \"3 parsecs\" is not a duration such as \"250ms\", \"30s\", \"5m\", \"1h\" or \"2d\"",
        ],
    );
    check(
        "[limits]\nwrite_timeout = '+3s'",
        &[
            "line 2: `limits.write_timeout`: \"+3s\" is not a duration such as \"250ms\", \"30s\", \"5m\", \"1h\" or \"2d\"",
        ],
    );
    check(
        "[limits]\nwrite_timeout = '2h'",
        &["line 2: `limits.write_timeout`: must be from \"1s\" to \"1h\""],
    );
    check(
        "[storage]\ncache_bytes = '99999999999TiB'",
        &[
            "line 2: `storage.cache_bytes`: \"99999999999TiB\" is not a size such as \"512B\", \"16KiB\", \"64MiB\" or \"2GiB\"",
        ],
    );
    check(
        "[imap]\nlisten = ['localhost:143']",
        &[
            "line 2: `imap.listen`: \"localhost:143\" is not an address with a port, such as \"127.0.0.1:143\" or \"[::]:143\". Give an IP address: names are not looked up",
        ],
    );
    check(
        "[log]\nlevel = 'loud'",
        &[
            "line 2: `log.level`: expected one of \"error\", \"warn\", \"info\", \"debug\", \"trace\"",
        ],
    );
    check(
        "[tls]\n\ncert = 'a.pem'",
        &["line 3: `tls.cert` and `tls.key` belong together: give both or neither"],
    );
    check(
        "[server]\nhostname = 'a b'",
        &["line 2: `server.hostname`: \"a b\" is not a host name"],
    );
    check(
        "[limits]\nconnections_max = 10\nconnections_per_address_max = 11\nunauthenticated_max = 10",
        &[
            "line 3: `limits.connections_per_address_max` is greater than `limits.connections_max` (10)",
        ],
    );
    for first in ["0.0.0.0:10700", "[::]:10700"] {
        check(
            &format!("[cluster]\nname = 'a'\nlisten = ['{first}', '192.0.2.1:10700']"),
            &[
                "line 3: `cluster.listen` is every address of this machine; give `cluster.address`: where the others reach this node",
            ],
        );
        for fits in [
            format!("[cluster]\nname = 'a'\naddress = 'a.test:10700'\nlisten = ['{first}']"),
            format!("[cluster]\nname = 'a'\nlisten = ['192.0.2.1:10700', '{first}']"),
            format!("[cluster]\nlisten = ['{first}']"),
        ] {
            Config::parse(&fits).unwrap();
        }
    }
    check(
        "[server]\nowners = 1\nowners = 2",
        &["line 3: duplicate key"],
    );
    check("[server\n", &["line 1: unclosed table, expected `]`"]);
}

#[test]
fn every_default_and_bound_is_valid() {
    for section in SECTIONS {
        for key in section.keys {
            let text = format!("[{}]\n{} = {}\n", section.name, key.name, key.default);
            parse(&text).unwrap_or_else(|problems| panic!("{text}{problems}"));
            if let Some((least, most)) = key.range {
                for bound in [least, most] {
                    assert!(
                        literal::<u64>(bound).is_ok()
                            || literal::<Size>(bound).is_ok()
                            || literal::<Duration>(bound).is_ok(),
                        "{}.{}: {bound}",
                        section.name,
                        key.name
                    );
                }
            }
        }
    }
}

/// The example with all keys in force is the defaults, and a configuration.
#[test]
fn the_example_holds_every_key_at_its_default() {
    let in_force: String = example()
        .lines()
        .filter(|line| !line.starts_with("# "))
        .map(|line| format!("{}\n", line.trim_start_matches('#')))
        .collect();
    let config = Config::parse(&in_force).unwrap();
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
    for section in SECTIONS {
        for key in section.keys {
            assert!(
                in_force.contains(&format!("\n{} = {}\n", key.name, key.default)),
                "{}",
                key.name
            );
        }
    }
}

/// `docs/config.md` is what the schema says. Write it again with `whimbrel config --markdown > docs/config.md`.
#[test]
fn the_documentation_is_in_step() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == documentation(),
        "docs/config.md is out of step: `whimbrel config --markdown > docs/config.md`"
    );
    for line in written.lines() {
        assert!(line.chars().count() <= 160, "{line}");
    }
}

#[test]
fn paths_in_a_file_are_relative_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("whimbrel.toml");
    std::fs::write(
        &file,
        "[server]\ndata_dir = 'd'\n[tls]\ncert = 'c.pem'\nkey = '/k.pem'\n",
    )
    .unwrap();
    let config = Config::load(Some(&file)).unwrap();
    assert_eq!(config.server.data_dir, directory.path().join("d"));
    assert_eq!(config.tls.cert, directory.path().join("c.pem"));
    assert_eq!(config.tls.key, Path::new("/k.pem"));
    let missing = Config::load(Some(&directory.path().join("none"))).unwrap_err();
    assert!(matches!(missing, ConfigError::Unreadable { .. }));
}
