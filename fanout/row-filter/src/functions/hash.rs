//! The hash functions of hash partitioning and hash indexes, by which data are often divided among subscribers.
//!
//! Bob Jenkins' hash as in `hashfn.c`, on a little-endian server.

use super::compare::unpadded;
use super::{Answer, Args};
use crate::value::Value;

const SEED: u32 = 0x9e37_79b9_u32.wrapping_add(3_923_095);

/// The state, and what `mix` and `final` do to it.
struct State(u32, u32, u32);

impl State {
    const fn new(length: u32) -> Self {
        let seed = SEED.wrapping_add(length);
        Self(seed, seed, seed)
    }

    const fn mix(self) -> Self {
        let Self(mut a, mut b, mut c) = self;
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
        Self(a, b, c)
    }

    const fn finish(self) -> u32 {
        let Self(mut a, mut b, mut c) = self;
        c = (c ^ b).wrapping_sub(b.rotate_left(14));
        a = (a ^ c).wrapping_sub(c.rotate_left(11));
        b = (b ^ a).wrapping_sub(a.rotate_left(25));
        c = (c ^ b).wrapping_sub(b.rotate_left(16));
        a = (a ^ c).wrapping_sub(c.rotate_left(4));
        b = (b ^ a).wrapping_sub(a.rotate_left(14));
        (c ^ b).wrapping_sub(b.rotate_left(24))
    }
}

/// Up to four bytes, the first one lowest.
fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn of_bytes(bytes: &[u8]) -> u32 {
    let mut state = State::new(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let mut chunks = bytes.chunks_exact(12);
    let part = |chunk: &[u8], from: usize| {
        let rest = chunk.get(from..).unwrap_or_default();
        word(rest.get(..4).unwrap_or(rest))
    };
    for chunk in &mut chunks {
        state.0 = state.0.wrapping_add(part(chunk, 0));
        state.1 = state.1.wrapping_add(part(chunk, 4));
        state.2 = state.2.wrapping_add(part(chunk, 8));
        state = state.mix();
    }
    let rest = chunks.remainder();
    state.0 = state.0.wrapping_add(part(rest, 0));
    state.1 = state.1.wrapping_add(part(rest, 4));
    // The lowest byte of the last word is the length's.
    state.2 = state.2.wrapping_add(part(rest, 8) << 8);
    state.finish()
}

const fn of_word(word: u32) -> u32 {
    let mut state = State::new(4);
    state.0 = state.0.wrapping_add(word);
    state.finish()
}

fn answer<'a>(hash: u32) -> Answer<'a> {
    Ok(Value::Int(hash.cast_signed().into()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the lower half is meant"
)]
const fn lower_half(value: i64) -> u32 {
    value as u32
}

/// Of int2, int4 and oid.
pub(crate) fn int<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    answer(of_word(lower_half(args.int(0)?)))
}

/// The same as of a smaller type for values that this can hold.
pub(crate) fn int8<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    let value = args.int(0)?;
    let high = lower_half(value >> 32);
    let high = if value >= 0 { high } else { !high };
    answer(of_word(lower_half(value) ^ high))
}

/// Of text, name, bytea and uuid.
pub(crate) fn bytes<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    answer(of_bytes(args.bytes(0)?))
}

pub(crate) fn padded<'a>(args: Args<'_, 'a>) -> Answer<'a> {
    answer(of_bytes(unpadded(args.bytes(0)?)))
}
