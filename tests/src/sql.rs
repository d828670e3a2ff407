//! Sessions on servers, and on fanouts in place of servers.

use std::fmt;
use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One row, values as text.
pub type Row = Vec<Option<String>>;

/// Where and as whom to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Port on 127.0.0.1.
    pub port: u16,
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// Further parameters for libpq, such as a password. [`Session`] does not know them.
    pub parameters: String,
}

impl Endpoint {
    /// User postgres, database postgres.
    pub fn new(port: u16) -> Self {
        Self {
            port,
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            parameters: String::new(),
        }
    }

    /// As libpq wants it. The last of two equal parameters counts.
    pub fn conninfo(&self) -> String {
        format!(
            "host=127.0.0.1 port={} user={} dbname={} {}",
            self.port, self.user, self.database, self.parameters
        )
    }
}

/// What a server answered instead of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// SQLSTATE, or empty when the connection failed.
    pub code: String,
    /// The message with detail and hint.
    pub message: String,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

impl From<io::Error> for SqlError {
    fn from(error: io::Error) -> Self {
        Self {
            code: String::new(),
            message: error.to_string(),
        }
    }
}

/// One connection. The least that a test needs of a client and no code of the programs under test, so that a
/// mistake in those can't hide itself.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Session {
    /// An ordinary session.
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, SqlError> {
        Self::connect_with(endpoint, &[]).await
    }

    /// A session that also takes replication commands.
    pub async fn connect_for_replication(endpoint: &Endpoint) -> Result<Self, SqlError> {
        Self::connect_with(endpoint, &[("replication", "database")]).await
    }

    /// A session with further start-up parameters.
    pub async fn connect_with(
        endpoint: &Endpoint,
        parameters: &[(&str, &str)],
    ) -> Result<Self, SqlError> {
        let stream = TcpStream::connect(("127.0.0.1", endpoint.port)).await?;
        stream.set_nodelay(true)?;
        let mut session = Self {
            stream,
            buffer: BytesMut::new(),
        };
        let fixed = [
            ("user", endpoint.user.as_str()),
            ("database", endpoint.database.as_str()),
            ("client_encoding", "UTF8"),
            ("application_name", "decant_tests"),
        ];
        let mut body = BytesMut::new();
        body.put_i32(196_608);
        for (name, value) in fixed.iter().chain(parameters) {
            put_text(&mut body, name);
            put_text(&mut body, value);
        }
        body.put_u8(0);
        let mut frame = BytesMut::new();
        frame.put_i32(i32::try_from(body.len() + 4).expect("short"));
        frame.extend_from_slice(&body);
        session.stream.write_all(&frame).await?;
        session.until_ready().await?;
        Ok(session)
    }

    /// Runs SQL; the rows of all statements.
    pub async fn try_run(&mut self, sql: &str) -> Result<Vec<Row>, SqlError> {
        let mut body = BytesMut::new();
        put_text(&mut body, sql);
        self.send(b'Q', &body).await?;
        self.until_ready().await
    }

    /// Sends a command and returns the messages of the answer, by type and content, up to the one that says that the
    /// server is ready again, or to the end of the connection.
    pub async fn exchange(&mut self, command: &str) -> Result<Vec<(u8, Bytes)>, SqlError> {
        let mut body = BytesMut::new();
        put_text(&mut body, command);
        self.send(b'Q', &body).await?;
        let mut messages = Vec::new();
        loop {
            match self.receive().await {
                Ok(message) => messages.push(message),
                Err(_) => return Ok(messages),
            }
            if messages.last().is_some_and(|(kind, _)| *kind == b'Z') {
                return Ok(messages);
            }
        }
    }

    /// Runs SQL that must succeed.
    pub async fn run(&mut self, sql: &str) -> Vec<Row> {
        self.try_run(sql)
            .await
            .unwrap_or_else(|error| panic!("{error}\nin: {sql}"))
    }

    /// The only value that a query returns.
    pub async fn value(&mut self, sql: &str) -> String {
        let rows = self.run(sql).await;
        match rows.as_slice() {
            [row] if row.len() == 1 => row[0].clone().unwrap_or_default(),
            _ => panic!("expected one value, got {rows:?}\nfrom: {sql}"),
        }
    }

    /// Sends START_REPLICATION and returns when the stream has begun.
    pub async fn start_copy(&mut self, command: &str) -> Result<(), SqlError> {
        let mut body = BytesMut::new();
        put_text(&mut body, command);
        self.send(b'Q', &body).await?;
        loop {
            match self.receive().await? {
                (b'W', _) => return Ok(()),
                (b'E', body) => return Err(parse_error(body)),
                _ => {}
            }
        }
    }

    /// The next CopyData content; `None` when the server has ended the stream.
    pub async fn copy_data(&mut self) -> Result<Option<Bytes>, SqlError> {
        loop {
            match self.receive().await? {
                (b'd', content) => return Ok(Some(content)),
                (b'E', body) => return Err(parse_error(body)),
                (b'c' | b'C' | b'Z', _) => return Ok(None),
                _ => {}
            }
        }
    }

    /// Sends CopyData.
    pub async fn send_copy_data(&mut self, content: &[u8]) -> Result<(), SqlError> {
        self.send(b'd', content).await
    }

    /// The socket, and what was read from it and not used yet: for whoever reads the rest another way.
    pub fn into_parts(self) -> (TcpStream, BytesMut) {
        (self.stream, self.buffer)
    }

    async fn send(&mut self, kind: u8, body: &[u8]) -> Result<(), SqlError> {
        let mut frame = BytesMut::with_capacity(body.len() + 5);
        frame.put_u8(kind);
        frame.put_i32(i32::try_from(body.len() + 4).expect("a message fits"));
        frame.extend_from_slice(body);
        Ok(self.stream.write_all(&frame).await?)
    }

    /// The next message. Nothing is consumed before it is whole, so the future may be dropped.
    async fn receive(&mut self) -> Result<(u8, Bytes), SqlError> {
        self.fill(5).await?;
        let mut length = &self.buffer[1..5];
        let length = usize::try_from(length.get_i32() + 1).expect("a length is positive");
        self.fill(length).await?;
        let mut message = self.buffer.split_to(length).freeze();
        Ok((message[0], message.split_off(5)))
    }

    async fn fill(&mut self, length: usize) -> Result<(), SqlError> {
        self.buffer
            .reserve(length.saturating_sub(self.buffer.len()));
        while self.buffer.len() < length {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }

    async fn until_ready(&mut self) -> Result<Vec<Row>, SqlError> {
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            match self.receive().await {
                Ok((b'D', body)) => rows.push(parse_row(body)),
                Ok((b'E', body)) => failure = Some(parse_error(body)),
                Ok((b'Z', _)) => return failure.map_or(Ok(rows), Err),
                Ok(_) => {}
                // A fatal error ends the connection: the error itself says more than its end.
                Err(end) => return Err(failure.unwrap_or(end)),
            }
        }
    }
}

fn put_text(body: &mut BytesMut, text: &str) {
    body.extend_from_slice(text.as_bytes());
    body.put_u8(0);
}

fn parse_row(mut body: Bytes) -> Row {
    let columns = body.get_u16();
    (0..columns)
        .map(|_| {
            let length = usize::try_from(body.get_i32()).ok()?;
            Some(String::from_utf8_lossy(&body.split_to(length)).into_owned())
        })
        .collect()
}

/// What an ErrorResponse says.
pub fn parse_error(body: Bytes) -> SqlError {
    let mut error = SqlError {
        code: String::new(),
        message: String::new(),
    };
    for field in body
        .split(|byte| *byte == 0)
        .filter(|field| !field.is_empty())
    {
        let text = String::from_utf8_lossy(&field[1..]);
        match field[0] {
            b'C' => error.code = text.into_owned(),
            b'M' => error.message = text.into_owned(),
            b'D' => error.message += &format!("\nDETAIL: {text}"),
            b'H' => error.message += &format!("\nHINT: {text}"),
            _ => {}
        }
    }
    error
}
