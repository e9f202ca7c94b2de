//! Queries of readers. One statement reads the rows of a page. Reading the log takes two steps (see [`ceiling`]).

use foldhash::HashMap;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Epoch, OpId, Position};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::model::epoch as model;
use tidelock_core::model::limits::{PAGE_BYTES, PAYLOAD_BYTES};
use tidelock_core::store::{
    Direction, EventFilter, EventPage, Get, LogQuery, NextReady, Page, PageOf, Receipt, Resolution, RowSet,
    StoreError, StoredDocument, StoredRow, StreamInfo, StreamQuery, WorkFilter, WorkRow,
};
use tokio_postgres::types::Type;

use crate::db::{Call, Db, Row};
use crate::epoch;
use crate::error::{Failure, Meaning};
use crate::flush::stored_operation;
use crate::rows::{self, get, int, uint};
use crate::scan_bounds::{self, Levels};
use crate::sql::Sql;
use crate::work_filter::WorkCondition;
use crate::writer::pessimistic::short_answer;

/// A query whose filter matches little stops after this many events and reports how far it came.
const SCAN_EVENTS: i64 = 100_000;

/// The limit of bytes after which the server sends no further row: a page, and the row that shows that there is more.
const FAR_BEYOND: usize = PAGE_BYTES + 2 * PAYLOAD_BYTES;

/// A connection with the statements of a reader.
pub(crate) struct Reader<'a> {
    pub(crate) db: Db<'a>,
    pub(crate) sql: &'a Sql,
    /// The epoch that the process knows.
    pub(crate) epoch: Epoch,
    /// The instant to use. `None`: the server's clock.
    pub(crate) given: Option<i64>,
}

/// Begins a transaction whose statements all see the rows that were committed when its first one began.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Adds the bounds of a page within a range of keys: strictly after one text, below another.
fn with_bounds<'a>(call: Call<'a>, prefix: &'a KeyPrefix, page: &'a Page) -> Call<'a> {
    let after = page.after.as_ref().map_or("", Key::canonical);
    call.with(prefix.from(), Type::TEXT).with(after, Type::TEXT).with(prefix.below(), Type::TEXT)
}

/// Returns the condition of such a range. It has an upper bound only if the range has one, so that the index scan knows
/// where to stop.
fn bounds(prefix: &KeyPrefix) -> &'static str {
    match prefix.below() {
        Some(_) => "key >= $1 AND key > $2 AND key < $3",
        None => "key >= $1 AND key > $2 AND $3::text IS NULL",
    }
}

