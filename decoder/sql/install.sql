-- What `decctl init` installs in the source database, as a superuser, so that every change of a publication
-- comes through the replication stream in its own place.
--
-- It is sent as one simple query, so that it takes effect as a whole or not at all, and may be run again: it
-- then replaces the functions and keeps the secret. Before it is sent, the line in double braces is replaced
-- by the text of state_14.sql (version 14) or state_15.sql (15 and later).
--
-- A message is the MAC (64 hexadecimal digits) followed by JSON: {"version": 2, "xid": the transaction,
-- "settled": whether no change of a transaction that has ended can be missing, "complete": whether also no
-- transaction is under way that has reported without seeing all, and what the state query gives: "publications": [...], "relations": [...],
-- "collations": [...], "database": {...}}. Any role can write a message with this prefix; the MAC, over a secret that only the owner and the decoder can read, tells the real
-- ones, and the transaction's number makes a copy of an old one worthless.

CREATE SCHEMA IF NOT EXISTS decant;

-- A schema of that name that somebody else made could replace what is made below.
DO $install$
BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_catalog.pg_namespace n
     WHERE n.nspname = 'decant'
       AND pg_catalog.pg_get_userbyid(n.nspowner) = current_user
  ) THEN
    RAISE EXCEPTION 'schema "decant" exists and does not belong to %', current_user
      USING HINT = 'Drop the schema, or run decctl init as its owner.';
  END IF;
END
$install$;

COMMENT ON SCHEMA decant IS 'Decant: reports changes of publications to its decoder';
REVOKE ALL ON SCHEMA decant FROM PUBLIC;

-- A materialized view, because its rows are never replicated, whatever publications there are. Whoever restores
-- a dump of this database gets a secret of his own. REFRESH makes a new one; the decoder then reads it again.
CREATE MATERIALIZED VIEW IF NOT EXISTS decant.secret AS
  SELECT pg_catalog.replace(
           pg_catalog.gen_random_uuid()::text || pg_catalog.gen_random_uuid()::text, '-', ''
         ) AS secret;
REVOKE ALL ON decant.secret FROM PUBLIC;

-- Nothing but a name to take locks on.
CREATE OR REPLACE VIEW decant.emission AS SELECT 'locked by transactions that change publications'::text AS note;
REVOKE ALL ON decant.emission FROM PUBLIC;

-- Set after every message, see decant.emit.
CREATE SEQUENCE IF NOT EXISTS decant.spacer;
REVOKE ALL ON decant.spacer FROM PUBLIC;

-- The publications. Settings that change how PostgreSQL prints an expression are fixed.
CREATE OR REPLACE FUNCTION decant.publication_state() RETURNS jsonb
  LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp
  SET datestyle = 'ISO, MDY'
  SET intervalstyle = 'postgres'
  SET timezone = 'UTC'
  SET extra_float_digits = 3
  SET bytea_output = 'hex'
  SET lc_monetary = 'C'
  SET quote_all_identifiers = off
  SET standard_conforming_strings = on
  -- The planner takes the query for a long one.
  SET jit = off
AS $state$
{{publication_state}}
$state$;

-- Whether this transaction's view of the publications can miss no change of another: it waits a moment for
-- those that changed publications and have not ended. Transactions that change publications exclude each other;
-- `everybody` excludes also those that could not wait. The wait is shorter than PostgreSQL's deadlock_timeout, so
-- that DDL never fails because of it; who can't wait says so in his message, and the decoder asks again later.
CREATE OR REPLACE FUNCTION decant.settle(everybody boolean) RETURNS boolean
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
  SET lock_timeout = '250ms'
AS $settle$
BEGIN
  BEGIN
    IF everybody THEN
      LOCK TABLE decant.emission IN SHARE ROW EXCLUSIVE MODE;
    ELSE
      LOCK TABLE decant.emission IN SHARE UPDATE EXCLUSIVE MODE;
    END IF;
    -- A transaction with one snapshot for all statements can't see what it has waited for.
    RETURN current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
  BEGIN
    LOCK TABLE decant.emission IN ROW EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    NULL;
  END;
  RETURN false;
END
$settle$;

