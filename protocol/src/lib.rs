//! weir-protocol
