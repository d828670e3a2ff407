//! Decoded blocks, shared by all readers of a log.

use std::collections::{BTreeMap, HashMap, hash_map};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::block::Block;

/// Where a block is: its file and its offset there. An active and a sealed file of one segment differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) sequence: u64,
    pub(crate) sealed: bool,
    /// The last cut of the log when the file was opened.
    pub(crate) cut: u64,
    pub(crate) offset: u64,
}

const SHARDS: usize = 16;

/// A cache of a number of bytes, least recently used first to go. Locks are held for operations on the map only;
/// while a block is being decoded, others that want the same one wait for it, and nobody else does.
#[derive(Debug)]
pub(crate) struct BlockCache {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    bytes_max: usize,
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    slots: HashMap<BlockKey, Slot>,
    /// Use counts of the ready blocks, each once: the lowest is the least recently used.
    order: BTreeMap<u64, BlockKey>,
    uses: u64,
}

#[derive(Debug)]
enum Slot {
    Ready { block: Arc<Block>, used: u64 },
    Loading(Arc<Loading>),
}

/// Others wait here for the one that decodes.
#[derive(Debug, Default)]
struct Loading {
    done: Mutex<bool>,
    changed: Condvar,
}

impl BlockCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            shards: Default::default(),
            hasher: RandomState::new(),
            bytes_max,
            bytes: AtomicUsize::new(0),
        }
    }

    /// The block at `key`: from the cache, or decoded by `load`, which runs once however many ask at the same time.
    /// If it fails the one that ran it gets its error, and the next one tries again.
    pub(crate) fn get_or_load<E>(
        &self,
        key: BlockKey,
        load: impl FnOnce() -> Result<Block, E>,
    ) -> Result<Arc<Block>, E> {
        let loading = loop {
            let found = self.shard(key).lock().look_up(key);
            match found {
                Found::Ready(block) => return Ok(block),
                Found::Loading(other) => other.wait(),
                Found::Mine(loading) => break loading,
            }
        };
        let turn = Turn {
            cache: self,
            key,
            loading,
        };
        let block = Arc::new(load()?);
        turn.finish(&block);
        self.shrink(key);
        Ok(block)
    }

    /// Forgets the blocks of a file.
    pub(crate) fn forget_file(&self, sequence: u64, sealed: bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let keys: Vec<BlockKey> = shard
                .order
                .values()
                .filter(|key| key.sequence == sequence && key.sealed == sealed)
                .copied()
                .collect();
            for key in keys {
                self.subtract(shard.remove(key));
            }
        }
    }

    /// Bytes that the cached blocks keep alive.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, key: BlockKey) -> &Mutex<Shard> {
        self.shard_at(self.shard_number(key))
    }

    fn shard_number(&self, key: BlockKey) -> usize {
        usize::try_from(self.hasher.hash_one(key) % 16).unwrap_or(0)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the remainder is below the array's length"
    )]
    const fn shard_at(&self, number: usize) -> &Mutex<Shard> {
        &self.shards[number % SHARDS]
    }

    /// Removes blocks until the rest fits, from the shard of `key` on.
    fn shrink(&self, key: BlockKey) {
        let first = self.shard_number(key);
        for number in 0..SHARDS {
            let shard = self.shard_at(first + number);
            while self.bytes() > self.bytes_max {
                let removed = shard.lock().remove_oldest();
                if removed == 0 {
                    break;
                }
                self.subtract(removed);
            }
        }
    }

    fn subtract(&self, weight: usize) {
        self.bytes.fetch_sub(weight, Ordering::Relaxed);
    }
}

enum Found {
    Ready(Arc<Block>),
    Loading(Arc<Loading>),
    Mine(Arc<Loading>),
}

impl Shard {
    fn look_up(&mut self, key: BlockKey) -> Found {
        self.uses += 1;
        match self.slots.entry(key) {
            hash_map::Entry::Occupied(mut slot) => match slot.get_mut() {
                Slot::Loading(loading) => Found::Loading(Arc::clone(loading)),
                Slot::Ready { block, used } => {
                    self.order.remove(used);
                    *used = self.uses;
                    self.order.insert(*used, key);
                    Found::Ready(Arc::clone(block))
                }
            },
            hash_map::Entry::Vacant(slot) => {
                let loading = Arc::<Loading>::default();
                slot.insert(Slot::Loading(Arc::clone(&loading)));
                Found::Mine(loading)
            }
        }
    }

