//! Tests of repeated Calls among many others.

use super::*;
use crate::service::tests::later::Slow;

/// The results of a REMOVE whose name existed, and of one whose name did not.
const DONE: u32 = 0;
const NO_SUCH: u32 = 2;

fn remove<'a>(dir: &'a [u8], name: &'a [u8]) -> Arguments<'a> {
    Arguments::Remove(DirName { dir: handle(dir), name: Name(name) })
}

fn status(results: &[u8]) -> u32 {
    u32::from_be_bytes(results[..4].try_into().unwrap())
}

/// A client that calls over TCP, where it chooses its XIDs.
struct Sender {
    stream: TcpStream,
    root: Vec<u8>,
}

impl Sender {
    fn send(&mut self, xid: u32, arguments: &Arguments<'_>) -> u32 {
        let number = arguments.procedure().number();
        let call = record(xid, (nfs3::PROGRAM, nfs3::VERSION, number), |w| arguments.encode(w));
        self.stream.write_all(&call).unwrap();
        let (echoed, body, results) = reply(&mut self.stream).unwrap();
        assert_eq!((echoed, body), (xid, SUCCESS));
        status(&results)
    }

    /// Creates a file and removes it.
    fn make_and_remove(&mut self, xid: u32, name: &[u8]) {
        let root = self.root.clone();
        assert_eq!(self.send(xid ^ 1 << 31, &create(&root, name)), DONE);
        assert_eq!(self.send(xid, &remove(&root, name)), DONE);
    }

    fn remove(&mut self, xid: u32, name: &[u8]) -> u32 {
        let root = self.root.clone();
        self.send(xid, &remove(&root, name))
    }
}

impl World {
    /// Acts as a client over TCP, on a connection of its own.
    fn send<T: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut Sender) -> T + Send + 'static,
    ) -> T {
        let root = self.root();
        self.serve(move |at| {
            let mut sender = Sender { stream: TcpStream::connect(at).unwrap(), root };
            let acted = act(&mut sender);
            break_off(sender.stream);
            acted
        })
    }
}

#[test]
fn the_first_answer_is_known_whatever_other_addresses_do() {
    let mut world = World::new(Versions::Both, Admission::default());
    world.send(|client| client.make_and_remove(7, b"file"));
    let root = world.root();
    let mut ended = [0; 3];
    let mut ask = |arguments: &Arguments<'_>| {
        let (results, _) = world.ask(arguments, [None, None]);
        ended[usize::try_from(status(&results.unwrap())).unwrap()] += 1;
    };
    for _ in 0..5000 {
        ask(&remove(&root, b"file"));
    }
    for _ in 0..2500 {
        ask(&create(&root, b"other"));
        ask(&remove(&root, b"other"));
    }
    assert_eq!(ended, [5000, 0, 5000], "of failures there are as many as of successes");
    let again = world.send(|client| [client.remove(7, b"file"), client.remove(8, b"file")]);
    assert_eq!(again, [DONE, NO_SUCH]);
}

#[test]
fn the_first_answer_is_known_within_twice_a_connections_credits() {
    let mut world = World::new(Versions::Both, Admission::default());
    let again = world.send(|client| {
        client.make_and_remove(1, b"file");
        let mut xids = 1_000..;
        // Each round is a CREATE and a REMOVE.
        for xid in xids.by_ref().take(LIMITS_DEFAULT.credits_max as usize - 1) {
            client.make_and_remove(xid, b"other");
        }
        // Any number of failed Calls in between changes nothing.
        for xid in xids.by_ref().take(5000) {
            assert_eq!(client.remove(xid, b"nothing"), NO_SUCH);
        }
        client.remove(1, b"file")
    });
    assert_eq!(again, DONE);
}

#[test]
fn an_answer_is_not_used_when_it_is_old() {
    let mut world = World::new(Versions::Both, Admission::default());
    world.send(|client| client.make_and_remove(7, b"file"));
    world.now = world.now.saturating_add(Duration::from_secs(90));
    assert_eq!(world.send(|client| client.remove(7, b"file")), DONE);
    world.now = world.now.saturating_add(Duration::from_secs(31));
    assert_eq!(world.send(|client| client.remove(7, b"file")), NO_SUCH);
}

/// Returns a Call by this user as a record.
fn call_of((uid, xid): (u32, u32), arguments: &Arguments<'_>) -> Vec<u8> {
    let credential = Credential::Sys(AuthSys::new(xid, b"tests", uid, uid));
    let procedure = (nfs3::PROGRAM, nfs3::VERSION, arguments.procedure().number());
    record_of(credential, xid, procedure, |w| arguments.encode(w))
}

/// Makes Calls and returns the status of each.
fn statuses(stream: &mut TcpStream, calls: &[Vec<u8>]) -> Vec<u32> {
    let ask = |call: &Vec<u8>| {
        stream.write_all(call).unwrap();
        let (_, body, results) = reply(stream).unwrap();
        assert_eq!(body, SUCCESS);
        status(&results)
    };
    calls.iter().map(ask).collect()
}

