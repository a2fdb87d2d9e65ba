package io.weir.compat.flink;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * One Flink SQL job on a cluster inside this JVM: orders from a kafka source go to an exactly-once kafka sink, and their
 * totals by customer to an upsert-kafka sink.
 *
 * <p>Arguments are {@code name=value}: {@code bootstrap}, {@code input}, {@code copy}, {@code totals},
 * {@code checkpoints} (a folder), {@code naming} (how the sink names its transactions). It says {@code started} on standard
 * output, and cancels the job when its standard input ends.
 */
public final class Job {
    private Job() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            options.put(pair[0], pair[1]);
        }

        Map<String, String> settings = new HashMap<>();
        settings.put("execution.checkpointing.interval", "500ms");
        settings.put("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.put("execution.checkpointing.dir", "file://" + options.get("checkpoints"));
        settings.put("execution.checkpointing.tolerable-failed-checkpoints", "1000");
        settings.put("restart-strategy.type", "fixed-delay");
        settings.put("restart-strategy.fixed-delay.attempts", "1000");
        settings.put("restart-strategy.fixed-delay.delay", "500ms");
        settings.put("parallelism.default", "1");
        settings.put("taskmanager.memory.managed.size", "32m");
        settings.put("taskmanager.memory.network.min", "16m");
        settings.put("taskmanager.memory.network.max", "16m");

        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(Configuration.fromMap(settings));
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        String kafka = "'properties.bootstrap.servers' = '" + options.get("bootstrap") + "'";
        tables.executeSql("CREATE TABLE orders (id BIGINT, customer STRING, amount BIGINT) WITH ('connector' = 'kafka', "
                + kafka + ", 'topic' = '" + options.get("input") + "', 'properties.group.id' = '" + options.get("input")
                + "', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json')");
        tables.executeSql("CREATE TABLE copy (id BIGINT, customer STRING, amount BIGINT) WITH ('connector' = 'kafka', "
                + kafka + ", 'topic' = '" + options.get("copy") + "', 'format' = 'json',"
                + " 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '" + options.get("copy") + "',"
                + " 'sink.transaction-naming-strategy' = '" + options.getOrDefault("naming", "incrementing") + "',"
                + " 'properties.transaction.timeout.ms' = '60000')");
        tables.executeSql("CREATE TABLE totals (customer STRING, orders BIGINT, amount BIGINT, PRIMARY KEY (customer) NOT ENFORCED)"
                + " WITH ('connector' = 'upsert-kafka', " + kafka + ", 'topic' = '" + options.get("totals")
                + "', 'key.format' = 'json', 'value.format' = 'json')");
        StatementSet both = tables.createStatementSet();
        both.addInsertSql("INSERT INTO copy SELECT id, customer, amount FROM orders");
        both.addInsertSql("INSERT INTO totals SELECT customer, COUNT(*), SUM(amount) FROM orders GROUP BY customer");
        JobClient job = both.execute().getJobClient().orElseThrow();
        System.out.println("started " + job.getJobID());
        awaitEnd();
        job.cancel().get();
        System.exit(0);
    }

    private static void awaitEnd() throws IOException {
        while (System.in.read() >= 0) {
            // Only the end of standard input counts.
        }
    }
}
