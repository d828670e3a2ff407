"""Prints the rows that are inserted, as psycopg's replication connection receives them.

replicate.py PORT SLOT PUBLICATION create|snapshot|resume COUNT

"snapshot": before them those that the snapshot of the new slot shows, read by psycopg 3 on another connection. COUNT
streamed rows are waited for.
"""

import struct
import sys

import psycopg
import psycopg2
from psycopg2.extras import LogicalReplicationConnection, StopReplication

port, slot, publication, mode, count = sys.argv[1:]
left = int(count)

connection = psycopg2.connect(
    host="127.0.0.1",
    port=port,
    user="postgres",
    dbname="postgres",
    connection_factory=LogicalReplicationConnection,
)
cursor = connection.cursor()
if mode != "resume":
    cursor.create_replication_slot(slot, output_plugin="pgoutput")
if mode == "snapshot":
    _, _, snapshot, _ = cursor.fetchone()
    with psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres") as plain:
        plain.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        plain.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        rows = plain.cursor(binary=True)
        for row in rows.execute("SELECT id, coalesce(v, ''), at FROM t WHERE id > %s ORDER BY id", [-1000]):
            print("\t".join(map(str, row)), flush=True)
cursor.start_replication(
    slot_name=slot,
    options={"proto_version": "1", "publication_names": publication},
    decode=False,
)


def values(row):
    """The values of a tuple of which all are text or null."""
    (columns,) = struct.unpack_from(">h", row)
    at = 2
    for _ in range(columns):
        kind = row[at : at + 1]
        at += 1
        if kind == b"t":
            (length,) = struct.unpack_from(">i", row, at)
            yield row[at + 4 : at + 4 + length].decode()
            at += 4 + length
        else:
            yield ""


def consume(message):
    global left
    payload = message.payload
    if payload[:1] == b"I":
        print("\t".join(values(payload[6:])), flush=True)
        left -= 1
    elif payload[:1] == b"C":
        (end,) = struct.unpack_from(">q", payload, 10)
        message.cursor.send_feedback(flush_lsn=end, write_lsn=end, apply_lsn=end, reply=True)
        if left <= 0:
            raise StopReplication


try:
    cursor.consume_stream(consume)
except StopReplication:
    pass
connection.close()
