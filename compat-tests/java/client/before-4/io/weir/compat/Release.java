package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.config.ConfigResource;

/** What the Java client called differently, or could do, before 4.0. */
final class Release {
    private Release() {}

    static void register(Map<String, Main.Verb> verbs) {
        verbs.put("replace_topic_config", Admins.verb(Release::replaceConfig));
    }

    /** The older AlterConfigs (key 33), which the client dropped in 4.0. */
    @SuppressWarnings("deprecation")
    private static Object replaceConfig(Admin admin, JsonNode arguments) throws Exception {
        List<ConfigEntry> entries = new ArrayList<>();
        Wire.settings(arguments, "config").forEach((name, value) -> entries.add(new ConfigEntry(name, value)));
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, arguments.get("topic").asText());
        return admin.alterConfigs(Collections.singletonMap(topic, new Config(entries))).all().get();
    }

    @SuppressWarnings("deprecation")
    static TopicDescription describeTopic(Admin admin, String topic) throws Exception {
        return admin.describeTopics(Collections.singleton(topic)).values().get(topic).get();
    }

    static String state(ConsumerGroupListing group) {
        return group.state().map(Object::toString).orElse(null);
    }

    static String state(ConsumerGroupDescription group) {
        return group.state().toString();
    }

    static void describe(ConsumerGroupDescription group, Map<String, Object> told) {}

    static OffsetSpec spec(String which) {
        throw new UnsupportedOperationException("this release of the Java client cannot list " + which);
    }

    static void subscribe(KafkaConsumer<byte[], byte[]> consumer, String pattern, ConsumerRebalanceListener listener) {
        throw new UnsupportedOperationException("this release of the Java client has no server-side patterns");
    }
}
