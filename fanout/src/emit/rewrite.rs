//! Rows that go as another relation, with fewer columns, as another kind of change, or not at all.

use std::ops::Range;

use pg_proto::Oid;
use pg_proto::pgoutput::tag;
use pg_proto::read::{ReadError, Reader};
use storage_format::block::FRAME_HEAD_LEN;
use storage_format::record::RecordKind;

use row_filter::FilterError;

use crate::filter::{Asks, FilterStop, Judge, Judgement, Row, RowFilters, Rows};
use crate::selection::Shape;

/// Bytes of a frame's head before the length, and before what the length counts.
const LENGTH_AT: Range<usize> = 1..5;

/// Rewrites rows, one after the other, in the same memory.
#[derive(Debug, Default)]
pub(super) struct Rewriter {
    frame: Vec<u8>,
    rows: Rows,
}

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is not sent.
    Dropped,
    /// It is sent as it lies in the log.
    AsItIs,
    /// [`Rewriter::frame`] is sent, which is this.
    Rewritten(RecordKind),
    /// PostgreSQL has to judge it first.
    Ask,
}

/// A row can't be sent.
#[derive(Debug)]
pub(super) enum RowError {
    Read(ReadError),
    Filter(FilterError),
}

impl From<ReadError> for RowError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl Rewriter {
    /// Judges an INSERT, UPDATE or DELETE, given as the log's frame, the entry number `place` of its block, and
    /// rewrites it if it goes otherwise than it came; then [`Self::frame`] is the new one.
    pub(super) fn row(
        &mut self,
        frame: &[u8],
        shape: &Shape,
        place: u32,
        judge: &mut Judge,
    ) -> Result<Fate, RowError> {
        let payload = frame.get(FRAME_HEAD_LEN..).unwrap_or_default();
        let (tag, relation) = self.rows.find(payload)?;
        let judgement = match &shape.filters {
            Some(filters) => {
                let (old, new) = (self.rows.old.bytes(payload), self.rows.new.bytes(payload));
                match filters.judge(kind(tag), place, old, new, judge) {
                    Ok(judgement) => judgement,
                    Err(FilterStop::Ask) => return Ok(Fate::Ask),
                    Err(FilterStop::Error(error)) => return Err(RowError::Filter(error)),
                }
            }
            None => Judgement::Pass,
        };
        let tag = match judgement {
            Judgement::Drop => return Ok(Fate::Dropped),
            Judgement::Pass if shape.leaves_rows(relation) => return Ok(Fate::AsItIs),
            Judgement::Pass => tag,
            Judgement::Insert => tag::INSERT,
            Judgement::Delete => tag::DELETE,
        };
        self.start(frame, tag, shape.relation);
        let columns = shape.columns.as_deref();
        if self.rows.old.is_there() && judgement != Judgement::Insert {
            let letter = match shape.full_identity {
                None => self.rows.old.letter,
                Some(true) => b'O',
                Some(false) => b'K',
            };
            put_row(
                &mut self.frame,
                letter,
                &self.rows.old,
                None,
                payload,
                columns,
            )?;
        }
        if self.rows.new.is_there() && judgement != Judgement::Delete {
            let fill = (judgement == Judgement::Insert).then_some(&self.rows.old);
            put_row(
                &mut self.frame,
                b'N',
                &self.rows.new,
                fill,
                payload,
                columns,
            )?;
        }
        self.finish();
        Ok(Fate::Rewritten(kind(tag)))
    }

    /// Adds a row to those that PostgreSQL is asked about, if it has to be.
    pub(super) fn ask(
        &mut self,
        frame: &[u8],
        filters: &RowFilters,
        place: u32,
        asks: &mut Asks,
    ) -> Result<(), RowError> {
        let payload = frame.get(FRAME_HEAD_LEN..).unwrap_or_default();
        let (tag, _) = self.rows.find(payload)?;
        let (old, new) = (self.rows.old.bytes(payload), self.rows.new.bytes(payload));
        filters
            .ask(kind(tag), place, old, new, asks)
            .map_err(RowError::Filter)
    }

    /// The last row, as a whole CopyData frame.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// The head of the log's frame, with its positions and time.
    fn start(&mut self, frame: &[u8], tag: u8, relation: Oid) {
        self.frame.clear();
        let head = frame.get(..FRAME_HEAD_LEN).unwrap_or_default();
        self.frame.extend_from_slice(head);
        self.frame.push(tag);
        self.frame.extend_from_slice(&relation.0.to_be_bytes());
    }

    fn finish(&mut self) {
        // The length counts itself and not the type.
        let length = u32::try_from(self.frame.len().saturating_sub(1)).unwrap_or(u32::MAX);
        if let Some(place) = self.frame.get_mut(LENGTH_AT) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }
}

