//! Tests of the checker on histories of a simulated record. Correct histories always have an order, and the fast search
//! agrees with an exhaustive one.

use std::time::Instant;

use tidelock_tck::history::record::{
    ClientRequest, ClientResponse, Record, RecordModel, RecordOperation, Standing,
};
use tidelock_tck::history::{MOST_STEPS, Model as _, Operation, Outcome, Trouble, check};
use tidelock_tck::rng::Rng;

use super::Line;

/// The parameters of a history.
#[derive(Clone, Copy)]
struct Shape {
    clients: usize,
    operations: usize,
    /// One in this number of operations ends without an answer.
    lost: usize,
}

/// A client with an operation in flight.
struct Busy {
    line: usize,
    /// Whether the operation takes place at all, and whether its client receives the answer.
    happens: bool,
    heard: bool,
    answer: Option<ClientResponse>,
}

/// Simulates clients whose calls, effects and answers have a random order. Each operation takes effect at one instant.
fn simulated(seed: u64, shape: Shape) -> Vec<Line> {
    let mut rng = Rng::new(seed);
    let (mut now, mut standing) = (0, RecordModel.start());
    let mut history: Vec<Line> = Vec::new();
    let mut clients: Vec<Option<Busy>> = (0..shape.clients).map(|_| None).collect();
    while history.len() < shape.operations || clients.iter().any(Option::is_some) {
        now += 1;
        let client = rng.below(shape.clients);
        match clients[client].take() {
            None if history.len() < shape.operations => {
                clients[client] = Some(begin(&mut rng, shape, &mut history, client, now));
            }
            None => {}
            Some(mut busy) if busy.answer.is_none() && busy.happens => {
                let (next, answer) = perform(&mut rng, standing, &history[busy.line]);
                standing = next;
                busy.answer = Some(answer);
                clients[client] = Some(busy);
            }
            Some(busy) => {
                // Operations called from now on cannot join a write that was answered.
                standing.open = None;
                let line = &mut history[busy.line];
                line.outcome = match busy.answer {
                    Some(answer) if busy.heard => Outcome::Ok(answer),
                    None if busy.heard => Outcome::Failed,
                    _ => Outcome::Unknown,
                };
                // Some operations without an answer are at least known to have ended.
                if busy.heard || rng.one_in(2) {
                    line.end = now;
                }
            }
        }
    }
    history
}

fn begin(rng: &mut Rng, shape: Shape, history: &mut Vec<Line>, client: usize, now: u64) -> Busy {
    let tag = history.len() as u64 + 1;
    let add = 1 + rng.below(1_000) as i64;
    let what = match rng.below(16) {
        0..=2 => RecordOperation::Read,
        3 => RecordOperation::Get,
        4 | 5 => RecordOperation::Set(Record { count: add, tag }),
        6..=9 => RecordOperation::Mutate { add, tag },
        10 => RecordOperation::Touch,
        11 => RecordOperation::Refuse,
        12..=14 => RecordOperation::Inc(add),
        _ => RecordOperation::Delete,
    };
    let asked = ClientRequest { side: client % 2, what };
    let (key, outcome) = ("k".to_owned(), Outcome::Unknown);
    history.push(Operation { client, key, asked, call: now, end: u64::MAX, outcome });
    let lost = rng.one_in(shape.lost);
    let happens = !lost || rng.one_in(2);
    Busy { line: history.len() - 1, happens, heard: !lost || rng.one_in(2), answer: None }
}

/// Performs an operation as a correct record does. Half of the mutations that could share a write do so.
fn perform(rng: &mut Rng, standing: Standing, line: &Line) -> (Standing, ClientResponse) {
    let what = line.asked.what;
    let old = standing.value.unwrap_or_default();
    let told = match what {
        RecordOperation::Get => ClientResponse::Value(old),
        RecordOperation::Read => ClientResponse::Found(standing.value.map(|value| (standing.version, value))),
        RecordOperation::Refuse => ClientResponse::Refused(old),
        RecordOperation::Delete => ClientResponse::Deleted,
        RecordOperation::Inc(_) if standing.value.is_none() => ClientResponse::Missing,
        RecordOperation::Touch if standing.value.is_some() => {
            ClientResponse::Unchanged { old, version: standing.version }
        }
        _ => ClientResponse::Written {
            old: (!matches!(what, RecordOperation::Set(_) | RecordOperation::Inc(_))).then_some(old),
            version: 0,
        },
    };
    let mut next = Vec::new();
    let ClientResponse::Written { old, .. } = told else {
        RecordModel.step(&standing, line, Some(&told), &mut next);
        return (next[0], told);
    };
    RecordModel.step(&standing, line, None, &mut next);
    let next = next[rng.below(next.len())];
    (next, ClientResponse::Written { old, version: next.version })
}

