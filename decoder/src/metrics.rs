//! Metrics, under the prefix `decant_decoder_`.
//!
//! Most of them are the counters of [`DecoderState`], read when they are asked for; only the time of syncs is measured
//! for its own sake.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::state::{DecoderState, SourceState};

/// The metrics that are not counters of the state.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// How long the log's syncs take.
    pub fsync_seconds: Histogram,
}

impl Metrics {
    /// Registers everything.
    #[must_use]
    pub fn register(registry: &mut Registry, state: &Arc<DecoderState>) -> Self {
        let registry = registry.sub_registry_with_prefix("decant_decoder");
        // 100 us to 13 s.
        let fsync_seconds = Histogram::new(exponential_buckets(0.000_1, 2.0, 18));
        registry.register_with_unit(
            "fsync",
            "Time of one sync of the log",
            Unit::Seconds,
            fsync_seconds.clone(),
        );
        registry.register_collector(Box::new(StateCollector(Arc::clone(state))));
        Self { fsync_seconds }
    }
}

/// Reads the state.
#[derive(Debug)]
struct StateCollector(Arc<DecoderState>);

impl StateCollector {
    fn counters(&self) -> [(&'static str, &'static str, u64); 8] {
        let counters = self.0.counters();
        [
            (
                "received_bytes",
                "Bytes of the replication stream",
                counters.bytes_received.get(),
            ),
            (
                "transactions",
                "Transactions written to the log",
                counters.transactions.get(),
            ),
            (
                "changes",
                "Row changes and truncates written to the log",
                counters.changes.get(),
            ),
            ("blocks", "Blocks written to the log", counters.blocks.get()),
            (
                "written_bytes",
                "Bytes written to the log",
                counters.bytes_written.get(),
            ),
            ("fsyncs", "Syncs of the log", counters.fsyncs.get()),
            (
                "reconnects",
                "Connections to the source after the first",
                counters.reconnects.get(),
            ),
            (
                "forged_messages",
                "Logical messages with Decant's prefix that were not Decant's",
                counters.forged_messages.get(),
            ),
        ]
    }

    fn gauges(&self) -> [(&'static str, &'static str, u64); 12] {
        let counters = self.0.counters();
        let head = self.0.head();
        let (disk, now) = (self.0.disk(), Instant::now());
        [
            (
                "received_lsn",
                "Highest position that the source has sent",
                counters.received_lsn.get(),
            ),
            (
                "written_lsn",
                "End of what is in the log's files",
                head.written_lsn.0,
            ),
            (
                "durable_lsn",
                "End of what is durable in the log",
                head.durable_lsn.0,
            ),
            (
                "confirmed_lsn",
                "Position that the source was told is safe",
                counters.confirmed_lsn.get(),
            ),
            (
                "definitions_kept",
                "Earlier definitions of the publications that open transactions may need",
                counters.definitions_kept.get(),
            ),
            (
                "definitions_known_from_lsn",
                "Position from which on all definitions of the publications are known",
                counters.definitions_known_from.get(),
            ),
            (
                "staged_transactions",
                "In-progress transactions being staged",
                counters.staged_transactions.get(),
            ),
            (
                "prepared_transactions",
                "Prepared transactions that are not decided",
                counters.prepared_transactions.get(),
            ),
            (
                "staged_bytes",
                "Bytes of staged transactions",
                counters.staged_bytes.get(),
            ),
            (
                "disk_full",
                "Whether the log waits for room on its disk",
                disk.is_full().into(),
            ),
            (
                "log_stalled",
                "Whether nothing can be written to the log: no room, no file descriptor, or a disk that does not answer",
                disk.trouble(now).is_some().into(),
            ),
            (
                "disk_silent_seconds",
                "How long the log's disk has not answered; 0 while that is nothing unusual",
                disk.silence(now).as_secs(),
            ),
        ]
    }
}

impl StateCollector {
    /// One line per state, of which one is 1.
    fn encode_source_state(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let state = self.0.source().state;
        let help = "What the connection to the source is doing";
        let mut family =
            encoder.encode_descriptor("source_state", help, None, MetricType::Gauge)?;
        for (name, value) in [
            ("connecting", SourceState::Connecting),
            ("streaming", SourceState::Streaming),
            ("backoff", SourceState::Backoff),
            ("failed", SourceState::Failed),
        ] {
            let metric = ConstGauge::new(i64::from(state == value));
            metric.encode(family.encode_family(&[("state", name)])?)?;
        }
        Ok(())
    }
}

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, value) in self.counters() {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        for (name, help, value) in self.gauges() {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        self.encode_source_state(encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_prefix() {
        let (state, _requests) = DecoderState::new();
        let state = Arc::new(state);
        state.counters().transactions.add(3);
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, &state);
        metrics.fsync_seconds.observe(0.001);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "decant_decoder_transactions_total 3",
            "decant_decoder_fsync_seconds_count 1",
            "decant_decoder_source_state{state=\"connecting\"} 1",
            "decant_decoder_durable_lsn 0",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
