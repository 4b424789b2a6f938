//! What an administrator does at one node holds at the other.

use super::*;

const DORA: &str = "dora@example.org";

fn two() -> (Node, Node) {
    let ports = [free_port(), free_port()];
    let mut a = Node::new("a", ports[0], ports[0], &[], true);
    let mut b = Node::new("b", ports[1], ports[1], &[], false);
    let _ = a.cluster(&["init"]).expect("cluster init");
    a.server.start(&[]);
    b.join(&a);
    (a, b)
}

impl Node {
    fn told(&self, arguments: &[&str], stdin: &str) -> String {
        self.server
            .admin(arguments, stdin)
            .expect(&arguments.join(" "))
    }

    fn set(&self, what: &str, password: &str) {
        let _ = self.told(&["account", what, DORA, "--password-stdin"], password);
    }

    fn lists(&self, what: &str, text: &str) -> bool {
        self.told(&[what, "list"], "").contains(text)
    }
}

#[test]
#[ignore = "long: clusters beyond the promises"]
fn accounts_are_the_same_at_every_node() {
    let (mut a, mut b) = two();
    // A node that is new has to have all accounts before it makes one.
    let add = ["account", "add", DORA, "--password-stdin"];
    wait_for("a new node to make an account", || {
        b.server.admin(&add, "first").success.then_some(())
    });
    // Asked of the administrator: wrong logins are counted.
    wait_for("the account", || a.lists("account", DORA).then_some(()));
    // The second is remembered, and that ends with the password.
    for _ in 0..2 {
        let _ = a.server.login((DORA, "first")).expect("login");
    }
    b.set("passwd", "second");
    wait_for("the new password", || {
        a.server.login((DORA, "first")).is_err().then_some(())
    });
    let mut session = a.server.login((DORA, "second")).expect("login");
    let _ = session.command("SELECT INBOX").unwrap().ok("SELECT");

    let _ = b.told(&["alias", "add", "info@example.org", DORA], "");
    wait_for("the alias", || a.lists("alias", "info@").then_some(()));
    let mut mail = Mail::lmtp(a.server.ports.lmtp).unwrap();
    let text = message::bytes("for-info", 1000);
    let replies = mail.deliver("carl@example.net", &["info@example.org"], &text, true);
    assert!(replies.unwrap()[0].is(2));
    let contents = wait_for("the mail", || {
        let mut imap = b.server.login((DORA, "second")).ok()?;
        let contents = b.server.contents(&mut imap, "INBOX").ok()?;
        (contents.messages.len() == 1).then_some(contents)
    });

    // Removed: the session that is there ends, the mail goes, and who has the address next is somebody else.
    let _ = b.told(&["account", "remove", DORA, "--yes"], "");
    wait_for("the session to end", || {
        session.command("NOOP").is_err().then_some(())
    });
    assert!(a.server.login((DORA, "second")).is_err());
    a.set("add", "third");
    wait_for("the second account", || {
        b.lists("account", DORA).then_some(())
    });
    STRICT.with_borrow(|strict| strict.forget(DORA));
    let mut imap = b.server.login((DORA, "third")).expect("login");
    let again = b.server.contents(&mut imap, "INBOX").unwrap();
    assert!(again.messages.is_empty());
    assert!(again.validity > contents.validity);
    for node in [&mut a, &mut b] {
        node.server.stop();
    }
}
