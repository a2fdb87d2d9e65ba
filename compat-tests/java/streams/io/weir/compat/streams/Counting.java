package io.weir.compat.streams;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * A stateful Kafka Streams application: it counts the records of each key, and writes every count.
 *
 * <p>Arguments are {@code name=value}: {@code input}, {@code output}, and any setting of Kafka Streams. With
 * {@code windows=true} it also counts in windows of a minute (to {@code output-windowed}) and joins each
 * record with itself (to {@code output-joined}), through repartition topics. It says {@code state RUNNING} and the like on standard output
 * and closes when its standard input ends.
 */
public final class Counting {
    private Counting() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> own = new HashMap<>();
        Properties settings = new Properties();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            if (pair[0].contains(".")) {
                settings.put(pair[0], pair[1]);
            } else {
                own.put(pair[0], pair[1]);
            }
        }
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // Every count is written, not only the last before a commit.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input = builder.stream(own.get("input"), Consumed.with(Serdes.String(), Serdes.String()));
        Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store = Materialized.as("counts");
        input.groupByKey().count(store.withValueSerde(Serdes.Long())).toStream()
                .mapValues(count -> Long.toString(count)).to(own.get("output"), Produced.with(Serdes.String(), Serdes.String()));
        if (own.containsKey("windows")) {
            windows(input, own.get("output"));
        }

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setGlobalStateRestoreListener(new Restored());
        CountDownLatch told = new CountDownLatch(1);
        Thread listener = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // Only the end of it counts.
                }
            } catch (java.io.IOException ended) {
                System.out.println("standard input: " + ended);
            }
            told.countDown();
        });
        listener.setDaemon(true);
        listener.start();
        streams.start();
        told.await();
        boolean clean = streams.close(Duration.ofSeconds(20));
        System.out.println("closed " + clean);
        System.exit(clean ? 0 : 1);
    }

    private static void windows(KStream<String, String> input, String output) {
        // By the first letter of the value: another key, so the records travel through a repartition topic.
        KStream<String, String> byLetter = input.selectKey((key, value) -> value.substring(0, 1));
        byLetter.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofHours(1)))
                .count(Materialized.with(Serdes.String(), Serdes.Long()))
                .toStream((window, count) -> window.key() + "@" + window.window().start())
                .mapValues(count -> Long.toString(count))
                .to(output + "-windowed", Produced.with(Serdes.String(), Serdes.String()));
        input.join(
                        input.mapValues(value -> value.toUpperCase(java.util.Locale.ROOT)),
                        (left, right) -> left + "+" + right,
                        JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(50)),
                        StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()))
                .to(output + "-joined", Produced.with(Serdes.String(), Serdes.String()));
    }

    /** Says how many records a store was restored from. */
    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            System.out.println("restored " + store + " " + partition.partition() + " " + total);
        }
    }
}
