package io.weir.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;

/** Opens an admin client for one verb and closes it. */
final class Admins {
    private Admins() {}

    interface Work {
        Object with(Admin admin, JsonNode arguments) throws Exception;
    }

    static Main.Verb verb(Work work) {
        return arguments -> {
            Properties settings = Wire.properties(arguments);
            settings.put("default.api.timeout.ms", "20000");
            settings.put("request.timeout.ms", "10000");
            try (Admin admin = Admin.create(settings)) {
                return work.with(admin, arguments);
            }
        };
    }
}