/// Falsifies one answer, or reports an operation as failed although it happened.
fn spoiled(rng: &mut Rng, history: &mut [Line]) {
    let n = rng.below(history.len());
    let line = &mut history[n];
    line.outcome = match line.outcome {
        Outcome::Ok(_) if rng.one_in(4) => Outcome::Failed,
        Outcome::Ok(ClientResponse::Written { old, version }) => Outcome::Ok(ClientResponse::Written {
            old,
            version: (version + 2).saturating_sub(rng.below(4) as u64),
        }),
        Outcome::Ok(ClientResponse::Found(Some((version, value)))) => {
            Outcome::Ok(ClientResponse::Found(Some((version.saturating_sub(1), value))))
        }
        Outcome::Ok(ClientResponse::Value(_)) => {
            Outcome::Ok(ClientResponse::Value(Record { count: 1, tag: rng.within(0..5) }))
        }
        Outcome::Ok(other) => Outcome::Ok(other),
        Outcome::Failed | Outcome::Unknown => Outcome::Failed,
    };
}

/// Tries every order of all operations.
fn brute(history: &[Line], placed: u32, standing: Standing) -> bool {
    let is_placed = |n: usize| placed >> n & 1 == 1;
    let must = |n: usize| matches!(history[n].outcome, Outcome::Ok(_)) && !is_placed(n);
    let all = 0..history.len();
    let Some(first_end) = all.clone().filter(|n| must(*n)).map(|n| history[n].end).min() else { return true };
    let last_call = all.clone().filter(|n| is_placed(*n)).map(|n| history[n].call).max().unwrap_or(0);
    let in_time = |n: usize| history[n].call < first_end && last_call < history[n].end;
    all.filter(|n| !is_placed(*n) && in_time(*n)).any(|n| {
        let answer = match &history[n].outcome {
            Outcome::Ok(answer) => Some(answer),
            Outcome::Unknown => None,
            Outcome::Failed => return false,
        };
        let mut next = Vec::new();
        RecordModel.step(&standing, &history[n], answer, &mut next);
        next.into_iter().any(|next| brute(history, placed | 1 << n, next))
    })
}

#[test]
fn real_histories_have_an_order() {
    for seed in 1..=400 {
        let mut rng = Rng::new(!seed);
        let shape = Shape {
            clients: 1 + rng.below(12),
            operations: 1 + rng.below(200),
            lost: rng.pick(&[8, 20, 1_000]),
        };
        let history = simulated(seed, shape);
        if let Err(trouble) = check(&RecordModel, &history, MOST_STEPS) {
            panic!("seed {seed}: {trouble}");
        }
    }
}

#[test]
fn the_quick_search_agrees_with_trying_everything() {
    let (mut sound, mut broken) = (0, 0);
    for seed in 1..=3_000 {
        let mut rng = Rng::new(!seed);
        let mut history = simulated(seed, Shape { clients: 4, operations: 2 + rng.below(7), lost: 4 });
        for _ in 0..rng.below(3) {
            spoiled(&mut rng, &mut history);
        }
        let expected = brute(&history, 0, RecordModel.start());
        let found = check(&RecordModel, &history, MOST_STEPS);
        assert_eq!(found.is_ok(), expected, "seed {seed}: {history:#?}");
        *(if expected { &mut sound } else { &mut broken }) += 1;
        if let Err(Trouble::Broken(it)) = found {
            // The explanation is correct: the prefix has an order without that answer, and none with it.
            assert!(!brute(&until(&history, history[it.answer].end), 0, RecordModel.start()), "seed {seed}");
            assert!(
                brute(&until(&history, history[it.answer].end - 1), 0, RecordModel.start()),
                "seed {seed}"
            );
        }
    }
    assert!(sound > 500 && broken > 500, "{sound} with an order, {broken} without");
}

/// Returns the history up to an instant.
fn until(history: &[Line], end: u64) -> Vec<Line> {
    let mut beginning: Vec<Line> = history.iter().filter(|line| line.call <= end).cloned().collect();
    for line in beginning.iter_mut().filter(|line| line.end > end) {
        if matches!(line.outcome, Outcome::Ok(_)) {
            (line.outcome, line.end) = (Outcome::Unknown, u64::MAX);
        }
    }
    beginning
}

#[test]
fn thousands_of_operations_take_few_steps() {
    for (seed, clients) in [(1, 8), (2, 16), (3, 16)] {
        let history = simulated(seed, Shape { clients, operations: 4_000, lost: 200 });
        let begun = Instant::now();
        let explained = check(&RecordModel, &history, STEPS).unwrap_or_else(|trouble| panic!("{trouble}"));
        println!("{clients} clients, {explained:?}: {:?}", begun.elapsed());
        // The search also finds the one false answer: an operation took effect, but its client received a failure.
        let mut wrong = history;
        let happened = |line: &&mut Line| matches!(line.outcome, Outcome::Ok(ClientResponse::Written { .. }));
        wrong.iter_mut().skip(2_000).find(happened).unwrap().outcome = Outcome::Failed;
        let begun = Instant::now();
        let trouble = check(&RecordModel, &wrong, STEPS).unwrap_err();
        println!("without an order: {:?}\n{trouble}", begun.elapsed());
        assert!(matches!(trouble, Trouble::Broken(_)), "{trouble}");
    }
}

/// More steps than these histories need, and less than a second in a release build.
const STEPS: u64 = 100_000;
