//! `haulage wire` as a process: lines in, lines out, exit status.
#![expect(clippy::unwrap_used, reason = "an integration test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use haulage_test_support::capture::{Connection, Format};

#[test]
fn a_message_is_described_and_made_again() {
    let hex = "000000010000000200000020\
               0000000a00000007\
               000000010000008800000007000010000000000000010000\
               00000000\
               00000001000000010000000900001000000000000002000000000000\
               00000000\
               0000000100000000";
    let json = r#"{"xid":1,"vers":2,"credit":32,"htype":"RDMA2_CALL_INLINE","inv_handle":7,"reads":[{"position":136,"handle":7,"length":4096,"offset":65536}],"writes":[[{"handle":9,"length":4096,"offset":131072}]],"reply":null,"payload":"0000000100000000"}"#;
    assert_eq!(succeeds(&["decode"], hex), format!("{json}\n"));
    assert_eq!(succeeds(&["encode"], json), format!("{hex}\n"));
    assert_eq!(succeeds(&["decode", "--json"], &hex.to_uppercase()), format!("{json}\n"));
    assert_eq!(succeeds(&["encode"], &json.replace("65536", "\"65536\"")), format!("{hex}\n"));
}

#[test]
fn blank_lines_are_skipped_and_line_ends_may_be_those_of_dos() {
    let grant = "00000000000000020000004000000005";
    let described = "{\"xid\":0,\"vers\":2,\"credit\":64,\"htype\":\"RDMA2_GRANT\"}\n";
    assert_eq!(succeeds(&["decode"], ""), "");
    assert_eq!(succeeds(&["decode"], "\n\r\n  \n"), "");
    let lines = format!("\n{grant}\r\n\r\n {grant}");
    assert_eq!(succeeds(&["decode"], &lines), described.repeat(2));
    let lines = described.replace('\n', "\r\n\n").repeat(2);
    assert_eq!(succeeds(&["encode"], &lines), format!("{grant}\n{grant}\n"));
}

