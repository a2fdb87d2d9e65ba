package io.weir.compat.tools;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, many in one JVM: each runs by its own {@code main}, with the arguments, the standard input
 * and the exit code that it would have in a JVM of its own.
 *
 * <p>A line of standard input is {@code {"main": "class", "arguments": [...], "input": "text"}}, its answer
 * {@code {"code": 0, "output": "text", "errors": "text"}}.
 */
public final class Tools {
    private Tools() {}

    /** What {@code System.exit} would have ended: it never returns, and where a tool catches it, the first code counts. */
    private static final class Exited extends RuntimeException {
        private static Integer first;

        Exited(int code) {
            super("exit " + code, null, false, false);
            if (first == null) {
                first = code;
            }
        }

        static int code(int otherwise) {
            return first == null ? otherwise : first;
        }
    }

    /** Scala's Console and some tools keep the stream that they find first, so it stays one and its target changes. */
    private static final class Redirected extends OutputStream {
        private volatile OutputStream target;

        Redirected(OutputStream target) {
            this.target = target;
        }

        @Override
        public void write(int one) {
            byte[] bytes = {(byte) one};
            write(bytes, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) {
            try {
                target.write(bytes, offset, length);
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        PrintStream log = System.err;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Redirected output = new Redirected(log);
        Redirected errors = new Redirected(log);
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            throw new Exited(code);
        });
        Exit.setHaltProcedure((code, message) -> {
            throw new Exited(code);
        });

        ObjectMapper json = new ObjectMapper();
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = json.readTree(line);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            output.target = said;
            errors.target = complained;
            System.setIn(new ByteArrayInputStream(request.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
            int code = run(request);
            System.out.flush();
            System.err.flush();
            output.target = log;
            errors.target = log;

            Map<String, Object> answer = new HashMap<>();
            answer.put("code", code);
            answer.put("output", said.toString(StandardCharsets.UTF_8));
            answer.put("errors", complained.toString(StandardCharsets.UTF_8));
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
        Exit.resetExitProcedure();
        Runtime.getRuntime().halt(0);
    }

    private static int run(JsonNode request) {
        Exited.first = null;
        try {
            String[] arguments = texts(request.get("arguments"));
            Class.forName(request.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return Exited.code(0);
        } catch (InvocationTargetException wrapped) {
            if (!(wrapped.getCause() instanceof Exited)) {
                // As the JVM's own handler of uncaught exceptions does.
                wrapped.getCause().printStackTrace();
            }
            return Exited.code(1);
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private static String[] texts(JsonNode list) {
        String[] texts = new String[list.size()];
        for (int index = 0; index < texts.length; index++) {
            texts[index] = list.get(index).asText();
        }
        return texts;
    }
}
