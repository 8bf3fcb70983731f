use super::*;
use haulage_proto::verbs::{Access, Segment};

fn link(eager: bool) -> Link<&'static str> {
    Link::new(Traits { eager, reads_max: 1 }, [16, 16])
}

fn open(
    link: &mut Link<&'static str>,
    at: usize,
    access: Access,
    bytes: &[u8],
) -> (BlockId, Segment) {
    let end = link.end(at);
    let block = end.memory.lease(bytes.to_vec());
    let handle = end.memory.reserve_handle();
    end.memory.expose(handle, access, 7, Part { block, range: 0..bytes.len() });
    let length = u32::try_from(bytes.len()).expect("it is short");
    (block, Segment { handle, length, offset: 7 })
}

fn send(link: &mut Link<&'static str>, from: usize, bytes: &[u8], invalidate: Option<Handle>) {
    let end = link.end(from);
    let block = end.memory.lease(bytes.to_vec());
    let source = Part { block, range: 0..bytes.len() };
    end.post("send", Operation::Send { source, invalidate });
}

fn write(link: &mut Link<&'static str>, from: usize, bytes: &[u8], target: Segment) {
    let end = link.end(from);
    let block = end.memory.lease(bytes.to_vec());
    let source = Part { block, range: 0..bytes.len() };
    let target = ClaimedSegment::try_from(target).expect("it does not wrap");
    end.post("write", Operation::Write { source, target });
}

#[test]
fn a_write_is_there_before_the_message_behind_it_and_completes_on_arrival() {
    let mut link = link(false);
    let (block, segment) = open(&mut link, 1, Access::RemoteWrite, b"....");
    link.end(1).post_receives(1);
    write(&mut link, 0, b"here", segment);
    send(&mut link, 0, b"look", Some(segment.handle));
    assert!(link.transmit(0) && link.transmit(0) && !link.transmit(0));
    assert!(!link.end(0).may_complete(), "nothing has arrived");
    assert!(link.arrive(1) && link.end(0).may_complete() && !link.end(1).may_receive());
    assert!(link.arrive(1) && !link.arrive(1));
    let received = link.end(1).receive().expect("it arrived");
    assert_eq!((&*received.message, received.invalidated), (&b"look"[..], Some(segment.handle)));
    assert_eq!(link.end(1).memory.bytes(block), b"here");
    assert_eq!([link.end(0).complete(), link.end(0).complete()], [Some("write"), Some("send")]);
    assert_eq!((link.end(0).complete(), link.is_quiet()), (None, true));
}

#[test]
fn an_eager_send_completes_before_it_arrives_and_only_once() {
    let mut link = link(true);
    link.end(1).post_receives(1);
    send(&mut link, 0, b"early", None);
    assert!(link.transmit(0));
    assert_eq!(link.end(0).complete(), Some("send"));
    assert!(link.arrive(1) && !link.end(0).may_complete());
    assert_eq!(link.end(1).receive().map(|received| received.message), Some(b"early".to_vec()));
}

#[test]
fn reads_wait_for_each_other_and_later_completions_for_them() {
    let mut link = link(true);
    let (_, segment) = open(&mut link, 1, Access::RemoteRead, b"bulk");
    let sink = link.end(0).memory.lease(vec![0; 4]);
    for range in [0..3, 3..4] {
        let source = ClaimedSegment::try_from(segment).expect("it does not wrap");
        let length = u32::try_from(range.len()).expect("it is short");
        let source = source.window(range.start as u64, length).expect("it lies within");
        let sink = Part { block: sink, range };
        link.end(0).post("read", Operation::Read { sink, source });
    }
    assert!(link.transmit(0) && !link.transmit(0), "one Read at a time");
    assert!(link.arrive(1) && !link.end(0).may_complete() && link.end(0).may_respond());
    assert!(link.end(0).respond() && link.end(0).complete().is_some());
    assert!(link.transmit(0) && link.arrive(1));
    link.end(1).post_receives(0);
    assert!(link.end(0).respond() && link.end(0).complete().is_some() && !link.end(0).respond());
    assert_eq!(link.end(0).memory.bytes(sink), b"bulk");
}

#[test]
#[should_panic(expected = "a message found no Receive posted")]
fn an_overrun_fails() {
    let mut link = link(true);
    send(&mut link, 0, b"too many", None);
    link.transmit(0);
    link.arrive(1);
}

#[test]
#[should_panic(expected = "a Write to memory that is not open to it")]
fn a_stray_write_fails() {
    let mut link = link(true);
    let (_, segment) = open(&mut link, 1, Access::RemoteWrite, b"....");
    link.end(1).post("close", Operation::LocalInv { handle: segment.handle });
    link.transmit(1);
    write(&mut link, 0, b"late", segment);
    link.transmit(0);
    link.arrive(1);
}

#[test]
#[should_panic(expected = "a message is longer than its Receive")]
fn a_message_too_long_fails() {
    let mut link = link(true);
    link.end(1).post_receives(1);
    send(&mut link, 0, &[0; 17], None);
    link.transmit(0);
    link.arrive(1);
}
