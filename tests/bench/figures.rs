//! Output of figures: a table for people, and one line of JSON for each figure.

use std::io::Write as _;
use std::time::Duration;

use super::floor::Floors;

/// Settings of every measurement.
#[derive(Debug)]
pub struct Bench {
    pub figures: Figures,
    pub floors: Floors,
    pub runs: usize,
    /// Duration of one run, for figures whose runs have no natural end.
    pub span: Duration,
    /// Whether measurements that take minutes are skipped.
    pub quick: bool,
}

/// The result for one class of inputs. A figure may be measured with several classes.
#[derive(Debug)]
pub struct Class {
    pub name: String,
    pub value: f64,
    pub floor: f64,
}

#[derive(Debug)]
pub struct Figures {
    lines: Vec<String>,
}

impl Figures {
    pub fn new() -> Self {
        println!("{:<24}{:>12} {:<12}{:>12}{:>8}", "figure", "median", "unit", "floor", "ratio");
        Self { lines: Vec::new() }
    }

    /// Adds a figure and prints it. `floor` is the value with which the figure is compared, in the
    /// same unit.
    pub fn add(&mut self, name: &str, value: f64, unit: &str, floor: Option<f64>) {
        self.add_of(name, None, value, unit, floor);
    }

    /// Adds a figure that has no floor and a small value, and prints it with two decimals.
    pub fn add_small(&mut self, name: &str, value: f64, unit: &str) {
        println!("{name:<24}{value:>12.2} {unit:<12}");
        let line = serde_json::json!({
            "name": name, "value": value, "unit": unit, "command": "make bench",
        });
        self.lines.push(line.to_string());
    }

    /// Prints every class, and adds the class with the highest `badness` as the figure.
    pub fn add_worst(
        &mut self,
        name: &str,
        unit: &str,
        classes: &[Class],
        badness: impl Fn(&Class) -> f64,
    ) {
        for Class { name, value, floor } in classes {
            let ratio = value / floor;
            println!("  {name:<34}{value:>8.0} {unit:<8}{floor:>8.0}{ratio:>8.2}");
        }
        let worst = classes.iter().max_by(|a, b| badness(a).total_cmp(&badness(b))).unwrap();
        self.add_of(name, Some(&worst.name), worst.value, unit, Some(worst.floor));
    }

    fn add_of(
        &mut self,
        name: &str,
        class: Option<&str>,
        value: f64,
        unit: &str,
        floor: Option<f64>,
    ) {
        let ratio = floor.map(|floor| value / floor);
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        println!("{name:<24}{value:>12.0} {unit:<12}{:>12}{:>8}", shown(floor, 0), shown(ratio, 2));
        let line = serde_json::json!({
            "name": name, "value": value, "unit": unit,
            "floor": floor, "ratio": ratio, "class": class, "command": "make bench",
        });
        self.lines.push(line.to_string());
    }

    pub fn write(self) {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench");
        std::fs::create_dir_all(directory).unwrap();
        let path = format!("{directory}/results.jsonl");
        let mut file = std::fs::File::create(&path).unwrap();
        self.lines.iter().for_each(|line| writeln!(file, "{line}").unwrap());
        println!("written to {path}");
    }
}

pub fn median(runs: usize, mut run: impl FnMut() -> f64) -> f64 {
    median_of((0..runs).map(|_| run()))
}

pub fn median_of(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the percentile of `values` at `share`. With a share of 0.95, this is the value that 95 %
/// of the values do not exceed.
pub fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    values[(last as f64 * share).round() as usize]
}
