//! The Weir broker: what stands between Kafka clients and the log.
//!
//! A request travels `server` (frame, header, limits) -> `handlers` (one file per API) -> `partition` | `coordinator` | `topics` (the rules) -> weir-storage, and its answer
//! travels back through the connection's queue, in request order. [`app`] puts the parts together; [`errors`] alone knows both domain errors and Kafka's codes.

pub mod allocator;
pub mod app;
pub mod cli;
pub mod coordinator;
pub mod doctor;
pub mod errors;
pub mod fetch_sessions;
pub mod handlers;
pub mod http;
pub mod log_dump;
pub mod metrics;
pub mod partition;
pub mod quotas;
pub mod scram;
pub mod server;
pub mod table_command;
pub mod tables;
pub mod topics;
