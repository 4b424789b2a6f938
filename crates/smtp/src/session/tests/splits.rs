//! What a session does is independent of the split of its input and of when it is answered; nothing makes it panic or fill up.

use proptest::prelude::*;

use super::script::{Owner, config};
use crate::fuzz;
use crate::session::Role;

/// Pieces that get a session into all of its states, and some that do not belong there.
fn token() -> impl Strategy<Value = Vec<u8>> {
    let fixed = |tokens: &'static [&'static str]| {
        proptest::sample::select(tokens).prop_map(|token| token.as_bytes().to_vec())
    };
    prop_oneof![
        8 => fixed(&[
            "EHLO a\r\n", "HELO a\r\n", "LHLO a\r\n", "MAIL FROM:<>\r\n", "MAIL FROM:<a@b> SIZE=100\r\n", "MAIL FROM:<f@b>\r\n", "MAIL FROM:<é@b> SMTPUTF8\r\n",
            "RCPT TO:<a@b>\r\n", "RCPT TO:<u@b>\r\n", "RCPT TO:<é@b>\r\n", "DATA\r\n", "NOOP\r\n", "RSET\r\n", "QUIT\r\n", "HELP\r\n", "VRFY x\r\n", "AUTH PLAIN\r\n",
            "AUTH PLAIN AGEAYg==\r\n", "AUTH LOGIN\r\n", "YQ==\r\n", "*\r\n", "BDAT 5\r\n", "BDAT 5 LAST\r\n", "BDAT 0 LAST\r\n", "BDAT 60\r\n", "BDAT 140 LAST\r\n",
            "BDAT 151\r\n", "BDAT x\r\n",
        ]),
        6 => fixed(&[
            "EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nDATA\r\n", "LHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nRCPT TO:<c@b>\r\nDATA\r\n",
            "RSET\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nBDAT 8\r\n", "LHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nRCPT TO:<c@b>\r\nBDAT 3 LAST\r\n",
            "EHLO a\r\nAUTH PLAIN AGEAYg==\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nDATA\r\n",
        ]),
        6 => fixed(&[
            ".\r\n", "\r\n.\r\n", "..\r\n", "x\r\n", "text of a message\r\n", "Received: x\r\n", "Delivered-To: a@b\r\n", "\r\n", "\r", "\n", "\n.\n", "\r.\r", ".", "\0", "abc",
            "a line that is longer than it may be\r\n",
        ]),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (0usize..200).prop_map(|count| vec![b'x'; count]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_split_is_the_same(choice: u8, tokens in proptest::collection::vec(token(), 0..25)) {
        let mut data = vec![choice];
        data.extend(tokens.concat());
        fuzz::session(&data);
    }

    #[test]
    fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz::session(&data);
        fuzz::client(&data);
        fuzz::command(&data);
        fuzz::text(&data);
    }

    #[test]
    fn starttls_anywhere_is_survived(
        choice: u8,
        before in proptest::collection::vec(token(), 0..8),
        after in proptest::collection::vec(token(), 0..8),
    ) {
        let mut data = vec![choice];
        data.extend(before.concat());
        data.extend(b"STARTTLS\r\n");
        data.extend(after.concat());
        fuzz::session(&data);
    }

    /// There is no state without a deadline: a client that falls silent is sent away, and a message it had begun is aborted.
    #[test]
    fn silence_ends_any_session(tokens in proptest::collection::vec(token(), 0..12), role in 0usize..3) {
        let mut config = config();
        config.auth_without_tls = true;
        let mut owner = Owner::new([Role::Smtp, Role::Lmtp, Role::Submission][role], config, false);
        owner.run();
        owner.feed(&tokens.concat(), usize::MAX);
        owner.wait(15 * 60);
        prop_assert!(owner.closed.is_some(), "{:?}", owner.session);
        prop_assert_eq!(owner.session.deadline(), None);
        let count = |what: &str| owner.events.iter().filter(|event| event.starts_with(what)).count();
        prop_assert!(count("begin") >= count("end") + count("abort"));
    }
}
