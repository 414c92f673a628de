//! The page with the configs that were in force agrees with `organism config diff`.

use super::{ViewServer, text_of};
use crate::organism::{CONFIG, House, say};

/// Runs an organism once, with one thread.
fn house(config: &str, thread: &str) -> House {
    let house = House::settled(config);
    let running = house.run();
    let sent = house.send_text(&say("anything"), &["--new", thread]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house
}

#[test]
fn configs_of_threads_in_different_partitions_are_compared() {
    let first = house(CONFIG, "sess-before01");
    let second = house(
        &CONFIG.replace("[listeners.solo]", "[listeners.solo]\ninstances = 3"),
        "sess-after001",
    );
    // The journals of both become partitions of one organism.
    let data = first.path("partitions");
    std::fs::create_dir(&data).unwrap();
    std::fs::rename(first.data(), data.join("p0")).unwrap();
    std::fs::rename(second.data(), data.join("p1")).unwrap();

    let data = data.display().to_string();
    let [before, after] = ["sess-before01", "sess-after001"];
    let diff = first.organism(&["config", "diff", before, after, "--data", &data, "--json"]);
    assert_eq!(diff.code, Some(0), "{diff:?}");
    let diff = diff.json().remove(0);
    let changes = diff["changes"].as_array().unwrap();
    assert!(!changes.is_empty(), "{diff}");

    let view = ViewServer::start(&first, &["--data", &data]);
    let page = view.page(&format!("/config?before={before}&after={after}"));
    let text = text_of(&page);
    assert_eq!(text.matches("Differences").count(), 1, "{text}");
    for change in changes {
        let path = change["path"].as_str().unwrap();
        assert!(text.contains(path), "{path} in {text}");
    }
    assert!(text.contains("+3"), "{text}");

    let same = view.page(&format!("/config?before={before}&after={before}"));
    assert!(text_of(&same).contains("The configs are equal."), "{same}");
    // Each journal numbers its own records, so a link to a record names its partition.
    let all = view.page("/config");
    assert!(text_of(&all).contains("Configs over time, partition 1"), "{all}");
    let link = all.split("href=\"").find(|rest| rest.starts_with("/config?partition=1&amp;at="));
    let link = link.unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let (_, record) = link.rsplit_once('=').unwrap();
    // The config on the page contains addresses.
    let text = text_of(&view.get(&link).body);
    assert_eq!(text.matches("From record ").count(), 1, "{text}");
    assert!(text.contains(&format!("From record {record}, partition 1")), "{text}");
    let same = format!("/config?partition=1&before={record}&after={record}");
    let text = text_of(&view.page(&same));
    assert_eq!(text.matches("Differences").count(), 1, "{text}");
    assert!(text.contains("Differences, partition 1"), "{text}");

    let absent = view.get("/config?partition=7");
    assert_eq!(absent.status, 404, "{}", absent.body);
    assert!(text_of(&absent.body).contains("There is no partition `7` here."), "{}", absent.body);
    let missing = view.get(&format!("/config?before={before}&after=sess-unknown1"));
    assert_eq!(missing.status, 404, "{}", missing.body);
    // One moment alone is no comparison, also beside a config that is found.
    for query in [format!("before={before}"), format!("after={after}&at={before}")] {
        let alone = view.get(&format!("/config?{query}"));
        assert_eq!(alone.status, 400, "{query}: {}", alone.body);
        assert!(text_of(&alone.body).contains("A comparison needs two moments"), "{query}");
        assert!(text_of(&alone.body).contains("Configs over time"), "{query}");
    }
}
