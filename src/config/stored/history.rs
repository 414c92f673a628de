//! Finds the config that was in force at a position of a journal. The start of a pump puts a config
//! in force. A reload replaces this config while the pump runs.

use std::ops::ControlFlow;

use crate::clock::Time;
use crate::ids::{Digest, Position, ThreadId};
use crate::journal::{self, sqlite::JournalReader};
use crate::thread::{Fact, Record};

/// The config that a boot or a reload put in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootConfig {
    /// Position of the boot or reload. The config is in force from this position on.
    pub position: Position,
    pub time: Time,
    pub epoch: u32,
    /// Version of the core, the part of the pump that decides how messages are handled. The pump
    /// uses this version from `position` until the next boot or reload.
    pub core_version: u32,
    /// Digest of the effective config.
    pub config: Digest,
    /// Digests of all texts that the boot or reload lists, such as the config and the schemas.
    pub blobs: Vec<Digest>,
    /// Whether a reload, rather than a boot, put the config in force.
    pub is_reload: bool,
}

impl BootConfig {
    /// Returns the config that the last boot or reload of a journal put in force; `None` before the
    /// first boot. Reads only the records of `sess-organism` from this one on.
    pub fn read_last(reader: &JournalReader) -> Result<Option<Self>, journal::Error> {
        let Some(head) = reader.head(&ThreadId::organism())? else { return Ok(None) };
        let mut last = None;
        reader.walk_back(head, |walked| {
            last = Self::of_record(walked.record());
            Ok(if last.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(last)
    }

    /// Returns the config that a record puts in force; `None` if the record is neither a boot nor a
    /// reload.
    pub fn of_record(record: &Record) -> Option<Self> {
        record.facts.iter().find_map(|fact| match fact {
            Fact::Booted { epoch, config, core_version, blobs, .. }
            | Fact::Reloaded { epoch, config, core_version, blobs } => Some(Self {
                position: record.position,
                time: record.time,
                epoch: *epoch,
                core_version: *core_version,
                config: *config,
                blobs: blobs.clone(),
                is_reload: matches!(fact, Fact::Reloaded { .. }),
            }),
            _ => None,
        })
    }
}

/// All boots and reloads of a journal, in order.
#[derive(Debug, Clone, Default)]
pub struct ConfigHistory {
    pub boots: Vec<BootConfig>,
}

impl ConfigHistory {
    pub fn read(reader: &JournalReader) -> Result<Self, journal::Error> {
        let records = reader.tree(&ThreadId::organism(), None)?;
        let boots = records.iter().filter_map(|sealed| BootConfig::of_record(&sealed.record));
        Ok(Self { boots: boots.collect() })
    }

    /// Returns the boot or reload whose config was in force at `position`; `None` before the first
    /// boot.
    pub fn at(&self, position: Position) -> Option<&BootConfig> {
        self.boots.iter().rev().find(|boot| boot.position <= position)
    }

    /// Returns the boot or reload whose config was in force at `time`; `None` before the first
    /// boot.
    pub fn at_time(&self, time: Time) -> Option<&BootConfig> {
        self.boots.iter().rev().find(|boot| boot.time <= time)
    }

    pub fn last(&self) -> Option<&BootConfig> {
        self.boots.last()
    }

    /// Finds a config by `digits`, the beginning of its digest. Returns the last boot or reload
    /// that put this config in force; `None` if no config matches. If several configs match, `Err`
    /// contains their digests.
    pub fn with_digest(&self, digits: &str) -> Result<Option<&BootConfig>, Vec<Digest>> {
        let mut matching = self.boots.iter().filter(|b| b.config.to_string().starts_with(digits));
        let mut digests: Vec<_> = matching.clone().map(|boot| boot.config).collect();
        digests.sort_by_key(Digest::to_string);
        digests.dedup();
        if digests.len() > 1 {
            return Err(digests);
        }

        Ok(matching.next_back())
    }
}
