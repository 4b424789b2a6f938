//! The file system becomes read-only under the server, as ext4 does when it meets an error: reading goes on until something has to be written;
//! then the node stops, since nobody knows what of that write is on the disk.

use whimbrel_e2e::{imap::Status, message, server::Builder, wire::Trouble};

use crate::{Disk, does_not_start, has_stopped_itself, names, path, root, writing_works};

const SIZE: usize = 3000;

#[test]
fn a_disk_that_can_only_be_read() {
    let mut disk = Disk::file(256);
    let mut server = Builder::default()
        .set("server", &disk.data_dir())
        .set("storage", "free_bytes_min = \"16MiB\"")
        .start();
    let mut all: Vec<String> = (0..3).map(|n| format!("m-{n}")).collect();
    server.deliver(&all, SIZE);
    let mut imap = server.anne();
    let _ = imap.command("EXAMINE INBOX").unwrap().ok("EXAMINE");

    // What the kernel does itself when ext4 finds an error.
    root(&["mount", "-o", "remount,abort", path(&disk.at())]);
    assert_eq!(names(&server, &mut imap, SIZE), all);
    let mut pop3 = server.anne_pop3();
    let text = pop3.fetch("RETR 1").unwrap();
    assert!(text.ends_with(&message::bytes("m-0", SIZE)));

    let told = imap.append("INBOX", &[], &message::bytes("refused", SIZE));
    match told {
        Err(Trouble::Closed) => {}
        Ok(reply) => assert_eq!(reply.status, Status::No, "{reply:?}"),
        other => panic!("{other:?}"),
    }
    let why = "Read-only file system";
    has_stopped_itself(&mut server, why);

    // It does not start on such a disk, and says what and where.
    does_not_start(&mut server, &[why, path(&disk.at())]);

    // Mended and mounted again.
    disk.unmount();
    disk.mount_file();
    server.start(&[]);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all);
    all.append(&mut writing_works(&server, &mut imap, "after", SIZE));
    assert_eq!(names(&server, &mut imap, SIZE), all);
    server.stop();
}
