//! The file system becomes read-only under the server, as ext4 does when it meets an error: reading goes on, who writes is told to try later.

use whimbrel_e2e::{message, server::Builder};

use crate::{
    Disk, does_not_start, names, path, reading_works, root, until_refused, wait_until_delivered,
    writing_is_refused, writing_works,
};

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
    // A sync that is under way when it happens fails, and stops the node. Behind this one there is none.
    wait_until_delivered(&server);
    let _ = imap.command("CREATE last").unwrap().ok("CREATE");

    // What the kernel does itself when ext4 finds an error.
    root(&["mount", "-o", "remount,abort", path(&disk.at())]);
    assert_eq!(names(&server, &mut imap, SIZE), all);
    let mut pop3 = server.anne_pop3();
    let text = pop3.fetch("RETR 1").unwrap();
    assert!(text.ends_with(&message::bytes("m-0", SIZE)));

    until_refused(&mut imap, &mut all, SIZE);
    writing_is_refused(&server, &mut imap, SIZE);
    reading_works(&server, &mut imap, &all, SIZE);
    // Mending it takes an unmount, and so a stop.
    server.stop();

    // It does not start on such a disk, and says what and where.
    does_not_start(&mut server, &["Read-only file system", path(&disk.at())]);

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
