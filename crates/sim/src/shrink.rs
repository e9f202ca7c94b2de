//! Reduction of a failing plan: faults are removed one by one, as long as the run still fails.

use crate::fault::Fault;
use crate::run::{RunResult, run};
use crate::scenario::Sim;

/// Returns the failing run with the fewest faults that were found, with its trace.
pub(crate) fn shrink(seed: u64, scenario: &dyn Fn(&mut Sim), failed: &RunResult) -> RunResult {
    let mut faults = failed.faults.clone();
    let mut index = 0;
    while index < faults.len() {
        let fewer: Vec<Fault> =
            faults.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, fault)| fault.clone()).collect();
        if run(seed, scenario, Some(&fewer), false).failure.is_some() {
            faults = fewer;
            // A fault that was needed together with the removed one may now be superfluous.
            index = 0;
        } else {
            index += 1;
        }
    }
    run(seed, scenario, Some(&faults), true)
}
