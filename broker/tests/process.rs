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
    ready.split_whitespace().find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).expect("the ready line names it")
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
