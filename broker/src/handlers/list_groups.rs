//! ListGroups (key 16), versions 0 to 5.
//!
//! Lists all groups, or those in the states and of the types asked for; both filters ignore case (S-86).
//!
//! * v1 throttle time; v3 compact encodings; v4 state filter and state (KIP-518); v5 type filter and type (KIP-848).
//! * Does not differ from Kafka.

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;

/// Lists.
pub async fn handle(context: &RequestContext, request: ListGroupsRequest) -> Result<Reply, CloseConnection> {
    let (version, groups) = (context.version, context.broker.groups.clone());
    Ok(context.pending(async move {
        let groups = match groups.list().await {
            Ok(groups) => groups,
            Err(error) => return Ok(ListGroupsResponse::default().with_error_code(group_code(Some(error)))),
        };
        let listed = groups
            .into_iter()
            .filter(|group| {
                passes(&request.states_filter, group.state) && passes(&request.types_filter, group.group_type)
            })
            .map(|group| {
                let listed = ListedGroup::default()
                    .with_group_id(GroupId(text(&group.group)))
                    .with_protocol_type(text(group.protocol_type.as_deref().unwrap_or_default()));
                let listed = if version >= 4 { listed.with_group_state(text(group.state)) } else { listed };
                if version >= 5 { listed.with_group_type(text(group.group_type)) } else { listed }
            });
        Ok(ListGroupsResponse::default().with_groups(listed.collect()))
    }))
}

/// An empty filter lets everything pass.
fn passes(filter: &[StrBytes], value: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
