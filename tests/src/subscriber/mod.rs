//! Those who receive: a PostgreSQL subscriber, `pg_recvlogical`, a client of the replication protocol that keeps
//! every message, and a gRPC subscriber with a model of the tables.

mod grpc;
mod model;
mod pieces;
mod postgres;
mod received;
mod recvlogical;
mod replication;
mod stream;

pub use grpc::{GrpcSubscriber, Keep, from_lsn, from_slot, tables};
pub use model::TableModel;
pub use pieces::{Piece, PieceClient, Unit, is_schema};
pub use postgres::PostgresSubscriber;
pub use received::Received;
pub use recvlogical::RecvLogical;
pub use replication::when_free;
pub use stream::{StreamClient, Transaction};
