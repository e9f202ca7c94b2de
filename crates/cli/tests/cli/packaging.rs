//! The files shipped with the program work: the systemd unit starts, and the image has a health check.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use crate::support::{command, stderr, tidelock};

const UNIT: &str = include_str!("../../../../packaging/tidelock.service");
const IMAGE: &str = include_str!("../../../../packaging/Dockerfile");
const COMPOSE: &str = include_str!("../../../../packaging/compose.yaml");

/// A process that does not outlive its test.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn the_unit_starts_where_nothing_is_yet() {
    let line = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/tidelock ")).unwrap();
    let state = tempfile::tempdir().unwrap();
    let line = line.replace("/var/lib/tidelock", state.path().to_str().unwrap());
    let words: Vec<&str> = line.split(' ').chain(["--listen", "127.0.0.1:0"]).collect();
    let mut serving = Ours(command(&words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(serving.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("http://127.0.0.1:"), "{said}");
    assert!(state.path().join("app.db").exists() && state.path().join("app.db.tokens").exists());
    let user = UNIT.lines().find_map(|line| line.strip_prefix("User=")).unwrap();
    assert!(UNIT.contains(&format!("/usr/sbin/nologin {user}\n")), "the line that adds {user}");
}

#[tokio::test]
async fn the_health_check_of_the_image_is_well_although_work_is_blocked() {
    let line = IMAGE.lines().find_map(|line| line.split_once("CMD [\"tidelock\", ")).unwrap().1;
    let words = line.trim_end_matches(']').split(", ").map(|word| word.trim_matches('"'));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    let words: Vec<&str> = words.chain(["--store", path.to_str().unwrap()]).collect();
    let missing = tidelock(&words);
    assert_eq!(missing.status.code(), Some(1), "{}", stderr(&missing));
    crate::doctor::with_blocked_work(&path).await;
    assert_eq!(tidelock(&["doctor", "--store", path.to_str().unwrap()]).status.code(), Some(5));
    let well = tidelock(&words);
    assert_eq!(well.status.code(), Some(0), "{}", stderr(&well));
}

#[test]
fn a_password_is_no_part_of_an_address() {
    let address = COMPOSE.lines().find(|line| line.contains("TIDELOCK_STORE:")).unwrap();
    assert!(!address.contains("PASSWORD"), "{address}");
    assert!(COMPOSE.contains("    PGPASSWORD: ${POSTGRES_PASSWORD:?set it}\n"));
}
