//! Filter fields that a page shows only on demand.

use maud::{Markup, html};

use super::url_query::UrlQuery;

/// Draws a section with text fields. `fields` contains the name, the label and an example of each
/// field. The section is expanded if any of the fields has a value.
pub(super) fn more_filters(query: &UrlQuery, fields: &[(&str, &str, &str)]) -> Markup {
    let is_open = fields.iter().any(|(name, _, _)| query.get(name).is_some());
    html! {
        details open[is_open] {
            summary { "More filters" }
            div.more {
                @for (name, label, example) in fields {
                    div {
                        label for=(name) { (label) }
                        input id=(name) name=(name) value=(query.get(name).unwrap_or_default())
                            placeholder=(example) autocomplete="off";
                    }
                }
            }
        }
    }
}
