mod coordinator;
mod machine;
mod records;
