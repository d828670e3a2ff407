//! pgoutput's messages: looked at, taken apart, put together. `cargo bench -p pg-proto`.

#![allow(missing_docs, reason = "criterion's macros")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pg_proto::Oid;
use pg_proto::pgoutput::{Change, ColumnValue, Framing, Message, TupleBuf, decode, encode, peek};

/// An INSERT of about 150 bytes, five columns.
fn insert() -> Vec<u8> {
    let mut row = TupleBuf::new();
    let values: [&[u8]; 5] = [
        b"123456789",
        b"789",
        b"567.89",
        b"2026-01-31 12:00:00.123456+00",
        b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ];
    for value in values {
        assert!(row.push(ColumnValue::Text(value)), "a small row");
    }
    let mut bytes = Vec::new();
    let change = Change::Insert {
        xid: None,
        relation: Oid(16_384),
        new: row.as_tuple(),
    };
    encode(&Message::Change(change), &mut bytes);
    bytes
}

fn pgoutput(criterion: &mut Criterion) {
    let insert = insert();
    let message = decode(&insert, Framing::Plain).expect("it was encoded here");
    let mut group = criterion.benchmark_group("pg_proto::pgoutput");
    group.throughput(Throughput::Bytes(insert.len() as u64));
    group.bench_function("peek/insert", |bencher| {
        bencher.iter(|| peek(std::hint::black_box(&insert), Framing::Plain));
    });
    group.bench_function("decode/insert", |bencher| {
        bencher.iter(|| decode(std::hint::black_box(&insert), Framing::Plain));
    });
    let mut out = Vec::with_capacity(insert.len());
    group.bench_function("encode/insert", |bencher| {
        bencher.iter(|| {
            out.clear();
            encode(std::hint::black_box(&message), &mut out);
        });
    });
    group.finish();
}

criterion_group!(benches, pgoutput);
criterion_main!(benches);