#[test]
fn what_is_no_message_is_told_and_is_no_failure() {
    let lines = "0\nxx\n0000\n\
                 00000001000000030000000100000001\n\
                 0000000100000002000000010000000d00000007\n\
                 00000000000000020000004000000005\n";
    let expected = [
        r#"{"error":"half an octet of hex at byte 0","report":null}"#,
        r#"{"error":"not a hex digit at byte 0","report":null}"#,
        r#"{"error":"shorter than the common prefix at byte 0","report":null}"#,
        r#"{"error":"unsupported version at byte 4","report":"RDMA2_ERR_VERS"}"#,
        r#"{"error":"list discriminator at byte 16","report":"RDMA2_ERR_BAD_XDR"}"#,
        r#"{"xid":0,"vers":2,"credit":64,"htype":"RDMA2_GRANT"}"#,
    ];
    assert_eq!(succeeds(&["decode"], lines).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn what_cannot_be_encoded_leaves_an_empty_line_and_fails_in_the_end() {
    let grant = r#"{"xid":0,"vers":2,"credit":64,"htype":"RDMA2_GRANT"}"#;
    let error = r#"{"error":"truncated at byte 16","report":"RDMA2_ERR_BAD_XDR"}"#;
    let hex = "00000000000000020000004000000005";
    let wide = grant.replace("64", "4294967296");
    for (lines, out, says) in [
        (error.to_owned(), "\n".to_owned(), "line 1: error: no message to encode"),
        (
            format!("{grant}\n\n{wide}\n{grant}\n"),
            format!("{hex}\n\n{hex}\n"),
            "line 3: credit: not an integer from 0 to 4294967295",
        ),
        (
            format!("{error}\n{wide}\nnot JSON\n"),
            "\n\n\n".to_owned(),
            "line 1: error: no message to encode (and 2 more)",
        ),
    ] {
        let output = run(&["encode"], &lines);
        assert_eq!(output.status.code(), Some(1), "{lines}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), out);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("haulage: {says}\n"));
    }
}

#[test]
fn a_line_is_answered_before_the_next_is_there() {
    let mut child = start(&["decode"]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for credit in 1..4 {
        writeln!(stdin, "0000000000000002{credit:08x}00000005").unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert!(answer.contains(&format!("\"credit\":{credit},")), "{answer}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_line_longer_than_any_message_is_refused_and_the_next_is_not() {
    let mut lines = "00".repeat((4 << 20) + 1);
    lines.push_str("\n00000000000000020000004000000005\n");
    let answers = succeeds(&["decode"], &lines);
    let refused = r#"{"error":"longer than any message at byte 4194304","report":null}"#;
    assert_eq!(answers.lines().next(), Some(refused));
    assert!(answers.ends_with("\"RDMA2_GRANT\"}\n"), "{answers}");
}

#[test]
fn the_longest_message_survives_the_round_trip() {
    let prefix = "0000000100000002000000010000000d00000000";
    let message = format!("{prefix}{}\n", "5a".repeat((4 << 20) - 20));
    assert_eq!(succeeds(&["encode"], &succeeds(&["decode"], &message)), message);
    // A list of segments takes the most JSON for its octets.
    let count = ((4 << 20) - 32) / 16;
    let segments = "ffffffff00000001fffffffffffffff0".repeat(count);
    let message = format!("{}00000001{count:08x}{segments}00000000\n", &prefix[..32]);
    assert_eq!(succeeds(&["encode"], &succeeds(&["decode"], &message)), message);
}

#[test]
fn a_closed_pipe_is_success_and_says_nothing() {
    for (command, line) in [
        ("decode", "00000000000000020000004000000005\n"),
        ("encode", "{\"xid\":0,\"vers\":2,\"credit\":64,\"htype\":\"RDMA2_GRANT\"}\n"),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = wire(&[command]).stdout(writer).spawn().unwrap();
        // The command may be gone before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(line.repeat(10_000).as_bytes());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]), "{command}");
    }
}

#[test]
fn a_packet_is_shown_before_the_next_is_there() {
    let format = Format::USUAL;
    let (mut tcp, opening) = Connection::open([([192, 0, 2, 1], 40_000), ([192, 0, 2, 2], 20_050)]);
    let mut child = start(&["decode", "--pcap", "-"]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(&format.head()).unwrap();
    for segment in opening {
        stdin.write_all(&format.record(0, &segment.packet())).unwrap();
    }
    for (sender, name) in [(0, "Req"), (1, "Rep")] {
        let frame = format!("MPA ID {name} Frame\0\x01\0\x02hi");
        let segment = tcp.send(sender, frame.as_bytes());
        stdin.write_all(&format.record(1, &segment.packet())).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with(r#"{"at":1700000000.001000,"from":"192.0.2."#), "{line}");
        assert!(line.ends_with("\"private\":\"6869\"}\n"), "{line}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_no_capture_or_not_whole_is_status_1_and_one_line() {
    let format = Format::USUAL;
    let (_, opening) = Connection::open([([192, 0, 2, 1], 40_000), ([192, 0, 2, 2], 20_050)]);
    let packets: Vec<_> = opening.iter().map(|segment| segment.packet()).collect();
    let file = format.file(&packets);
    let silent = "haulage: standard input has no connection that can be read, in 3 packets";
    for (input, status, says) in [
        (&file[..], 0, silent),
        (&file[..file.len() - 1], 1, "haulage: standard input is cut off: it ends within a packet"),
        (&b""[..], 1, "haulage: standard input is empty, and no capture of tcpdump or Wireshark\n"),
        (b"text\n", 1, "haulage: standard input is text, and no capture"),
    ] {
        let output = run_octets(&["decode", "--pcap", "-"], input.to_vec());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(status), vec![]), "{stderr}");
        assert!(stderr.starts_with(says) && stderr.lines().count() == 1, "{stderr}");
    }
    let output = run(&["decode", "--pcap", "/nonexistent"], "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn wrong_usage_is_status_2() {
    for arguments in [
        &[][..],
        &["encode", "--iwarp"],
        &["decode", "file"],
        &["print"],
        &["decode", "--pcap", "-", "--iwarp"],
        &["decode", "--port", "20050"],
        &["decode", "--pcap", "-", "--port", "65536"],
    ] {
        let output = run(arguments, "");
        assert_eq!((output.status.code(), output.stdout), (Some(2), vec![]), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1, "{arguments:?}");
    }
}

/// Runs the command on `input`; returns what it printed.
fn succeeds(arguments: &[&str], input: &str) -> String {
    let output = run(arguments, input);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn run(arguments: &[&str], input: &str) -> Output {
    run_octets(arguments, input.into())
}

fn run_octets(arguments: &[&str], input: Vec<u8>) -> Output {
    let mut child = start(arguments);
    let mut stdin = child.stdin.take().unwrap();
    // From another thread, for pipes are short and the command answers as it reads.
    let (output, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(&input));
        (child.wait_with_output().unwrap(), writer.join().unwrap())
    });
    assert!(written.is_ok() || !output.status.success());
    output
}

fn start(arguments: &[&str]) -> Child {
    wire(arguments).spawn().expect("the command starts")
}

fn wire(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.arg("wire").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
