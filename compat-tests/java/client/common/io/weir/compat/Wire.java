package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

/** Requests and answers: JSON on one side, the client's own types on the other. */
final class Wire {
    private Wire() {}

    static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static ProducerRecord<byte[], byte[]> toProduce(String topic, JsonNode node) {
        Long timestamp = node.get("timestamp").isNull() ? null : node.get("timestamp").asLong();
        ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(topic, node.get("partition").asInt(), timestamp, bytes(node.get("key")), bytes(node.get("value")));
        for (JsonNode header : node.get("headers")) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    static Map<String, Object> consumed(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), text(header.value())));
        }
        Map<String, Object> wire = new HashMap<>();
        wire.put("key", text(record.key()));
        wire.put("value", text(record.value()));
        wire.put("headers", headers);
        wire.put("timestamp", record.timestamp());
        wire.put("partition", record.partition());
        wire.put("offset", record.offset());
        return wire;
    }

    /** Text settings under {@code name}, or none. */
    static Map<String, String> settings(JsonNode arguments, String name) {
        Map<String, String> settings = new LinkedHashMap<>();
        JsonNode node = arguments.get(name);
        if (node != null && !node.isNull()) {
            node.properties().forEach(field -> settings.put(field.getKey(), field.getValue().asText()));
        }
        return settings;
    }

    static Properties properties(JsonNode arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("bootstrap").asText());
        return properties;
    }

    static TopicPartition partition(JsonNode arguments) {
        return new TopicPartition(arguments.get("topic").asText(), arguments.path("partition").asInt(0));
    }

    /** {@code {"0": 5}} of one topic: offsets by partition. */
    static Map<TopicPartition, OffsetAndMetadata> offsets(String topic, JsonNode node) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        node.properties().forEach(field -> offsets.put(
                new TopicPartition(topic, Integer.parseInt(field.getKey())), new OffsetAndMetadata(field.getValue().asLong())));
        return offsets;
    }

    /** Partition number -> committed offset. */
    static Map<Integer, Long> offsets(Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<Integer, Long> wire = new HashMap<>();
        offsets.forEach((partition, offset) -> wire.put(partition.partition(), offset == null ? null : (Long) offset.offset()));
        return wire;
    }
}
