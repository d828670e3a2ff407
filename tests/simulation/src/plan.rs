//! What may go wrong in a run, and mistakes that are planted to see that they are found.

use crate::random::Random;

/// A mistake that a program could make, made at the border between the real code and the simulated machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// None.
    #[default]
    Nothing,
    /// What is appended to the log is not synced.
    AppendNotSynced,
    /// A sealed segment is not synced before it replaces the raw one.
    SealNotSynced,
    /// A prepared transaction is not synced before its PREPARE is confirmed.
    PrepareNotSynced,
    /// A folder is not synced after a file in it got its name.
    FolderNotSynced,
    /// The source is told that something is safe as soon as it is written.
    ConfirmedEarly,
    /// A reader that is to see what is durable sees what is written.
    ServedEarly,
    /// A failed sync is passed over.
    SyncFailureIgnored,
}

impl Plant {
    /// All mistakes.
    pub const ALL: [Self; 7] = [
        Self::AppendNotSynced,
        Self::SealNotSynced,
        Self::PrepareNotSynced,
        Self::FolderNotSynced,
        Self::ConfirmedEarly,
        Self::ServedEarly,
        Self::SyncFailureIgnored,
    ];
}

/// How a run goes, as far as it is decided at its start.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The planted mistake.
    pub plant: Plant,
    /// How many decoders work one after the other.
    pub lives: u64,
    /// Steps of a life at most.
    pub steps: u64,
    /// One in so many operations of the disk fails; 0: none.
    pub errors: u64,
    /// One in so many writes is cut short.
    pub short_writes: u64,
    /// One in so many steps the disk is full for a while.
    pub full: u64,
    /// How many percent of unsynced sectors reach the disk before the power is lost.
    pub survives: u64,
    /// Whether names reach the disk in the order in which they were made, as with a journal, or in any.
    pub journal: bool,
    /// Longest value of a row.
    pub value_bytes: u64,
    /// Memory of staging.
    pub staging_bytes: u64,
}

impl Plan {
    /// By chance.
    pub fn choose(random: &mut Random, plant: Plant) -> Self {
        let rarely = |random: &mut Random, times: &[u64]| {
            let place = random.place(times.len());
            times.get(place).copied().unwrap_or_default()
        };
        Self {
            plant,
            lives: 2 + random.below(5),
            steps: 20 + random.below(100),
            errors: rarely(random, &[0, 0, 0, 60, 300]),
            short_writes: rarely(random, &[0, 7, 40]),
            full: rarely(random, &[0, 0, 25]),
            survives: rarely(random, &[0, 10, 50, 90, 100]),
            journal: random.chance(50),
            value_bytes: rarely(random, &[40, 400, 3000, 12_000]),
            staging_bytes: rarely(random, &[1 << 10, 16 << 10, 1 << 20]),
        }
    }
}
