//! A strict parser of Prometheus' text format.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// Samples by name and labels.
#[derive(Debug, Default)]
pub struct Page {
    samples: BTreeMap<(String, Labels), f64>,
    kinds: BTreeMap<String, String>,
}

impl Page {
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends, too");
        let mut page = Self::default();
        let mut helped = BTreeSet::new();
        let mut family = String::new();
        let mut done = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned()) && !help.is_empty(), "{line}");
                // A help text makes sense without the name: it states the unit of the samples.
                assert!(!name.ends_with("_seconds") || help.starts_with("Seconds "), "{line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(helped.contains(name) && done.insert(name.to_owned()), "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                page.kinds.insert(name.to_owned(), kind.to_owned());
                family = name.to_owned();
            } else {
                page.sample(line, &family);
            }
        }
        page.judge_histograms();
        page
    }

    fn sample(&mut self, line: &str, family: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, labels(rest.strip_suffix('}').unwrap())),
            None => (series, Labels::new()),
        };
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.starts_with("organism_") && name.chars().all(fits), "{line}");
        let own = match self.kinds[family].as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{family}{end}")).into(),
            _ => vec![family.to_owned()],
        };
        assert!(own.iter().any(|own| own == name), "{line} is not of {family}");
        let value: f64 = value.parse().unwrap();
        assert!(value >= 0.0 && value.is_finite(), "{line}");
        assert!(self.samples.insert((name.to_owned(), labels), value).is_none(), "twice: {line}");
    }

    fn judge_histograms(&self) {
        let mut seen: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.samples {
            let Some(family) = name.strip_suffix("_bucket") else { continue };
            let mut labels = labels.clone();
            let end = labels.remove("le").unwrap();
            let end = if end == "+Inf" { f64::INFINITY } else { end.parse().unwrap() };
            seen.entry((family.to_owned(), labels)).or_default().push((end, *value));
        }
        assert!(!seen.is_empty(), "there are histograms");
        for ((family, labels), mut buckets) in seen {
            buckets.sort_by(|a, b| a.partial_cmp(b).unwrap());
            assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{family}: {buckets:?}");
            let (end, all) = *buckets.last().unwrap();
            assert!(end.is_infinite(), "{family}");
            assert_eq!(self.samples[&(format!("{family}_count"), labels.clone())], all);
            assert!(self.samples.contains_key(&(format!("{family}_sum"), labels)));
        }
    }

    /// The value of one series.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let own = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let key = (name.to_owned(), own.collect());
        *self.samples.get(&key).unwrap_or_else(|| panic!("no {key:?} in {self:#?}"))
    }

    /// The sum of all series of a name.
    pub fn sum(&self, name: &str) -> f64 {
        let own: Vec<_> = self.samples.iter().filter(|((own, _), _)| own == name).collect();
        assert!(!own.is_empty(), "no {name}");
        own.into_iter().map(|(_, value)| value).sum()
    }

    /// Every value of a label.
    pub fn values(&self, label: &str) -> BTreeSet<&str> {
        self.samples
            .keys()
            .filter_map(|(_, labels)| labels.get(label))
            .map(String::as_str)
            .collect()
    }

    pub fn labels(&self) -> BTreeSet<&str> {
        self.samples.keys().flat_map(|(_, labels)| labels.keys()).map(String::as_str).collect()
    }

    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kinds.iter().map(|(name, kind)| (name.as_str(), kind.as_str()))
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }
}

fn labels(mut rest: &str) -> Labels {
    let mut labels = Labels::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next().unwrap().1 {
                    'n' => value.push('\n'),
                    escaped @ ('"' | '\\') => value.push(escaped),
                    other => panic!("\\{other} in {rest}"),
                },
                (_, plain) => value.push(plain),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} twice");
        rest = &after[end..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    labels
}
