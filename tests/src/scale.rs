//! How large the tests are: small in `make test`, full in `make acceptance` (`DECANT_SCALE=full`).

/// Whether everything runs at the size that the product promises.
pub fn is_full() -> bool {
    std::env::var("DECANT_SCALE").is_ok_and(|scale| scale == "full")
}

/// `small` in an ordinary run, `full` in an acceptance run.
pub fn pick<T>(small: T, full: T) -> T {
    if is_full() { full } else { small }
}

/// How often a part is killed: as `DECANT_CRASHES` says, else as [`pick`] does.
pub fn crashes(small: u32, full: u32) -> u32 {
    let asked = std::env::var("DECANT_CRASHES").ok();
    asked
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| pick(small, full))
}

/// A deadline for what takes seconds when all is well on a slow machine that does other things, too.
pub fn patience() -> std::time::Duration {
    std::time::Duration::from_secs(pick(180, 900))
}