    fn insert(&mut self, key: BlockKey, block: Arc<Block>) {
        self.uses += 1;
        let used = self.uses;
        self.slots.insert(key, Slot::Ready { block, used });
        self.order.insert(used, key);
    }

    fn remove(&mut self, key: BlockKey) -> usize {
        match self.slots.remove(&key) {
            Some(Slot::Ready { block, used }) => {
                self.order.remove(&used);
                block.weight()
            }
            Some(Slot::Loading(_)) | None => 0,
        }
    }

    fn remove_oldest(&mut self) -> usize {
        match self.order.first_key_value() {
            Some((_, &key)) => self.remove(key),
            None => 0,
        }
    }
}

impl Loading {
    fn wait(&self) {
        let mut done = self.done.lock();
        while !*done {
            self.changed.wait(&mut done);
        }
    }
}

/// The right to decode a block. When it is dropped, however that comes, those who wait go on.
struct Turn<'a> {
    cache: &'a BlockCache,
    key: BlockKey,
    loading: Arc<Loading>,
}

impl Turn<'_> {
    fn finish(self, block: &Arc<Block>) {
        self.cache
            .bytes
            .fetch_add(block.weight(), Ordering::Relaxed);
        let shard = self.cache.shard(self.key);
        shard.lock().insert(self.key, Arc::clone(block));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut shard = self.cache.shard(self.key).lock();
        if let Some(Slot::Loading(_)) = shard.slots.get(&self.key) {
            shard.slots.remove(&self.key);
        }
        drop(shard);
        *self.loading.done.lock() = true;
        self.loading.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::block::{BlockHeader, BlockKind};

    fn block() -> Block {
        let mut bytes = Vec::new();
        BlockHeader::empty(BlockKind::Data).encode(&[], &mut bytes);
        let decoded = BlockHeader::decode(&bytes).unwrap();
        Block::decode(&decoded, Bytes::new()).unwrap()
    }

    fn key(offset: u64) -> BlockKey {
        BlockKey {
            sequence: offset % 3,
            sealed: offset.is_multiple_of(2),
            cut: 0,
            offset,
        }
    }

    fn get(cache: &BlockCache, offset: u64) -> (Arc<Block>, bool) {
        let mut loaded = false;
        let found = cache.get_or_load(key(offset), || {
            loaded = true;
            Ok::<_, ()>(block())
        });
        (found.unwrap(), loaded)
    }

    #[test]
    fn a_block_is_decoded_once_however_many_want_it() {
        let cache = BlockCache::new(1 << 20);
        let count = AtomicUsize::new(0);
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let found = cache.get_or_load(key(1), || {
                        count.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                        Ok::<_, ()>(block())
                    });
                    found.unwrap();
                });
            }
        });
        assert_eq!(count.into_inner(), 1);
    }

    #[test]
    fn a_failure_is_for_the_one_that_tried() {
        let cache = BlockCache::new(1 << 20);
        assert_eq!(
            cache.get_or_load(key(1), || Err("damaged")).unwrap_err(),
            "damaged"
        );
        assert!(get(&cache, 1).1, "tried again");
        assert!(!get(&cache, 1).1, "and kept");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = cache.get_or_load(key(2), || -> Result<Block, ()> { panic!("in a decoder") });
        }));
        assert!(panicked.is_err());
        assert!(get(&cache, 2).1, "nobody waits for ever");
    }

    #[test]
    fn the_least_recently_used_go_first_and_the_bytes_are_kept_to() {
        let weight = block().weight();
        let cache = BlockCache::new(weight * 64);
        for offset in 0..1000 {
            get(&cache, offset);
            get(&cache, 7);
            assert!(cache.bytes() <= weight * 64);
        }
        assert!(!get(&cache, 7).1, "in use all the time");
        assert!(get(&cache, 8).1, "long not used");
        cache.forget_file(1, false);
        assert!(get(&cache, 7).1, "its file is gone");
        for sequence in 0..3 {
            cache.forget_file(sequence, false);
            cache.forget_file(sequence, true);
        }
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn a_cache_without_room_still_serves() {
        let cache = BlockCache::new(0);
        assert!(get(&cache, 1).1);
        assert_eq!(cache.bytes(), 0);
    }
}
