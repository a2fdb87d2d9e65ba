//! AlterUserScramCredentials (key 51), version 0.
//!
//! Sets and removes SCRAM credentials (KIP-554), all of a user's changes or none; one result per user, in the order in which they are first named (deletions, then
//! upsertions, as Kafka reads them). They are kept and described; nobody logs in with them, as SASL is not built.

use std::sync::Arc;

use indexmap::IndexMap;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use kafka_protocol::messages::{AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse};
use kafka_protocol::protocol::StrBytes;
use tracing::error;

use super::{CloseConnection, Reply, RequestContext};
use crate::errors;
use crate::scram::{Change, ScramError};

/// Changes them.
pub async fn handle(
    context: &RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> Result<Reply, CloseConnection> {
    let mut users: IndexMap<StrBytes, Vec<Change>> = IndexMap::new();
    for deletion in request.deletions {
        users.entry(deletion.name).or_default().push(Change::Delete { mechanism: deletion.mechanism });
    }
    for upsertion in request.upsertions {
        users.entry(upsertion.name).or_default().push(Change::Upsert {
            mechanism: upsertion.mechanism,
            iterations: upsertion.iterations,
            salt: upsertion.salt.to_vec(),
            salted_password: upsertion.salted_password.to_vec(),
        });
    }
    let broker = Arc::clone(&context.broker);
    // Each commit syncs.
    let changing = tokio::task::spawn_blocking(move || {
        users.into_iter().map(|(user, changes)| result(&user, broker.scram.change(&user, &changes))).collect()
    });
    let results = match changing.await {
        Ok(results) => results,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    };
    context.ready(&AlterUserScramCredentialsResponse::default().with_results(results))
}

fn result(user: &StrBytes, changed: Result<(), ScramError>) -> AlterUserScramCredentialsResult {
    let answer = AlterUserScramCredentialsResult::default().with_user(user.clone());
    match changed {
        Ok(()) => answer.with_error_code(0).with_error_message(None),
        Err(cause) => {
            if matches!(cause, ScramError::Store(_)) {
                error!(%cause, "SCRAM credentials were not stored");
            }
            let code: ResponseError = errors::scram_error(&cause);
            answer.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(cause.to_string())))
        }
    }
}
