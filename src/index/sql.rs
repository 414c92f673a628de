//! Runs SQL statements that people enter. A statement can only read, and ends in bounded time.

use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::ValueRef;

use super::{Error, IndexReader};

/// A value in a row of a result.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// Function that receives the result of a statement. The first call passes only the names of the
/// columns. Each further call passes these names and one row. The function returns whether to
/// continue.
pub type RowVisitor<'v> = dyn FnMut(&[String], Option<Vec<SqlValue>>) -> bool + 'v;

/// Number of SQLite instructions between two checks of the clock.
const INSTRUCTIONS: i32 = 10_000;

/// Error text for a query without a statement.
const EMPTY_STATEMENT: &str =
    "it is empty; write a statement that reads, such as `SELECT * FROM about`";

/// Pragmas that a statement may use, because they only describe tables.
const PRAGMAS: [&str; 3] = ["table_info", "table_xinfo", "table_list"];

/// Runs one statement that reads the index, for at most `time`. Calls `visit` first with only the
/// names of the columns, then with each row. `visit` returns whether to continue.
///
/// # Errors
///
/// Returns [`Error::Query`] if the statement is wrong or does more than read, and
/// [`Error::TimedOut`] if it takes too long.
pub fn run_sql(
    reader: &mut IndexReader,
    statement: &str,
    time: Duration,
    visit: &mut RowVisitor<'_>,
) -> Result<(), Error> {
    // A time limit beyond the range of the clock counts as no limit.
    let until = Instant::now().checked_add(time);
    let timer = move || until.is_some_and(|until| Instant::now() >= until);
    let refused = reader.db.authorizer(Some(permission));
    let timed = reader.db.progress_handler(INSTRUCTIONS, Some(timer));
    refused.and(timed).map_err(|error| reader.failed(error))?;

    let error = match visit_rows(reader, statement, visit) {
        Ok(true) => return Ok(()),
        Ok(false) => return Err(Error::Query { detail: EMPTY_STATEMENT.to_owned() }),
        Err(error) => error,
    };
    Err(match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => Error::TimedOut { seconds: time.as_secs() },
        Some(
            ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::DatabaseBusy,
        ) => reader.failed(error),
        Some(ErrorCode::AuthorizationForStatementDenied) => Error::Query {
            detail: "only statements that read are permitted: SELECT, WITH, VALUES".to_owned(),
        },
        _ => Error::Query { detail: format!("the SQL statement cannot be run: {error}") },
    })
}

/// Runs a statement. Returns false if the text contains no statement, for example only a comment.
fn visit_rows(
    reader: &IndexReader,
    statement: &str,
    visit: &mut RowVisitor<'_>,
) -> rusqlite::Result<bool> {
    let mut query = reader.db.prepare(statement)?;
    let columns: Vec<String> = query.column_names().map(str::to_owned).collect();
    // Every statement that reads has a column.
    if columns.is_empty() {
        // SQLite does not check the permission of `VACUUM` until it runs, so it is denied here.
        let denied = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_AUTH);
        return match query.expanded_sql() {
            None => Ok(false),
            Some(_) => Err(rusqlite::Error::SqliteFailure(denied, None)),
        };
    }

    let mut rows = query.query([])?;
    if !visit(&columns, None) {
        return Ok(true);
    }

    while let Some(row) = rows.next()? {
        let values = (0..columns.len()).map(|at| Ok(SqlValue::from(row.get_ref(at)?)));
        let values: Vec<SqlValue> = values.collect::<rusqlite::Result<_>>()?;
        if !visit(&columns, Some(values)) {
            break;
        }
    }
    Ok(true)
}

fn permission(context: AuthContext<'_>) -> Authorization {
    let is_permitted = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => function_name != "load_extension",
        AuthAction::Pragma { pragma_name, .. } => PRAGMAS.contains(&pragma_name),
        _ => false,
    };
    if is_permitted { Authorization::Allow } else { Authorization::Deny }
}

impl From<ValueRef<'_>> for SqlValue {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(bytes) => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_owned()),
        }
    }
}
