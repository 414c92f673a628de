//! Prometheus' text format: a family for each name, a line for each sample.

use std::fmt::Write as _;

use super::{Counter, Histogram};

/// What a histogram's values are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Counted in microseconds, shown in seconds.
    Seconds,
    One,
}

impl Unit {
    fn show(self, value: u64) -> String {
        match self {
            Self::One => value.to_string(),
            Self::Seconds => decimal(value, 6),
        }
    }
}

/// `value` of units that are a `10^digits`th, without zeros at its end.
fn decimal(value: u64, digits: usize) -> String {
    let shown = format!("{value:0width$}", width = digits + 1);
    let (whole, rest) = shown.split_at(shown.len() - digits);
    let rest = rest.trim_end_matches('0');
    if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") }
}

/// A page of samples in the making.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// As HTTP names the format.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// A family of counters; `name` ends with `_total`.
    pub fn counters(&mut self, name: &'static str, help: &str) -> Family<'_> {
        debug_assert!(name.ends_with("_total"), "{name} counts");
        self.family(name, "counter", help)
    }

    pub fn gauges(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    pub fn histograms(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        let help = escaped(help, false);
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        Family { page: self, name }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        writeln!(self.0, "{line}").ok();
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

/// The samples of one name.
#[derive(Debug)]
pub struct Family<'p> {
    page: &'p mut Page,
    name: &'static str,
}

/// Names of labels and what they are.
type Labels<'l> = &'l [(&'static str, &'l str)];

impl Family<'_> {
    pub fn sample(&mut self, labels: Labels<'_>, value: u64) -> &mut Self {
        let name = self.name;
        self.page.line(format_args!("{name}{} {value}", braced(labels)));
        self
    }

    pub fn counter(&mut self, labels: Labels<'_>, counter: &Counter) -> &mut Self {
        self.sample(labels, counter.get())
    }

    /// Of `10^digits`ths of the unit.
    pub fn decimal(&mut self, labels: Labels<'_>, value: u64, digits: usize) -> &mut Self {
        let name = self.name;
        let value = decimal(value, digits);
        self.page.line(format_args!("{name}{} {value}", braced(labels)));
        self
    }

    pub fn histogram(&mut self, labels: Labels<'_>, of: &Histogram, unit: Unit) -> &mut Self {
        let (name, mut count) = (self.name, 0u64);
        let ends = of.bounds.iter().map(|bound| unit.show(*bound));
        let ends = ends.chain(std::iter::once("+Inf".to_owned()));
        for (end, bucket) in ends.zip(&of.buckets) {
            count = count.saturating_add(bucket.get());
            let labels = [labels, &[("le", end.as_str())]].concat();
            self.page.line(format_args!("{name}_bucket{} {count}", braced(&labels)));
        }
        let labels = braced(labels);
        let sum = unit.show(of.sum.get());
        self.page.line(format_args!("{name}_sum{labels} {sum}"));
        self.page.line(format_args!("{name}_count{labels} {count}"));
        self
    }
}

fn braced(labels: Labels<'_>) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let each = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)));
    format!("{{{}}}", each.collect::<Vec<_>>().join(","))
}

fn escaped(text: &str, quoted: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quoted { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_label_or_a_line_is_escaped() {
        let mut page = Page::default();
        page.counters("a_total", "one\\two\nthree \"four\"").sample(&[("x", "q\"b\\n\nl")], 3);
        let text = page.into_text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "# HELP a_total one\\\\two\\nthree \"four\"",
                "# TYPE a_total counter",
                "a_total{x=\"q\\\"b\\\\n\\nl\"} 3",
            ]
        );
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_everything() {
        static BOUNDS: &[u64] = &[10, 2_500_000];
        let histogram = Histogram::new(BOUNDS);
        [1, 10, 11, 2_500_000, 9_000_000].into_iter().for_each(|value| histogram.add(value));
        let mut page = Page::default();
        page.histograms("t_seconds", "t").histogram(&[("l", "x")], &histogram, Unit::Seconds);
        let text = page.into_text();
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "t_seconds_bucket{l=\"x\",le=\"0.00001\"} 2",
                "t_seconds_bucket{l=\"x\",le=\"2.5\"} 4",
                "t_seconds_bucket{l=\"x\",le=\"+Inf\"} 5",
                "t_seconds_sum{l=\"x\"} 11.500022",
                "t_seconds_count{l=\"x\"} 5",
            ]
        );
    }
}