-- Writes the message; its position.
CREATE OR REPLACE FUNCTION decant.emit(everybody boolean) RETURNS pg_lsn
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
AS $emit$
DECLARE
  -- SQL_ASCII has no conversion: the bytes are what they are.
  encoding CONSTANT name := CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END;
  settled CONSTANT boolean := decant.settle(everybody);
  body bytea;
  mac bytea;
  written pg_lsn;
BEGIN
  body := convert_to(
    (jsonb_build_object(
      'version', 2,
      'xid', pg_current_xact_id()::text::bigint,
      -- The newest transaction id that this session holds: that of the subtransaction that was left unfinished last, or of
      -- one inside it that ends with it. A stream of changes before a commit does not tell whose a message is.
      'subxid', (SELECT l.transactionid::text::bigint FROM pg_locks l
                  WHERE l.pid = pg_backend_pid() AND l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
                  ORDER BY age(l.transactionid) LIMIT 1),
      'settled', settled,
      'complete', settled AND everybody
    ) || decant.publication_state())::text,
    encoding
  );
  SELECT sha256(convert_to(s.secret, 'UTF8') || body) INTO STRICT mac FROM decant.secret s;
  written := pg_logical_emit_message(true, 'decant', convert_to(encode(mac, 'hex'), 'UTF8') || body);
  -- Logical decoding merges a transaction and its subtransactions by position, and takes for a message the end of
  -- its record, where the next record begins: a row that follows at once in another (sub)transaction could come
  -- first. The WAL record of a sequence lies between them and is never decoded.
  PERFORM setval('decant.spacer', 1);
  RETURN written;
END
$emit$;

-- What the decoder calls on every connection and whenever it needs to be sure.
CREATE OR REPLACE FUNCTION decant.emit_catalog() RETURNS pg_lsn
  LANGUAGE sql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
AS $emit_catalog$ SELECT decant.emit(true) $emit_catalog$;

-- Has states describe further relations, given by their numbers: those of publications of Decant's own, of which the source
-- knows nothing else. They are kept by the name of who asks, its slot, in a comment, which is never replicated, whatever
-- publications there are.
CREATE OR REPLACE FUNCTION decant.describe(slot text, relations text) RETURNS void
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
AS $describe$
DECLARE
  known CONSTANT jsonb := COALESCE(obj_description('decant.spacer'::regclass, 'pg_class'), '{}')::jsonb;
  wanted CONSTANT jsonb := CASE relations WHEN '' THEN known - slot ELSE known || jsonb_build_object(slot, relations) END;
BEGIN
  IF relations !~ '^[0-9 ]*$' THEN
    RAISE EXCEPTION 'numbers of relations are expected, not %', relations;
  END IF;
  IF known <> wanted THEN
    EXECUTE format('COMMENT ON SEQUENCE decant.spacer IS %L', wanted);
  END IF;
END
$describe$;

CREATE OR REPLACE FUNCTION decant.own_relations() RETURNS SETOF oid
  LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp
AS $own_relations$
  SELECT unnest(string_to_array((
           SELECT string_agg(asked.relations, ' ')
             FROM jsonb_each_text(COALESCE(obj_description('decant.spacer'::regclass, 'pg_class'), '{}')::jsonb)
                  AS asked (slot, relations)
         ), ' ')::oid[])
$own_relations$;

-- Whether a command that created or altered this relation can have changed what is published. A new partition
-- is published if one above it is; a renamed column changes lists and filters of those below.
CREATE OR REPLACE FUNCTION decant.relation_matters(relation oid, tag text) RETURNS boolean
  LANGUAGE plpgsql STABLE
  SET search_path = pg_catalog, pg_temp
AS $relation_matters$
DECLARE
  kind "char";
  partition boolean;
  old_version CONSTANT boolean := current_setting('server_version_num')::int < 160000;
