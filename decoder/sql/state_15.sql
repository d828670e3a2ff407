-- The publications as this transaction sees them, on version 15 and later: one value of type jsonb.
--
-- "tables" has what membership can't be seen of in the stream itself:
--   * the tables that a publication names, with their column lists and row filters;
--   * in place of a partitioned table its leaves, also those in schemas that are not published;
--   * on version 15 every table of a published schema, because ALTER SCHEMA RENAME does not make that
--     version say its tables' new schema.
-- Members of FOR ALL TABLES, and of TABLES IN SCHEMA from 16 on, are known by their own RELATION messages.
-- pg_partition_tree is not used: it locks every partition.
WITH RECURSIVE
  member (publication, relation, relkind) AS (
    SELECT pr.prpubid, c.oid, c.relkind
      FROM pg_catalog.pg_publication_rel pr
      JOIN pg_catalog.pg_class c ON c.oid = pr.prrelid
    UNION
    SELECT pn.pnpubid, c.oid, c.relkind
      FROM pg_catalog.pg_publication_namespace pn
      JOIN pg_catalog.pg_class c ON c.relnamespace = pn.pnnspid
     WHERE c.relkind = 'p'
        OR (c.relkind = 'r' AND pg_catalog.current_setting('server_version_num')::int < 160000)
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
               'columns', (
                 SELECT pg_catalog.jsonb_agg(a.attname ORDER BY a.attnum)
                   FROM pg_catalog.pg_attribute a
                  WHERE a.attrelid = pr.prrelid AND a.attnum = ANY (pr.prattrs)
               ),
               -- A published schema wins over the filter of a table in it.
               'row_filter', CASE WHEN pn.oid IS NULL THEN
                 pg_catalog.pg_get_expr(pr.prqual, pr.prrelid)
               END
             )
             ORDER BY c.oid
           ) AS tables
      FROM member m
      JOIN pg_catalog.pg_class c ON c.oid = m.relation
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_publication_rel pr
        ON pr.prpubid = m.publication AND pr.prrelid = m.relation
      LEFT JOIN pg_catalog.pg_publication_namespace pn
        ON pn.pnpubid = m.publication AND pn.pnnspid = c.relnamespace
     WHERE m.relkind = 'r'
       AND c.relpersistence = 'p'
       AND (pr.oid IS NOT NULL
            OR pn.oid IS NULL
            OR pg_catalog.current_setting('server_version_num')::int < 160000)
     GROUP BY m.publication
  )
SELECT COALESCE(
         pg_catalog.jsonb_agg(
           pg_catalog.jsonb_build_object(
             'oid', p.oid::bigint,
             'name', p.pubname,
             'all_tables', p.puballtables,
             'schemas', COALESCE(
               (SELECT pg_catalog.jsonb_agg(n.nspname ORDER BY n.nspname)
                  FROM pg_catalog.pg_publication_namespace pn
                  JOIN pg_catalog.pg_namespace n ON n.oid = pn.pnnspid
                 WHERE pn.pnpubid = p.oid),
               '[]'::jsonb
             ),
             'insert', p.pubinsert,
             'update', p.pubupdate,
             'delete', p.pubdelete,
             'truncate', p.pubtruncate,
             'via_root', p.pubviaroot,
             -- By its name in JSON: the column exists from version 18 on.
             'generated_columns',
               COALESCE(pg_catalog.to_jsonb(p) OPERATOR(pg_catalog.->>) 'pubgencols', 'n') <> 'n',
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
