//! Metrics, under the prefix `decant_fanout_`.
//!
//! All of them are read where they are kept, when they are asked for: nothing is counted twice. Counters of
//! subscribers that have left are kept in sum, so that they never go back.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::sink::Services;
use crate::snapshot::Method;
use crate::subscriber::{Protocol, Totals};

/// Registers everything; there is nothing to see before `services` is set.
pub fn register(registry: &mut Registry, services: Arc<OnceLock<Services>>) {
    let registry = registry.sub_registry_with_prefix("decant_fanout");
    registry.register_collector(Box::new(ServicesCollector(services)));
}

/// Reads the state of a fanout's parts.
#[derive(Debug)]
struct ServicesCollector(Arc<OnceLock<Services>>);

/// The services, once they are there.
struct Encoder<'a>(&'a Services);

impl Encoder<'_> {
    fn gauges(&self) -> [(&'static str, &'static str, u64); 7] {
        let Services {
            replay,
            positions,
            subscribers,
            lanes,
            ..
        } = self.0;
        let head = replay.log().head();
        let age = head.heartbeat_age(pg_proto::PgTimestamp::now());
        let cached = u64::try_from(replay.log().cached_bytes()).unwrap_or(u64::MAX);
        [
            ("head_lsn", "End of what is served", head.lsn.0),
            (
                "decoder_connected",
                "Whether the decoder's control service answers",
                positions.connected().into(),
            ),
            (
                "decoder_heartbeat_age_seconds",
                "Time since the decoder last said in the log that it lives",
                age.map_or(0, |age| age.as_secs()),
            ),
            (
                "lag_bytes_max",
                "Bytes of WAL between the head and what the slowest subscriber was sent",
                subscribers.lag_bytes_max(head.lsn),
            ),
            (
                "catching_up",
                "Subscribers that are far behind, and are served by threads of lower priority until they are at the head",
                lanes.catching_up(),
            ),
            (
                "leases",
                "Slots that are served here",
                positions.lease_count(),
            ),
            (
                "cached_bytes",
                "Bytes of decoded blocks kept for other subscribers",
                cached,
            ),
        ]
    }

    fn encode_totals(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        of: impl Fn(&Totals) -> u64,
    ) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for protocol in Protocol::ALL {
            let value = of(&self.0.subscribers.totals(protocol));
            let labels = [("protocol", protocol.name())];
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_snapshots(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.snapshots.counts();
        let help = "Snapshots of the source made for slots: a cut of the log that fits one (cut), or by a temporary slot there (slot)";
        let mut family = encoder.encode_descriptor("snapshots", help, None, MetricType::Counter)?;
        for method in Method::ALL {
            let labels = [("method", method.name())];
            ConstCounter::new(counts.made(method)).encode(family.encode_family(&labels)?)?;
        }
        for (name, help, value) in [
            (
                "snapshot_tries",
                "Snapshots for which a cut of the log was looked for, found or not",
                counts.looks,
            ),
            (
                "snapshots_failed",
                "Slots that were not created because there was no snapshot for them",
                counts.failed,
            ),
        ] {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }

    fn encode_filters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.replay.filters().counts();
        let help = "Rows judged by row filters, here (native), by the source (postgres), or all at once by an index of a block \
                    (index); both rows of an UPDATE count, but in an index";
        let mut family =
            encoder.encode_descriptor("filtered_rows", help, None, MetricType::Counter)?;
        for (path, rows) in [
            ("native", counts.native_rows),
            ("postgres", counts.postgres_rows),
            ("index", counts.index_rows),
        ] {
            let labels = [("path", path)];
            ConstCounter::new(rows).encode(family.encode_family(&labels)?)?;
        }
        let help = "Rows put into indexes for row filters, once for all subscribers";
        let indexed = ConstCounter::new(counts.indexed_rows);
        let kind = indexed.metric_type();
        indexed.encode(encoder.encode_descriptor("indexed_rows", help, None, kind)?)
    }

    fn encode_early(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.replay.early_counts();
        let help = "Transactions of which a subscriber was sent a part before their end; one counts for each of its subscribers";
        let metric = ConstGauge::new(i64::try_from(counts.transactions).unwrap_or(i64::MAX));
        metric.encode(encoder.encode_descriptor(
            "early_transactions",
            help,
            None,
            metric.metric_type(),
        )?)?;
        let help = "Bytes of the decoder's staging that were gone through for subscribers before the transaction's end";
        let metric = ConstCounter::new(counts.bytes);
        metric.encode(encoder.encode_descriptor("early_bytes", help, None, MetricType::Counter)?)
    }

    fn encode_connected(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Subscribers that are connected";
        let mut family = encoder.encode_descriptor("subscribers", help, None, MetricType::Gauge)?;
        for protocol in Protocol::ALL {
            let count = self.0.subscribers.count(protocol);
            let labels = [("protocol", protocol.name())];
            let metric = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for ServicesCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(services) = self.0.get() else {
            return Ok(());
        };
        let this = Encoder(services);
        for (name, help, value) in this.gauges() {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        this.encode_connected(&mut encoder)?;
        let encoder = &mut encoder;
        let help = "Changes sent to subscribers";
        this.encode_totals(encoder, "changes_sent", help, |totals| totals.changes)?;
        let help = "Bytes sent to subscribers";
        this.encode_totals(encoder, "sent_bytes", help, |totals| totals.bytes)?;
        let help = "Streams started";
        this.encode_totals(encoder, "streams", help, |totals| totals.streams)?;
        this.encode_filters(encoder)?;
        this.encode_early(encoder)?;
        this.encode_snapshots(encoder)
    }
}
