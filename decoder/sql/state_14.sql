-- The publications as this transaction sees them, on version 14: one value of type jsonb, of the same form as
-- that of later versions. 14 has no column lists, no row filters and no TABLES IN SCHEMA.
-- pg_partition_tree is not used: it locks every partition.
WITH RECURSIVE
  member (publication, relation, relkind) AS (
    SELECT pr.prpubid, c.oid, c.relkind
      FROM pg_catalog.pg_publication_rel pr
      JOIN pg_catalog.pg_class c ON c.oid = pr.prrelid
    UNION
    SELECT m.publication, c.oid, c.relkind
      FROM member m
      JOIN pg_catalog.pg_inherits i ON i.inhparent = m.relation AND NOT i.inhdetachpending
      JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
     WHERE m.relkind = 'p' AND c.relkind IN ('r', 'p')
  ),
  published AS (
    SELECT m.publication,
           pg_catalog.jsonb_agg(
             pg_catalog.jsonb_build_object(
               'oid', c.oid::bigint,
               'schema', n.nspname,
               'name', c.relname,
               'columns', NULL,
               'row_filter', NULL
             )
             ORDER BY c.oid
           ) AS tables
      FROM member m
      JOIN pg_catalog.pg_class c ON c.oid = m.relation
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE m.relkind = 'r' AND c.relpersistence = 'p'
     GROUP BY m.publication
  )
SELECT COALESCE(
         pg_catalog.jsonb_agg(
           pg_catalog.jsonb_build_object(
             'oid', p.oid::bigint,
             'name', p.pubname,
             'all_tables', p.puballtables,
             'schemas', '[]'::jsonb,
             'insert', p.pubinsert,
             'update', p.pubupdate,
             'delete', p.pubdelete,
             'truncate', p.pubtruncate,
             'via_root', p.pubviaroot,
             'generated_columns', false,
             'has_partitioned_root',
               EXISTS (SELECT FROM member m WHERE m.publication = p.oid AND m.relkind = 'p')
               OR (p.puballtables
                   AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relkind = 'p')),
             'tables', COALESCE(t.tables, '[]'::jsonb)
           )
           ORDER BY p.oid
         ),
         '[]'::jsonb
       )
  FROM pg_catalog.pg_publication p
  LEFT JOIN published t ON t.publication = p.oid
