//! Writing families of numbers: each has its name, help and unit once, then its lines.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::storage::Distribution;

/// Labels of one line.
type Labels<'a> = [(&'static str, &'a str)];

/// Writes one family after the other. Names get the registry's prefix, and their unit at the end.
pub(super) struct Families<'e> {
    pub(super) encoder: DescriptorEncoder<'e>,
}

impl Families<'_> {
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        lines: &[(&Labels<'_>, f64)],
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in lines {
            let gauge = ConstGauge::new(*value);
            if labels.is_empty() {
                gauge.encode(family)?;
                return Ok(());
            }
            gauge.encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, lines: &[(&Labels<'_>, u64)]) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in lines {
            let counter = ConstCounter::new(*value);
            if labels.is_empty() {
                counter.encode(family)?;
                return Ok(());
            }
            counter.encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }

    pub(super) fn distribution(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        distribution: &Distribution,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        family.encode_histogram::<NoLabelSet>(distribution.sum, distribution.count, &distribution.buckets, None)
    }
}