const fn kind(tag: u8) -> RecordKind {
    match tag {
        tag::INSERT => RecordKind::Insert,
        tag::UPDATE => RecordKind::Update,
        _ => RecordKind::Delete,
    }
}

/// Appends a row. Unchanged TOASTed columns are those of `fill`, as far as that has them.
fn put_row(
    out: &mut Vec<u8>,
    letter: u8,
    row: &Row,
    fill: Option<&Row>,
    payload: &[u8],
    columns: Option<&[u16]>,
) -> Result<(), ReadError> {
    out.push(letter);
    if let Some(fill) = fill {
        let all: Vec<u16> = (0..).take(row.columns.len()).collect();
        return put_filled(out, row, fill, payload, columns.unwrap_or(&all));
    }
    let Some(columns) = columns else {
        let count = u16::try_from(row.columns.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&count.to_be_bytes());
        let first = row.columns.first().map_or(0, |range| range.start);
        let last = row.columns.last().map_or(0, |range| range.end);
        out.extend_from_slice(payload.get(first..last).unwrap_or_default());
        return Ok(());
    };
    let count = u16::try_from(columns.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for index in columns {
        let range = row.columns.get(usize::from(*index)).cloned();
        let value = range.and_then(|range| payload.get(range));
        let reader = Reader::new(payload);
        let value = value.ok_or_else(|| reader.invalid("column of a row", *index))?;
        out.extend_from_slice(value);
    }
    Ok(())
}

fn put_filled(
    out: &mut Vec<u8>,
    row: &Row,
    fill: &Row,
    payload: &[u8],
    columns: &[u16],
) -> Result<(), ReadError> {
    let count = u16::try_from(columns.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for index in columns {
        let of = |row: &Row| {
            let range = row.columns.get(usize::from(*index)).cloned();
            range.and_then(|range| payload.get(range))
        };
        let reader = Reader::new(payload);
        let own = of(row).ok_or_else(|| reader.invalid("column of a row", *index))?;
        let old = of(fill).filter(|old| own == b"u" && old.first() == Some(&b't'));
        out.extend_from_slice(old.unwrap_or(own));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pg_proto::pgoutput::{Framing, decode};

    use super::*;

    fn shape(columns: Option<Vec<u16>>, full_identity: Option<bool>) -> Shape {
        Shape {
            relation: Oid(77),
            columns,
            full_identity,
            descriptions: Vec::new(),
            filters: None,
        }
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![b'd', 0, 0, 0, 0, b'w'];
        frame.extend(0..24_u8);
        frame.extend_from_slice(payload);
        let length = u32::try_from(frame.len() - 1).unwrap();
        frame[1..5].copy_from_slice(&length.to_be_bytes());
        frame
    }

    const UPDATE: &[u8] = b"U\0\0\0\x09K\0\x03t\0\0\0\x011nnN\0\x03t\0\0\0\x012ut\0\0\0\x02xy";

    #[test]
    fn columns_are_chosen_and_ordered_in_both_rows() {
        let original = frame(UPDATE);
        let mut rewriter = Rewriter::default();
        let kind = rewriter.row(
            &original,
            &shape(Some(vec![2, 0]), Some(true)),
            0,
            &mut Judge::default(),
        );
        assert_eq!(kind.unwrap(), Fate::Rewritten(RecordKind::Update));
        let rewritten = rewriter.frame().to_vec();
        let expected = frame(b"U\0\0\0\x4dO\0\x02nt\0\0\0\x011N\0\x02t\0\0\0\x02xyt\0\0\0\x012");
        assert_eq!(rewritten, expected);
        decode(&rewritten[FRAME_HEAD_LEN..], Framing::Plain).unwrap();
        // All columns: only the relation changes.
        rewriter
            .row(&original, &shape(None, None), 0, &mut Judge::default())
            .unwrap();
        assert_eq!(
            rewriter.frame()[5..FRAME_HEAD_LEN + 1],
            original[5..FRAME_HEAD_LEN + 1]
        );
        assert_eq!(
            rewriter.frame()[FRAME_HEAD_LEN + 5..],
            original[FRAME_HEAD_LEN + 5..]
        );
    }

    #[test]
    fn damaged_rows_are_errors() {
        let mut rewriter = Rewriter::default();
        for length in 0..UPDATE.len() {
            let cut = frame(&UPDATE[..length]);
            let rewritten = rewriter.row(
                &cut,
                &shape(Some(vec![0, 1, 2]), None),
                0,
                &mut Judge::default(),
            );
            // Cut between the two rows it is an UPDATE without a new row, which the log never has.
            if rewritten.is_ok() {
                let message = decode(&rewriter.frame()[FRAME_HEAD_LEN..], Framing::Plain);
                assert!(message.is_err(), "{length}");
            }
        }
        let few = rewriter.row(
            &frame(UPDATE),
            &shape(Some(vec![3]), None),
            0,
            &mut Judge::default(),
        );
        assert!(few.is_err());
    }
}
