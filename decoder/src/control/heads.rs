//! The log's head, told again and again.

use std::time::Duration;

use futures_util::stream;
use proto::v1::Head;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::convert;
use crate::state::DecoderState;

/// Longest time between two heads that may be asked for.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The head now, and then whenever it is another one, but for so many milliseconds after each. Who is slow sees the newest.
pub(super) fn heads(
    state: &DecoderState,
    shutdown: &CancellationToken,
    min_interval_ms: u32,
) -> impl Stream<Item = Result<Head, Status>> + use<> {
    let interval = Duration::from_millis(min_interval_ms.into()).min(INTERVAL_MAX);
    let shutdown = shutdown.clone();
    stream::unfold((state.watch_head(), true), move |(mut heads, at_once)| {
        let shutdown = shutdown.clone();
        async move {
            if !at_once {
                let next = async {
                    if !interval.is_zero() {
                        tokio::time::sleep(interval).await;
                    }
                    heads.changed().await
                };
                shutdown.run_until_cancelled(next).await?.ok()?;
            }
            let head = convert::head(*heads.borrow_and_update());
            Some((Ok(head), (heads, false)))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::StreamExt;
    use pg_proto::Lsn;
    use tokio::time::Instant;

    use super::*;
    use crate::state::Head;

    #[tokio::test(start_paused = true)]
    async fn tells_no_more_often_than_it_is_asked_to() {
        let (state, _requests) = DecoderState::new();
        let publish = |lsn| {
            state.publish_head(Head {
                written_lsn: Lsn(lsn),
                ..Head::default()
            });
        };
        let shutdown = CancellationToken::new();
        let mut heads = pin!(heads(&state, &shutdown, 1_000));
        let begun = Instant::now();
        assert_eq!(heads.next().await.unwrap().unwrap().written_lsn, 0);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        publish(1);
        publish(2);
        assert_eq!(heads.next().await.unwrap().unwrap().written_lsn, 2);
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        let third = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            publish(3);
        };
        let (head, ()) = tokio::join!(heads.next(), third);
        assert_eq!(head.unwrap().unwrap().written_lsn, 3);
        assert_eq!(begun.elapsed(), Duration::from_secs(11));
        shutdown.cancel();
        assert!(heads.next().await.is_none());
        assert_eq!(begun.elapsed(), Duration::from_secs(11));
    }
}
