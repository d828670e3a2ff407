"""The least PostgreSQL client that can record a replication stream: protocol 3, simple queries, trust."""

import socket
import struct


class ServerError(Exception):
    """An ErrorResponse of the server."""


class Connection:
    """One connection over a Unix socket. `replication` makes it a logical walsender connection."""

    def __init__(self, socket_path, replication=False, options=""):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(socket_path)
        self.buffer = b""
        parameters = {"user": "postgres", "database": "postgres", "client_encoding": "UTF8"}
        if options:
            parameters["options"] = options
        if replication:
            parameters["replication"] = "database"
        body = struct.pack(">i", 196608)
        for name, value in parameters.items():
            body += name.encode() + b"\0" + value.encode() + b"\0"
        body += b"\0"
        self.sock.sendall(struct.pack(">i", len(body) + 4) + body)
        self._until_ready()

    def receive(self):
        """The next message: (type, body)."""
        head = self._take(5)
        (length,) = struct.unpack(">i", head[1:])
        return head[:1], self._take(length - 4)

    def query(self, sql):
        """Runs SQL or a replication command; the rows' values as text."""
        self._send(b"Q", sql.encode() + b"\0")
        return self._until_ready()

    def start_copy(self, command):
        """Sends START_REPLICATION; returns in the copy-both phase."""
        self._send(b"Q", command.encode() + b"\0")
        while True:
            kind, body = self.receive()
            if kind == b"W":
                return
            if kind == b"E":
                raise ServerError(error_text(body))

    def status(self, lsn, reply):
        """Reports everything up to `lsn` as flushed, and may ask for an answer."""
        body = b"r" + struct.pack(">QQQqB", lsn, lsn, lsn, 0, 1 if reply else 0)
        self._send(b"d", body)

    def close(self):
        self.sock.close()

    def _send(self, kind, body):
        self.sock.sendall(kind + struct.pack(">i", len(body) + 4) + body)

    def _take(self, count):
        while len(self.buffer) < count:
            chunk = self.sock.recv(1 << 16)
            if not chunk:
                raise EOFError("the server closed the connection")
            self.buffer += chunk
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def _until_ready(self):
        rows, error = [], None
        while True:
            kind, body = self.receive()
            if kind == b"D":
                rows.append(row_values(body))
            elif kind == b"E":
                error = error_text(body)
            elif kind == b"R" and body != b"\0\0\0\0":
                raise ServerError("this client speaks trust authentication only")
            elif kind == b"Z" or (error and kind == b"E" and b"FATAL" in body):
                if error:
                    raise ServerError(error)
                return rows


def row_values(body):
    (columns,) = struct.unpack_from(">h", body)
    at, values = 2, []
    for _ in range(columns):
        (length,) = struct.unpack_from(">i", body, at)
        at += 4
        values.append(None if length < 0 else body[at : at + length].decode())
        at += max(length, 0)
    return values


def error_text(body):
    fields = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
    return f"{fields.get(b'C')}: {fields.get(b'M')} {fields.get(b'D', '')}"