BEGIN
  SELECT c.relkind, c.relispartition INTO kind, partition
    FROM pg_class c
   WHERE c.oid = relation AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p';
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF kind = 'p' AND tag <> 'ALTER TABLE' AND EXISTS (SELECT FROM pg_publication p WHERE p.puballtables) THEN
    RETURN true;
  END IF;
  IF (kind = 'p' OR partition OR (old_version AND tag = 'ALTER TABLE')) AND decant.publishes_schemas() THEN
    RETURN true;
  END IF;
  IF (kind = 'p' OR partition) AND decant.publishes_all_roots() THEN
    RETURN true;
  END IF;
  IF decant.publishes_generated_columns()
     AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = relation AND a.attgenerated = 's') THEN
    RETURN true;
  END IF;
  RETURN EXISTS (
    WITH RECURSIVE
      above (oid) AS (
        SELECT relation
        UNION
        SELECT i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.oid
      ),
      below (oid) AS (
        SELECT relation
        UNION
        SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid
      )
    SELECT FROM (SELECT pr.prrelid FROM pg_publication_rel pr UNION ALL SELECT decant.own_relations()) AS named (oid)
     WHERE named.oid IN (SELECT a.oid FROM above a UNION ALL SELECT b.oid FROM below b)
  );
END
$relation_matters$;

-- Whether there is a publication of TABLES IN SCHEMA; version 14 has none.
CREATE OR REPLACE FUNCTION decant.publishes_schemas() RETURNS boolean
  LANGUAGE plpgsql STABLE
  SET search_path = pg_catalog, pg_temp
AS $publishes_schemas$
BEGIN
  IF current_setting('server_version_num')::int < 150000 THEN
    RETURN false;
  END IF;
  RETURN EXISTS (SELECT FROM pg_publication_namespace);
END
$publishes_schemas$;

-- Whether every partitioned table is published via its root by some publication.
CREATE OR REPLACE FUNCTION decant.publishes_all_roots() RETURNS boolean
  LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp
AS $publishes_all_roots$
  SELECT EXISTS (SELECT FROM pg_publication p WHERE p.puballtables AND p.pubviaroot)
$publishes_all_roots$;

-- Whether there is a publication of stored generated columns; versions before 18 have none.
CREATE OR REPLACE FUNCTION decant.publishes_generated_columns() RETURNS boolean
  LANGUAGE plpgsql STABLE
  SET search_path = pg_catalog, pg_temp
AS $publishes_generated_columns$
BEGIN
  IF current_setting('server_version_num')::int < 180000 THEN
    RETURN false;
  END IF;
  RETURN EXISTS (SELECT FROM pg_publication p WHERE p.pubgencols <> 'n');
END
$publishes_generated_columns$;

-- Whether one object that a command created or altered can have changed what is published.
CREATE OR REPLACE FUNCTION decant.change_matters(kind text, object oid, class oid, tag text) RETURNS boolean
  LANGUAGE plpgsql STABLE
  SET search_path = pg_catalog, pg_temp
AS $change_matters$
BEGIN
  IF kind IN ('publication', 'publication relation', 'publication namespace') THEN
    RETURN true;
  ELSIF tag = 'ALTER TYPE' THEN
    -- RENAME ATTRIBUTE ... CASCADE renames columns of typed tables.
    RETURN EXISTS (
      SELECT FROM pg_publication_rel pr
        JOIN pg_class typed ON typed.oid = pr.prrelid
        JOIN pg_type t ON t.oid = typed.reloftype
       WHERE object IN (t.oid, t.typrelid)
    );
  ELSIF class = 'pg_class'::regclass THEN
    RETURN decant.relation_matters(object, tag);
  ELSIF kind = 'schema' THEN
    RETURN tag = 'ALTER SCHEMA'
       AND (decant.publishes_schemas() OR EXISTS (SELECT FROM pg_publication_rel)
            OR EXISTS (SELECT FROM decant.own_relations()));
  END IF;
  RETURN false;
END
$change_matters$;

-- The tags for which ddl_command_end is looked at; the event trigger below has the same list.
CREATE OR REPLACE FUNCTION decant.watched_tags() RETURNS text[]
  LANGUAGE sql IMMUTABLE
AS $watched_tags$
  SELECT ARRAY['ALTER PUBLICATION', 'ALTER SCHEMA', 'ALTER TABLE', 'ALTER TYPE', 'CREATE PUBLICATION',
               'CREATE SCHEMA', 'CREATE TABLE']
$watched_tags$;

CREATE OR REPLACE FUNCTION decant.on_ddl_command_end() RETURNS event_trigger
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
AS $on_ddl_command_end$
BEGIN
  IF EXISTS (
    SELECT FROM pg_event_trigger_ddl_commands() d
     WHERE decant.change_matters(d.object_type, d.objid, d.classid, tg_tag)
  ) THEN
    PERFORM decant.emit(false);
  END IF;
