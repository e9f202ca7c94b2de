//! The guarantees of a private server: it starts, survives being killed, and never outlives its owner.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a child process reports its server on stdout")]

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidelock_pgserver::{Error, PgServerOptions, Server};

fn options() -> PgServerOptions {
    PgServerOptions { durable: false, ..PgServerOptions::default() }
}

fn start() -> Server {
    Server::start(&options()).unwrap()
}

/// Returns the result of a query, or the error text.
fn ask(server: &Server, sql: &str) -> Result<String, String> {
    let mut psql = server.command("psql");
    let output = psql.args(["-X", "-q", "-A", "-t", "-c", sql]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[track_caller]
fn answers(server: &Server, sql: &str, expected: &str) {
    assert_eq!(ask(server, sql).as_deref(), Ok(expected), "{sql}");
}

/// Polls until a condition holds, which must happen within 20 s.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the process id in the server's lock file.
fn postmaster(data: &Path) -> u32 {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

/// Returns whether a process runs. A zombie does not count.
fn runs(id: u32) -> bool {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &id.to_string()]).output().unwrap();
    let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn a_server_answers_and_is_configured_as_asked() {
    let mut options = PgServerOptions { max_connections: 17, ..options() };
    options.settings.push(("work_mem".to_owned(), "5MB".to_owned()));
    let server = Server::start(&options).unwrap();
    answers(&server, "select 1", "1");
    answers(&server, "select current_user || ' ' || current_database()", "tidelock tidelock");
    answers(&server, "show max_connections", "17");
    answers(&server, "show work_mem", "5MB");
    answers(&server, "show listen_addresses", "127.0.0.1");
    answers(&server, "show server_encoding", "UTF8");
    answers(&server, "show fsync", "off");
    let shown = ask(&server, "show server_version").unwrap();
    assert!(shown.starts_with(server.version()), "{shown} is not {}", server.version());
    let url = server.url();
    assert!(url.ends_with(&format!("@127.0.0.1:{}/tidelock", server.port())), "{url}");
    let through_url = server.command("psql").arg(&url).args(["-X", "-A", "-t", "-c", "select 2"]).output();
    assert_eq!(through_url.unwrap().stdout, b"2\n");
}

#[test]
fn a_default_server_is_durable() {
    let server = Server::start(&PgServerOptions::default()).unwrap();
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        answers(&server, &format!("show {setting}"), "on");
    }
}

#[test]
fn a_server_does_not_run_as_root_and_asks_for_the_password() {
    let server = start();
    let owner = Command::new("ps")
        .args(["-o", "user=", "-p", &postmaster(server.data_directory()).to_string()])
        .output()
        .unwrap();
    assert_ne!(String::from_utf8_lossy(&owner.stdout).trim(), "root");
    let mut stranger = server.command("psql");
    let output = stranger.env("PGPASSWORD", "guess").args(["-X", "-c", "select 1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("password authentication failed"), "{said}");
    let socket = server.data_directory().parent().unwrap();
    let mut local = server.command("psql");
    let output =
        local.env("PGHOST", socket).env_remove("PGPASSWORD").args(["-X", "-w", "-c", "select 1"]).output();
    let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(said.contains("no password supplied"), "{said}");
}

#[test]
fn two_servers_do_not_meet() {
    let (one, other) = (start(), start());
    assert_ne!(one.port(), other.port());
    ask(&one, "create table here (n int)").unwrap();
    assert!(ask(&other, "select * from here").unwrap_err().contains("does not exist"));
}

#[test]
fn a_killed_server_keeps_what_was_committed() {
    let server = start();
    let port = server.port();
    ask(&server, "create table kept (n int)").unwrap();
    for n in 1..=3 {
        ask(&server, &format!("insert into kept values ({n})")).unwrap();
        let parent = postmaster(server.data_directory());
        let backends: Vec<u32> =
            ask(&server, "select pid from pg_stat_activity where pid <> pg_backend_pid()")
                .unwrap()
                .lines()
                .map(|line| line.parse().unwrap())
                .collect();
        assert!(backends.len() > 2, "{backends:?}");
        server.kill().unwrap();
        assert!(!server.is_running() && !listens(port));
        for id in backends.into_iter().chain([parent]) {
            assert!(!runs(id), "process {id} is still there");
        }
        server.run().unwrap();
        assert!(server.is_running());
        assert_eq!(server.port(), port);
        answers(&server, "select count(*) from kept", &n.to_string());
    }
}

#[test]
fn a_stopped_server_runs_again() {
    let server = start();
    ask(&server, "create table kept as select 7 as n").unwrap();
    server.stop().unwrap();
    assert!(!server.is_running() && !listens(server.port()));
    server.stop().unwrap();
    server.kill().unwrap();
    server.run().unwrap();
    server.run().unwrap();
    answers(&server, "select n from kept", "7");
    let log = std::fs::read_to_string(server.data_directory().with_file_name("log")).unwrap();
    assert!(!log.contains("was not properly shut down"), "{log}");
}

#[test]
fn a_server_waits_for_its_port() {
    let server = start();
    server.stop().unwrap();
    let taken = TcpListener::bind(("127.0.0.1", server.port())).unwrap();
    let log = server.data_directory().with_file_name("log");
    let complained = || std::fs::read_to_string(&log).unwrap().contains("Address already in use");
    std::thread::scope(|threads| {
        let run = threads.spawn(|| server.run());
        eventually("the server finds its port taken", complained);
        drop(taken);
        run.join().unwrap().unwrap();
    });
    answers(&server, "select 1", "1");
}

#[test]
fn a_dropped_server_is_gone() {
    let server = start();
    let (id, home) = (postmaster(server.data_directory()), home(&server));
    drop(server);
    assert!(!runs(id));
    assert!(!home.exists());
}

/// Returns the id of a running server's shared memory, if the system lists it.
fn memory(data: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let id = text.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    Path::new(MEMORY).exists().then(|| {
        assert!(exists(&id), "there is no memory {id}");
        id
    })
}

/// The file in which Linux lists shared memory.
const MEMORY: &str = "/proc/sysvipc/shm";

fn exists(memory: &str) -> bool {
    let list = std::fs::read_to_string(MEMORY).unwrap();
    list.lines().any(|line| line.split_whitespace().nth(1) == Some(memory))
}

#[test]
fn a_server_that_is_dropped_after_a_kill_leaves_no_shared_memory() {
    let server = start();
    let (home, memory) = (home(&server), memory(server.data_directory()));
    server.kill().unwrap();
    drop(server);
    assert!(!home.exists());
    assert!(!memory.is_some_and(|memory| exists(&memory)));
}

fn home(server: &Server) -> PathBuf {
    server.data_directory().parent().unwrap().to_owned()
}

/// Set in the process that is started to be killed.
const ROLE: &str = "TIDELOCK_PGSERVER_ROLE";

/// Starts this same test in a separate process, which starts a server and prints its data directory and port.
fn owner_in_another_process(test: &str) -> (Child, PathBuf, u16) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ROLE, "owner")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.into_iter().find_map(|line| {
        let (_, told) = line.split_once("server: ")?;
        let (port, data) = told.split_once(' ')?;
        Some((PathBuf::from(data), port.parse().ok()?))
    });
    let (data, port) = told.expect("the process reports its server");
    (child, data, port)
}

fn tell_and_wait(server: &Server) {
    println!("server: {} {}", server.port(), server.data_directory().display());
    let _ = std::io::stdin().read(&mut [0]);
}

/// Kills a process and its whole group, as a terminal or a build server would, and expects that nothing is left.
fn kill_and_look(mut owner: Child, data: &Path, port: u16) {
    let (id, memory) = (postmaster(data), memory(data));
    assert!(runs(id) && listens(port));
    let killed = Command::new("kill").args(["-KILL", "--", &format!("-{}", owner.id())]).status().unwrap();
    assert!(killed.success());
    owner.wait().unwrap();
    eventually("the server has ended", || !runs(id) && !listens(port));
    eventually("the directory is gone", || !data.parent().unwrap().exists());
    assert!(!memory.is_some_and(|memory| exists(&memory)), "the server was not shut down");
}

#[test]
fn a_killed_owner_takes_its_server_along() {
    if std::env::var_os(ROLE).is_some() {
        return tell_and_wait(&start());
    }
    let (owner, data, port) = owner_in_another_process("a_killed_owner_takes_its_server_along");
    kill_and_look(owner, &data, port);
}

#[test]
fn a_killed_owner_of_a_server_that_was_killed_and_run_again_leaves_nothing() {
    if std::env::var_os(ROLE).is_some() {
        let server = start();
        server.kill().unwrap();
        server.run().unwrap();
        return tell_and_wait(&server);
    }
    let test = "a_killed_owner_of_a_server_that_was_killed_and_run_again_leaves_nothing";
    let (owner, data, port) = owner_in_another_process(test);
    kill_and_look(owner, &data, port);
}

#[test]
fn a_standby_follows_and_takes_over() {
    let server = start();
    ask(&server, "create table kept (n int)").unwrap();
    let standby = server.standby().unwrap();
    assert_ne!(standby.port(), server.port());
    answers(&standby, "select pg_is_in_recovery()", "t");
    ask(&server, "insert into kept values (1)").unwrap();
    eventually("the row arrives", || ask(&standby, "select n from kept").as_deref() == Ok("1"));
    assert!(ask(&standby, "insert into kept values (2)").unwrap_err().contains("read-only"));
    let refused = server.promote().unwrap_err();
    assert!(
        matches!(&refused, Error::Program { output, .. } if output.contains("not in standby mode")),
        "{refused}"
    );
    server.kill().unwrap();
    standby.promote().unwrap();
    ask(&standby, "insert into kept values (2)").unwrap();
    standby.kill().unwrap();
    standby.run().unwrap();
    answers(&standby, "select count(*) from kept", "2");
}

#[test]
fn a_failed_start_shows_the_log_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    set_mode(directory.path(), 0o755);
    let settings = vec![("shared_buffers".to_owned(), "a lot".to_owned())];
    let options = PgServerOptions { settings, directory: Some(directory.path().to_owned()), ..options() };
    let error = Server::start(&options).unwrap_err();
    let shown = error.to_string();
    assert!(matches!(error, Error::Start { .. }), "{shown}");
    assert!(shown.contains("invalid value for parameter \"shared_buffers\""), "{shown}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_that_the_server_cannot_enter_is_named() {
    let closed = tempfile::tempdir().unwrap();
    set_mode(closed.path(), 0o700);
    let options = PgServerOptions { directory: Some(closed.path().to_owned()), ..options() };
    let started = Server::start(&options);
    // Only root has to run the server under another account.
    if std::fs::metadata(closed.path()).unwrap().uid() != 0 {
        assert!(started.unwrap().data_directory().starts_with(closed.path().canonicalize().unwrap()));
        return;
    }
    let error = started.unwrap_err();
    let shown = error.to_string();
    assert!(matches!(error, Error::Unreachable { .. }), "{shown}");
    assert!(shown.contains(closed.path().to_str().unwrap()) && shown.contains("chmod o+x"), "{shown}");
    assert_eq!(std::fs::read_dir(closed.path()).unwrap().count(), 0);
}

fn set_mode(directory: &Path, mode: u32) {
    std::fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
}
