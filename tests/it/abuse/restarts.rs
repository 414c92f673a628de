//! Two hundred processes that die at the same moment.

use std::process::Command;
use std::time::{Duration, Instant};

use super::judge;
use crate::campaign::Campaign;
use crate::organism::{House, until_within};

/// Time-out of one `send`. The command starts slowly, because two hundred listeners start at the
/// same time.
const ROOM: Duration = Duration::from_secs(20);
/// Time-out of the wait until every process has restarted.
const BACK: Duration = Duration::from_secs(180);
const TALK: &str = "urn:example:talk";

/// A house with two listeners that have half of the instances each, because the number of instances
/// of one listener is limited.
fn house(crowd: usize) -> House {
    let mut config = String::from(
        "[organism]\nname = \"talk\"\n[clients.desk]\npeers = [\"echo\", \"left\", \"right\"]\n\
         [listeners.echo]\ncommand = [\"./player.pl\", \"echo\"]\nschema = \"talk.xsd\"\n\
         accepts = [\"say\"]\nreplies = [\"said\"]\n",
    );
    for (name, accepts, replies) in [("left", "ping", "pong"), ("right", "work", "worked")] {
        config.push_str(&format!(
            "[listeners.{name}]\ncommand = [\"./crowd\", \"{name}\", \"{replies}\"]\n\
             schema = \"talk.xsd\"\naccepts = [\"{accepts}\"]\nreplies = [\"{replies}\"]\n\
             instances = {}\n",
            crowd / 2
        ));
    }
    let house = House::with(&config);
    let program = format!(
        "#!/bin/bash\necho $$ >> $1.pids\n\
         while IFS= read -r -d '' frame; do\n\
         printf '<%s xmlns=\"{TALK}\"><n>1</n></%s>\\0' $2 $2\ndone\n"
    );
    house.write("crowd", program);
    let place = house.path("crowd");
    assert!(Command::new("chmod").arg("+x").arg(place).status().unwrap().success());
    house
}

fn pids(house: &House) -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(house.path(name)).unwrap_or_default();
    let both = read("left.pids") + &read("right.pids");
    both.lines().map(str::to_owned).collect()
}

#[test]
fn two_hundred_processes_that_die_at_once_restart_and_delay_no_other_client() {
    let mut campaign = Campaign::new("restarts at once");
    let crowd = 200;
    let house = house(crowd);
    let running = house.run();
    let started = until_within(BACK, "the crowd is there", || {
        let pids = pids(&house);
        (pids.len() == crowd).then_some(pids)
    });
    let say = format!("<say xmlns=\"{TALK}\">hello</say>");
    let wait = || {
        let asked = Instant::now();
        let told = house.send_text(&say, &[]);
        assert!(told.out.contains(">hello<"), "{told:?}");
        asked.elapsed()
    };
    let idle = (0..5).map(|_| wait()).max().unwrap();
    let died = Instant::now();
    assert!(Command::new("kill").arg("-9").args(&started).status().unwrap().success());
    let (mut longest, mut asked) = (idle, 0);
    until_within(BACK, "all have come back", || {
        longest = longest.max(wait());
        asked += 1;
        (pids(&house).len() >= 2 * crowd).then_some(())
    });
    let back = died.elapsed();
    for (accepts, replies) in [("ping", "pong"), ("work", "worked")] {
        let request = format!("<{accepts} xmlns=\"{TALK}\"><n>1</n></{accepts}>");
        let told = house.send_text(&request, &[]);
        assert!(told.out.contains(replies), "{told:?}");
    }
    campaign.note(format!(
        "{crowd} processes back after {back:.2?}; another caller waited at most {longest:.2?} in \
         {asked} asks, {idle:.2?} when idle"
    ));
    assert!(longest < ROOM, "{longest:?} against {idle:?}");
    judge::quiet(&house);
    assert_eq!(running.stop(), Some(0), "{}", house.log());
    judge::assert_house_kept(&house);
}
