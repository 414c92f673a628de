//! The version of the content of a live page.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::ids::Position;

/// Version of the content of a live page: the position of the last record that the page shows, for
/// each partition that has such a record. The text form lists partitions and positions, as in
/// `0:12,3:7`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ContentVersion(BTreeMap<u32, Position>);

impl ContentVersion {
    /// Whether an index of `partition` that is complete up to `position` has all records of this
    /// version.
    pub fn is_indexed(&self, partition: u32, position: Position) -> bool {
        self.0.get(&partition).is_none_or(|last| *last <= position)
    }
}

impl FromIterator<(u32, Position)> for ContentVersion {
    fn from_iter<I: IntoIterator<Item = (u32, Position)>>(positions: I) -> Self {
        let has_record = |(_, position): &(u32, Position)| *position > Position::default();
        Self(positions.into_iter().filter(has_record).collect())
    }
}

impl fmt::Display for ContentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts =
            self.0.iter().map(|(partition, position)| format!("{partition}:{}", position.0));
        f.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}

/// The text is not the text form of a version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidContentVersion;

impl FromStr for ContentVersion {
    type Err = InvalidContentVersion;

    fn from_str(text: &str) -> Result<Self, InvalidContentVersion> {
        let parts = text.split(',').filter(|_| !text.is_empty());
        let position = |part: &str| {
            let (partition, position) = part.split_once(':')?;
            Some((partition.parse().ok()?, Position(position.parse().ok()?)))
        };
        parts.map(position).collect::<Option<_>>().ok_or(InvalidContentVersion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_indexed_where_each_partition_that_it_names_is() {
        let positions = [(0, Position(12)), (1, Position(0)), (3, Position(7))];
        let version = ContentVersion::from_iter(positions);
        for (partition, position, expected) in
            [(0, 11, false), (0, 12, true), (1, 0, true), (3, 6, false), (3, 7, true)]
        {
            let is_indexed = version.is_indexed(partition, Position(position));
            assert_eq!(is_indexed, expected, "{partition}:{position}");
        }
    }

    #[test]
    fn a_version_is_read_from_its_text_form() {
        for text in ["", "0:12", "0:12,3:7"] {
            let version: ContentVersion = text.parse().unwrap();
            assert_eq!(version.to_string(), text);
        }
        for text in ["7", "0:", "0:1,", "a:1", "0:-1"] {
            assert_eq!(text.parse::<ContentVersion>(), Err(InvalidContentVersion), "{text}");
        }
    }
}
