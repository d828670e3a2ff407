//! Integration tests on real servers. One binary, so that it is linked once; one module per question.

#![expect(clippy::unwrap_used, reason = "a failing test panics")]

mod main {
    mod access;
    mod bad_input;
    mod catalog;
    mod clients;
    mod combinations;
    mod crash;
    mod decctl;
    mod definitions;
    mod descriptions;
    mod early_streaming;
    mod endpoint;
    mod equality;
    mod extended_protocol;
    mod failover;
    mod failpoints;
    mod filter_paths;
    mod filter_source;
    mod full_disk;
    mod grammar;
    mod grants;
    mod grpc_access;
    mod grpc_services;
    mod harness;
    mod idle;
    mod initial_copy;
    mod interrupted_copy;
    mod large_transaction;
    mod live;
    mod main_path;
    mod native;
    mod order;
    mod origins;
    mod own_publications;
    mod own_subscriptions;
    mod parallel_apply;
    mod publication_sql;
    mod publications;
    mod random_workload;
    mod recvlogical;
    mod replay;
    mod replication_role;
    mod request_filters;
    mod retention;
    mod row_filters;
    mod selection;
    mod selection_random;
    mod slots;
    mod snapshot_rules;
    mod snapshots;
    mod source_faults;
    mod stage;
    mod standby;
    mod stopped_subscriber;
    mod subscription_conflict;
    mod subscription_life;
    mod subscription_options;
    mod two_phase;
    mod undone_definitions;
    mod verify;
}
