package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;

/** Transactional producers, by number; each verb is one call of the client. */
final class Transactions {
    private static final Map<Integer, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();
    private static int opened;

    private Transactions() {}

    static void register(Map<String, Main.Verb> verbs) {
        verbs.put("tx_open", Transactions::open);
        verbs.put("tx_begin", arguments -> {
            producer(arguments).beginTransaction();
            return null;
        });
        verbs.put("tx_send", arguments -> Producing.send(producer(arguments), arguments));
        verbs.put("tx_commit", arguments -> {
            producer(arguments).commitTransaction();
            return null;
        });
        verbs.put("tx_abort", arguments -> {
            producer(arguments).abortTransaction();
            return null;
        });
        verbs.put("tx_offsets", arguments -> {
            producer(arguments).sendOffsetsToTransaction(
                    Wire.offsets(arguments.get("topic").asText(), arguments.get("offsets")),
                    Consuming.member(arguments).consumer.groupMetadata());
            return null;
        });
        // Closing with no time to spare leaves the transaction open on the broker, as a crash does.
        verbs.put("tx_close", arguments -> {
            PRODUCERS.remove(arguments.get("producer").asInt()).close(Duration.ofMillis(arguments.path("ms").asLong(5000)));
            return null;
        });
    }

    private static Object open(JsonNode arguments) {
        Properties settings = Producing.settings(arguments);
        settings.put("transactional.id", arguments.get("transactional_id").asText());
        KafkaProducer<byte[], byte[]> producer = Producing.open(settings);
        try {
            producer.initTransactions();
        } catch (RuntimeException refused) {
            producer.close(Duration.ZERO);
            throw refused;
        }
        PRODUCERS.put(++opened, producer);
        return opened;
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode arguments) {
        KafkaProducer<byte[], byte[]> producer = PRODUCERS.get(arguments.get("producer").asInt());
        if (producer == null) {
            throw new IllegalArgumentException("no transactional producer " + arguments.get("producer"));
        }
        return producer;
    }
}
