//! What a service manager hears (sd_notify(3)): that clients are served, that certificates are read again, that the server lives, that
//! it stops.

use std::os::{
    linux::net::SocketAddrExt as _,
    unix::net::{SocketAddr, UnixDatagram},
};

use whimbrel_e2e::{
    process::{DEADLINE, signal},
    server::{Builder, Server},
};

/// The next message that begins so; others are passed over.
fn hear(socket: &UnixDatagram, start: &str) -> String {
    let mut buffer = [0; 4096];
    loop {
        let length = socket
            .recv(&mut buffer)
            .unwrap_or_else(|error| panic!("waiting for {start}: {error}"));
        let message = String::from_utf8(buffer[..length].to_vec()).unwrap();
        if message.starts_with(start) {
            return message;
        }
        assert_eq!(message, "WATCHDOG=1", "waiting for {start}");
    }
}

fn manage(server: &mut Server, socket: &UnixDatagram, name: String) {
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    server.environment.push(("NOTIFY_SOCKET", name));
    // Often, so that the test need not wait for long.
    server
        .environment
        .push(("WATCHDOG_USEC", "200000".to_owned()));
    server.launch(&[]);
    hear(socket, "READY=1");
    // It says so when it is so.
    assert!(server.answers());
    for _ in 0..3 {
        hear(socket, "WATCHDOG=1");
    }
    signal(server.pid(), "HUP");
    let reloading = hear(socket, "RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    hear(socket, "READY=1");
    signal(server.pid(), "TERM");
    hear(socket, "STOPPING=1");
    assert_eq!(server.wait_end(), 0);
    server.assert_no_panic();
}

#[test]
fn a_socket_with_a_path() {
    let mut server = Builder::default().build();
    let path = server.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    manage(&mut server, &socket, path.to_str().unwrap().to_owned());
}

#[test]
fn an_abstract_socket() {
    let mut server = Builder::default().build();
    let name = format!("whimbrel-e2e-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    manage(&mut server, &socket, format!("@{name}"));
}

/// Another process is to be watched, or the socket is nobody's: it serves all the same.
#[test]
fn whoever_does_not_listen_does_not_matter() {
    let mut server = Builder::default().build();
    let path = server.path("nobody").to_str().unwrap().to_owned();
    server.environment.push(("NOTIFY_SOCKET", path));
    server.environment.push(("WATCHDOG_USEC", "1".to_owned()));
    server.environment.push(("WATCHDOG_PID", "1".to_owned()));
    server.start(&[]);
    server.stop();
}
