//! weir-lake
