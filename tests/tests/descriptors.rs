//! A server that may have few files open, with more silent peers than that.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use haulage::provider::iwarp::{Backend, Config, Iwarp};
use haulage::provider::{ConnectionParams, Event, Provider};
use haulage::sys::clock;

use haulage_tests::by_number::ByNumber as _;

/// A peer that speaks gets in, though silent peers try to take all descriptors.
#[test]
fn silent_peers_cannot_take_all_descriptors() {
    for backend in ["sockets", "auto"] {
        // The limit applies to a process, so the server is a process of its own.
        let mut server = Command::new("sh")
            .args(["-c", r#"ulimit -n "$1" && exec "$0" --exact --ignored --nocapture server"#])
            .arg(env::current_exe().unwrap())
            .arg(FILES.to_string())
            .env("BACKEND", backend)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let at = lines.find_map(|line| line.unwrap().split_once(SIGN)?.1.parse().ok()).unwrap();

        let silent: Vec<TcpStream> =
            (0..2 * FILES).map(|_| TcpStream::connect::<SocketAddr>(at).unwrap()).collect();
        let mut client = Iwarp::new(&Config::default()).unwrap();
        client.connect(clock::now(), at, &PARAMS).unwrap();
        assert!(until(&mut client, |event| matches!(event, Event::Established { .. })));
        drop(client);
        assert!(server.wait().unwrap().success());
        drop(silent);
    }
}

/// Serves one connection to its end.
#[test]
#[ignore = "started by the test above, with a limit"]
fn server() {
    let backend = match env::var("BACKEND").unwrap().as_str() {
        "sockets" => Backend::Sockets,
        _ => Backend::Auto,
    };
    let config =
        Config { backend, handshake_timeout: Duration::from_secs(3600), ..Config::default() };
    let mut provider = Iwarp::new(&config).unwrap();
    let (_, at) = provider.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    #[expect(clippy::print_stdout, reason = "the test above reads it")]
    {
        println!("{SIGN}{at}");
    }
    let mut qp = None;
    assert!(until(&mut provider, |event| match event {
        Event::Request { qp: asking, .. } => {
            qp = Some(*asking);
            true
        }
        _ => false,
    }));
    provider.accept(clock::now(), qp.unwrap(), &PARAMS);
    assert!(until(&mut provider, |event| matches!(event, Event::Quiesced(_))));
}

/// Polls until an event satisfies `happened`. Returns whether one did in time.
fn until<P: Provider>(
    provider: &mut P,
    mut happened: impl FnMut(&Event<P::Listener>) -> bool,
) -> bool {
    let end = clock::now().saturating_add(PATIENCE);
    let mut events = Vec::new();
    while clock::now() < end {
        provider.adopt_own(clock::now());
        provider.poll(clock::now(), 64, &mut events);
        if events.drain(..).any(|event| happened(&event)) {
            return true;
        }
        let next = provider.poll_deadline().map_or(end, |next| next.min(end));
        provider.sleep(Some(next.saturating_since(clock::now())));
    }
    false
}

const PARAMS: ConnectionParams<'_> = ConnectionParams { private_data: b"", ord: 1, ird: 1 };
/// Maximum number of open files of the server, its standard ones included.
const FILES: usize = 64;
/// The text in front of the server's address.
const SIGN: &str = "listening at ";
/// Maximum time to wait for an event.
const PATIENCE: Duration = Duration::from_secs(20);
