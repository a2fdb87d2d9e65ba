package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/**
 * Apache Kafka's own Java client as a client of the compatibility matrix.
 *
 * <p>The tests are in Python; this program does their verbs. Each line of standard input is one request as JSON, each
 * line of standard output its answer: {@code {"ok": ...}} or {@code {"refused": "ExceptionClass: text"}}. Bytes travel
 * as base64, null as null. Group members and transactional producers live in this process between requests, by number,
 * so that one JVM start serves many tests.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() {}

    /** One verb: its arguments in, its answer out. */
    interface Verb {
        Object answer(JsonNode arguments) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        // Log lines and stray prints must not get between the answers.
        PrintStream answers = System.out;
        System.setOut(System.err);

        Map<String, Verb> verbs = new HashMap<>();
        Producing.register(verbs);
        Consuming.register(verbs);
        Topics.register(verbs);
        Groups.register(verbs);
        Cluster.register(verbs);
        Transactions.register(verbs);
        Release.register(verbs);

        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answer(verbs, JSON.readTree(line))));
            answers.flush();
        }
        // Clients that a test left open have threads of their own.
        System.exit(0);
    }

    private static Map<String, Object> answer(Map<String, Verb> verbs, JsonNode request) {
        Map<String, Object> answer = new HashMap<>();
        try {
            String name = request.get("verb").asText();
            Verb verb = verbs.get(name);
            if (verb == null) {
                throw new UnsupportedOperationException("this release of the Java client has no verb " + name);
            }
            answer.put("ok", verb.answer(request));
        } catch (Throwable error) {
            Throwable cause = error;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            cause.printStackTrace();
            answer.put("refused", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        return answer;
    }
}
