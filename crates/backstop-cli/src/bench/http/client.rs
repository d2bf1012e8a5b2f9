//! As little of an HTTP client as a measurement needs: one connection that stays open, one request
//! at a time. Anything more would be measured with it.

use anyhow::{Context, Result, bail, ensure};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest an answer may take.
const ANSWER_MAX: Duration = Duration::from_mins(1);
/// The most an answer may have.
const ANSWER_BYTES_MAX: usize = 16 << 20;

pub(in crate::bench) struct BenchClient {
    connection: TcpStream,
    address: SocketAddr,
    received: Vec<u8>,
}

impl BenchClient {
    pub(in crate::bench) async fn connect(address: SocketAddr) -> Result<Self> {
        let connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        Ok(Self {
            connection,
            address,
            received: Vec::with_capacity(64 << 10),
        })
    }

    /// Sends JSON; answers with the body of the answer, which must be a success.
    pub(super) async fn post(&mut self, path: &str, body: &str) -> Result<String> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.connection.write_all(request.as_bytes()).await?;
        tokio::time::timeout(ANSWER_MAX, self.answer())
            .await
            .context("no answer in time")?
    }

    /// Asks for a page; answers with its body, which is empty where it leads elsewhere.
    pub(in crate::bench) async fn get(&mut self, path: &str) -> Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        self.connection.write_all(request.as_bytes()).await?;
        tokio::time::timeout(ANSWER_MAX, self.answer())
            .await
            .context("no answer in time")?
    }

    async fn answer(&mut self) -> Result<String> {
        self.received.clear();
        let (head, length) = loop {
            if let Some(head) = self.received.windows(4).position(|end| end == b"\r\n\r\n") {
                break (head + 4, content_length(&self.received[..head])?);
            }
            self.receive().await?;
        };
        ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes");
        while self.received.len() < head + length {
            self.receive().await?;
        }
        let body = String::from_utf8_lossy(&self.received[head..head + length]).into_owned();
        let is_good = [b"HTTP/1.1 2", b"HTTP/1.1 3"]
            .iter()
            .any(|start| self.received.starts_with(*start));
        ensure!(is_good, "the server refused: {body}");
        Ok(body)
    }

    async fn receive(&mut self) -> Result<()> {
        if self.connection.read_buf(&mut self.received).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }
}

fn content_length(head: &[u8]) -> Result<usize> {
    let head = std::str::from_utf8(head)?;
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut length = fields
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, value)| value);
    Ok(length
        .next_back()
        .context("an answer without its length")?
        .trim()
        .parse()?)
}
