package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing with acks=all, every record's fate known before the answer. */
final class Producing {
    private Producing() {}

    static void register(Map<String, Main.Verb> verbs) {
        verbs.put("produce", Producing::produce);
    }

    static Properties settings(JsonNode arguments) {
        Properties settings = Wire.properties(arguments);
        settings.put("acks", "all");
        settings.put("max.request.size", "2000000");
        settings.put("request.timeout.ms", "10000");
        settings.put("delivery.timeout.ms", "30000");
        settings.put("max.block.ms", "20000");
        settings.put("linger.ms", "5");
        settings.putAll(Wire.settings(arguments, "settings"));
        return settings;
    }

    static KafkaProducer<byte[], byte[]> open(Properties settings) {
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Object produce(JsonNode arguments) throws Exception {
        Properties settings = settings(arguments);
        settings.put("compression.type", arguments.get("codec").asText());
        settings.put("enable.idempotence", arguments.get("idempotent").asText());
        try (KafkaProducer<byte[], byte[]> producer = open(settings)) {
            return send(producer, arguments);
        }
    }

    /** Sends {@code records}, waits for all of them, and answers their offsets in the order given. */
    static List<Long> send(KafkaProducer<byte[], byte[]> producer, JsonNode arguments) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : arguments.get("records")) {
            sent.add(producer.send(Wire.toProduce(arguments.get("topic").asText(), record)));
        }
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            offsets.add(one.get().offset());
        }
        return offsets;
    }
}
