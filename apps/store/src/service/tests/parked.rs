//! Tests of Calls whose files are not at hand.

use super::later::Slow;
use super::*;

/// Makes a Call that must wait.
fn begin(bed: &mut Bed<Slow>, arguments: Arguments<'_>, placed: Option<Local>) -> Ticket {
    let credential = Credential::Sys(AuthSys::new(0, b"tests", bed.uid, bed.gid));
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    match bed
        .service
        .call(around, Call { credential, arguments, placed, room: usize::MAX, network: 0 })
    {
        Answer::Later(ticket) => ticket,
        Answer::Now(reply) => panic!("{:?}", reply.results),
    }
}

/// Returns the next Reply, in a turn of its own.
fn end(bed: &mut Bed<Slow>, procedure: Procedure) -> Option<(Ticket, Sent)> {
    bed.service.turn();
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    let (ticket, reply) = bed.service.poll(around)?;
    let bytes = written(|w| reply.encode_inline(w));
    assert!(reply.length_max() >= bytes.len());
    Some((ticket, Sent { procedure, bytes }))
}

fn slow() -> (Bed<Slow>, Handle, Handle) {
    let mut bed = bed_of(|pool, now| Slow::new(memory(pool, now)));
    let root = bed.root();
    let dir = bed.dir(&root, "dir", 0o700);
    let file = bed.file(&dir, "file");
    (bed, dir, file)
}

impl Bed<Slow> {
    /// Loses a file until it is searched for.
    fn lose(&mut self, file: &Handle) {
        let file = self.service.sealer.open(file.get()).unwrap();
        self.service.backend.lose(file);
    }
}

#[test]
fn every_procedure_waits_until_its_file_is_found_and_is_answered_as_ever() {
    let (mut bed, dir, file) = slow();
    let other = bed.file(&dir, "other");
    let link = bed.symlink(&dir, "link", b"to").unwrap();
    let size = SetAttributes { size: Some(7), ..SetAttributes::default() };
    let list = ReadDir { dir: dir.get(), cookie: 0, verifier: Verifier(0), count: 4096 };
    let plus = ReadDirPlus {
        dir: dir.get(),
        cookie: 0,
        verifier: Verifier(0),
        count: 4096,
        count_max: 4096,
    };
    let (get, at) = (file.get(), |name| dir.at(name));
    let path = Path(Item::Unreduced(b"to"));
    let all = [
        Arguments::GetAttr(get),
        Arguments::SetAttr(SetAttr { file: get, to: size, guard: None }),
        Arguments::Access(Access { file: get, rights: 1 }),
        Arguments::FsStat(get),
        Arguments::FsInfo(get),
        Arguments::PathConf(get),
        Arguments::Lookup(at("file")),
        Arguments::Create(Create { at: at("made"), how: How::Guarded(mode(0o600)) }),
        Arguments::MkDir(MkDir { at: at("sub"), attributes: mode(0o700) }),
        Arguments::Symlink(Symlink { at: at("second"), attributes: mode(0o777), path }),
        Arguments::MkNod(MkNod { at: at("pipe"), what: Special::Fifo(mode(0o600)) }),
        Arguments::Link(Link { file: get, at: at("linked") }),
        Arguments::Rename(Rename { from: at("made"), to: at("renamed") }),
        Arguments::Remove(at("renamed")),
        Arguments::RmDir(at("sub")),
        Arguments::ReadDir(list),
        Arguments::ReadDirPlus(plus),
        Arguments::ReadLink(link.get()),
    ];
    for arguments in all {
        for lost in [&dir, &file, &link] {
            bed.lose(lost);
        }
        let ticket = begin(&mut bed, arguments, None);
        assert!(end(&mut bed, arguments.procedure()).is_none(), "{arguments:?}");
        bed.service.backend.find_all();
        // A Call that names two files waits twice.
        let ended = (0..2).find_map(|_| {
            let ended = end(&mut bed, arguments.procedure());
            bed.service.backend.find_all();
            ended
        });
        let (ended, sent) = ended.unwrap();
        assert_eq!((ended, sent.results().status()), (ticket, Status::Ok), "{arguments:?}");
        assert!(bed.service.parking.is_empty());
        bed.service.backend.lost.clear();
    }
    assert_eq!(bed.look(&file).size, 7);
    assert_eq!(bed.look(&other).links, 1);
    assert_eq!(bed.find(&dir, "renamed"), Err(Status::NoEnt));
}

