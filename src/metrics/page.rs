//! Writes metrics in Prometheus' text format. The samples of one metric name form a family, and
//! each sample is one line.

use std::fmt::Write as _;

use super::{Counter, Histogram};

/// Unit of a histogram's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// Values are counted in microseconds and shown in seconds.
    Seconds,
    One,
}

impl MetricUnit {
    fn show(self, value: u64) -> String {
        match self {
            Self::One => value.to_string(),
            Self::Seconds => decimal(value, 6),
        }
    }
}

/// Formats `value`, a number of units of `10^-digits`, as a decimal number without trailing zeros.
fn decimal(value: u64, digits: usize) -> String {
    let shown = format!("{value:0width$}", width = digits + 1);
    let (whole, rest) = shown.split_at(shown.len() - digits);
    let rest = rest.trim_end_matches('0');
    if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") }
}

/// A page of metrics that is being written.
#[derive(Debug, Default)]
pub struct MetricsPage {
    families: Vec<MetricSamples>,
    /// Labels for all samples that are added later. These labels come before a sample's own labels.
    common: Vec<(&'static str, String)>,
}

/// All samples of one metric, with the header lines of this metric.
#[derive(Debug)]
struct MetricSamples {
    name: &'static str,
    text: String,
}

impl MetricsPage {
    /// Content type of Prometheus' text format.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Adds a label to all samples that follow.
    pub fn label(&mut self, name: &'static str, value: &str) {
        self.common.retain(|(own, _)| *own != name);
        self.common.push((name, value.to_owned()));
    }

    /// Begins or continues a family of counters; `name` must end with `_total`.
    pub fn counters(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        debug_assert!(name.ends_with("_total"), "{name} counts");
        self.family(name, "counter", help)
    }

    pub fn gauges(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "gauge", help)
    }

    pub fn histograms(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "histogram", help)
    }

    /// Returns the family with this name. Creates the family if it does not exist. The format
    /// requires all samples of a family to be together in one block.
    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> MetricFamily<'_> {
        let at = self.families.iter().position(|family| family.name == name);
        let at = at.unwrap_or_else(|| {
            let help = escaped(help, false);
            let text = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.families.push(MetricSamples { name, text });
            self.families.len() - 1
        });
        let samples = self.families.get_mut(at).expect("it was found or just put there");
        MetricFamily { samples, common: &self.common }
    }

    pub fn into_text(self) -> String {
        self.families.into_iter().map(|family| family.text).collect()
    }
}

/// Samples of one metric name.
#[derive(Debug)]
pub struct MetricFamily<'p> {
    samples: &'p mut MetricSamples,
    common: &'p [(&'static str, String)],
}

/// Label names with their values.
type LabelPairs<'l> = &'l [(&'static str, &'l str)];

impl MetricFamily<'_> {
    fn line(&mut self, end: &str, labels: LabelPairs<'_>, value: &str) {
        let common = self.common.iter().map(|(name, value)| (*name, value.as_str()));
        let labels: Vec<_> = common.chain(labels.iter().copied()).collect();
        let name = self.samples.name;
        let labels = braced(&labels);
        // Writing to a string cannot fail.
        writeln!(self.samples.text, "{name}{end}{labels} {value}").ok();
    }

    pub fn sample(&mut self, labels: LabelPairs<'_>, value: u64) -> &mut Self {
        self.line("", labels, &value.to_string());
        self
    }

    pub fn counter(&mut self, labels: LabelPairs<'_>, counter: &Counter) -> &mut Self {
        self.sample(labels, counter.get())
    }

    /// Adds a sample with a decimal value: `value` is the number of units of `10^-digits`.
    pub fn decimal(&mut self, labels: LabelPairs<'_>, value: u64, digits: usize) -> &mut Self {
        self.line("", labels, &decimal(value, digits));
        self
    }

    pub fn histogram(
        &mut self,
        labels: LabelPairs<'_>,
        histogram: &Histogram,
        unit: MetricUnit,
    ) -> &mut Self {
        let mut count = 0u64;
        let ends = histogram.bounds.iter().map(|bound| unit.show(*bound));
        let ends = ends.chain(std::iter::once("+Inf".to_owned()));

        for (end, bucket) in ends.zip(&histogram.buckets) {
            count = count.saturating_add(bucket.get());
            let labels = [labels, &[("le", end.as_str())]].concat();
            self.line("_bucket", &labels, &count.to_string());
        }

        self.line("_sum", labels, &unit.show(histogram.sum.get()));
        self.line("_count", labels, &count.to_string());
        self
    }
}

fn braced(labels: LabelPairs<'_>) -> String {
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
        let mut page = MetricsPage::default();
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
    fn samples_of_one_name_stand_together_whoever_adds_them() {
        let mut page = MetricsPage::default();
        for part in ["0", "1"] {
            page.label("part", part);
            page.gauges("a", "A.").sample(&[], 1);
            page.gauges("b", "B.").sample(&[("x", "y")], 2);
        }

        let text = page.into_text();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "a{part=\"0\"} 1",
            "a{part=\"1\"} 1",
            "b{part=\"0\",x=\"y\"} 2",
            "b{part=\"1\",x=\"y\"} 2",
        ];
        assert_eq!(lines, expected);
        assert_eq!(text.matches("# TYPE").count(), 2);
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_everything() {
        static BOUNDS: &[u64] = &[10, 2_500_000];
        let histogram = Histogram::new(BOUNDS);
        [1, 10, 11, 2_500_000, 9_000_000].into_iter().for_each(|value| histogram.add(value));
        let mut page = MetricsPage::default();
        page.histograms("t_seconds", "t").histogram(&[("l", "x")], &histogram, MetricUnit::Seconds);
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
