//! GNU SASL's client: SCRAM-SHA-256 and SCRAM-SHA-256-PLUS as another project reads the RFCs, bound to the connection.

use whimbrel_e2e::{
    process::{Done, run},
    server::Server,
};

use super::{ANNE, PASSWORD, program};

fn gsasl(server: &Server, protocol: &str, mechanism: &str, password: &str, more: &[&str]) -> Done {
    let port = match protocol {
        "--imap" => server.ports.imap,
        _ => server.ports.submission,
    };
    let mut command = program(server, "gsasl");
    command
        .args([protocol, "--starttls", "--verbose"])
        .args(["--connect", &format!("localhost:{port}")])
        .args(["--mechanism", mechanism])
        .args(["--authentication-id", ANNE, "--password", password])
        .arg(format!(
            "--x509-ca-file={}",
            server.path("authority.pem").display()
        ))
        .args(more);
    run(&mut command, b"")
}

#[test]
#[ignore = "long: gsasl"]
fn scram() {
    let server = Server::start_plain();
    for protocol in ["--imap", "--smtp"] {
        for (mechanism, more) in [
            ("SCRAM-SHA-256-PLUS", &[][..]),
            // It refuses to go without a binding where it could have one, unless it is told to.
            ("SCRAM-SHA-256", &["--no-cb"][..]),
            ("PLAIN", &[][..]),
            ("LOGIN", &[][..]),
        ] {
            let done = gsasl(&server, protocol, mechanism, PASSWORD, more);
            assert!(done.success, "{protocol} {mechanism}: {done:?}");
            // With SCRAM this includes that the server has proved that it knows the account.
            let finished = "Client authentication finished";
            assert!(
                done.stderr.contains(finished) || done.stdout.contains(finished),
                "{protocol} {mechanism}: {done:?}"
            );
        }
        let wrong = gsasl(&server, protocol, "SCRAM-SHA-256-PLUS", "wrong", &[]);
        assert!(!wrong.success, "{protocol}: {wrong:?}");
    }
    assert_eq!(server.log().matches("login refused").count(), 2);
    assert!(!server.log().contains(PASSWORD), "no password in the log");
    server.assert_no_panic();
}
