//! The base64 spellings a producer may use for BINARY.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::sink::Sink;

const PADDED: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_encode_padding(true).with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BARE: GeneralPurposeConfig = PADDED.with_encode_padding(false);

const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PADDED);
const STANDARD_BARE: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, BARE);
const URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, PADDED);
const URL_BARE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, BARE);

/// Alphabet and padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base64Form {
    Standard,
    StandardBare,
    Url,
    UrlBare,
}

impl Base64Form {
    pub const ALL: [Self; 4] = [Self::Standard, Self::StandardBare, Self::Url, Self::UrlBare];

    pub const fn code(self) -> u8 {
        match self {
            Self::Standard => b's',
            Self::StandardBare => b'n',
            Self::Url => b'u',
            Self::UrlBare => b'm',
        }
    }

    const fn engine(self) -> &'static GeneralPurpose {
        match self {
            Self::Standard => &STANDARD,
            Self::StandardBare => &STANDARD_BARE,
            Self::Url => &URL,
            Self::UrlBare => &URL_BARE,
        }
    }

    pub fn write(self, bytes: &[u8], out: &mut impl Sink) {
        out.write_with(bytes.len().div_ceil(3) * 4, |room| {
            self.engine().encode_slice(bytes, room).expect("the room is the padded length")
        });
    }
}

/// Appends the decoded bytes; either alphabet, padded or not. False leaves `out` with whatever was decoded before the fault.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let url = text.iter().any(|byte| matches!(byte, b'-' | b'_'));
    let form = if url { Base64Form::Url } else { Base64Form::Standard };
    form.engine().decode_vec(text, out).is_ok()
}
