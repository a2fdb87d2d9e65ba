package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Topics, their configs, their partitions and the ends of their logs. */
final class Topics {
    private Topics() {}

    static void register(Map<String, Main.Verb> verbs) {
        verbs.put("create_topic", Admins.verb(Topics::create));
        verbs.put("delete_topic", Admins.verb((admin, arguments) ->
                admin.deleteTopics(Collections.singleton(arguments.get("topic").asText())).all().get()));
        verbs.put("topic_config", Admins.verb(Topics::config));
        verbs.put("config_entry", Admins.verb(Topics::configEntry));
        verbs.put("alter_topic_config", Admins.verb(Topics::alterConfig));
        verbs.put("describe_topic", Admins.verb(Topics::describe));
        verbs.put("create_partitions", Admins.verb((admin, arguments) -> admin.createPartitions(Collections.singletonMap(
                arguments.get("topic").asText(), NewPartitions.increaseTo(arguments.get("partitions").asInt()))).all().get()));
        verbs.put("delete_records", Admins.verb(Topics::deleteRecords));
        verbs.put("list_offsets", Admins.verb(Topics::listOffsets));
    }

    private static Object create(Admin admin, JsonNode arguments) throws Exception {
        NewTopic topic = new NewTopic(
                arguments.get("topic").asText(), Optional.of(arguments.get("partitions").asInt()), Optional.empty());
        admin.createTopics(Collections.singleton(topic.configs(Wire.settings(arguments, "config")))).all().get();
        return null;
    }

    private static ConfigResource resource(JsonNode arguments) {
        ConfigResource.Type type = ConfigResource.Type.valueOf(arguments.path("type").asText("TOPIC"));
        return new ConfigResource(type, arguments.get("topic").asText());
    }

    private static Object config(Admin admin, JsonNode arguments) throws Exception {
        ConfigResource resource = resource(arguments);
        Config config = admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource);
        Map<String, String> values = new HashMap<>();
        for (ConfigEntry entry : config.entries()) {
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    /** One config with all that DescribeConfigs says of it. */
    private static Object configEntry(Admin admin, JsonNode arguments) throws Exception {
        ConfigResource resource = resource(arguments);
        DescribeConfigsOptions everything = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ConfigEntry entry =
                admin.describeConfigs(Collections.singleton(resource), everything).all().get().get(resource).get(arguments.get("name").asText());
        List<String> synonyms = new ArrayList<>();
        for (ConfigEntry.ConfigSynonym synonym : entry.synonyms()) {
            synonyms.add(synonym.source() + " " + synonym.name() + "=" + synonym.value());
        }
        Map<String, Object> told = new HashMap<>();
        told.put("value", entry.value());
        told.put("source", entry.source().name());
        told.put("type", entry.type().name());
        told.put("read_only", entry.isReadOnly());
        told.put("sensitive", entry.isSensitive());
        told.put("documentation", entry.documentation());
        told.put("synonyms", synonyms);
        return told;
    }

    /** {@code config} is set; what {@code deleted} names goes back to its default. */
    private static Object alterConfig(Admin admin, JsonNode arguments) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        Wire.settings(arguments, "config").forEach(
                (name, value) -> changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        for (JsonNode name : arguments.path("deleted")) {
            changes.add(new AlterConfigOp(new ConfigEntry(name.asText(), ""), AlterConfigOp.OpType.DELETE));
        }
        return admin.incrementalAlterConfigs(Collections.singletonMap(resource(arguments), changes)).all().get();
    }

    private static Object describe(Admin admin, JsonNode arguments) throws Exception {
        TopicDescription topic = Release.describeTopic(admin, arguments.get("topic").asText());
        List<Map<String, Object>> partitions = new ArrayList<>();
        topic.partitions().forEach(partition -> {
            Map<String, Object> told = new HashMap<>();
            told.put("partition", partition.partition());
            told.put("leader", partition.leader().id());
            told.put("replicas", partition.replicas().size());
            told.put("isr", partition.isr().size());
            partitions.add(told);
        });
        Map<String, Object> told = new HashMap<>();
        told.put("name", topic.name());
        told.put("internal", topic.isInternal());
        told.put("partitions", partitions);
        return told;
    }

    private static Object deleteRecords(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition partition = Wire.partition(arguments);
        RecordsToDelete before = RecordsToDelete.beforeOffset(arguments.get("before").asLong());
        return admin.deleteRecords(Collections.singletonMap(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
    }

    /** {@code which}: earliest, latest, max_timestamp, or a timestamp. */
    private static Object listOffsets(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition partition = Wire.partition(arguments);
        ListOffsetsResultInfo found = admin.listOffsets(Collections.singletonMap(partition, spec(arguments.get("which"))))
                .partitionResult(partition).get();
        Map<String, Object> told = new HashMap<>();
        told.put("offset", found.offset());
        told.put("timestamp", found.timestamp());
        told.put("leader_epoch", found.leaderEpoch().orElse(-1));
        return told;
    }

    private static OffsetSpec spec(JsonNode which) {
        if (which.isNumber()) {
            return OffsetSpec.forTimestamp(which.asLong());
        }
        switch (which.asText()) {
            case "earliest":
                return OffsetSpec.earliest();
            case "latest":
                return OffsetSpec.latest();
            default:
                return Release.spec(which.asText());
        }
    }
}
