//! The file system becomes read-only under the server, as ext4 does when it meets an error: reading goes on, who writes is told to try later.

use std::os::unix::net::UnixDatagram;

use whimbrel_e2e::{message, process::DEADLINE, server::Builder};

use super::{
    Disk, names, path, reading_works, root, until_refused, wait_until_delivered,
    waits_for_its_disk, writing_is_refused, writing_works,
};

const SIZE: usize = 3000;

#[test]
#[ignore = "long: faults of the machine"]
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
    server.stop();

    // A start on such a disk waits. Mending it takes an unmount, and so a stop.
    let at = disk.at();
    let words = ["Read-only file system", path(&at)];
    waits_for_its_disk(&mut server, &words);
    server.stop();
    disk.unmount();
    disk.mount_file();
    server.start(&[]);
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all);
    all.append(&mut writing_works(&server, &mut imap, "after", SIZE));
    assert_eq!(names(&server, &mut imap, SIZE), all);
    server.stop();

    // One that becomes writable as it is mounted is taken into use by itself. The service manager hears that it need not start anything again.
    root(&["mount", "-o", "remount,ro", path(&disk.at())]);
    let notify = server.path("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let notify = path(&notify).to_owned();
    server.environment.push(("NOTIFY_SOCKET", notify));
    waits_for_its_disk(&mut server, &words);
    let hear = || {
        let mut buffer = [0; 200];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let told = hear();
    assert!(told.starts_with("READY=1\nSTATUS=Waiting"), "{told}");
    root(&["mount", "-o", "remount,rw", path(&disk.at())]);
    assert_eq!(hear(), "READY=1\nSTATUS=Serving");
    server.wait_until_it_serves();
    let mut imap = server.anne();
    assert_eq!(names(&server, &mut imap, SIZE), all);
    all.append(&mut writing_works(&server, &mut imap, "last", SIZE));
    assert_eq!(names(&server, &mut imap, SIZE), all);
    server.stop();
}
