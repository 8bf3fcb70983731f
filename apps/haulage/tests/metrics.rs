//! The pages of metrics, as a reader takes them that knows nothing of who wrote them and forgives nothing.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use haulage_test_support::Started;

fn haulage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulage"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

fn serve(arguments: &[&str]) -> Started {
    let listen = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--json"];
    Started::new(haulage(arguments).args(listen).stderr(Stdio::null()))
}

/// Returns the answer to one request.
fn asked(server: &Started, request: &str) -> String {
    let mut stream = TcpStream::connect(server.named("metrics")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn page(server: &Started) -> String {
    let answer = asked(server, "GET /metrics HTTP/1.1\r\n\r\n");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// A family of metrics: all lines that have its name.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    /// The names behind the family's own, the labels, and the value of each line.
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// Parses a page by the grammar of the Prometheus text format, with the rules that OpenMetrics adds: a family's lines come
/// together, behind its help and type; names of families are unique, also without what their kind puts behind them.
fn families(page: &str) -> BTreeMap<String, Family> {
    assert!(page.ends_with('\n') && !page.contains("\n\n") && !page.contains('\r'));
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line
            .strip_prefix("# HELP ")
            .unwrap_or_else(|| panic!("{line}"))
            .split_once(' ')
            .unwrap();
        assert!(help.ends_with('.') && !help.contains('\\'), "{line}");
        assert!(is_name(name, ":"), "{line}");
        let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{name}: {kind}");
        let mut family = Family { kind: kind.to_owned(), samples: Vec::new() };
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let value = value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
            let (own, labels) = match sample.split_once('{') {
                Some((own, labels)) => (own, labels_of(labels.strip_suffix('}').unwrap())),
                None => (sample, BTreeMap::new()),
            };
            let suffix = own.strip_prefix(name).unwrap_or_else(|| panic!("{line} in {name}"));
            family.samples.push((suffix.to_owned(), labels, value));
        }
        check(name, &family);
        assert!(families.insert(name.to_owned(), family).is_none(), "{name} comes twice");
    }
    // What is behind a name in a line of one family must not make it the name of another.
    let bases: BTreeSet<_> = families.keys().map(|name| base(name).to_owned()).collect();
    assert_eq!(bases.len(), families.len(), "two families are one: {bases:?}");
    for name in &bases {
        for suffix in
            ["_total", "_created", "_count", "_sum", "_bucket", "_info", "_gcount", "_gsum"]
        {
            assert!(
                !bases.contains(&format!("{name}{suffix}")),
                "{name}{suffix} is a line of {name}"
            );
        }
    }
    families
}

/// Returns the name that OpenMetrics has for a family.
fn base(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

/// Checks what the kind of a family demands of it.
fn check(name: &str, family: &Family) {
    assert!(!family.samples.is_empty(), "{name} has no lines");
    let mut seen = BTreeSet::new();
    let keys = |labels: &BTreeMap<String, String>| labels.keys().cloned().collect::<Vec<_>>();
    for (suffix, labels, value) in &family.samples {
        assert!(seen.insert(format!("{suffix}{labels:?}")), "{name}{suffix}{labels:?} comes twice");
        assert!(value.is_finite() && *value >= 0.0, "{name}: {value}");
        let alike = family.samples.iter().find(|(other, ..)| other == suffix).unwrap();
        assert_eq!(keys(labels), keys(&alike.1), "{name} has one set of labels");
        match &*family.kind {
            "histogram" => {}
            kind => {
                assert_eq!(suffix, "", "{name}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            }
        }
    }
    if family.kind == "histogram" {
        check_histogram(name, family);
    }
}

fn check_histogram(name: &str, family: &Family) {
    let of = |suffix: &str| {
        let samples = family.samples.iter().filter(move |(of, ..)| of == suffix);
        samples.map(|(_, labels, value)| (labels.clone(), *value)).collect::<Vec<_>>()
    };
    let [buckets, sums, counts] = ["_bucket", "_sum", "_count"].map(of);
    assert_eq!(buckets.len() + sums.len() + counts.len(), family.samples.len(), "{name}");
    assert_eq!(sums.len(), counts.len(), "{name}");
    for (labels, count) in counts {
        let bounds = buckets.iter().filter_map(|(bucket, value)| {
            let mut rest = bucket.clone();
            let bound = rest.remove("le").unwrap();
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            (rest == labels).then_some((bound, *value))
        });
        let bounds: Vec<_> = bounds.collect();
        let rises = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(bounds.windows(2).all(rises), "{name}{labels:?}: {bounds:?}");
        assert_eq!(bounds.last(), Some(&(f64::INFINITY, count)), "{name}{labels:?}");
    }
}

/// Parses labels: `name="value"`, with commas between.
fn labels_of(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        assert!(is_name(name, "") && !name.starts_with("__"), "{text}");
        let (value, behind) = behind.split_once('"').unwrap_or_else(|| panic!("{text}"));
        assert!(!value.contains('\\') && !value.is_empty(), "{text}");
        assert!(labels.insert(name.to_owned(), value.to_owned()).is_none(), "{text}");
        rest = match behind.strip_prefix(',') {
            Some(rest) => rest,
            None => {
                assert_eq!(behind, "", "{text}");
                behind
            }
        };
    }
    labels
}

fn is_name(text: &str, also: &str) -> bool {
    let is_letter =
        |letter: char| letter.is_ascii_alphabetic() || letter == '_' || also.contains(letter);
    text.starts_with(is_letter)
        && text.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

/// Returns the value of the only line of a family with this value of a label, or of the only line there is.
fn value(families: &BTreeMap<String, Family>, name: &str, label: Option<&str>) -> u64 {
    let family = families.get(name).unwrap_or_else(|| panic!("no {name}"));
    let is_it = |labels: &BTreeMap<String, String>| {
        label.is_none_or(|label| labels.values().any(|value| value == label))
    };
    let mut samples = family.samples.iter().filter(|(_, labels, _)| is_it(labels));
    let (_, _, value) = samples.next().unwrap_or_else(|| panic!("no {label:?} of {name}"));
    assert!(samples.next().is_none(), "one line of {name}");
    format!("{value}").parse().unwrap()
}

#[test]
fn a_strict_reader_reads_the_pages_and_the_book_has_each_metric() {
    let kv = serve(&["kv", "serve", "--memory", "32MiB"]);
    let store =
        ["store", "serve", "--export", "memory:4MiB", "--mount-listen", ":0", "--tcp-listen", ":0"];
    let store = serve(&store);
    let perf = serve(&["perf", "serve"]);
    let mut names = BTreeSet::new();
    for server in [&kv, &store, &perf] {
        names.extend(families(&page(server)).into_keys());
    }
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/metrics.md");
    let book = fs::read_to_string(book).unwrap();
    let row = |name: &str| {
        book.lines().any(|line| {
            let mut cells = line.split('|').skip(1);
            cells.next().is_some_and(|cell| cell.contains(&format!("`{name}`")))
        })
    };
    let missing: Vec<_> = names.iter().filter(|name| !row(name)).collect();
    assert!(missing.is_empty(), "the book has no row for {missing:?}");
    // The rules for alerts name nothing else.
    let (_, rules) = book.split_once("```yaml").unwrap();
    let (rules, _) = rules.split_once("```").unwrap();
    let words = rules.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let named: BTreeSet<_> =
        words.filter(|word| word.starts_with("haulage_") || word.starts_with("process_")).collect();
    assert!(named.len() > 5, "{named:?}");
    assert!(named.iter().all(|name| names.contains(*name)), "{named:?}");
}

#[test]
fn the_cores_of_one_server_write_one_page_that_tells_them_apart() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return; // A server pins each of its cores to a CPU of its own.
    }
    let server = serve(&["perf", "serve", "--cores", "0,1"]);
    let run =
        ["perf", "run", "null", "--seconds", "0.1", "--connections", "4", "--polling", "event"];
    let run = haulage(&run).args(["--connect", server.named("listen")]).output().unwrap();
    assert!(run.status.success(), "{}", text(&run.stderr));
    let page = families(&page(&server));
    let of_core = |name: &str, core: &str| {
        let samples = page[name].samples.iter();
        let of = samples.filter(|(_, labels, _)| labels.get("core").is_some_and(|one| one == core));
        of.map(|(_, _, value)| *value).sum::<f64>()
    };
    for core in ["0", "1"] {
        assert!(of_core("haulage_calls_total", core) > 0.0, "{core}: {page:?}");
        assert!(of_core("haulage_connections_opened_total", core) >= 2.0, "{core}: {page:?}");
    }
    // The process is one, and so is a histogram of its Calls.
    for name in ["process_start_time_seconds", "haulage_call_seconds"] {
        let samples = page[name].samples.iter();
        assert!(samples.clone().all(|(_, labels, _)| !labels.contains_key("core")), "{name}");
    }
}

#[test]
#[should_panic(expected = "two families are one")]
fn a_gauge_and_a_counter_of_its_name_are_one_family_to_the_reader() {
    let page = "# HELP a_b One.\n# TYPE a_b gauge\na_b 1\n# HELP a_b_total Other.\n# TYPE a_b_total counter\na_b_total 1\n";
    families(page);
}

#[test]
fn what_users_are_told_is_what_operators_see() {
    let server =
        serve(&["kv", "serve", "--memory", "1MiB", "--value-max", "64KiB", "--index-share", "1"]);
    let client = |arguments: &[&str]| -> Output {
        haulage(&["kv"])
            .args(arguments)
            .args(["--connect", server.named("listen")])
            .output()
            .unwrap()
    };
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("metrics-value");
    fs::write(&place, vec![1; 70_000]).unwrap();
    let large = format!("large={}", place.display());
    assert_eq!(client(&["mput", "a=/dev/null", "b=/dev/null", &large]).status.code(), Some(1));
    let many: Vec<_> = (0..100).map(|key| format!("{key}=/dev/null")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(client(&[&["mput"][..], &many].concat()).status.code(), Some(1));
    for key in ["a", "b", "none"] {
        client(&["get", key]);
    }
    client(&["mget", "a", "none"]);
    assert!(client(&["del", "b"]).status.success());
    client(&["del", "b"]);
    let told = client(&["stat", "--json"]);
    let told: serde_json::Value =
        serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{}", text(&told.stderr)));
    let told = |name: &str| told[name].as_u64().unwrap();
    let page = families(&page(&server));
    let result = |result| value(&page, "haulage_kv_results_total", Some(result));
    assert_eq!([result("hit"), result("miss")], [3, 2]);
    assert_eq!([result("stored"), result("deleted")], [told("keys_max"), 1]);
    assert_eq!([result("keys_full"), result("too_large")], [102 - told("keys_max"), 1]);
    assert_eq!((told("hits"), told("misses")), (3, 2));
    let refused = ["no_space", "keys_full", "too_large", "bad_key", "watches_full"];
    assert_eq!(told("refused"), refused.map(result).iter().sum::<u64>());
    for name in ["keys", "keys_max", "value_bytes", "memory_bytes", "watches"] {
        assert_eq!(value(&page, &format!("haulage_kv_{name}"), None), told(name), "{name}");
    }
    let bytes = |name: &str| value(&page, &format!("haulage_memory_{name}bytes"), None);
    assert!(bytes("leased_") > 0 && bytes("leased_") + bytes("free_") <= bytes(""), "{page:?}");
    let info = &page["haulage_build_info"].samples[0].1;
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn what_clients_of_the_storage_server_are_told_is_counted_by_status() {
    let server = ["--export", "memory:4MiB", "--mount-listen", ":0", "--tcp-listen", "off"];
    let server = serve(&[&["store", "serve"][..], &server].concat());
    let client = |arguments: &[&str]| -> Output {
        let connect = ["--connect", server.named("listen")];
        haulage(&["store"]).args(arguments).args(connect).output().unwrap()
    };
    let told = |page: &BTreeMap<String, Family>, status: &str| {
        let name = if status.starts_with("NFS") { "nfs" } else { "mount" };
        value(page, &format!("haulage_{name}_results_total"), Some(status))
    };
    let statuses = ["NFS3_OK", "NFS3ERR_NOENT", "NFS3ERR_NOSPC", "NFS3ERR_ACCES", "MNT3_OK"];
    let before = families(&page(&server));
    assert_eq!(statuses.map(|status| told(&before, status)), [0; 5]);
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("metrics-file");
    let place = place.to_str().unwrap();
    fs::write(place, vec![1; 8 << 20]).unwrap();
    assert!(!client(&["put", place, "/large"]).status.success());
    assert!(!client(&["stat", "/none"]).status.success());
    assert!(client(&["ls", "/"]).status.success());
    assert!(!client(&["ls", "/", "--export", "/none"]).status.success());
    let after = families(&page(&server));
    let told = |status| told(&after, status);
    assert!(told("NFS3_OK") > 5 && told("NFS3ERR_NOENT") > 0 && told("NFS3ERR_NOSPC") > 0);
    assert_eq!(["NFS3ERR_ACCES", "MNT3_OK", "MNT3ERR_NOENT"].map(told), [0, 3, 1]);
}

#[test]
fn a_head_has_all_but_the_page_and_who_asks_otherwise_is_told_how() {
    let server = serve(&["kv", "serve", "--memory", "32MiB"]);
    let head = asked(&server, "HEAD /metrics HTTP/1.1\r\n\r\n");
    let (head, rest) = head.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && rest.is_empty(), "{head}{rest}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    assert!(length.parse::<usize>().unwrap() > 1000, "{head}");
    assert!(asked(&server, "HEAD / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let refused = asked(&server, "POST /metrics HTTP/1.1\r\n\r\n");
    assert!(
        refused.starts_with("HTTP/1.1 405 ") && refused.contains("\r\nAllow: GET, HEAD\r\n"),
        "{refused}"
    );
}

/// Puts a value of `length` octets and gets it back, where a server of so much `memory` and its clients have these
/// `--extensions`. Returns what the server counted.
fn stored(
    memory: &str,
    [server_has, client_has]: [&str; 2],
    length: usize,
) -> BTreeMap<String, Family> {
    let server = serve(&["kv", "serve", "--memory", memory, "--extensions", server_has]);
    let client = |arguments: &[&str]| {
        let mut command = haulage(arguments);
        command.args(["--connect", server.named("listen"), "--extensions", client_has]);
        command
    };
    let value: Vec<u8> = (0..=250).cycle().take(length).collect();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = path.join(format!("stored-{memory}-{server_has}-{client_has}-{length}"));
    fs::write(&path, &value).unwrap();
    let put = ["kv", "put", "key", path.to_str().unwrap()];
    assert!(client(&put).status().unwrap().success());
    let got = client(&["kv", "get", "key"]).output().unwrap();
    assert!(got.stdout == value);
    families(&page(&server))
}

#[test]
fn a_short_value_comes_along_with_its_get_where_both_ends_want_that() {
    for (server_has, client_has, length, along) in [
        ("on", "on", 10_000, 1.0),
        ("on", "auto", 10_000, 0.0),
        ("auto", "on", 10_000, 0.0),
        ("on", "on", 30_000, 1.0),
        ("on", "on", 100_000, 0.0),
    ] {
        let families = stored("64MiB", [server_has, client_has], length);
        let went = &families["haulage_results_along_total"].samples[0].2;
        assert_eq!(*went, along, "{server_has} {client_has} {length}");
    }
}

#[test]
fn a_short_value_comes_along_with_its_put_where_there_is_memory_for_that() {
    for (memory, server_has, client_has, length, along) in [
        ("256MiB", "auto", "auto", 10_000, 1.0),
        ("256MiB", "auto", "off", 10_000, 0.0),
        ("256MiB", "off", "auto", 10_000, 0.0),
        ("32MiB", "auto", "auto", 10_000, 0.0),
        ("256MiB", "auto", "auto", 30_000, 0.0),
        ("256MiB", "on", "auto", 30_000, 0.0),
        ("32MiB", "on", "on", 30_000, 1.0),
    ] {
        let families = stored(memory, [server_has, client_has], length);
        let went = &families["haulage_results_along_total"].samples[0].2;
        let both = server_has == "on" && client_has == "on";
        assert_eq!(*went, f64::from(both), "{memory} {server_has} {client_has} {length}");
        let came = &families["haulage_arguments_along_total"].samples[0].2;
        assert_eq!(*came, along, "{memory} {server_has} {client_has} {length}");
        let read = families["haulage_chunks_total"].samples.iter();
        let read = read.filter(|(_, labels, _)| labels["kind"] == "read").map(|(.., count)| count);
        assert_eq!(read.sum::<f64>(), 1.0 - along, "{memory} {server_has} {client_has} {length}");
    }
}

#[test]
fn what_other_services_take_comes_along_too_where_both_ends_have_it_so() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("along-with-a-write");
    fs::write(&path, vec![7; 10_000]).unwrap();
    let put = ["store", "put", path.to_str().unwrap(), "/file"];
    let write = ["perf", "run", "write", "--size", "8KiB", "--seconds", "0.1"];
    for extensions in ["auto", "off"] {
        for (serves, client) in [
            (&["store", "serve", "--export", "memory:256MiB"][..], &put[..]),
            (&["perf", "serve"], &write),
        ] {
            let server = serve(&[serves, &["--extensions", extensions]].concat());
            let mut command = haulage(client);
            command.args(["--connect", server.named("listen"), "--extensions", extensions]);
            assert!(command.status().unwrap().success());
            let families = families(&page(&server));
            let came = families["haulage_arguments_along_total"].samples[0].2;
            assert_eq!(came > 0.0, extensions == "auto", "{client:?} {extensions}: {came}");
        }
    }
}
