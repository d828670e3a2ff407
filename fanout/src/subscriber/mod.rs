//! Who is connected, with counters: for `GetFanoutStatus`, `SHOW SUBSCRIBERS` and `/metrics`.

mod registry;

pub use registry::{
    Protocol, Registration, Subscriber, SubscriberInfo, Subscribers, TooMany, Totals,
};
