//! ApiVersions (key 18), versions 0 to 4.
//!
//! Answers which APIs and versions are served, from the same table that requests are dispatched by.
//!
//! * v1 throttle time; v3 client software name and version (KIP-511), features (KIP-584), compact encodings; v4 features whose minimum is 0.
//! * A version we do not know is answered in v0 with UNSUPPORTED_VERSION and our own range, never by closing (S-2): the connection does that before the body is looked at.
//! * Features that are built are listed with the range of their versions, and finalized at the newest, as Kafka 4.2 does when it is new. What is missing clients
//!   take for its absence: share and streams groups.
//! * Produce is advertised from 0 although 0 to 2 are refused: librdkafka before 2.11.1 reads codec and message-format support from the low end of that range
//!   (KAFKA-18659). Kafka does the same.

use bytes::{BufMut, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;
use weir_protocol::header::API_VERSIONS;

use super::{APIS, CloseConnection, Reply, RequestContext, Response};

/// A feature: its versions, and that in force.
struct Feature {
    name: &'static str,
    min: i16,
    max: i16,
    finalized: i16,
}

/// What is built of Kafka's features, by name.
static FEATURES: &[Feature] = &[
    // 1: KIP-848 groups.
    Feature { name: "group.version", min: 0, max: 1, finalized: 1 },
    // 2: KIP-890, epochs that end with their transaction. Java begins it with this row.
    Feature { name: "transaction.version", min: 0, max: 2, finalized: 2 },
];

/// How often the finalized features changed: never, since this broker has no way to change them.
const FEATURES_EPOCH: i64 = 0;

/// Answers the table.
pub async fn handle(context: &RequestContext, request: ApiVersionsRequest) -> Result<Reply, CloseConnection> {
    let software = [&request.client_software_name, &request.client_software_version];
    if context.version >= 3 && !software.iter().all(|text| is_software_name(text)) {
        return context.ready(&ApiVersionsResponse::default().with_error_code(ResponseError::InvalidRequest.code()));
    }
    let keys = APIS
        .rows()
        .iter()
        .map(|api| ApiVersion::default().with_api_key(api.key).with_min_version(api.min).with_max_version(api.max))
        .collect();
    let response = ApiVersionsResponse::default().with_api_keys(keys);
    context.ready(&with_features(response, context.version))
}

/// S-7: before v4 a range that begins at 0 cannot be told (KAFKA-17011), and the feature is left out of it; that it is in force is told all the same.
fn with_features(response: ApiVersionsResponse, version: i16) -> ApiVersionsResponse {
    if version < 3 {
        return response;
    }
    let name = |feature: &Feature| StrBytes::from_static_str(feature.name);
    let tellable = FEATURES.iter().filter(|feature| version >= 4 || feature.min > 0);
    let supported = tellable.map(|feature| {
        SupportedFeatureKey::default()
            .with_name(name(feature))
            .with_min_version(feature.min)
            .with_max_version(feature.max)
    });
    let finalized = FEATURES.iter().map(|feature| {
        FinalizedFeatureKey::default()
            .with_name(name(feature))
            .with_min_version_level(feature.finalized)
            .with_max_version_level(feature.finalized)
    });
    response
        .with_supported_features(supported.collect())
        .with_finalized_features_epoch(FEATURES_EPOCH)
        .with_finalized_features(finalized.collect())
}

/// Letters and digits, with `-` and `.` inside (S-4; Kafka's `ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`).
fn is_software_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

/// The answer to a version that is not served, in v0 encoding: the error, and the range of ApiVersions alone.
///
/// # Panics
/// Never: the table lists ApiVersions.
#[must_use]
pub fn unsupported_version() -> Response {
    let own = APIS.get(API_VERSIONS).expect("ApiVersions is served");
    let mut out = BytesMut::with_capacity(12);
    out.put_i16(ResponseError::UnsupportedVersion.code());
    out.put_i32(1);
    out.put_i16(own.key);
    out.put_i16(own.min);
    out.put_i16(own.max);
    Response::from_bytes(out.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_are_letters_and_digits_with_inner_dots_and_dashes() {
        for good in ["librdkafka", "apache-kafka-java", "2.15.0", "v", "1.2-SNAPSHOT"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-x", "x-", ".", "a b", "a_b", "é"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }

    #[test]
    fn advertised_versions_are_versions_the_decoder_has() {
        for api in APIS.rows() {
            assert!(api.max <= highest_decodable(api.key), "{} {}", api.name, api.max);
        }
    }

    fn highest_decodable(key: i16) -> i16 {
        match key {
            // Decoders of our own, `weir_protocol::offsets_by_id`.
            8 | 9 => 10,
            // Laid out as version 10, `weir_protocol::versions::layout_version`.
            2 => 11,
            _ => kafka_protocol::messages::ApiKey::try_from(key).expect("a known key").valid_versions().max,
        }
    }
}