EXCEPTION WHEN OTHERS THEN
  -- The user's command must not fail because of Decant. The decoder compares from time to time.
  RAISE WARNING 'decant: the change of publications by % was not reported: %', tg_tag, sqlerrm
    USING HINT = 'The decoder will notice it some seconds later.';
END
$on_ddl_command_end$;

-- Drops come here only: by DROP, by ALTER PUBLICATION ... DROP, and by CASCADE of anything. If the same command
-- is reported at its end as well, it is left to that.
CREATE OR REPLACE FUNCTION decant.on_sql_drop() RETURNS event_trigger
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
AS $on_sql_drop$
BEGIN
  IF tg_tag = ANY (decant.watched_tags()) AND EXISTS (
    SELECT FROM pg_event_trigger_ddl_commands() d
     WHERE decant.change_matters(d.object_type, d.objid, d.classid, tg_tag)
  ) THEN
    RETURN;
  END IF;
  IF EXISTS (
    SELECT FROM pg_event_trigger_dropped_objects() o
     WHERE o.object_type IN ('publication', 'publication relation', 'publication namespace')
        -- It can have been a partition: of what, is gone.
        OR (o.object_type = 'table'
            AND NOT o.is_temporary
            AND (EXISTS (SELECT FROM pg_publication_rel pr
                           JOIN pg_class c ON c.oid = pr.prrelid AND c.relkind = 'p')
                 OR EXISTS (SELECT FROM decant.own_relations() AS named (oid)
                              JOIN pg_class c ON c.oid = named.oid AND c.relkind = 'p')
                 OR ((decant.publishes_schemas() OR decant.publishes_all_roots())
                     AND EXISTS (SELECT FROM pg_class c WHERE c.relkind = 'p'))))
        -- A column that was a generated one, or is none any more.
        OR (o.object_type IN ('table column', 'default value') AND decant.publishes_generated_columns())
        -- It can have been a root's replica identity.
        OR (o.object_type = 'index'
            AND (EXISTS (SELECT FROM pg_publication p WHERE p.pubviaroot)
                 OR EXISTS (SELECT FROM decant.own_relations()))
            AND EXISTS (SELECT FROM pg_class c WHERE c.relkind = 'p'))
  ) THEN
    PERFORM decant.emit(false);
  END IF;
EXCEPTION WHEN OTHERS THEN
  RAISE WARNING 'decant: the change of publications by % was not reported: %', tg_tag, sqlerrm
    USING HINT = 'The decoder will notice it some seconds later.';
END
$on_sql_drop$;

-- What a decoder that is not the owner needs.
CREATE OR REPLACE FUNCTION decant.grant_to_decoder(role_name name) RETURNS void
  LANGUAGE plpgsql VOLATILE
  SET search_path = pg_catalog, pg_temp
AS $grant_to_decoder$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA decant TO %I', role_name);
  EXECUTE format('GRANT SELECT ON decant.secret TO %I', role_name);
  EXECUTE format('GRANT EXECUTE ON FUNCTION decant.emit_catalog(), decant.publication_state(), decant.describe(text, text) TO %I', role_name);
END
$grant_to_decoder$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA decant FROM PUBLIC;

-- ALWAYS: also in sessions that replay somebody else's changes (session_replication_role = replica).
DROP EVENT TRIGGER IF EXISTS decant_ddl_command_end;
CREATE EVENT TRIGGER decant_ddl_command_end ON ddl_command_end
  WHEN TAG IN ('ALTER PUBLICATION', 'ALTER SCHEMA', 'ALTER TABLE', 'ALTER TYPE', 'CREATE PUBLICATION',
               'CREATE SCHEMA', 'CREATE TABLE')
  EXECUTE FUNCTION decant.on_ddl_command_end();
ALTER EVENT TRIGGER decant_ddl_command_end ENABLE ALWAYS;

DROP EVENT TRIGGER IF EXISTS decant_sql_drop;
CREATE EVENT TRIGGER decant_sql_drop ON sql_drop EXECUTE FUNCTION decant.on_sql_drop();
ALTER EVENT TRIGGER decant_sql_drop ENABLE ALWAYS;
