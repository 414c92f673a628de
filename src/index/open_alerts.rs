//! Finds the alerts that a start of the organism must know.

use super::{Error, IndexReader};
use crate::ids::Position;
use crate::system::ALL_OTHERS;

impl IndexReader {
    /// Returns the positions of the reports before `before` that raised alerts whose end is not on
    /// record, in order. Alerts about single budgets never end, so they are included only if their
    /// reports are after `budgets_after`.
    pub fn open_alerts(
        &self,
        before: Position,
        budgets_after: Position,
    ) -> Result<Vec<Position>, Error> {
        let sql = "SELECT min(position) FROM alert_row \
                   WHERE event IN ('raised', 'ended') \
                   AND (kind <> 'budgets' OR subject = ?2 OR position > ?3) \
                   GROUP BY kind, subject, cause, since \
                   HAVING max(event = 'ended') = 0 AND min(position) < ?1 ORDER BY 1";
        self.rows(sql, &[&before.0, &ALL_OTHERS, &budgets_after.0], |row| row.get(0).map(Position))
    }
}
