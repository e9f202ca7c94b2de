//! Only here: which error responses prove a rollback.

use tokio_postgres::error::Severity;

use super::{Meaning, meaning_of};

/// The meaning of an error that a server raises inside a statement.
fn error(code: &str) -> Meaning {
    meaning_of(Some(Severity::Error), code, None)
}

#[test]
fn d1_only_errors_that_prove_a_rollback_count_as_not_written() {
    let rolled_back = [
        ("40001", Meaning::Again),
        ("40P01", Meaning::Again),
        ("57014", Meaning::Again),
        ("55P03", Meaning::Locked),
        ("23505", Meaning::Stale),
        ("TL001", Meaning::Stale),
        ("TL003", Meaning::Clock),
        ("TL002", Meaning::Failed),
        ("0A000", Meaning::Failed),
        ("22003", Meaning::Failed),
        ("23514", Meaning::Failed),
        ("25006", Meaning::Failed),
        ("25P02", Meaning::Failed),
        ("26000", Meaning::Failed),
        ("3F000", Meaning::Failed),
        ("40002", Meaning::Failed),
        ("42501", Meaning::Failed),
        ("42P05", Meaning::Failed),
        ("53100", Meaning::Failed),
        ("53200", Meaning::Failed),
        ("54000", Meaning::Failed),
        ("P0001", Meaning::Failed),
    ];
    for (code, meaning) in rolled_back {
        assert_eq!(error(code), meaning, "{code}");
        assert!(!error(code).is_open(), "{code}");
    }
    assert_eq!(meaning_of(Some(Severity::Error), "23505", Some("events_id")), Meaning::TakenEventId);
}

#[test]
fn d1_every_other_error_leaves_the_outcome_open() {
    for code in ["08000", "08003", "08006", "08007", "08P01", "57P01", "57P02", "57P03", "57P05"] {
        assert_eq!(error(code), Meaning::Lost, "{code}");
    }
    for code in ["40003", "57000", "58000", "58030", "58P01", "XX000", "XX001", "F0000", "HV000", "72000", ""]
    {
        assert_eq!(error(code), Meaning::Unclear, "{code}");
        assert!(error(code).is_open(), "{code}");
    }
}

#[test]
fn d1_an_error_that_ends_the_connection_leaves_the_outcome_open() {
    for severity in [Severity::Fatal, Severity::Panic] {
        for code in ["25P03", "25P04", "53300", "57P01", "40001", "23505", "TL001", "28P01", "XX000"] {
            assert_eq!(meaning_of(Some(severity), code, None), Meaning::Lost, "{code}");
        }
    }
}

/// PgBouncer sends no field `V`, and any SQLSTATE.
#[test]
fn d1_an_error_of_a_program_in_between_leaves_the_outcome_open() {
    for code in ["08P01", "08006", "28P01", "3D000", "53300", "57014", "40001", "23505", "TL001", "25P02"] {
        assert_eq!(meaning_of(None, code, None), Meaning::Lost, "{code}");
    }
}

/// Before any write was sent, nothing can have been committed. Only a lost connection is worth a retry.
#[test]
fn d1_what_fails_before_a_write_was_sent_was_not_applied() {
    let before = |meaning| {
        let failure = super::Failure { meaning, ..super::Failure::unreachable("") };
        failure.unsent().meaning
    };
    assert_eq!(before(Meaning::Lost), Meaning::Unsent);
    assert_eq!(before(Meaning::Unclear), Meaning::Failed);
    assert_eq!(before(Meaning::Stale), Meaning::Stale);
    assert_eq!(before(Meaning::Failed), Meaning::Failed);
}
