package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.acl.AclBindingFilter;

/** What an admin client asks of the brokers themselves. */
final class Cluster {
    private Cluster() {}

    static void register(Map<String, Main.Verb> verbs) {
        verbs.put("describe_cluster", Admins.verb(Cluster::describe));
        verbs.put("log_dirs", Admins.verb(Cluster::logDirs));
        verbs.put("features", Admins.verb((admin, arguments) -> {
            Map<String, String> levels = new HashMap<>();
            admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach(
                    (name, range) -> levels.put(name, Integer.toString(range.maxVersionLevel())));
            return levels;
        }));
        verbs.put("reassignments", Admins.verb((admin, arguments) -> admin.listPartitionReassignments().reassignments().get().size()));
        verbs.put("acls", Admins.verb((admin, arguments) -> admin.describeAcls(AclBindingFilter.ANY).values().get().size()));
    }

    private static Object describe(Admin admin, JsonNode arguments) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        List<String> nodes = new ArrayList<>();
        for (Node node : cluster.nodes().get()) {
            nodes.add(node.host() + ":" + node.port());
        }
        Map<String, Object> told = new HashMap<>();
        told.put("cluster_id", cluster.clusterId().get());
        told.put("controller", cluster.controller().get().id());
        told.put("nodes", nodes);
        return told;
    }

    /** Bytes by partition of the topic asked for, over all log dirs of all brokers. */
    private static Object logDirs(Admin admin, JsonNode arguments) throws Exception {
        List<Integer> brokers = new ArrayList<>();
        for (Node node : admin.describeCluster().nodes().get()) {
            brokers.add(node.id());
        }
        Map<Integer, Long> sizes = new HashMap<>();
        admin.describeLogDirs(brokers).allDescriptions().get().values().forEach(dirs -> dirs.values().forEach(
                dir -> dir.replicaInfos().forEach((partition, replica) -> {
                    if (partition.topic().equals(arguments.get("topic").asText())) {
                        sizes.merge(partition.partition(), replica.size(), Long::sum);
                    }
                })));
        return sizes;
    }
}
