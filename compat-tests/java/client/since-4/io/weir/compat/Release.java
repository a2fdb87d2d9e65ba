package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/** What the Java client has had since 4.0, or calls differently since then. */
final class Release {
    private Release() {}

    static void register(Map<String, Main.Verb> verbs) {
        verbs.put("list_all_groups", Admins.verb(Release::listGroups));
        verbs.put("list_transactions", Admins.verb((admin, arguments) -> {
            Map<String, String> states = new HashMap<>();
            for (TransactionListing one : admin.listTransactions().all().get()) {
                states.put(one.transactionalId(), one.state().toString());
            }
            return states;
        }));
        verbs.put("describe_transaction", Admins.verb(Release::describeTransaction));
        verbs.put("describe_producers", Admins.verb(Release::describeProducers));
        verbs.put("fence_producer", Admins.verb((admin, arguments) ->
                admin.fenceProducers(Collections.singleton(arguments.get("transactional_id").asText())).all().get()));
        verbs.put("abort_transaction", Admins.verb((admin, arguments) -> admin.abortTransaction(new AbortTransactionSpec(
                Wire.partition(arguments),
                arguments.get("producer_id").asLong(),
                (short) arguments.get("epoch").asInt(),
                arguments.get("coordinator_epoch").asInt())).all().get()));
        verbs.put("quorum_leader", Admins.verb((admin, arguments) -> admin.describeMetadataQuorum().quorumInfo().get().leaderId()));
    }

    /** Group id -> "type protocol state". */
    private static Object listGroups(Admin admin, JsonNode arguments) throws Exception {
        Map<String, String> told = new HashMap<>();
        for (GroupListing group : admin.listGroups().all().get()) {
            told.put(group.groupId(), group.type().map(Object::toString).orElse("?") + " " + group.protocol() + " "
                    + group.groupState().map(Object::toString).orElse("?"));
        }
        return told;
    }

    private static Object describeTransaction(Admin admin, JsonNode arguments) throws Exception {
        String id = arguments.get("transactional_id").asText();
        TransactionDescription found = admin.describeTransactions(Collections.singleton(id)).all().get().get(id);
        List<String> partitions = new ArrayList<>();
        for (TopicPartition partition : found.topicPartitions()) {
            partitions.add(partition.toString());
        }
        Collections.sort(partitions);
        Map<String, Object> told = new HashMap<>();
        told.put("state", found.state().toString());
        told.put("producer_id", found.producerId());
        told.put("epoch", found.producerEpoch());
        told.put("timeout_ms", found.transactionTimeoutMs());
        told.put("partitions", partitions);
        return told;
    }

    private static Object describeProducers(Admin admin, JsonNode arguments) throws Exception {
        List<Map<String, Object>> producers = new ArrayList<>();
        TopicPartition partition = Wire.partition(arguments);
        for (ProducerState producer : admin.describeProducers(Collections.singleton(partition)).partitionResult(partition).get().activeProducers()) {
            Map<String, Object> told = new HashMap<>();
            told.put("producer_id", producer.producerId());
            told.put("epoch", producer.producerEpoch());
            told.put("last_sequence", producer.lastSequence());
            told.put("coordinator_epoch", producer.coordinatorEpoch().orElse(-1));
            told.put("transaction_start", producer.currentTransactionStartOffset().orElse(-1));
            producers.add(told);
        }
        return producers;
    }

    static TopicDescription describeTopic(Admin admin, String topic) throws Exception {
        return admin.describeTopics(Collections.singleton(topic)).allTopicNames().get().get(topic);
    }

    static String state(ConsumerGroupListing group) {
        return group.groupState().map(Object::toString).orElse(null);
    }

    static String state(ConsumerGroupDescription group) {
        return group.groupState().toString();
    }

    static void describe(ConsumerGroupDescription group, Map<String, Object> told) {
        told.put("type", group.type().toString());
    }

    static OffsetSpec spec(String which) {
        switch (which) {
            case "max_timestamp":
                return OffsetSpec.maxTimestamp();
            case "earliest_local":
                return OffsetSpec.earliestLocal();
            default:
                throw new IllegalArgumentException(which);
        }
    }

    static void subscribe(KafkaConsumer<byte[], byte[]> consumer, String pattern, ConsumerRebalanceListener listener) {
        consumer.subscribe(new SubscriptionPattern(pattern), listener);
    }
}
