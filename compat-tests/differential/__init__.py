"""The differential suite: one scenario, run on Apache Kafka and on Weir, must leave the same transcript."""
