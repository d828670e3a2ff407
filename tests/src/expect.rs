//! Waiting for something to become true, with a deadline.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Tries until `attempt` returns `Ok`. Panics at the deadline with what `attempt` saw last.
pub async fn wait_until<T>(
    what: &str,
    deadline: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = match attempt().await {
            Ok(value) => return value,
            Err(seen) => seen,
        };
        assert!(
            started.elapsed() < deadline,
            "{what}: not within {deadline:?}; last seen: {seen}"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// `Ok` if the two are equal, else both in words: for [`wait_until`].
pub fn equal<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T) -> Result<(), String> {
    if seen == expected {
        Ok(())
    } else {
        Err(format!("{seen:?}, not {expected:?}"))
    }
}

/// Panics unless `text` contains every one of `words`, whatever their case.
pub fn assert_mentions(text: &str, words: &[&str]) {
    let lower = text.to_lowercase();
    for word in words {
        assert!(
            lower.contains(&word.to_lowercase()),
            "expected a message that mentions {word:?}, got:\n{text}"
        );
    }
}
