//! DescribeUserScramCredentials (key 50), version 0.
//!
//! Answers each user's mechanisms with their iterations (KIP-554): everybody's when none is named, RESOURCE_NOT_FOUND for a named user without credentials (S-103),
//! DUPLICATE_RESOURCE for one that is named twice. Never a key.

use indexmap::IndexMap;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

/// Answers at once.
pub async fn handle(
    context: &RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> Result<Reply, CloseConnection> {
    let named = request.users.unwrap_or_default();
    let mut users: IndexMap<StrBytes, usize> = IndexMap::new();
    if named.is_empty() {
        users.extend(context.broker.scram.users().into_iter().map(|user| (StrBytes::from_string(user), 1)));
    }
    for user in named {
        *users.entry(user.name).or_default() += 1;
    }
    let results = users.into_iter().map(|(user, times)| result(context, user, times));
    context.ready(&DescribeUserScramCredentialsResponse::default().with_results(results.collect()))
}

fn result(context: &RequestContext, user: StrBytes, times: usize) -> DescribeUserScramCredentialsResult {
    let failed = |code: ResponseError, sentence: String| {
        DescribeUserScramCredentialsResult::default()
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_string(sentence)))
    };
    let answer = if times > 1 {
        let sentence = format!("Cannot describe SCRAM credentials for the same user twice in a single request: {user}");
        failed(ResponseError::DuplicateResource, sentence)
    } else {
        match context.broker.scram.of(&user) {
            Some(credentials) => {
                let infos = credentials.into_iter().map(|(mechanism, iterations)| {
                    CredentialInfo::default().with_mechanism(mechanism.to_wire()).with_iterations(iterations)
                });
                DescribeUserScramCredentialsResult::default().with_credential_infos(infos.collect())
            }
            None => {
                let sentence = format!("Attempt to describe a user credential that does not exist: {user}");
                failed(ResponseError::ResourceNotFound, sentence)
            }
        }
    };
    answer.with_user(user)
}
