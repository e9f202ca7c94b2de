//! Rows in flight keep later jobs waiting, and no job overtakes another on the same row.

use super::{Job, Kind, Most, Queue};

#[derive(Debug, PartialEq, Eq)]
struct Task(&'static str, Vec<u64>, Kind);

impl Job for Task {
    fn rows(&self) -> Vec<u64> {
        self.1.clone()
    }

    fn kind(&self) -> Kind {
        self.2
    }

    fn weight(&self) -> usize {
        1
    }
}

const MOST: Most = Most { jobs: 3, weight: 100 };

async fn queue(tasks: &[(&'static str, &[u64], Kind)]) -> Queue<Task> {
    let queue = Queue::new(100);
    for (name, rows, kind) in tasks {
        queue.push(Task(name, rows.to_vec(), *kind)).await.expect("open");
    }
    queue
}

fn names(jobs: &[Task]) -> Vec<&'static str> {
    jobs.iter().map(|task| task.0).collect()
}

#[tokio::test]
async fn waiting_batches_are_taken_together_up_to_the_limit() {
    let one = Kind::Batch;
    let queue = queue(&[("a", &[1], one), ("b", &[1], one), ("c", &[2], one), ("d", &[3], one)]).await;
    let group = queue.take(MOST).await.expect("jobs wait");
    assert_eq!(names(&group.jobs), ["a", "b", "c"], "jobs of one group may share rows");
    assert_eq!(names(&queue.take(MOST).await.expect("one waits").jobs), ["d"]);
}

#[tokio::test]
async fn a_row_in_flight_is_waited_for_and_no_batch_overtakes() {
    let one = Kind::Batch;
    let queue = queue(&[("first", &[1], one)]).await;
    let first = queue.take(MOST).await.expect("it waits");
    for (name, rows) in [("second", vec![1, 2]), ("third", vec![2]), ("free", vec![3])] {
        queue.push(Task(name, rows, one)).await.expect("open");
    }
    let other = queue.take(MOST).await.expect("one is free");
    assert_eq!(names(&other.jobs), ["free"], "the third must not overtake the second on row 2");
    queue.done(&first.rows);
    assert_eq!(names(&queue.take(MOST).await.expect("both are free").jobs), ["second", "third"]);
}

#[tokio::test]
async fn kinds_do_not_mix_and_some_go_alone() {
    let tasks: &[(&'static str, &[u64], Kind)] = &[
        ("claim", &[], Kind::Claim),
        ("batch", &[1], Kind::Batch),
        ("claim too", &[], Kind::Claim),
        ("alone", &[], Kind::Alone),
        ("last", &[2], Kind::Batch),
    ];
    let queue = queue(tasks).await;
    assert_eq!(names(&queue.take(MOST).await.expect("").jobs), ["claim", "claim too"]);
    assert_eq!(names(&queue.take(MOST).await.expect("").jobs), ["batch"]);
    assert_eq!(names(&queue.take(MOST).await.expect("").jobs), ["alone"]);
    assert_eq!(names(&queue.take(MOST).await.expect("").jobs), ["last"]);
}

#[tokio::test]
async fn a_closed_queue_gives_what_it_has_and_wakes_every_sleeper() {
    let queue = std::sync::Arc::new(queue(&[("left", &[], Kind::Batch)]).await);
    queue.close();
    assert!(queue.push(Task("late", vec![], Kind::Batch)).await.is_err());
    assert_eq!(names(&queue.take(MOST).await.expect("it was queued").jobs), ["left"]);
    assert!(queue.take(MOST).await.is_none());
    let open: std::sync::Arc<Queue<Task>> = std::sync::Arc::new(Queue::new(1));
    let sleepers: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn({
                let open = std::sync::Arc::clone(&open);
                async move { open.take(MOST).await.is_none() }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    open.close();
    for sleeper in sleepers {
        assert!(sleeper.await.expect("a sleeper does not panic"));
    }
}

#[tokio::test]
async fn one_of_a_crowd_takes_no_flush_for_itself() {
    let one = Kind::Batch;
    let queue = queue(&[("a", &[1], one), ("b", &[2], one)]).await;
    let crowd = queue.take(MOST).await.expect("two wait");
    assert!(queue.place(vec![3]).is_none(), "a group is under way");
    queue.finish(&crowd, 2, false);
    assert!(queue.place(vec![1]).is_none(), "the rest of the crowd is on its way back");

    queue.push(Task("a", vec![1], one)).await.expect("open");
    let alone = queue.take(MOST).await.expect("one waits");
    queue.finish(&alone, 1, false);
    assert!(queue.place(vec![1]).is_some(), "no other task came: it may go alone");
}
