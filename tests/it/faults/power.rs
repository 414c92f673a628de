//! Power failures: only the bytes that had reached the disk remain.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::{Mounted, skip, succeeds};
use crate::campaign::Campaign;
use crate::organism::kill::clients::Clients;
use crate::organism::kill::{Tail, house, settle, start, torture};
use crate::organism::{House, until};

const DISK_BYTES: u64 = 64 << 20;
/// Number of power cuts per disk. Each cut copies the small disk, which would be full after more
/// cuts.
const CUTS_A_DISK: u32 = 10;
/// Mount options with a commit interval longer than a test, so that only explicit syncs reach the
/// disk.
const LAZILY: &str = "loop,commit=300";

/// Journal, key and checkpoints on a separate disk.
struct Disk {
    house: House,
    number: u32,
    mounted: Option<Mounted>,
}

impl Disk {
    fn new() -> Result<Self, String> {
        let mut disk = Self { house: house(), number: 0, mounted: None };
        let image = disk.image();
        File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        succeeds("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()])?;
        disk.mount()?;
        for name in ["data", "state"] {
            std::fs::create_dir(disk.house.path("disk").join(name)).unwrap();
            symlink(format!("disk/{name}"), disk.house.path(name)).unwrap();
        }
        succeeds("sync", &["--file-system", disk.house.path("disk").to_str().unwrap()])?;
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.house.path(&format!("image{}", self.number))
    }

    fn mount(&mut self) -> Result<(), String> {
        let image = self.image();
        let arguments = ["-o", LAZILY, image.to_str().unwrap()];
        self.mounted = Some(Mounted::new(&arguments, &self.house.path("disk"))?);
        Ok(())
    }

    /// Cuts the power: continues with the present contents of the disk, without the writes that
    /// have not reached it.
    fn cut(&mut self) {
        let before = self.image();
        self.number += 1;
        std::fs::copy(&before, self.image()).unwrap();
        self.mounted = None;
        self.mount().unwrap();
        std::fs::remove_file(before).unwrap();
    }
}

#[test]
fn a_power_cut_under_load_loses_nothing_that_was_acknowledged() {
    let mut campaign = Campaign::new("power cuts");
    let mut left = if torture() { 50 } else { 3 };
    campaign.note(format!("{left} cuts"));
    while left > 0 {
        let disk = match Disk::new() {
            Ok(disk) => disk,
            Err(reason) => return skip("power cuts", &reason),
        };
        let cuts = CUTS_A_DISK.min(left);
        campaign.note(cut_again_and_again(disk, cuts));
        left -= cuts;
    }
}

fn cut_again_and_again(mut disk: Disk, cuts: u32) -> String {
    let clients = Clients::start(&disk.house);
    let mut tail = Tail::default();
    for _ in 0..cuts {
        let mut running = start(&disk.house, None);
        let enough = tail.messages + 150;
        until("enough has happened", || {
            let is_over = running.child.try_wait().unwrap().is_some();
            let log = disk.house.log();
            assert!(!is_over && !log.contains("the disk is full"), "{log}");
            tail.in_flight(&disk.house);
            (tail.messages >= enough).then_some(())
        });
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        disk.cut();
        // A commit that was not acknowledged may be lost.
        tail = Tail::default();
        tail.in_flight(&disk.house);
    }
    settle(&disk.house, clients)
}