#[test]
fn another_user_and_other_data_make_another_call_over_tcp() {
    let (mut world, file) = with_file();
    let data = |last: u8| [&[b'H'; 4095][..], &[last]].concat();
    let (first, other) = (data(1), data(2));
    let writes = |xid| {
        [(0, &first), (0, &other), (1000, &other), (0, &first)]
            .map(|(user, data)| call_of((user, xid), &write(&file, data)))
    };
    let denied = Status::Acces.number();
    // The last Call repeats the first and is not carried out, so the second Call's data stays.
    let expected = [DONE, DONE, denied, DONE];
    let on_one = writes(7);
    let got = world.serve(move |at| statuses(&mut TcpStream::connect(at).unwrap(), &on_one));
    assert_eq!(got, expected);
    assert!(world.octets(&file) == other);
    // The server may still know the Calls of the connection that was closed.
    let on_several = writes(8);
    let got = world.serve(move |at| {
        let each = on_several.iter().map(|call| {
            let mut stream = TcpStream::connect(at).unwrap();
            let status = statuses(&mut stream, std::slice::from_ref(call));
            break_off(stream);
            status[0]
        });
        each.collect::<Vec<_>>()
    });
    assert_eq!(got, expected);
    assert!(world.octets(&file) == other);
}

#[test]
fn a_program_that_numbers_its_calls_from_one_can_be_run_again_over_tcp() {
    let (mut world, file) = with_file();
    let (mine, theirs) =
        (call_of((0, 1), &write(&file, b"mine")), call_of((0, 1), &write(&file, b"else")));
    let read = Arguments::Read(Read { file: handle(&file), offset: 0, count: 4 });
    let read = call_of((0, 2), &read);
    world.serve(move |at| {
        let mut other = TcpStream::connect(at).unwrap();
        // Often, as a new connection may be served before the end of the last one is seen.
        for _ in 0..50 {
            let mut stream = TcpStream::connect(at).unwrap();
            assert_eq!(statuses(&mut stream, std::slice::from_ref(&mine)), [DONE]);
            drop(stream);
            other.write_all(&read).unwrap();
            let (_, _, results) = reply(&mut other).unwrap();
            assert!(results.ends_with(b"mine"));
            let mut stream = TcpStream::connect(at).unwrap();
            assert_eq!(statuses(&mut stream, std::slice::from_ref(&theirs)), [DONE]);
        }
    });
}

/// Returns a world with a file, and the handle of that.
fn with_file() -> (World, Vec<u8>) {
    let mut world = World::new(Versions::Both, Admission::default());
    let root = world.root();
    let made = world.ask(&create(&root, b"file"), [None, None]).0.unwrap();
    let procedure = Procedure::Create;
    let made = Results::decode(procedure, &mut PayloadReader::call(&made, 0, None)).unwrap();
    let Results::Create(Ok(made)) = made else { panic!("{made:?}") };
    (world, made.file.unwrap().bytes().to_vec())
}

fn write<'a>(file: &'a [u8], data: &'a [u8]) -> Arguments<'a> {
    let count = u32::try_from(data.len()).unwrap();
    let data = nfs3::Data(Item::Unreduced(data));
    Arguments::Write(Write { file: handle(file), offset: 0, count, stable: Stable::FileSync, data })
}

impl World {
    /// Reads a file over RDMA.
    fn octets(&mut self, file: &[u8]) -> Vec<u8> {
        let lease = self.lease(8192);
        let read = Arguments::Read(Read { file: handle(file), offset: 0, count: 8192 });
        let (results, data) = self.ask(&read, [None, Some(lease)]);
        assert_eq!(status(&results.unwrap()), DONE);
        data.unwrap().bytes().to_vec()
    }
}

/// Serves memory whose root directory has to be searched for, with a file in it.
fn lost_root() -> (World<Slow>, Vec<u8>) {
    let gate = Gate::new(Admission::default(), Trust::ALL);
    let mut world = World::of(Versions::Both, gate, TCP_LIMITS, |pool| {
        let files = memory::Limits { files_max: 100, names_max: 100 };
        Slow::new(Memory::new(pool, files, 1, Time::default()).unwrap())
    });
    let root = world.root();
    assert_eq!(status(&world.ask(&create(&root, b"file"), [None, None]).0.unwrap()), DONE);
    let backend = world.server.cx(world.now).1.nfs.service_mut().backend_mut();
    let id = backend.root();
    backend.lose(id);
    (world, root)
}

#[test]
fn a_call_that_comes_again_while_it_waits_is_carried_out_once_and_answered_each_time() {
    let (mut world, root) = lost_root();
    let at = world.listen_tcp();
    let procedure = Procedure::Remove.number();
    let call =
        record(7, (nfs3::PROGRAM, nfs3::VERSION, procedure), |w| remove(&root, b"file").encode(w));
    // The Call comes once, then as often as copies may wait with it, and once more.
    let mut streams: Vec<_> = (0..AGAIN_MAX + 2)
        .map(|_| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(&call).unwrap();
            stream
        })
        .collect();
    let until = |world: &mut World<Slow>, count| {
        let is_answered = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let has_some = stream.peek(&mut [0]).is_ok();
            stream.set_nonblocking(false).unwrap();
            has_some
        };
        while streams.iter().filter(is_answered).count() < count {
            world.server.turn(world.now);
        }
    };
    // One copy too many is told to come again later.
    until(&mut world, 1);
    world.server.cx(world.now).1.nfs.service_mut().backend_mut().find_all();
    until(&mut world, AGAIN_MAX + 2);
    let mut answered: Vec<_> =
        streams.iter_mut().map(|stream| status(&reply(stream).unwrap().2)).collect();
    answered.sort_unstable();
    assert_eq!(answered[..AGAIN_MAX + 1], [DONE; AGAIN_MAX + 1]);
    assert_eq!(answered[AGAIN_MAX + 1], Status::Jukebox.number());
    let (_, server) = world.server.cx(world.now);
    assert!(server.later.is_empty() && server.again.is_empty());
}
