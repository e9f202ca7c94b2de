//! The ladder of guarantees under simulated faults, and the determinism of the simulation.

use tidelock_sim::{hash_of, ladder, simulate};

#[test]
fn the_ladder_holds_under_random_faults() {
    simulate(200, ladder::scenario);
}

#[test]
fn a_seed_takes_the_same_course_twice() {
    for seed in 1_000..1_040 {
        assert_eq!(hash_of(seed, ladder::scenario), hash_of(seed, ladder::scenario), "seed {seed}");
    }
}
