-- What this transaction sees of publications, on version 14: one value of type jsonb, of the same form as
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
               'partitioned', c.relkind = 'p',
               'named', pr.oid IS NOT NULL,
               'columns', NULL,
               'row_filter', NULL,
               'row_filter_tree', NULL
             )
             ORDER BY c.oid
           ) AS tables
      FROM member m
      JOIN pg_catalog.pg_class c ON c.oid = m.relation
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_publication_rel pr
        ON pr.prpubid = m.publication AND pr.prrelid = m.relation
     WHERE c.relpersistence = 'p' AND (m.relkind = 'r' OR pr.oid IS NOT NULL)
     GROUP BY m.publication
  ),
  -- What publications of Decant's own name, and partitions below: see decant.describe. Without event triggers the
  -- decoder says it in a setting of its session.
  own_relation (oid) AS (
    SELECT named.oid
      FROM pg_catalog.unnest(pg_catalog.string_to_array((
             SELECT pg_catalog.string_agg(asked.relations, ' ')
               FROM pg_catalog.jsonb_each_text(
                      pg_catalog.jsonb_build_object('', pg_catalog.current_setting('decant.own_relations', true))
                      || COALESCE(
                           pg_catalog.obj_description(pg_catalog.to_regclass('decant.spacer')::pg_catalog.oid, 'pg_class'), '{}'
                         )::jsonb
                    ) AS asked (slot, relations)
              WHERE asked.relations <> ''
           ), ' ')::pg_catalog.oid[]) AS named (oid)
    UNION
    SELECT i.inhrelid
      FROM own_relation o
      JOIN pg_catalog.pg_inherits i ON i.inhparent = o.oid AND NOT i.inhdetachpending
      JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
  ),
  described (oid) AS (
    SELECT o.oid FROM own_relation o
    UNION
    SELECT m.relation
      FROM member m
      JOIN pg_catalog.pg_publication p ON p.oid = m.publication AND p.pubviaroot
      JOIN pg_catalog.pg_class c ON c.oid = m.relation AND (c.relispartition OR c.relkind = 'p')
    UNION
    SELECT c.oid
      FROM pg_catalog.pg_class c
     WHERE c.relkind IN ('r', 'p')
       AND (c.relispartition OR c.relkind = 'p')
       AND EXISTS (SELECT FROM pg_catalog.pg_publication p WHERE p.puballtables AND p.pubviaroot)
  ),
  relation_facts AS (
    SELECT pg_catalog.jsonb_agg(
             pg_catalog.jsonb_build_object(
               'oid', c.oid::bigint,
               'schema', n.nspname,
               'name', c.relname,
               'partitioned', c.relkind = 'p',
               'replica_identity', c.relreplident,
               -- Dropped ones counted.
               'attribute_count', c.relnatts,
               -- The parent first, the root last.
               'ancestors', COALESCE((
                 WITH RECURSIVE up (oid, level) AS (
                   SELECT i.inhparent, 1
                     FROM pg_catalog.pg_inherits i
                    WHERE i.inhrelid = c.oid AND c.relispartition AND NOT i.inhdetachpending
                   UNION ALL
                   SELECT i.inhparent, u.level + 1
                     FROM up u
                     JOIN pg_catalog.pg_class parent ON parent.oid = u.oid AND parent.relispartition
                     JOIN pg_catalog.pg_inherits i ON i.inhrelid = u.oid AND NOT i.inhdetachpending
                 )
                 SELECT pg_catalog.jsonb_agg(u.oid::bigint ORDER BY u.level) FROM up u
               ), '[]'::jsonb),
               -- Number, name, type, its modifier, collation, whether generated, whether in the replica identity.
               -- Left out of a partition in which that is no more than its RELATION message says.
               'attributes', (
                 SELECT pg_catalog.jsonb_agg(
                          pg_catalog.jsonb_build_array(
                            a.attnum, a.attname, a.atttypid::bigint, a.atttypmod, a.attcollation::bigint,
                            a.attgenerated,
                            c.relreplident = 'f' OR EXISTS (
                              SELECT FROM pg_catalog.pg_index x
                               WHERE x.indrelid = c.oid
                                 AND a.attnum = ANY (x.indkey)
                                 AND CASE c.relreplident
                                       WHEN 'd' THEN x.indisprimary AND x.indimmediate
                                       WHEN 'i' THEN x.indisreplident
                                       ELSE false
                                     END
                            )
                          )
                          ORDER BY a.attnum
                        )
                   FROM pg_catalog.pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                    AND (c.relkind = 'p'
                         OR c.oid IN (SELECT o.oid FROM own_relation o)
                         OR EXISTS (
                           SELECT FROM pg_catalog.pg_attribute odd
                            WHERE odd.attrelid = c.oid AND odd.attnum > 0
                              AND (odd.attisdropped OR odd.attgenerated <> '')
                         ))
               )
             )
             ORDER BY c.oid
           ) AS relations
      FROM described s
      JOIN pg_catalog.pg_class c ON c.oid = s.oid AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  ),
  this_database AS (
    SELECT pg_catalog.jsonb_build_object(
             'encoding', pg_catalog.getdatabaseencoding(),
             'provider', COALESCE(pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'datlocprovider', 'c'),
             'collate', d.datcollate,
             'ctype', d.datctype,
             'locale', COALESCE(
               pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'datlocale',
               pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'daticulocale'
             )
           ) AS facts
      FROM pg_catalog.pg_database d
     WHERE d.datname = pg_catalog.current_database()
  ),
  stated AS (
    SELECT pg_catalog.jsonb_agg(
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
           ) AS publications
      FROM pg_catalog.pg_publication p
      LEFT JOIN published t ON t.publication = p.oid
  )
SELECT pg_catalog.jsonb_build_object(
         'publications', COALESCE(s.publications, '[]'::jsonb),
         'relations', COALESCE(r.relations, '[]'::jsonb),
         'collations', '[]'::jsonb,
         'database', d.facts
       )
  FROM stated s, relation_facts r, this_database d