impl Reader<'_> {
    /// Reads rows of one snapshot in one round trip, in the order of the request.
    pub(crate) async fn rows(&self, gets: &[Get]) -> Result<RowSet, Failure> {
        let (mut documents, mut streams, mut work, mut operations) = (vec![], vec![], vec![], vec![]);
        for get in gets {
            match get {
                Get::Document(key) => documents.push(key.canonical()),
                Get::Stream(key) => streams.push(key.canonical()),
                Get::Work(key) => work.push(key.canonical()),
                Get::Operation(id) => operations.push(id.0),
            }
        }
        let by_key = |columns: &str, table: &str| {
            format!("SELECT {columns} FROM {}.{table} WHERE key = ANY ($1)", self.sql.schema)
        };
        let sql = [
            by_key(rows::DOCUMENT_COLUMNS, "documents"),
            by_key(rows::STREAM_COLUMNS, "streams"),
            by_key(rows::WORK_COLUMNS, "work"),
        ];
        let mut calls = vec![self.clock_call()];
        for (sql, keys) in sql.iter().zip([documents, streams, work]) {
            calls.push(Call::new(sql).with(keys, Type::TEXT_ARRAY));
        }
        calls.push(Call::new(&self.sql.operations).with(operations, Type::UUID_ARRAY));
        let answers = self.db.pipeline(Some(SNAPSHOT), &calls, Some("COMMIT")).await?;
        let [clock, found @ ..] = answers.as_slice() else { return Err(short_answer()) };
        let now = instant(clock)?;
        let found = Found::read(found, now)?;
        Ok(RowSet { rows: gets.iter().map(|get| found.get(get).cloned()).collect(), now })
    }

    /// Runs a statement, and reads the clock before it in the same round trip.
    async fn timed(&self, call: Call<'_>) -> Result<(Timestamp, Vec<Row>), Failure> {
        let mut answers = self.db.pipeline(None, &[self.clock_call(), call], None).await?.into_iter();
        match (answers.next(), answers.next()) {
            (Some(clock), Some(found)) => Ok((instant(&clock)?, found)),
            _ => Err(short_answer()),
        }
    }

    /// Returns the statement that reads the clock.
    fn clock_call(&self) -> Call<'_> {
        Call::new(&self.sql.now).with(self.given, Type::INT8)
    }

    pub(crate) async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, Failure> {
        let (columns, s) = (rows::DOCUMENT_COLUMNS, &self.sql.schema);
        let sql = format!("SELECT {columns}, coalesce($2, {s}.clock()) FROM {s}.documents WHERE key = $1");
        let call = Call::new(&sql).with(key.canonical(), Type::TEXT);
        let found = self.db.query(call.with(self.given, Type::INT8)).await?;
        let Some(row) = found.first() else { return Ok(None) };
        visible(row)
    }

    /// Returns the ready time of the first row of the levels, and the clock.
    pub(crate) async fn next_ready(&self, levels: &Levels) -> Result<NextReady, Failure> {
        let ready = levels.add_to(Call::new(&self.sql.next_ready)).with(None::<i64>, Type::INT8);
        let answers = self.db.pipeline(None, &[ready, self.clock_call()], None).await?;
        let [found, clock] = answers.as_slice() else { return Err(short_answer()) };
        let (ready, _) = scan_bounds::next_ready(found)?;
        let at = ready.into_iter().flatten().min().map(Timestamp::from_micros);
        Ok(NextReady { at, now: instant(clock)? })
    }

    pub(crate) async fn documents(
        &self,
        prefix: &KeyPrefix,
        page: &Page,
    ) -> Result<PageOf<StoredDocument>, Failure> {
        let limit = page.rows()?;
        let (columns, s, bounds) = (rows::DOCUMENT_COLUMNS, &self.sql.schema, bounds(prefix));
        // Cuts off rows far beyond a page; the exact end is found below.
        let sql = format!(
            "SELECT {columns}, coalesce($4, {s}.clock()) FROM (
                 SELECT *, sum(bytes) OVER (ORDER BY key) AS total FROM (
                     SELECT * FROM {s}.documents WHERE {bounds} AND deleted_at IS NULL
                         AND (expires_at IS NULL OR expires_at > (SELECT coalesce($4, {s}.clock())))
                     ORDER BY key LIMIT $5) page) page
             WHERE total - bytes <= $6 ORDER BY key"
        );
        let call = with_bounds(Call::new(&sql), prefix, page)
            .with(self.given, Type::INT8)
            .with(int(limit as u64 + 1), Type::INT8)
            .with(int(FAR_BEYOND as u64), Type::INT8);
        let (now, found) = self.timed(call).await?;
        let visible = found.iter().filter_map(|row| visible(row).transpose());
        PageOf::gathered(visible, limit, now, |found| found.key.clone(), |found| found.value.len())
    }

    pub(crate) async fn count_documents(
        &self,
        prefix: &KeyPrefix,
        given: Option<Timestamp>,
    ) -> Result<u64, Failure> {
        let (s, bounds) = (&self.sql.schema, bounds(prefix));
        // Few documents expire. One index counts all documents, and another counts the expired ones.
        let sql = format!(
            "SELECT (SELECT count(*) FROM {s}.documents WHERE {bounds} AND deleted_at IS NULL)
                 - (SELECT count(*) FROM {s}.documents WHERE {bounds} AND deleted_at IS NULL
                     AND expires_at <= (SELECT coalesce($4, {s}.clock())))"
        );
        let page = Page::first(1);
        let call = with_bounds(Call::new(&sql), prefix, &page);
        let found = self.db.query(call.with(given.map(Timestamp::as_micros), Type::INT8)).await?;
        Ok(uint(found.first().map_or(Ok(0), |row| get(row, 0))?))
    }

    pub(crate) async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, Failure> {
        let (columns, s) = (rows::STREAM_COLUMNS, &self.sql.schema);
        let sql = format!("SELECT {columns} FROM {s}.streams WHERE key = $1");
        let found = self.db.query(Call::new(&sql).with(key.canonical(), Type::TEXT)).await?;
        found.first().map(stream_info).transpose()
    }

    pub(crate) async fn streams(
        &self,
        prefix: &KeyPrefix,
        page: &Page,
    ) -> Result<PageOf<StreamInfo>, Failure> {
        let limit = page.rows()?;
        let (columns, s, bounds) = (rows::STREAM_COLUMNS, &self.sql.schema, bounds(prefix));
        let sql = format!("SELECT {columns} FROM {s}.streams WHERE {bounds} ORDER BY key LIMIT $4");
        let call = with_bounds(Call::new(&sql), prefix, page).with(int(limit as u64 + 1), Type::INT8);
        let (now, found) = self.timed(call).await?;
        let streams = found.iter().map(stream_info).collect::<Result<Vec<_>, _>>()?;
        Ok(PageOf::of(streams, limit, now, |stream| stream.key.clone()))
    }

    pub(crate) async fn read_stream(&self, query: &StreamQuery) -> Result<EventPage, Failure> {
        let scan = Scan {
            limit: Page::first(query.limit).rows()?,
            filter: &query.filter,
            direction: query.direction,
            column: "version",
            stream: Some(&query.stream),
        };
        let from = query.from.map(|version| int(version.0));
        // A filter's range is read by a separate statement. The head bounds it, so that no event is added in between.
        let head = match query.filter == EventFilter::default() {
            true => i64::MAX,
            false => {
                self.stream(&query.stream).await?.and_then(|info| info.head).map_or(-1, |head| int(head.0))
            }
        };
        let range = match query.direction {
            Direction::Forward => (from.unwrap_or(0), head),
            Direction::Backward => (0, from.unwrap_or(head).min(head)),
        };
        scan.page(self, range).await
    }

    pub(crate) async fn read_log(&self, query: &LogQuery) -> Result<EventPage, Failure> {
        let scan = Scan {
            limit: Page::first(query.limit).rows()?,
            filter: &query.filter,
            direction: query.direction,
            column: "position",
            stream: None,
        };
        let ceiling = self.ceiling(query).await?;
        let after = query.after.map(|position| int(position.0));
        let range = match query.direction {
            Direction::Forward => (after.map_or(0, |after| after.saturating_add(1)), ceiling),
            Direction::Backward => (0, after.map_or(ceiling, |after| (after - 1).min(ceiling))),
        };
        scan.page(self, range).await
    }

    /// Returns the position up to which the log can be read without a later event appearing below it. It is a separate
    /// statement before the one that reads the page. Inside that one it would see more than the page does, and the
    /// events in between would be lost.
    ///
    /// Fails when the position that the query continues after is not part of the history.
    async fn ceiling(&self, query: &LogQuery) -> Result<i64, Failure> {
        let columns = epoch::CUT_COLUMNS.split(", ").map(|column| format!("(c.cut).{column}"));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let sql =
            format!("SELECT c.ceiling, c.highest, {columns} FROM {}.ceiling($1, $2) c", self.sql.schema);
        let after = query.after.filter(|_| query.direction == Direction::Forward);
        let call = Call::new(&sql).with(int(self.epoch.0), Type::INT8);
        let found = self.db.query(call.with(after.map(|after| int(after.0)), Type::INT8)).await?;
        let Some(row) = found.first() else { return Ok(0) };
        if let Some(after) = after {
            let highest = Position(uint(get(row, 1)?));
            let cut = get::<Option<i64>>(row, 2)?.map(|_| epoch::cut(row, 2)).transpose()?;
            model::check_position(after, highest, cut).map_err(|bad| Failure {
                error: StoreError::position(after, bad),
                meaning: Meaning::Failed,
            })?;
        }
        get(row, 0)
    }

    pub(crate) async fn work(&self, key: &Key) -> Result<Option<WorkRow>, Failure> {
        let (columns, s) = (rows::WORK_COLUMNS, &self.sql.schema);
        let sql = format!("SELECT {columns} FROM {s}.work WHERE key = $1");
        let found = self.db.query(Call::new(&sql).with(key.canonical(), Type::TEXT)).await?;
        found.first().map(|row| Ok(rows::work(row)?.0)).transpose()
    }

    pub(crate) async fn works(&self, filter: &WorkFilter, page: &Page) -> Result<PageOf<WorkRow>, Failure> {
        let limit = page.rows()?;
        let condition = WorkCondition::new(filter, page.after.as_ref());
        let (columns, s, order) = (rows::WORK_COLUMNS, &self.sql.schema, condition.order());
        // Cuts off rows far beyond a page; the exact end is found below.
        let sql = format!(
            "SELECT {columns} FROM (
                 SELECT *, sum(octet_length(payload::text)) OVER (ORDER BY {order}) AS total FROM (
                     SELECT * FROM {s}.work WHERE {} ORDER BY {order} LIMIT $5) page) page
             WHERE total - octet_length(payload::text) <= $6 ORDER BY {order}",
            condition.sql()
        );
        let call = condition.add_to(Call::new(&sql));
        let call = call.with(int(limit as u64 + 1), Type::INT8).with(int(FAR_BEYOND as u64), Type::INT8);
        let (now, found) = self.timed(call).await?;
        let found = found.iter().map(|row| Ok(rows::work(row)?.0));
        PageOf::gathered(found, limit, now, |row| row.key.clone(), |row| row.payload.len())
    }

    pub(crate) async fn count_work(&self, filter: &WorkFilter) -> Result<u64, Failure> {
        let condition = WorkCondition::new(filter, None);
        let sql = format!("SELECT count(*) FROM {}.work WHERE {}", self.sql.schema, condition.sql());
        let found = self.db.query(condition.add_to(Call::new(&sql))).await?;
        Ok(uint(found.first().map_or(Ok(0), |row| get(row, 0))?))
    }

    pub(crate) async fn operation(&self, id: OpId) -> Result<Option<Receipt>, Failure> {
        let call = Call::new(&self.sql.operations).with(vec![id.0], Type::UUID_ARRAY);
        let found = self.db.query(call).await?;
        let known = found.first().map(|row| Ok::<_, Failure>(stored_operation(row)?.1)).transpose()?;
        Ok(known.and_then(Resolution::into_receipt))
    }

    /// The server's clock.
    pub(crate) async fn clock(&self) -> Result<i64, Failure> {
        let sql = format!("SELECT {}.clock()", self.sql.schema);
        let found = self.db.query(Call::new(&sql)).await?;
        found.first().map_or(Ok(0), |row| get(row, 0))
    }
}

