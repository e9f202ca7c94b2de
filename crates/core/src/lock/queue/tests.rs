//! Queue compared with a plain list under random operations.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::Queue;

#[derive(Clone, Debug)]
enum Step {
    Push(u32),
    Pop,
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => any::<u32>().prop_map(Step::Push), 1 => Just(Step::Pop), 2 => any::<usize>().prop_map(Step::Remove)]
}

proptest! {
    #[test]
    fn it_is_a_list(steps in proptest::collection::vec(step(), 0..200)) {
        let (mut queue, mut plain) = (Queue::default(), VecDeque::new());
        let mut longest = 0;
        for step in steps {
            match step {
                Step::Push(value) => {
                    let seat = queue.push(value).expect("few");
                    plain.push_back((seat, value));
                }
                Step::Pop => prop_assert_eq!(queue.pop(), plain.pop_front()),
                Step::Remove(which) if !plain.is_empty() => {
                    let (seat, value) = plain.remove(which % plain.len()).expect("there");
                    prop_assert_eq!(queue.remove(seat), Some(value));
                    prop_assert_eq!(queue.remove(seat), None, "only once");
                }
                Step::Remove(_) => {}
            }
            longest = longest.max(plain.len());
            prop_assert_eq!(queue.len(), plain.len());
            prop_assert_eq!(queue.front(), plain.front().map(|(_, value)| value));
            let all: Vec<u32> = queue.iter().copied().collect();
            prop_assert_eq!(all, plain.iter().map(|(_, value)| *value).collect::<Vec<_>>());
            prop_assert!(queue.nodes.len() <= longest, "seats are used again");
        }
    }
}
