"""Records pgoutput streams of a real server: record MAJOR BIN_DIRECTORY OUTPUT_DIRECTORY

Starts a private cluster in a temporary folder, opens one replication connection for each set of options, runs
the fixed workload, and writes the contents of all CopyData messages of each connection to
OUTPUT_DIRECTORY/MAJOR-NAME.bin: a sequence of (u32 little-endian length, content). OUTPUT_DIRECTORY/MAJOR.tsv
lists the files with their options and how many messages of each kind they hold.
"""

import collections
import os
import pathlib
import pwd
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

from connection import Connection, error_text
from workload import WAIT, setup_sql, steps

DEADLINE_SECONDS = 60
SMALL_MEMORY = "-c logical_decoding_work_mem=64kB"
IMMEDIATE = SMALL_MEMORY + " -c debug_logical_replication_streaming=immediate"

# name: (first version, slot options, start-up options, pgoutput options)
RECORDINGS = {
    "v1": (14, "", "", {"proto_version": 1, "publication_names": "everything"}),
    "v1-binary": (14, "", "", {"proto_version": 1, "publication_names": "everything", "binary": "true", "messages": "true"}),
    "v1-filtered": (15, "", "", {"proto_version": 1, "publication_names": "filtered,odd_schema"}),
    "v1-generated": (18, "", "", {"proto_version": 1, "publication_names": "generated_columns"}),
    "v1-origin-none": (16, "", "", {"proto_version": 1, "publication_names": "everything", "origin": "none"}),
    "v2-streaming": (14, "", SMALL_MEMORY, {"proto_version": 2, "publication_names": "everything", "streaming": "on", "messages": "true"}),
    "v3-two-phase": (15, "TWO_PHASE", SMALL_MEMORY, {"proto_version": 3, "publication_names": "everything", "streaming": "on", "two_phase": "on", "messages": "true"}),
    "v4-parallel": (16, "TWO_PHASE", SMALL_MEMORY, {"proto_version": 4, "publication_names": "everything", "streaming": "parallel", "two_phase": "on", "messages": "true", "origin": "any"}),
    "v4-immediate": (16, "TWO_PHASE", IMMEDIATE, {"proto_version": 4, "publication_names": "everything", "streaming": "parallel", "two_phase": "on", "binary": "true"}),
}


class Cluster:
    """A private server that nobody else can reach: a Unix socket in its own folder."""

    def __init__(self, bin_directory):
        self.bin = pathlib.Path(bin_directory).resolve()
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="decant-record-"))
        self.account = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        if self.account:
            os.chown(self.home, self.account.pw_uid, self.account.pw_gid)
        self.data = self.home / "data"

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self.home)
            raise
        return self

    def _start(self):
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        settings = (
            f"-k {self.home} -c listen_addresses= -c wal_level=logical -c max_prepared_transactions=10"
            " -c max_replication_slots=20 -c max_wal_senders=20 -c fsync=off -c autovacuum=off"
        )
        self._run("pg_ctl", "-D", self.data, "-w", "-l", self.home / "log", "-o", settings, "start")

    def __exit__(self, *_):
        self._run("pg_ctl", "-D", self.data, "-m", "immediate", "stop")
        shutil.rmtree(self.home)

    def connect(self, **options):
        return Connection(str(self.home / ".s.PGSQL.5432"), **options)

    def _run(self, program, *arguments):
        who = {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []} if self.account else {}
        subprocess.run([self.bin / program, *arguments], check=True, cwd=self.home, stdout=subprocess.DEVNULL, **who)


class Recorder(threading.Thread):
    """Receives one stream into memory until it is told to stop."""

    def __init__(self, cluster, major, name):
        super().__init__(daemon=True)
        _, slot_options, startup, self.options = RECORDINGS[name]
        self.slot = name.replace("-", "_")
        self.contents, self.position = [], 0
        self.connection = cluster.connect(replication=True, options=startup)
        options = f"({slot_options}, SNAPSHOT 'nothing')" if slot_options else "NOEXPORT_SNAPSHOT"
        self.connection.query(f"CREATE_REPLICATION_SLOT {self.slot} LOGICAL pgoutput {options}")
        listed = ", ".join(f"{key} '{value}'" for key, value in self.options.items())
        self.connection.start_copy(f"START_REPLICATION SLOT {self.slot} LOGICAL 0/0 ({listed})")

    def run(self):
        try:
            while True:
                kind, body = self.connection.receive()
                if kind == b"E":
                    print(f"{self.slot}: {error_text(body)}", file=sys.stderr)
                if kind != b"d":
                    continue
                self.contents.append(body)
                if body[:1] == b"k":
                    (self.position,) = struct.unpack_from(">Q", body, 1)
        except (EOFError, OSError):
            return

    def wait_for(self, lsn):
        """Returns when all that the WAL holds below `lsn` has been received."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        asked = 0.0
        while self.position < lsn:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.slot} stands at {self.position:X}, waiting for {lsn:X}")
            if time.monotonic() - asked > 1:
                self.connection.status(self.position, reply=True)
                asked = time.monotonic()
            time.sleep(0.01)

    def write(self, path):
        with open(path, "wb") as file:
            for content in self.contents:
                file.write(struct.pack("<I", len(content)) + content)

    def counts(self):
        kinds = collections.Counter()
        for content in self.contents:
            kinds["keepalive" if content[:1] == b"k" else chr(content[25])] += 1
        return kinds


def synchronise(session, recorders):
    # A commit of our own flushes what open transactions have written.
    session.query("select pg_logical_emit_message(true, 'flush', '')")
    ((lsn,),) = session.query("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
    for recorder in recorders:
        recorder.wait_for(int(lsn))


def record(major, bin_directory, output):
    with Cluster(bin_directory) as cluster:
        session, flusher = cluster.connect(), cluster.connect()
        session.query("set check_function_bodies = off")
        for statement in setup_sql(major).split(";\n"):
            if statement.strip():
                session.query(statement)
        names = [name for name, (first, *_) in RECORDINGS.items() if major >= first]
        recorders = {name: Recorder(cluster, major, name) for name in names}
        for recorder in recorders.values():
            recorder.start()
        for step in steps(major):
            if step is WAIT:
                synchronise(flusher, recorders.values())
            else:
                session.query(step)
        synchronise(flusher, recorders.values())
        ((version,),) = session.query("show server_version")
        for recorder in recorders.values():
            recorder.connection.close()
        write(major, version, recorders, output)


def write(major, version, recorders, output):
    output.mkdir(parents=True, exist_ok=True)
    lines = [f"# Recorded from PostgreSQL {version} by tests/scripts/record.", "# file\toptions\tmessages"]
    for name, recorder in recorders.items():
        path = output / f"{major}-{name}.bin"
        recorder.write(path)
        options = " ".join(f"{key}={value}" for key, value in recorder.options.items())
        counts = " ".join(f"{kind}={count}" for kind, count in sorted(recorder.counts().items()))
        lines.append(f"{path.name}\t{options}\t{counts}")
        print(f"{path} {path.stat().st_size} bytes: {counts}")
    (output / f"{major}.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    record(int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]))