/// Decodes a document with the instant to use, as readers see it.
fn visible(row: &Row) -> Result<Option<StoredDocument>, Failure> {
    let now = Timestamp::from_micros(get(row, 5)?);
    let (key, row) = rows::document(row)?;
    Ok(row.visible(&key, now))
}

/// Decodes the answer of the statement that reads the clock.
fn instant(found: &[Row]) -> Result<Timestamp, Failure> {
    let row = found.first().ok_or_else(short_answer)?;
    Ok(Timestamp::from_micros(get(row, 0)?))
}

/// Rows of one snapshot, by their requests.
struct Found(HashMap<Get, StoredRow>);

impl Found {
    /// Decodes the answers of the four statements of [`Reader::rows`].
    fn read(answers: &[Vec<Row>], now: Timestamp) -> Result<Self, Failure> {
        let [documents, streams, work, operations] = answers else { return Err(short_answer()) };
        let mut found = HashMap::default();
        for row in documents {
            let (key, row) = rows::document(row)?;
            if let Some(document) = row.visible(&key, now) {
                found.insert(Get::Document(key), StoredRow::Document(document));
            }
        }
        for row in streams {
            let stream = stream_info(row)?;
            found.insert(Get::Stream(stream.key.clone()), StoredRow::Stream(stream));
        }
        for row in work {
            let row = rows::work(row)?.0;
            found.insert(Get::Work(row.key.clone()), StoredRow::Work(Box::new(row)));
        }
        for row in operations {
            let (id, known) = stored_operation(row)?;
            if let Some(receipt) = known.into_receipt() {
                found.insert(Get::Operation(id), StoredRow::Operation(receipt));
            }
        }
        Ok(Self(found))
    }

