//! Answers in comparable form: positions and fences become ranks, and payloads are normalised.

use serde_json::Value;
use tidelock_core::id::{Epoch, Fence, Position};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, ClaimDenied, Claimed, DocumentFound, Event, EventPage, Holder, LeaseRow, PageOf, Receipt,
    Refusal, RowSet, StoreError, StoredDocument, StoredRow, WorkRow,
};

use super::side::Side;

/// The rank of a number that this side never issued.
const UNKNOWN: u64 = 9_999;

impl Side {
    pub(super) fn applied(&self, answer: Result<Receipt, ApplyError>) -> String {
        match answer {
            Ok(receipt) => format!("Applied({:?})", self.receipt(receipt)),
            Err(ApplyError::Refused(refusal)) => format!("Refused({:?})", self.refusal(*refusal)),
            Err(other) => format!("{other:?}"),
        }
    }

    pub(super) fn claimed(&self, claimed: Result<Claimed, StoreError>) -> String {
        let claimed = claimed.map(|mut claimed| {
            for grant in &mut claimed.grants {
                grant.row = self.row(grant.row.clone());
                grant.fence = self.fence(grant.fence);
                grant.epoch = Epoch(0);
                grant.events = grant.events.drain(..).map(|event| self.event(event)).collect();
            }
            if let Some(ClaimDenied::Held(lease)) = &mut claimed.denied {
                *lease = self.lease_row(lease.clone());
            }
            claimed
        });
        format!("{claimed:?}")
    }

    pub(super) fn receipt(&self, mut receipt: Receipt) -> Receipt {
        for appended in &mut receipt.appended {
            appended.first_position = self.rank(appended.first_position);
            appended.last_position = self.rank(appended.last_position);
        }
        for written in &mut receipt.documents {
            written.value = written.value.as_ref().map(plain);
        }
        receipt
    }

    fn refusal(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Fenced { index, key, fence, holder } => {
                let holder = match *holder {
                    Holder::Held(lease) => Holder::Held(self.lease_row(lease)),
                    other => other,
                };
                Refusal::Fenced { index, key, fence: self.fence(fence), holder: Box::new(holder) }
            }
            Refusal::Document { index, key, expected, found } => {
                let found = match *found {
                    DocumentFound::Present(document) => DocumentFound::Present(self.document(document)),
                    other => other,
                };
                Refusal::Document { index, key, expected, found: Box::new(found) }
            }
            other => other,
        }
    }

    pub(super) fn event_page(&self, page: EventPage) -> EventPage {
        let events = page.events.into_iter().map(|event| self.event(event)).collect();
        EventPage { events, scanned_to: page.scanned_to.map(|position| self.rank(position)), ..page }
    }

    pub(super) fn document_page(&self, page: PageOf<StoredDocument>) -> PageOf<StoredDocument> {
        PageOf { rows: page.rows.into_iter().map(|d| self.document(d)).collect(), ..page }
    }

    pub(super) fn row_page(&self, page: PageOf<WorkRow>) -> PageOf<WorkRow> {
        PageOf { rows: page.rows.into_iter().map(|row| self.row(row)).collect(), ..page }
    }

    pub(super) fn row_set(&self, mut found: RowSet) -> RowSet {
        for row in found.rows.iter_mut().flatten() {
            *row = match row.clone() {
                StoredRow::Document(document) => StoredRow::Document(self.document(document)),
                StoredRow::Work(row) => StoredRow::Work(Box::new(self.row(*row))),
                StoredRow::Operation(receipt) => StoredRow::Operation(self.receipt(receipt)),
                stream @ StoredRow::Stream(_) => stream,
            };
        }
        found
    }

    pub(super) fn event(&self, mut event: Event) -> Event {
        event.position = self.rank(event.position);
        event.payload = plain(&event.payload);
        event.meta = plain(&event.meta);
        event
    }

    pub(super) fn document(&self, mut document: StoredDocument) -> StoredDocument {
        document.value = plain(&document.value);
        document
    }

    /// The order of rows at the end compares the order of creation, so its numbers are removed here.
    pub(super) fn row(&self, mut row: WorkRow) -> WorkRow {
        row.seq = 0;
        row.position = row.position.map(|position| self.rank(position));
        row.payload = plain(&row.payload);
        row.lease = row.lease.map(|lease| self.lease_row(lease));
        row
    }

    fn lease_row(&self, mut lease: LeaseRow) -> LeaseRow {
        lease.fence = self.fence(lease.fence);
        lease
    }

    /// Returns 1 for the first event, and so on; 0 is the start of the log.
    fn rank(&self, position: Position) -> Position {
        if position == Position(0) {
            return position;
        }
        Position(self.positions.binary_search(&position).map_or(UNKNOWN, |at| at as u64 + 1))
    }

    fn fence(&self, fence: Fence) -> Fence {
        let at = self.grants.binary_search_by_key(&fence, |lease| lease.fence);
        Fence(at.map_or(UNKNOWN, |at| at as u64 + 1))
    }
}

/// Returns the payload in a normal form of JSON.
fn plain(payload: &Payload) -> Payload {
    let value: Value = payload.parse().expect("a payload is JSON");
    Payload::of(&value).expect("a value can be written")
}
