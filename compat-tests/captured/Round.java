import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One round of work with the Java client, for `capture.py`. Arguments: bootstrap address, topic. */
public final class Round {
  private static String bootstrap;
  private static String topic;

  private static KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
    Map<String, Object> settings = new HashMap<>(more);
    settings.put("bootstrap.servers", bootstrap);
    return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
  }

  private static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
    Map<String, Object> settings = new HashMap<>(more);
    settings.put("bootstrap.servers", bootstrap);
    settings.put("auto.offset.reset", "earliest");
    settings.put("enable.auto.commit", false);
    return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  private static void send(KafkaProducer<byte[], byte[]> producer) throws Exception {
    ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, "key".getBytes(), "value".getBytes());
    record.headers().add("name", "value".getBytes()).add("name", null);
    producer.send(record).get();
  }

  private static void readAndCommit(KafkaConsumer<byte[], byte[]> consumer) {
    consumer.subscribe(List.of(topic));
    while (consumer.poll(Duration.ofMillis(200)).isEmpty()) {}
    consumer.commitSync();
  }

  private static void admin() throws Exception {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
      TopicPartition partition = new TopicPartition(topic, 0);
      ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
      admin.describeTopics(List.of(topic)).allTopicNames().get();
      admin.describeConfigs(List.of(resource)).all().get();
      AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "777777"), AlterConfigOp.OpType.SET);
      admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
      admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).all().get();
      admin.describeCluster().clusterId().get();
      admin.listGroups().all().get();
      admin.describeConsumerGroups(List.of(topic + "-g")).all().get();
      admin.listConsumerGroupOffsets(topic + "-g").partitionsToOffsetAndMetadata().get();
      admin.describeLogDirs(List.of(0)).allDescriptions().get();
      admin.describeProducers(List.of(partition)).all().get();
      admin.listTransactions().all().get();
      admin.describeTransactions(List.of(topic + "-tx")).all().get();
      admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1))).all().get();
      admin.deleteConsumerGroups(List.of(topic + "-g")).all().get();
      admin.deleteTopics(List.of(topic)).all().get();
    }
  }

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
    topic = arguments[1];
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
      admin.createTopics(List.of(new NewTopic(topic, Optional.of(1), Optional.empty()))).all().get();
    }
    for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
      try (var producer = producer(Map.of("compression.type", codec, "enable.idempotence", false))) {
        send(producer);
      }
    }
    try (var producer = producer(Map.of())) {
      send(producer);
    }
    try (var consumer = consumer(Map.of("group.id", topic + "-g"));
        var producer = producer(Map.of("transactional.id", topic + "-tx"))) {
      readAndCommit(consumer);
      consumer.offsetsForTimes(Map.of(new TopicPartition(topic, 0), 1L));
      producer.initTransactions();
      producer.beginTransaction();
      send(producer);
      Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
      producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
      producer.commitTransaction();
    }
    List<Map<String, Object>> ways = new ArrayList<>();
    ways.add(Map.of("group.instance.id", "one", "isolation.level", "read_committed"));
    ways.add(Map.of("group.protocol", "consumer"));
    for (Map<String, Object> way : ways) {
      Map<String, Object> settings = new HashMap<>(way);
      settings.put("group.id", topic + "-" + way.size());
      try (var consumer = consumer(settings)) {
        readAndCommit(consumer);
      }
    }
    admin();
  }
}
