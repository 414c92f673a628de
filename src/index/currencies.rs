//! Splits the cost of model calls by currency. The tables of an index add up costs as plain
//! numbers. If the currency of the config's prices was changed, such a sum mixes several
//! currencies.

use crate::envelope::{CurrencyTotals, Money};

use super::threads::TreeNameRole;
use super::trees::ListedTree;
use super::{Error, IndexReader};

/// SQL query for the currencies in the index. The query reads only one row for each currency.
const CURRENCIES: &str = "WITH RECURSIVE found(name) AS ( \
     SELECT min(name) FROM tree_name_row WHERE role = ?1 UNION ALL \
     SELECT (SELECT min(k.name) FROM tree_name_row k WHERE k.role = ?1 AND k.name > found.name) \
     FROM found WHERE found.name IS NOT NULL) \
     SELECT n.text FROM found CROSS JOIN name n ON n.n = found.name ORDER BY n.text";

/// SQL condition that selects all threads of the tree with the root thread `?1`.
const IN_TREE: &str = "t.tree = (SELECT n FROM thread_row WHERE id = ?1)";

impl IndexReader {
    /// Returns the currencies that the notes about model turns state, in alphabetical order.
    ///
    /// # Errors
    ///
    /// Returns errors of the index.
    pub fn currencies(&self) -> Result<Vec<String>, Error> {
        self.rows(CURRENCIES, &[&(TreeNameRole::Currency as i64)], |row| row.get(0))
    }

    /// Splits `total`, the cost of some threads, by currency. `currencies` is the result of
    /// [`Self::currencies`]. `threads` is the SQL condition that selects the threads. In this
    /// condition, `t` stands for a thread's row, and `?1` for the value `thread`. If no turn in the
    /// selected threads states a currency, the currency of `total` stays unknown.
    pub(super) fn split_cost(
        &self,
        currencies: &[String],
        total: Money,
        (threads, thread): (&str, &str),
    ) -> Result<CurrencyTotals, Error> {
        let turns = format!(
            "FROM thread_row t CROSS JOIN turn_row u ON u.thread = t.n \
             WHERE {threads} AND u.currency IS NOT NULL"
        );

        match currencies {
            [] => Ok(CurrencyTotals::of(None, total)),
            [only] => {
                let sql = format!("SELECT 1 {turns} LIMIT 1");
                let is_priced = !self.rows(&sql, &[&thread], |_| Ok(()))?.is_empty();
                Ok(CurrencyTotals::of(is_priced.then_some(only.as_str()), total))
            }
            _ => {
                let sql = format!(
                    "SELECT (SELECT text FROM name WHERE n = u.currency), sum(u.cost) {turns} \
                     GROUP BY u.currency"
                );
                let amounts: Vec<(String, u64)> =
                    self.rows(&sql, &[&thread], |row| Ok((row.get(0)?, row.get(1)?)))?;

                let mut totals = CurrencyTotals::default();
                let mut rest = total.0;
                for (currency, amount) in amounts {
                    totals.add(Some(&currency), Money(amount));
                    rest = rest.saturating_sub(amount);
                }
                totals.add(None, Money(rest));
                Ok(totals)
            }
        }
    }

    /// Sets [`ListedTree::costs`] of each tree with a cost.
    pub(super) fn split_costs(&self, trees: &mut [ListedTree]) -> Result<(), Error> {
        let currencies = self.currencies()?;
        for tree in trees.iter_mut().filter(|tree| !tree.cost.is_zero()) {
            tree.costs = self.split_cost(&currencies, tree.cost, (IN_TREE, &tree.thread))?;
        }
        Ok(())
    }
}
