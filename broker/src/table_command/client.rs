//! A Kafka client as small as the command line needs: one connection, one request at a time, blocking.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use crate::cli::split_address;

const CLIENT_ID: &str = "weir-table";
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// A broker that syncs on a slow disk may take its time to make a topic of many partitions.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// More than any answer to an administrator has; bounds what a server that is no Kafka can make us allocate.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Why the broker could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("cannot connect to {address}: {source}; start a broker there, or say where one is with --kafka HOST:PORT")]
    Connect {
        /// As given.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke, or the answer took too long.
    #[error("the broker at {address} did not answer: {source}; see its log")]
    Answer {
        /// As given.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// What came back is no answer.
    #[error("{address} does not answer as a Kafka broker does ({reason}); say where one is with --kafka HOST:PORT")]
    NotKafka {
        /// As given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The broker does not serve the request in a version known here.
    #[error("the broker at {address} does not serve {api} in versions {} to {}; use a broker that does", versions.start(), versions.end())]
    NotServed {
        /// As given.
        address: String,
        /// Which request.
        api: &'static str,
        /// The versions that are known here.
        versions: RangeInclusive<i16>,
    },
}

/// A connection to a broker.
pub struct Client {
    stream: TcpStream,
    address: String,
    next_id: i32,
    /// What the broker serves, by API key.
    served: BTreeMap<i16, RangeInclusive<i16>>,
}

impl Client {
    /// Connects, and asks what is served.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(address: &str) -> Result<Self, ClientError> {
        let stream = open(address).map_err(|source| ClientError::Connect { address: address.to_owned(), source })?;
        let mut client = Self { stream, address: address.to_owned(), next_id: 1, served: BTreeMap::new() };
        // Version 0 is the one that every broker answers.
        let answer = client.exchange(0, &ApiVersionsRequest::default())?;
        client.served = answer.api_keys.iter().map(|api| (api.api_key, api.min_version..=api.max_version)).collect();
        Ok(client)
    }

    /// Sends a request in the newest of `versions` that the broker serves, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn call<R: Request>(
        &mut self,
        api: &'static str,
        versions: RangeInclusive<i16>,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        let served = self
            .served
            .get(&R::KEY)
            .filter(|served| served.start() <= versions.end() && versions.start() <= served.end());
        let Some(served) = served else {
            return Err(ClientError::NotServed { address: self.address.clone(), api, versions });
        };
        let version = *served.end().min(versions.end());
        self.exchange(version, request)
    }

    fn exchange<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, ClientError> {
        let id = self.next_id;
        self.next_id += 1;
        let frame = frame(version, id, request).map_err(|reason| self.not_kafka(reason))?;
        let mut answer = self.round_trip(&frame)?;
        let header = ResponseHeader::decode(&mut answer, R::Response::header_version(version))
            .map_err(|error| self.not_kafka(error.to_string()))?;
        if header.correlation_id != id {
            return Err(self.not_kafka(format!("answer {} to request {id}", header.correlation_id)));
        }
        R::Response::decode(&mut answer, version).map_err(|error| self.not_kafka(error.to_string()))
    }

    fn round_trip(&mut self, frame: &[u8]) -> Result<Bytes, ClientError> {
        let mut length = [0; 4];
        let sent = self.stream.write_all(frame).and_then(|()| self.stream.read_exact(&mut length));
        sent.map_err(|source| self.no_answer(source))?;
        let length = usize::try_from(i32::from_be_bytes(length)).ok().filter(|length| *length <= MAX_ANSWER_BYTES);
        let length = length.ok_or_else(|| self.not_kafka("a length that no answer has".to_owned()))?;
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).map_err(|source| self.no_answer(source))?;
        Ok(Bytes::from(answer))
    }

    fn no_answer(&self, source: io::Error) -> ClientError {
        ClientError::Answer { address: self.address.clone(), source }
    }

    fn not_kafka(&self, reason: String) -> ClientError {
        ClientError::NotKafka { address: self.address.clone(), reason }
    }
}

/// Tries every address of the host, and answers the last error.
fn open(address: &str) -> io::Result<TcpStream> {
    let (host, port) = split_address(address, "--kafka")
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host.as_str(), port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_TIME))?;
                stream.set_write_timeout(Some(ANSWER_TIME))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A whole frame, length included, or why there is none.
fn frame<R: Request>(version: i16, id: i32, request: &R) -> Result<Bytes, String> {
    let key = ApiKey::try_from(R::KEY).map_err(|()| format!("API key {} is unknown", R::KEY))?;
    let mut body = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(id)
        .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)))
        .encode(&mut body, key.request_header_version(version))
        .map_err(|error| error.to_string())?;
    request.encode(&mut body, version).map_err(|error| error.to_string())?;
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_i32(i32::try_from(body.len()).map_err(|_| "the request is too large".to_owned())?);
    frame.put_slice(&body);
    Ok(frame.freeze())
}
