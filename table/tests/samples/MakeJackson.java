// Prints sample rows as Jackson's ObjectMapper writes them: java -cp "$JACKSON" MakeJackson.java orders|sensors|events
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.time.*;
import java.util.*;

public class MakeJackson {
    static final Random r = new Random(3);

    @SafeVarargs
    static <T> T pick(T... a) { return a[r.nextInt(a.length)]; }

    static UUID uuid() { return new UUID(r.nextLong(), r.nextLong()); }

    public record Line(String sku, int qty, BigDecimal price) {}
    public record Order(long order_id, String customer, String placed_at, BigDecimal total, String currency, boolean paid, List<Line> lines, String coupon,
        @JsonInclude(JsonInclude.Include.NON_NULL) String note) {}
    public record Sensor(UUID device, long ts, double temperature, double pressure, Boolean ok, double[] readings, Map<String, String> tags) {}
    public record Screen(int w, int h, double dpr) {}
    public record Event(String event, long user_id, UUID session, String at, String day, String url, String referrer, Screen screen, double score) {}

    static Object row(String kind, int i) {
        Instant at = Instant.parse("2026-03-01T06:00:00Z").plusMillis(i * 20_000L + pick(0, r.nextInt(1000)));
        switch (kind) {
            case "orders": {
                List<Line> lines = new ArrayList<>();
                for (int n = r.nextInt(4); n > 0; n--) lines.add(new Line("SKU-" + r.nextInt(9999), 1 + r.nextInt(9), BigDecimal.valueOf(r.nextInt(99999), 2)));
                return new Order(i, pick("Müller", "山田太郎", "a\"quote\\slash/", "tab\there", "😀 shop", "plain", "<b>&amp;</b>", "\u0001\u001f\u007f\b\f\r\n\u2028"), at.toString(),
                    BigDecimal.valueOf(r.nextInt(9999999), 2), pick("EUR", "USD"), r.nextBoolean(), lines, pick(null, "SPRING"), pick(null, "x"));
            }
            case "sensors": {
                double[] readings = new double[r.nextInt(5)];
                for (int n = 0; n < readings.length; n++) readings[n] = Math.round(r.nextGaussian() * 1000) / 1000.0;
                Map<String, String> tags = new HashMap<>();
                for (String k : List.of("site", "rack", "größe", "z/1")) if (r.nextBoolean()) tags.put(k, pick("x", "é", "<b>"));
                return new Sensor(uuid(), 1772323200000L + i * 250L, pick(Math.round(r.nextDouble() * 1e6) / 1e4 - 40, 20.0, -0.0, 12.5e-6, 0.001), Math.round(r.nextDouble() * 1e9) / pick(1.0, 100.0, 1e5), pick(true, false, null), readings, tags);
            }
            default:
                return new Event(pick("page_view", "click"), Math.abs(r.nextLong()), uuid(), LocalDateTime.ofInstant(at, ZoneOffset.UTC).toString(), LocalDate.of(2026, 1, 1).plusDays(i).toString(),
                    "https://shop.example/p/" + r.nextInt(999) + "?q=" + pick("a&b=c", "naïve", "x+y"), pick(null, "https://example.org/"), new Screen(pick(1280, 1920), pick(720, 1080), pick(1.0, 1.5, 2.0)),
                    pick(1e-5, 0.1, 3.0, 1e16, 123456789.125, 9999999.0));
        }
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (int i = 0; i < 200; i++) out.println(mapper.writeValueAsString(row(args[0], i)));
    }
}
