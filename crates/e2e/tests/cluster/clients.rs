//! Real clients that go from node to node: mbsync keeps one Maildir by all of them, swaks delivers, curl looks.

use std::path::PathBuf;

use whimbrel_e2e::process::run;

use super::{mesh::Mesh, *};

const ANNE: (&str, &str) = ACCOUNTS[0];

/// A Maildir that is synchronized with whichever node is asked, all mailboxes of it.
pub(crate) struct Near(tempfile::TempDir);

impl Near {
    pub(crate) fn new() -> Near {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("mail")).unwrap();
        Near(directory)
    }

    /// One account of one server, as far as mbsync knows: the node is its address alone.
    pub(crate) fn synchronize(&self, node: &Node) {
        let _ = self.tries(node).expect("mbsync");
    }

    pub(crate) fn tries(&self, node: &Node) -> Done {
        let at = |name: &str| self.0.path().join(name).display().to_string();
        let text = format!(
            "IMAPAccount server\nHost localhost\nPort {}\nUser {}\nPass \"{}\"\nSSLType IMAPS\nSystemCertificates no\n\
             CertificateFile {}\n\nIMAPStore far\nAccount server\n\nMaildirStore near\nPath {}/\nInbox {}\nSubFolders Verbatim\n\n\
             Channel all\nFar :far:\nNear :near:\nPatterns *\nCreate Near\nExpunge Both\nSyncState *\n",
            node.server.ports.imaps,
            ANNE.0,
            ANNE.1,
            node.server.path("authority.pem").display(),
            at("mail"),
            at("mail/INBOX"),
        );
        fs::write(at("mbsyncrc"), text).unwrap();
        let mut command = Command::new("mbsync");
        command
            .args(["--config", &at("mbsyncrc"), "--all"])
            .env("HOME", self.0.path());
        run(&mut command, b"")
    }

    /// Each file that it has loaded, of all mailboxes, by the name that it got then: without its flags, and wherever it lies now.
    pub(crate) fn loaded(&self) -> BTreeSet<PathBuf> {
        let mut files = BTreeSet::new();
        let mut directories = vec![self.0.path().join("mail")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    directories.push(entry.path());
                } else if ["cur", "new"].iter().any(|sub| directory.ends_with(sub)) {
                    let name = entry.file_name().into_string().unwrap();
                    let name = name.split(':').next().unwrap();
                    files.insert(directory.parent().unwrap().join(name));
                }
            }
        }
        files
    }

    fn files(&self) -> Vec<PathBuf> {
        let inbox = self.0.path().join("mail/INBOX");
        let of = |sub: &str| fs::read_dir(inbox.join(sub)).unwrap();
        let entries = of("cur").chain(of("new"));
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn name(file: &Path) -> String {
        let text = String::from_utf8(fs::read(file).unwrap()).unwrap();
        message::name_of(text.replace('\n', "\r\n").as_bytes()).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        let files = self.files();
        let found = files.into_iter().find(|file| Near::name(file) == name);
        found.unwrap_or_else(|| panic!("{name} is not there"))
    }

    /// The flags of a message, as letters of its file's name.
    fn set(&self, name: &str, flags: &str) {
        let file = self.file(name);
        let base = file.file_name().unwrap().to_str().unwrap();
        let base = base.split(":2,").next().unwrap();
        let to = self.0.path().join("mail/INBOX/cur");
        fs::rename(&file, to.join(format!("{base}:2,{flags}"))).unwrap();
    }

    /// Has each message that is expected, once.
    fn has(&self, expected: &Shown) {
        let mut names: Vec<String> = self.files().iter().map(|file| Near::name(file)).collect();
        names.sort();
        let expected: Vec<&String> = expected.keys().collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), expected);
    }
}

/// What curl is told of UIDs and flags.
fn curl(node: &Node) -> String {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--cacert"])
        .arg(node.server.path("authority.pem"))
        .args(["--user", &format!("{}:{}", ANNE.0, ANNE.1)])
        .arg(format!(
            "imaps://localhost:{}/INBOX",
            node.server.ports.imaps
        ))
        .args(["--request", "FETCH 1:* (UID FLAGS)"]);
    run(&mut command, b"").expect("curl")
}

/// By LMTP.
fn swaks(node: &Node, name: &str) {
    let file = node.server.path("swaks.eml");
    fs::write(&file, message::bytes(name, 1000)).unwrap();
    let mut command = Command::new("swaks");
    command
        .args(["--protocol", "LMTP", "--server", "127.0.0.1"])
        .args(["--port", &node.server.ports.lmtp.to_string()])
        .args(["--from", "carl@example.net", "--to", ANNE.0])
        .arg("--data")
        .arg(format!("@{}", file.display()));
    let _ = run(&mut command, b"").expect("swaks");
}

#[test]
fn mbsync_goes_from_node_to_node_and_nothing_is_doubled() {
    let mut mesh = Mesh::new(3);
    let near = Near::new();
    for index in 0..5 {
        mesh.scene.deliver(index % 3, &format!("first {index}"));
    }
    mesh.alike();
    near.synchronize(&mesh.scene.nodes[0]);
    near.has(&mesh.scene.expected);

    // Written on both sides of a cut, and here.
    mesh.cut_off(2);
    mesh.wait_links(&[1, 1, 0]);
    mesh.scene.deliver(0, "at the first");
    mesh.scene.put(2, "at the third");
    near.set("first 1", "S");
    near.synchronize(&mesh.scene.nodes[0]);
    let seen = mesh.scene.expected.get_mut("first 1").unwrap();
    seen.insert("\\Seen".to_owned());
    mesh.scene.store(2, "first 1", "\\Flagged");
    mesh.heal_all();
    mesh.alike();
    for node in [2, 1, 0] {
        near.synchronize(&mesh.scene.nodes[node]);
        near.has(&mesh.scene.expected);
    }
    let file = near.file("first 1");
    assert!(file.to_string_lossy().ends_with(":2,FS"), "{file:?}");

    // Deleted here: gone everywhere, and it stays so.
    near.set("first 2", "T");
    near.synchronize(&mesh.scene.nodes[1]);
    mesh.scene.expected.remove("first 2");
    mesh.alike();
    for node in [0, 2] {
        near.synchronize(&mesh.scene.nodes[node]);
        near.has(&mesh.scene.expected);
    }

    // Other clients are told the same at every node.
    swaks(&mesh.scene.nodes[1], "by swaks");
    let name = "by swaks".to_owned();
    mesh.scene.expected.insert(name, BTreeSet::new());
    mesh.alike();
    let told: Vec<String> = mesh.scene.nodes.iter().map(curl).collect();
    assert_eq!(told[0].lines().count(), mesh.scene.expected.len());
    assert!(told.windows(2).all(|two| two[0] == two[1]), "{told:?}");
    mesh.stop();
}
