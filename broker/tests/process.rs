//! The binary: its ready line, its signals, its exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Weir {
    child: Child,
    ready: String,
    started: Duration,
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn weir(data: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"]).arg(data);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(data: &std::path::Path) -> Weir {
    let began = Instant::now();
    let mut child = weir(data).spawn().expect("the binary is there");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
    Weir { child, ready, started: began.elapsed() }
}

fn address<'a>(ready: &'a str, name: &str) -> &'a str {
    ready
        .split_whitespace()
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        .expect("the ready line names it")
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("HTTP listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

fn terminate(child: &Child) {
    let status = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().expect("kill is there");
    assert!(status.success());
}

#[test]
fn it_says_where_it_serves_and_sigterm_ends_it_with_0() {
    let data = tempfile::tempdir().expect("a directory");
    let mut weir = start(data.path());
    assert!(weir.ready.starts_with("weir ready kafka=127.0.0.1:"), "{}", weir.ready);
    assert_eq!(address(&weir.ready, "flight"), "off");
    TcpStream::connect(address(&weir.ready, "kafka")).expect("Kafka listens");
    let http = address(&weir.ready, "http").to_owned();
    assert!(get(&http, "/health/live").starts_with("HTTP/1.1 200"));
    assert!(get(&http, "/health/ready").starts_with("HTTP/1.1 200"));
    assert!(get(&http, "/metrics").contains("weir_connections"));
    assert!(get(&http, "/api/v1/tables").contains("\"tables\":["));
    assert!(get(&http, "/api/v1/tables/nope").starts_with("HTTP/1.1 404"));
    let began = Instant::now();
    terminate(&weir.child);
    let status = weir.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    eprintln!("start to ready line: {:?}", weir.started);
}

#[test]
fn a_second_broker_on_the_same_directory_is_refused_in_one_line() {
    let data = tempfile::tempdir().expect("a directory");
    let _first = start(data.path());
    let output = weir(data.path()).output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.lines().any(|line| line.starts_with("weir: ")), "{text}");
}

#[test]
fn wrong_usage_ends_with_2_and_a_sentence() {
    let data = tempfile::tempdir().expect("a directory");
    let mut command = weir(data.path());
    let output = command.args(["--set", "num.partition=3"]).output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("num.partitions"), "{text}");
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("no-such-command").output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
}

/// Runs the binary to its end: exit code, stdout, stderr.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("the binary is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_doctor_waits_for_the_broker_to_stop_and_says_what_it_finds() {
    let data = tempfile::tempdir().expect("a directory");
    let directory = data.path().to_str().expect("text").to_owned();
    let mut weir = start(data.path());
    let kafka = address(&weir.ready, "kafka").to_owned();
    let (code, _, error) = run(&["table", "create", "orders", "--schema", "id BIGINT NOT NULL", "--kafka", &kafka]);
    assert_eq!(code, Some(0), "{error}");
    let (code, out, error) = run(&["doctor", "--data", &directory]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        error.starts_with("weir: a broker is running on ") && error.contains(&weir.child.id().to_string()),
        "{error}"
    );
    terminate(&weir.child);
    assert_eq!(weir.child.wait().expect("it ends").code(), Some(0));

    let (code, out, error) = run(&["doctor", "--data", &directory]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    assert!(
        out.lines().all(|line| line.starts_with("ok ") || line.starts_with("weir doctor: 0 damaged, 0 notes; ")),
        "{out}"
    );
    std::fs::remove_dir_all(data.path().join("wal")).expect("removed");
    let (code, out, error) = run(&["doctor", "--data", &directory]);
    assert_eq!(code, Some(1));
    assert!(out.lines().any(|line| line.starts_with("damage ") && line.contains("/wal: ")), "{out}");
    assert!(error.lines().count() == 1 && error.contains("1 places"), "{error}");
    let nothing = tempfile::tempdir().expect("a directory");
    let (code, _, error) = run(&["doctor", "--data", nothing.path().to_str().expect("text")]);
    assert_eq!(code, Some(1), "{error}");
    assert_eq!(std::fs::read_dir(nothing.path()).expect("listed").count(), 0, "nothing was made");
}

#[test]
fn tables_are_made_listed_described_altered_and_dropped_from_the_command_line() {
    let data = tempfile::tempdir().expect("a directory");
    let weir = start(data.path());
    let kafka = address(&weir.ready, "kafka").to_owned();
    let table = |arguments: &[&str]| run(&[&["table"], arguments, &["--kafka", &kafka]].concat());
    let done = |arguments: &[&str]| {
        let (code, out, error) = table(arguments);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}");
        out
    };
    let columns = "id BIGINT NOT NULL, item STRING";
    let out = done(&["create", "orders", "--schema", columns, "--partitions", "3", "--config", "retention.ms=5000"]);
    assert_eq!(out, "created orders with 3 partitions\n");
    let listed = done(&["list"]);
    assert_eq!(listed, format!("NAME    PARTITIONS  COLUMNS\norders           3  {columns}\n"));
    done(&["alter", "orders", "--config", "retention.ms=7000", "--config", "weir.lake.enable=true"]);
    let described = done(&["describe", "orders"]);
    for line in [
        "table       orders",
        "partitions  3",
        "config      retention.ms=7000",
        "config      weir.lake.enable=true",
        &format!("columns     {columns}"),
    ] {
        assert!(described.lines().any(|found| found == line), "{line} in {described}");
    }
    let json: serde_json::Value = serde_json::from_str(&done(&["describe", "orders", "--json"])).expect("JSON");
    assert_eq!((&json["schema"], &json["partitions"]), (&columns.into(), &3.into()));
    assert_eq!(json["configs"]["retention.ms"], serde_json::json!({"value": "7000", "set": "topic"}));
    let json: serde_json::Value = serde_json::from_str(&done(&["list", "--json"])).expect("JSON");
    assert_eq!(json[0]["name"], "orders");

    let refused = |arguments: &[&str], code: i32, part: &str| {
        let (found, out, error) = table(arguments);
        assert_eq!((found, out.as_str()), (Some(code), ""), "{arguments:?}: {error}");
        assert!(error.contains(part), "{part} in {error}");
        assert!(code == 2 || error.lines().count() == 1, "one line: {error}");
    };
    refused(&["create", "orders", "--schema", columns], 1, "already exists");
    refused(&["create", "bad", "--schema", "id NOTHING"], 1, "weir.schema");
    refused(&["create", "bad", "--schema", columns, "--config", "no.such.config=1"], 1, "no.such.config");
    refused(&["create", "bad", "--schema", columns, "--config", "retention.ms"], 2, "NAME=VALUE");
    refused(&["create", "bad", "--schema", columns, "--config", "weir.schema=x"], 2, "given twice");
    refused(&["create", "bad", "--schema", columns, "--partitions", "0"], 2, "partitions");
    refused(&["describe", "absent"], 1, "there is no table 'absent'");
    refused(&["alter", "absent", "--config", "retention.ms=1"], 1, "there is no table 'absent'");
    assert_eq!(done(&["drop", "orders"]), "dropped orders\n");
    refused(&["drop", "orders"], 1, "there is no table 'orders'");
    drop(weir);
    refused(&["list"], 1, "cannot connect to");
    let (code, _, error) = run(&["table", "list", "--kafka", "nowhere"]);
    assert!(code == Some(2) && error.contains("HOST:PORT"), "{error}");
}
