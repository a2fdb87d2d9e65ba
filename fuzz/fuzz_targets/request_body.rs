//! A request of any API and version, through the guard and then the decoder, as the broker reads it. What decodes must
//! encode, and mean the same when it is read again.
#![no_main]

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestKind};
use libfuzzer_sys::fuzz_target;
use weir_protocol::{RequestHeader, schema, versions::is_flexible};

fuzz_target!(|data: &[u8]| {
    let frame = Bytes::copy_from_slice(data);
    let Ok(preamble) = weir_protocol::Preamble::parse(&frame) else { return };
    let (key, version) = (preamble.key, preamble.version);
    let Ok(api) = ApiKey::try_from(key) else { return };
    let Ok((_, body)) = RequestHeader::parse(&frame, is_flexible(key, version)) else { return };
    if schema::guard(key, version, &body).is_err() {
        return; // nothing that the guard refuses reaches the decoder
    }
    let Ok(request) = RequestKind::decode(api, &mut body.clone(), version) else { return };
    let mut again = BytesMut::new();
    if request.encode(&mut again, version).is_err() {
        return; // a null where this version has none: the decoder is more lenient than the encoder
    }
    let read = RequestKind::decode(api, &mut again.freeze(), version).expect("what the encoder wrote");
    // Written, not compared: a NaN in a quota is not equal to itself.
    assert_eq!(format!("{read:?}"), format!("{request:?}"));
});
