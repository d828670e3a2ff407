-- Takes away what install.sql has made. The decoder then polls, if it goes on.
DROP EVENT TRIGGER IF EXISTS decant_sql_drop;
DROP EVENT TRIGGER IF EXISTS decant_ddl_command_end;
DROP SCHEMA IF EXISTS decant CASCADE;
