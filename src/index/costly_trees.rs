//! Finds the thread trees whose model calls have cost most.

use std::cmp::Reverse;

use rusqlite::params_from_iter;
use rusqlite::types::Value;

use crate::clock::Time;
use crate::limits;

use super::trees::{
    COLUMNS, DENIALS, FAULT, HOLD, ListedTree, TreeConditions, TreeFilter, TreeRange, read,
};
use super::{Error, IndexReader};

impl IndexReader {
    /// Returns the `limit` trees with the highest cost of model calls, the costliest first. The
    /// cost always includes all model calls of a tree. If `since` is set, leaves out trees that
    /// have not changed since this time. If `until` is set, leaves out trees that were opened at
    /// this time or later. Amounts in different currencies are compared as plain numbers.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn costliest_trees(
        &self,
        since: Option<Time>,
        until: Option<Time>,
        limit: usize,
    ) -> Result<Vec<ListedTree>, Error> {
        let filter = TreeFilter { since, until, ..TreeFilter::default() };
        let found = || -> rusqlite::Result<Vec<ListedTree>> {
            // One view of the index for all queries, so that no tree moves between two ranges.
            let db = self.connection();
            let _view = db.is_autocommit().then(|| db.unchecked_transaction()).transpose()?;
            let mut costly = Vec::new();
            for TreeRange { index, conditions } in self.costly_ranges(&filter)? {
                costly.extend(self.select_costly(index, &conditions, limit)?);
            }
            costly.sort_by_key(|tree: &ListedTree| Reverse(tree.cost));
            costly.truncate(limit);
            Ok(costly)
        };
        let mut costly = found().map_err(|error| self.failed(error))?;
        self.split_costs(&mut costly)?;
        self.mark_paused(&mut costly)?;
        Ok(costly)
    }

    /// Returns the ranges of trees in which a query must search for the costliest trees. If the
    /// time limits of `filter` select only few trees, the ranges contain these trees. Otherwise,
    /// returns one range of all trees with a cost, the costliest first. A query of this range can
    /// end as soon as it has enough matching trees.
    fn costly_ranges(&self, filter: &TreeFilter) -> rusqlite::Result<Vec<TreeRange>> {
        let conditions = self.conditions(filter)?;
        if filter.since.is_some() || filter.until.is_some() {
            let ranges = self.ranges(filter, &conditions)?;
            let mut are_few = true;
            for TreeRange { index, conditions } in &ranges {
                let matching = format!("tree_row r INDEXED BY {index} WHERE 1{}", conditions.text);
                let most = limits::INDEX_RARE_TREES;
                are_few = are_few && self.is_rare(&matching, &conditions.values, most)?;
            }
            if are_few {
                return Ok(ranges);
            }
        }
        Ok(vec![TreeRange { index: "tree_cost", conditions }])
    }

    fn select_costly(
        &self,
        index: &str,
        conditions: &TreeConditions,
        limit: usize,
    ) -> rusqlite::Result<Vec<ListedTree>> {
        let text = &conditions.text;
        let fault = &*FAULT;
        let sql = format!(
            "{COLUMNS}, {HOLD}, {DENIALS}, {fault} \
             FROM tree_row r INDEXED BY {index} CROSS JOIN thread_row t ON t.n = r.n \
             WHERE r.cost > 0{text} ORDER BY r.cost DESC LIMIT ?"
        );
        let limit = Value::from(i64::try_from(limit).unwrap_or(i64::MAX));
        let values = conditions.values.iter().cloned().chain([limit]);

        let mut query = self.connection().prepare(&sql)?;
        let trees = query.query_map(params_from_iter(values), read)?;
        trees.collect()
    }
}
