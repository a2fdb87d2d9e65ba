//! weir-broker
