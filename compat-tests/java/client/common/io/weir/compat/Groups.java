package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.common.TopicPartition;

/** Consumer groups as an admin client sees them. */
final class Groups {
    private Groups() {}

    static void register(Map<String, Main.Verb> verbs) {
        verbs.put("list_groups", Admins.verb(Groups::list));
        verbs.put("describe_group", Admins.verb(Groups::describe));
        verbs.put("group_offsets", Admins.verb((admin, arguments) ->
                Wire.offsets(admin.listConsumerGroupOffsets(group(arguments)).partitionsToOffsetAndMetadata().get())));
        verbs.put("alter_group_offsets", Admins.verb((admin, arguments) -> admin.alterConsumerGroupOffsets(
                group(arguments), Wire.offsets(arguments.get("topic").asText(), arguments.get("offsets"))).all().get()));
        verbs.put("delete_group_offsets", Admins.verb((admin, arguments) -> {
            TopicPartition partition = Wire.partition(arguments);
            Set<TopicPartition> one = new HashSet<>(Collections.singleton(partition));
            return admin.deleteConsumerGroupOffsets(group(arguments), one).partitionResult(partition).get();
        }));
        verbs.put("delete_group", Admins.verb((admin, arguments) ->
                admin.deleteConsumerGroups(Collections.singleton(group(arguments))).all().get()));
        verbs.put("remove_member", Admins.verb((admin, arguments) -> admin.removeMembersFromConsumerGroup(
                group(arguments),
                new RemoveMembersFromConsumerGroupOptions(Collections.singleton(new MemberToRemove(arguments.get("instance").asText()))))
                .all().get()));
    }

    private static String group(JsonNode arguments) {
        return arguments.get("group").asText();
    }

    /** Group id -> state. */
    private static Object list(Admin admin, JsonNode arguments) throws Exception {
        Map<String, String> states = new HashMap<>();
        for (ConsumerGroupListing group : admin.listConsumerGroups().all().get()) {
            states.put(group.groupId(), Release.state(group));
        }
        return states;
    }

    private static Object describe(Admin admin, JsonNode arguments) throws Exception {
        ConsumerGroupDescription group =
                admin.describeConsumerGroups(Collections.singleton(group(arguments))).all().get().get(group(arguments));
        List<Map<String, Object>> members = new ArrayList<>();
        for (MemberDescription member : group.members()) {
            Map<String, Object> told = new HashMap<>();
            told.put("client_id", member.clientId());
            told.put("host", member.host());
            told.put("instance", member.groupInstanceId().orElse(null));
            told.put("partitions", Consuming.numbers(member.assignment().topicPartitions()));
            members.add(told);
        }
        Map<String, Object> told = new HashMap<>();
        told.put("state", Release.state(group));
        told.put("assignor", group.partitionAssignor());
        told.put("coordinator", group.coordinator().id());
        told.put("members", members);
        Release.describe(group, told);
        return told;
    }
}
