//! DescribeUserScramCredentials (key 50), version 0.
//!
//! Answers that nobody has credentials (KIP-554): an empty list for all users, RESOURCE_NOT_FOUND for each that is named (S-103), DUPLICATE_RESOURCE for one that is
//! named twice.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use kafka_protocol::messages::{DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

/// Answers at once.
pub async fn handle(
    context: &RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> Result<Reply, CloseConnection> {
    let mut times: BTreeMap<StrBytes, usize> = BTreeMap::new();
    for user in request.users.unwrap_or_default() {
        *times.entry(user.name).or_default() += 1;
    }
    let results = times.into_iter().map(|(user, times)| {
        let (code, reason) = if times > 1 {
            (ResponseError::DuplicateResource, format!("user '{user}' is named {times} times: name it once"))
        } else {
            (ResponseError::ResourceNotFound, format!("user '{user}' has no SCRAM credentials"))
        };
        DescribeUserScramCredentialsResult::default()
            .with_user(user)
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_string(reason)))
    });
    context.ready(&DescribeUserScramCredentialsResponse::default().with_results(results.collect()))
}