#[test]
fn data_waits_with_its_call_which_may_wait_again_for_the_backend() {
    let (mut bed, _, file) = slow();
    for (offset, placed) in [(0, false), (3, true)] {
        bed.lose(&file);
        let lease = placed.then(|| {
            let mut lease = bed.pool.lease(5).unwrap();
            lease.bytes_mut().copy_from_slice(b"hello");
            lease
        });
        let item = if placed { Item::Reduced { length: 5 } } else { Item::Unreduced(b"hello") };
        let ticket = begin(&mut bed, Arguments::Write(write(&file, offset, item)), lease);
        bed.service.backend.find_all();
        assert!(end(&mut bed, Procedure::Write).is_none(), "now it waits to be written");
        bed.service.backend.open();
        let (ended, sent) = end(&mut bed, Procedure::Write).unwrap();
        assert_eq!((ended, sent.results().status()), (ticket, Status::Ok));
        bed.service.backend.close();
    }
    bed.lose(&file);
    let ticket =
        begin(&mut bed, Arguments::Read(Read { file: file.get(), offset: 0, count: 9 }), None);
    bed.service.backend.find_all();
    bed.service.backend.open();
    // The READ is carried out in one turn, and ends in another.
    let ended = (0..2).find_map(|_| end(&mut bed, Procedure::Read));
    let (ended, sent) = ended.unwrap();
    let Results::Read(Ok(contents)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((ended, contents.data), (ticket, Data(Item::Unreduced(b"helhello"))));
}

#[test]
fn who_is_not_found_time_and_again_and_who_finds_no_room_is_told_to_come_later() {
    let (mut bed, _, file) = slow();
    bed.lose(&file);
    let arguments = Arguments::GetAttr(file.get());
    let ticket = begin(&mut bed, arguments, None);
    let mut waits = 0;
    let (ended, sent) = loop {
        bed.service.backend.find_all();
        bed.lose(&file);
        waits += 1;
        assert!(waits < 10);
        if let Some(ended) = end(&mut bed, Procedure::GetAttr) {
            break ended;
        }
    };
    assert_eq!((ended, sent.results().status(), waits), (ticket, Status::Jukebox, 4));
    assert!(bed.service.parking.is_empty());

    let lost = write(&file, 0, Item::Reduced { length: 5 });
    assert_eq!(bed.status(Arguments::Write(lost)), Status::Jukebox, "its data found no memory");
    assert!(bed.service.parking.is_empty());

    let octets = vec![7; 1 << 20];
    let large = write(&file, 0, Item::Unreduced(&octets));
    for _ in 0..3 {
        begin(&mut bed, Arguments::Write(large), None);
    }
    assert_eq!(bed.status(Arguments::Write(large)), Status::Jukebox);
    // Clients of another network have a share of their own.
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    let (credential, network) = (Credential::None, 1);
    let call =
        Call { credential, arguments: Arguments::Write(large), placed: None, room: 0, network };
    assert!(matches!(bed.service.call(around, call), Answer::Later(_)));
    bed.service.backend.is_busy = true;
    bed.lose(&file);
    assert_eq!(bed.status(arguments), Status::Jukebox);
    // A handle that nobody sealed is searched for by nobody.
    let mut forged = file;
    forged.0[20] ^= 1;
    assert_eq!(bed.status(Arguments::GetAttr(forged.get())), Status::Stale);
}

#[test]
fn a_turn_resumes_a_bounded_number_of_calls() {
    let (mut bed, _, file) = slow();
    bed.lose(&file);
    for _ in 0..100 {
        begin(&mut bed, Arguments::GetAttr(file.get()), None);
    }
    bed.service.backend.find_all();
    let mut turns = Vec::new();
    while !bed.service.parking.is_empty() {
        let goes_on = bed.service.turn();
        let around =
            Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
        let mut ended = 0;
        while bed.service.poll(around).is_some() {
            ended += 1;
        }
        turns.push((goes_on, ended, bed.service.has_work()));
    }
    let expected = [(false, 32, true), (true, 32, true), (true, 32, true), (true, 4, false)];
    assert_eq!(turns, expected);
}
