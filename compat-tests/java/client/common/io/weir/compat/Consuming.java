package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consuming: one partition from an offset, or as a member of a group. */
final class Consuming {
    private static final Map<Integer, Member> MEMBERS = new HashMap<>();
    private static int joined;

    private Consuming() {}

    static void register(Map<String, Main.Verb> verbs) {
        verbs.put("fetch", Consuming::fetch);
        verbs.put("read_committed", Consuming::readCommitted);
        verbs.put("offset_at", Consuming::offsetAt);
        verbs.put("topics", Consuming::topics);
        verbs.put("join", Consuming::join);
        verbs.put("poll", arguments -> member(arguments).poll(arguments.get("seconds").asDouble()));
        verbs.put("assignment", arguments -> numbers(member(arguments).consumer.assignment()));
        verbs.put("commit", arguments -> {
            member(arguments).consumer.commitSync();
            return null;
        });
        verbs.put("committed", Consuming::committed);
        verbs.put("events", arguments -> member(arguments).events);
        verbs.put("close", arguments -> {
            MEMBERS.remove(arguments.get("member").asInt()).consumer.close(closeTimeout(arguments));
            return null;
        });
    }

    /** A member of a group, with what its rebalance listener was told: {@code assigned 0,1}, {@code revoked 1}, {@code lost 0}. */
    static final class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<String> events = new ArrayList<>();

        Member(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            note("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            note("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            note("lost", partitions);
        }

        private void note(String what, Collection<TopicPartition> partitions) {
            List<String> names = new ArrayList<>();
            for (int number : numbers(partitions)) {
                names.add(Integer.toString(number));
            }
            events.add((what + " " + String.join(",", names)).trim());
        }

        List<Map<String, Object>> poll(double seconds) {
            List<Map<String, Object>> records = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis((long) (seconds * 1000)))) {
                records.add(Wire.consumed(record));
            }
            return records;
        }
    }

    static Member member(JsonNode arguments) {
        Member member = MEMBERS.get(arguments.get("member").asInt());
        if (member == null) {
            throw new IllegalArgumentException("no member " + arguments.get("member") + ": it was closed or never joined");
        }
        return member;
    }

    static List<Integer> numbers(Collection<TopicPartition> partitions) {
        List<Integer> numbers = new ArrayList<>();
        for (TopicPartition partition : partitions) {
            numbers.add(partition.partition());
        }
        Collections.sort(numbers);
        return numbers;
    }

    private static Properties settings(JsonNode arguments) {
        Properties settings = Wire.properties(arguments);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("default.api.timeout.ms", "20000");
        settings.put("request.timeout.ms", "15000");
        settings.put("reconnect.backoff.max.ms", "200");
        return settings;
    }

    private static KafkaConsumer<byte[], byte[]> open(Properties settings) {
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The first {@code count} records at or above {@code start}. */
    private static Object fetch(JsonNode arguments) throws Exception {
        Properties settings = settings(arguments);
        settings.put("auto.offset.reset", "none");
        settings.put("max.partition.fetch.bytes", "4000000");
        if (!arguments.get("client_id").isNull()) {
            settings.put("client.id", arguments.get("client_id").asText());
        }
        settings.putAll(Wire.settings(arguments, "settings"));
        int count = arguments.get("count").asInt();
        double timeout = arguments.get("timeout").asDouble();
        TopicPartition partition = Wire.partition(arguments);
        List<Map<String, Object>> records = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = open(settings)) {
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, arguments.get("start").asLong());
            long deadline = System.nanoTime() + (long) (timeout * 1e9);
            while (records.size() < count) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (records.size() < count) {
                        records.add(Wire.consumed(record));
                    }
                }
                if (records.size() < count && System.nanoTime() > deadline) {
                    throw new TimeoutException("read " + records.size() + " of " + count + " records in " + timeout + " s");
                }
            }
        }
        return records;
    }

    /** All that a read-committed reader gets of a partition now, as text: key and value. */
    private static Object readCommitted(JsonNode arguments) {
        Properties settings = settings(arguments);
        settings.put("isolation.level", "read_committed");
        TopicPartition partition = Wire.partition(arguments);
        List<Map<String, Object>> records = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = open(settings)) {
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            // The end is the last stable offset. The position passes over markers and what was aborted.
            long end = consumer.endOffsets(Collections.singleton(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    Map<String, Object> told = new HashMap<>();
                    told.put("key", record.key() == null ? null : new String(record.key(), StandardCharsets.UTF_8));
                    told.put("value", record.value() == null ? null : new String(record.value(), StandardCharsets.UTF_8));
                    told.put("offset", record.offset());
                    records.add(told);
                }
            }
        }
        return records;
    }

    private static Object offsetAt(JsonNode arguments) {
        TopicPartition partition = Wire.partition(arguments);
        try (KafkaConsumer<byte[], byte[]> consumer = open(settings(arguments))) {
            OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Collections.singletonMap(partition, arguments.get("timestamp").asLong())).get(partition);
            return found == null ? null : found.offset();
        }
    }

    private static Object topics(JsonNode arguments) {
        Map<String, Integer> topics = new HashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = open(settings(arguments))) {
            consumer.listTopics().forEach((topic, partitions) -> topics.put(topic, partitions.size()));
        }
        return topics;
    }

    private static Object join(JsonNode arguments) {
        Properties settings = settings(arguments);
        settings.put("group.id", arguments.get("group").asText());
        Map<String, String> more = Wire.settings(arguments, "settings");
        if (!"consumer".equals(more.get("group.protocol"))) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "500");
        }
        settings.putAll(more);
        Member member = new Member(open(settings));
        if (arguments.has("pattern")) {
            member.consumer.subscribe(Pattern.compile(arguments.get("pattern").asText()), member);
        } else if (arguments.has("re2")) {
            Release.subscribe(member.consumer, arguments.get("re2").asText(), member);
        } else {
            List<String> topics = new ArrayList<>();
            for (String topic : arguments.get("topic").asText().split(",")) {
                topics.add(topic);
            }
            member.consumer.subscribe(topics, member);
        }
        MEMBERS.put(++joined, member);
        return joined;
    }

    private static Object committed(JsonNode arguments) {
        TopicPartition partition = Wire.partition(arguments);
        return Wire.offsets(member(arguments).consumer.committed(Collections.singleton(partition))).get(partition.partition());
    }

    private static Duration closeTimeout(JsonNode arguments) {
        return Duration.ofMillis((long) (arguments.path("seconds").asDouble(10) * 1000));
    }
}
