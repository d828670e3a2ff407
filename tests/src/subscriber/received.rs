//! What a gRPC subscriber has received, and the checks on it.

use pg_proto::Lsn;
use proto::v1::subscribe_request::Start;
use proto::v1::{
    Event, SubscribeRequest, SubscribeResponse, TransactionPart, event, subscribe_response,
};

use super::grpc::{Failure, Keep};
use super::model::TableModel;

/// What a subscriber has received.
#[derive(Debug, Default)]
pub struct Received {
    /// The tables.
    pub model: TableModel,
    /// Whole transactions: where each commits and ends.
    pub transactions: Vec<(Lsn, Lsn)>,
    /// Changes of whole transactions.
    pub changes: u64,
    /// Logical messages: prefix and content.
    pub messages: Vec<(String, Vec<u8>)>,
    /// All that commits below has been received.
    pub position: Lsn,
    /// Why it stopped.
    pub error: Option<String>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    commit_lsn: Lsn,
    events: Vec<Event>,
    changes: u64,
    last_ordinal: Option<u64>,
}

impl Received {
    /// After the end of a stream: whether to come back, and then from where.
    pub(super) fn prepare_next(
        &mut self,
        end: Result<(), Failure>,
        request: &mut SubscribeRequest,
    ) -> bool {
        self.open = None;
        let is_bounded = request
            .options
            .as_ref()
            .is_some_and(|options| options.end_lsn != 0);
        match end {
            Ok(()) if is_bounded => return false,
            Ok(()) | Err(Failure::Interrupted) => {}
            Err(Failure::Final(error)) => {
                self.error = Some(error);
                return false;
            }
        }
        // A slot's position is kept by the fanout.
        if let Some((_, end_lsn)) = self.transactions.last()
            && !matches!(request.start, Some(Start::Slot(_)))
        {
            request.start = Some(Start::StartLsn(end_lsn.0));
        }
        true
    }

    pub(super) fn take(&mut self, response: SubscribeResponse, keep: Keep) -> Result<(), String> {
        match response.kind {
            Some(subscribe_response::Kind::Batch(batch)) => {
                for part in batch.parts {
                    self.part(part, keep)?;
                }
                Ok(())
            }
            Some(subscribe_response::Kind::Progress(progress)) => {
                let lsn = Lsn(progress.lsn);
                match &self.open {
                    Some(open) if lsn > open.commit_lsn => Err(format!(
                        "progress {lsn} inside a transaction that commits at {}",
                        open.commit_lsn
                    )),
                    _ => {
                        self.position = self.position.max(lsn);
                        Ok(())
                    }
                }
            }
            None => Err("a response of no kind".to_owned()),
        }
    }

    fn part(&mut self, part: TransactionPart, keep: Keep) -> Result<(), String> {
        if let Some(begin) = &part.begin {
            self.begin(Lsn(begin.commit_lsn))?;
        }
        for event in part.events {
            self.event(event, keep)?;
        }
        let Some(commit) = part.commit else {
            return Ok(());
        };
        let open = self.open.take().ok_or("a commit without a begin")?;
        if open.commit_lsn.0 != commit.commit_lsn {
            return Err(format!(
                "{} committed at {}",
                open.commit_lsn,
                Lsn(commit.commit_lsn)
            ));
        }
        for event in open.events {
            self.apply(event)?;
        }
        self.changes += open.changes;
        let end_lsn = Lsn(commit.end_lsn);
        self.transactions.push((open.commit_lsn, end_lsn));
        self.position = self.position.max(end_lsn);
        Ok(())
    }

    fn begin(&mut self, commit_lsn: Lsn) -> Result<(), String> {
        if self.open.is_some() {
            return Err(format!("a begin of {commit_lsn} inside a transaction"));
        }
        if let Some((last, _)) = self.transactions.last()
            && commit_lsn <= *last
        {
            return Err(format!(
                "transaction {commit_lsn} after {last}: twice or out of order"
            ));
        }
        if commit_lsn < self.position {
            let promised = self.position;
            return Err(format!(
                "transaction {commit_lsn} after all below {promised} was sent"
            ));
        }
        self.open = Some(Open {
            commit_lsn,
            events: Vec::new(),
            changes: 0,
            last_ordinal: None,
        });
        Ok(())
    }

    fn event(&mut self, event: Event, keep: Keep) -> Result<(), String> {
        let ordinal = match &event.kind {
            Some(event::Kind::Change(change)) => Some(change.ordinal),
            Some(event::Kind::Truncate(truncate)) => Some(truncate.ordinal),
            Some(event::Kind::Message(message)) if message.transactional => Some(message.ordinal),
            _ => None,
        };
        let Some(open) = self.open.as_mut() else {
            // A logical message outside of transactions, or the schema before one.
            return self.apply(event);
        };
        if let Some(ordinal) = ordinal {
            if open.last_ordinal.is_some_and(|last| ordinal <= last) {
                let at = open.commit_lsn;
                return Err(format!(
                    "change {ordinal} of {at} after {:?}",
                    open.last_ordinal
                ));
            }
            open.last_ordinal = Some(ordinal);
        }
        if matches!(event.kind, Some(event::Kind::Change(_))) {
            open.changes += 1;
        }
        if keep == Keep::Rows {
            open.events.push(event);
        }
        Ok(())
    }

    fn apply(&mut self, event: Event) -> Result<(), String> {
        match event.kind {
            Some(event::Kind::Relation(relation)) => {
                self.model.relation(relation);
                Ok(())
            }
            Some(event::Kind::Change(change)) => self.model.change(&change),
            Some(event::Kind::Truncate(truncate)) => self.model.truncate(&truncate),
            Some(event::Kind::Message(message)) => {
                self.messages
                    .push((message.prefix, message.content.to_vec()));
                Ok(())
            }
            None => Err("an event of no kind".to_owned()),
        }
    }
}
