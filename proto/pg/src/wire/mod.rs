//! The frames of PostgreSQL's protocol 3 (`protocol.sgml`).
