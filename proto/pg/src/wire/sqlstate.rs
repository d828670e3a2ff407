//! The error codes that this system raises or looks for (`errcodes.txt`).

/// `successful_completion`.
pub const SUCCESSFUL_COMPLETION: &str = "00000";
/// `warning`.
pub const WARNING: &str = "01000";
/// `connection_failure`.
pub const CONNECTION_FAILURE: &str = "08006";
/// `protocol_violation`.
pub const PROTOCOL_VIOLATION: &str = "08P01";
/// `feature_not_supported`.
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
/// `invalid_parameter_value`.
pub const INVALID_PARAMETER_VALUE: &str = "22023";
/// `active_sql_transaction`: the command can't run inside a transaction block.
pub const ACTIVE_SQL_TRANSACTION: &str = "25001";
/// `in_failed_sql_transaction`.
pub const IN_FAILED_SQL_TRANSACTION: &str = "25P02";
/// `invalid_authorization_specification`.
pub const INVALID_AUTHORIZATION_SPECIFICATION: &str = "28000";
/// `invalid_password`.
pub const INVALID_PASSWORD: &str = "28P01";
/// `invalid_catalog_name`: no such database.
pub const INVALID_CATALOG_NAME: &str = "3D000";
/// `insufficient_privilege`.
pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// `syntax_error`.
pub const SYNTAX_ERROR: &str = "42601";
/// `invalid_name`.
pub const INVALID_NAME: &str = "42602";
/// `name_too_long`.
pub const NAME_TOO_LONG: &str = "42622";
/// `undefined_object`: a slot or a publication does not exist.
pub const UNDEFINED_OBJECT: &str = "42704";
/// `duplicate_object`: a slot exists.
pub const DUPLICATE_OBJECT: &str = "42710";
/// `undefined_table`.
pub const UNDEFINED_TABLE: &str = "42P01";
/// `disk_full`.
pub const DISK_FULL: &str = "53100";
/// `too_many_connections`.
pub const TOO_MANY_CONNECTIONS: &str = "53300";
/// `configuration_limit_exceeded`: all slots are in use.
pub const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";
/// `object_not_in_prerequisite_state`: a slot can't serve what was asked.
pub const OBJECT_NOT_IN_PREREQUISITE_STATE: &str = "55000";
/// `object_in_use`: a slot is active.
pub const OBJECT_IN_USE: &str = "55006";
/// `query_canceled`.
pub const QUERY_CANCELED: &str = "57014";
/// `admin_shutdown`.
pub const ADMIN_SHUTDOWN: &str = "57P01";
/// `crash_shutdown`.
pub const CRASH_SHUTDOWN: &str = "57P02";
/// `cannot_connect_now`: starting up or shutting down.
pub const CANNOT_CONNECT_NOW: &str = "57P03";
/// `idle_session_timeout`.
pub const IDLE_SESSION_TIMEOUT: &str = "57P05";
/// `undefined_file`.
pub const UNDEFINED_FILE: &str = "58P01";
/// `internal_error`.
pub const INTERNAL_ERROR: &str = "XX000";
/// `program_limit_exceeded`.
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
