//! The targets.

mod catalog;
mod columns;
mod filters;
mod log;
mod pgoutput;
mod requests;
mod settings;
mod wire;

use crate::Target;

/// What takes no memory but what it returns.
const SMALL: usize = 64 << 10;
/// What opens a log: a preallocated segment, decompressed blocks, windows.
const LARGE: usize = 48 << 20;

/// All of them.
pub static TARGETS: &[Target] = &[
    Target {
        name: "pgoutput",
        run: pgoutput::run,
        seeds: pgoutput::seeds,
        memory_bytes: SMALL,
    },
    Target {
        name: "stream",
        run: pgoutput::run_stream,
        seeds: pgoutput::seeds_of_streams,
        memory_bytes: LARGE,
    },
    Target {
        name: "columns",
        run: columns::run,
        seeds: columns::seeds,
        memory_bytes: LARGE,
    },
    Target {
        name: "backend",
        run: wire::run_backend,
        seeds: wire::seeds_of_backend,
        memory_bytes: SMALL,
    },
    Target {
        name: "frontend",
        run: wire::run_frontend,
        seeds: wire::seeds_of_frontend,
        memory_bytes: SMALL,
    },
    Target {
        name: "startup",
        run: wire::run_startup,
        seeds: wire::seeds_of_startup,
        memory_bytes: SMALL,
    },
    Target {
        name: "scram",
        run: settings::run_scram,
        seeds: settings::seeds_of_scram,
        memory_bytes: SMALL,
    },
    Target {
        name: "grammar",
        run: requests::run_grammar,
        seeds: requests::seeds_of_grammar,
        memory_bytes: SMALL,
    },
    Target {
        name: "statement",
        run: requests::run_statement,
        seeds: requests::seeds_of_statements,
        memory_bytes: SMALL,
    },
    Target {
        name: "grpc",
        run: requests::run_grpc,
        seeds: requests::seeds_of_grpc,
        memory_bytes: SMALL,
    },
    Target {
        name: "active_segment",
        run: log::run_active,
        seeds: log::seeds_of_active,
        memory_bytes: LARGE,
    },
    Target {
        name: "sealed_segment",
        run: log::run_sealed,
        seeds: log::seeds_of_sealed,
        memory_bytes: LARGE,
    },
    Target {
        name: "index",
        run: log::run_index,
        seeds: log::seeds_of_index,
        memory_bytes: SMALL,
    },
    Target {
        name: "names",
        run: log::run_names,
        seeds: log::seeds_of_names,
        memory_bytes: LARGE,
    },
    Target {
        name: "watermark",
        run: log::run_watermark,
        seeds: log::seeds_of_watermark,
        memory_bytes: SMALL,
    },
    Target {
        name: "prepared",
        run: log::run_prepared,
        seeds: log::seeds_of_prepared,
        memory_bytes: LARGE,
    },
    Target {
        name: "publication_versions",
        run: log::run_versions,
        seeds: log::seeds_of_versions,
        memory_bytes: LARGE,
    },
    Target {
        name: "catalog_records",
        run: catalog::run_records,
        seeds: catalog::seeds_of_records,
        memory_bytes: SMALL,
    },
    Target {
        name: "catalog_messages",
        run: catalog::run_messages,
        seeds: catalog::seeds_of_messages,
        memory_bytes: SMALL,
    },
    Target {
        name: "registry",
        run: catalog::run_registry,
        seeds: catalog::seeds_of_registry,
        memory_bytes: SMALL,
    },
    Target {
        name: "filter_tree",
        run: filters::run_tree,
        seeds: filters::seeds_of_trees,
        memory_bytes: SMALL,
    },
    Target {
        name: "filter_values",
        run: filters::run_values,
        seeds: filters::seeds_of_values,
        memory_bytes: SMALL,
    },
    Target {
        name: "configuration",
        run: settings::run_configuration,
        seeds: settings::seeds_of_configuration,
        memory_bytes: SMALL,
    },
    Target {
        name: "users_and_grants",
        run: settings::run_users_and_grants,
        seeds: settings::seeds_of_users_and_grants,
        memory_bytes: SMALL,
    },
];