    fn get(&self, get: &Get) -> Option<&StoredRow> {
        self.0.get(get)
    }
}

fn stream_info(row: &Row) -> Result<StreamInfo, Failure> {
    let (key, row) = rows::stream(row)?;
    Ok(StreamInfo::of(key, &row))
}

/// A scan of events in a range of versions or positions, to which nothing is added below its end.
struct Scan<'a> {
    limit: usize,
    filter: &'a EventFilter,
    direction: Direction,
    column: &'static str,
    stream: Option<&'a Key>,
}

/// How far a filter scanned.
struct Edge {
    position: Option<Position>,
    /// The same edge as a version or a position, depending on the range.
    place: Option<i64>,
    /// Whether nothing lies beyond the edge.
    end: bool,
}

impl Scan<'_> {
    async fn page(&self, reader: &Reader<'_>, (from, to): (i64, i64)) -> Result<EventPage, Failure> {
        let page = self.fill(self.matching(reader, from, to).await?)?;
        if !page.end || *self.filter == EventFilter::default() {
            return Ok(page);
        }
        let edge = self.edge(reader, from, to).await?;
        // If events were removed in between, the edge lies beyond the scanned events. So everything before the edge is
        // scanned now.
        let page = match edge.place.filter(|_| self.may_leave_out(from, to)) {
            Some(place) => {
                let (from, to) = self.up_to(place, from, to);
                self.fill(self.matching(reader, from, to).await?)?
            }
            None => page,
        };
        if !page.end {
            return Ok(page);
        }
        let scanned_to = match self.direction {
            Direction::Forward => page.scanned_to.max(edge.position),
            Direction::Backward => page.scanned_to.into_iter().chain(edge.position).min(),
        };
        Ok(EventPage { scanned_to, end: edge.end, ..page })
    }

    /// Returns whether a range may hold more events than are scanned.
    fn may_leave_out(&self, from: i64, to: i64) -> bool {
        !self.is_indexed() && to.saturating_sub(from) >= SCAN_EVENTS
    }

    /// Returns the part of a range that lies before a place, in the direction of reading.
    fn up_to(&self, place: i64, from: i64, to: i64) -> (i64, i64) {
        match self.direction {
            Direction::Forward => (from, place),
            Direction::Backward => (place, to),
        }
    }

    /// Returns whether the filter has its own index, which reads matching events only: the filter by correlation.
    fn is_indexed(&self) -> bool {
        self.filter.correlation.is_some() && self.stream.is_none()
    }

    /// Builds a page of the events that were found. The page is not the end when there are more of them.
    fn fill(&self, (now, found): (Timestamp, Vec<Row>)) -> Result<EventPage, Failure> {
        let mut page = EventPage::empty(now);
        let mut bytes = 0;
        for row in &found {
            let event = rows::event(row)?;
            if page.events.len() == self.limit || bytes >= PAGE_BYTES {
                page.end = false;
                return Ok(page);
            }
            page.scanned_to = Some(event.position);
            bytes += event.payload.len() + event.meta.len();
            page.events.push(event);
        }
        Ok(page)
    }

    fn order(&self) -> &'static str {
        match self.direction {
            Direction::Forward => "ASC",
            Direction::Backward => "DESC",
        }
    }

    /// Returns the query for the scanned events, matching or not, up to the limit of a scan.
    fn looked_at(&self, reader: &Reader<'_>, columns: &str) -> String {
        let (s, column, order) = (&reader.sql.schema, self.column, self.order());
        let limit = if self.is_indexed() { String::new() } else { format!("LIMIT {SCAN_EVENTS}") };
        let of_stream = if self.stream.is_some() { "AND e.stream = $3" } else { "AND $3::text IS NULL" };
        let correlated =
            if self.is_indexed() { "AND e.correlation = $4" } else { "AND ($4::text IS NULL OR true)" };
        format!(
            "SELECT {columns} FROM {s}.events e WHERE e.{column} >= $1 AND e.{column} <= $2 {of_stream} {correlated}
             ORDER BY e.{column} {order} {limit}"
        )
    }

    fn call<'a>(&'a self, sql: &'a str, from: i64, to: i64) -> Call<'a> {
        Call::new(sql)
            .with(from, Type::INT8)
            .with(to, Type::INT8)
            .with(self.stream.map(Key::canonical), Type::TEXT)
            .with(self.filter.correlation.as_deref().map(rows::storable), Type::TEXT)
    }

    async fn matching(
        &self,
        reader: &Reader<'_>,
        from: i64,
        to: i64,
    ) -> Result<(Timestamp, Vec<Row>), Failure> {
        let (column, order) = (self.column, self.order());
        let looked_at = self.looked_at(reader, "*");
        let columns = rows::EVENT_COLUMNS;
        // Cuts off rows far beyond a page; the exact end is found below.
        let sql = format!(
            "SELECT {columns} FROM (
                 SELECT *, sum(bytes) OVER (ORDER BY {column} {order}) AS total
                 FROM (SELECT * FROM ({looked_at}) e
                     WHERE ($5::text[] IS NULL OR e.type = ANY ($5)) AND ($6::bigint IS NULL OR e.recorded_at >= $6)
                         AND ($7::bigint IS NULL OR e.recorded_at < $7) AND ($4 IS NULL OR e.correlation = $4)
                         AND ($8::text IS NULL OR e.stream >= $8) AND ($9::text IS NULL OR e.stream < $9)
                     ORDER BY e.{column} {order} LIMIT $10) e) e
             WHERE e.total - e.bytes <= $11 ORDER BY e.{column} {order}"
        );
        let types: Vec<&str> = self.filter.types.iter().map(tidelock_core::id::EventType::as_str).collect();
        let streams = self.filter.streams.as_ref();
        let call = self
            .call(&sql, from, to)
            .with(Some(types).filter(|types| !types.is_empty()), Type::TEXT_ARRAY)
            .with(self.filter.since.map(Timestamp::as_micros), Type::INT8)
            .with(self.filter.until.map(Timestamp::as_micros), Type::INT8)
            .with(streams.map(KeyPrefix::from), Type::TEXT)
            .with(streams.and_then(KeyPrefix::below), Type::TEXT)
            .with(int(self.limit as u64 + 1), Type::INT8)
            .with(int(FAR_BEYOND as u64), Type::INT8);
        reader.timed(call).await
    }

    /// Returns how far a filter scanned, and whether that was the end. Nothing is added to the range. The result is
    /// therefore the same as if it had been read with the page, unless events were removed.
    async fn edge(&self, reader: &Reader<'_>, from: i64, to: i64) -> Result<Edge, Failure> {
        // With its own index, a correlation has been scanned to the end of the range.
        let bare = EventFilter::default();
        let whole = Scan { filter: &bare, limit: self.limit, ..*self };
        let scan = if self.is_indexed() { &whole } else { self };
        let pick = match self.direction {
            Direction::Forward => "max",
            Direction::Backward => "min",
        };
        let (s, column) = (&reader.sql.schema, self.column);
        let edge = if self.is_indexed() {
            format!(
                "SELECT {pick}(e.position), NULL::bigint, 0::bigint FROM {s}.events e
                 WHERE e.{column} >= $1 AND e.{column} <= $2 AND $3::text IS NULL AND ($4::text IS NULL OR true)"
            )
        } else {
            // The log is scanned by its index alone.
            let columns = if column == "position" { "e.position" } else { "e.position, e.version" };
            let looked_at = scan.looked_at(reader, columns);
            format!("SELECT {pick}(position), {pick}({column}), count(*) FROM ({looked_at}) e")
        };
        let found = reader.db.query(scan.call(&edge, from, to)).await?;
        let Some(row) = found.first() else { return Ok(Edge { position: None, place: None, end: true }) };
        let position = get::<Option<i64>>(row, 0)?.map(|position| Position(uint(position)));
        Ok(Edge { position, place: get(row, 1)?, end: get::<i64>(row, 2)? < SCAN_EVENTS })
    }
}
