/* Load on a Kafka-compatible broker, with librdkafka and as little else as possible.
 *
 *   load produce --bootstrap HOST:PORT --topic T [--partitions N] [--producers N] [--bytes N]
 *                [--size N | --lines FILE] [--batch-bytes N] [--linger-ms N] [--acks all|1|0]
 *   load fetch   --bootstrap HOST:PORT --topic T [--partitions N] [--client-id ID]
 *
 * `produce` sends about --bytes of values: text of --size bytes each, no two of a thousand alike and never zeros, or
 * the lines of a file over and over. `fetch` reads every partition from its start to the end it has at that moment.
 * One line of JSON says what was done; an undelivered record or a failed fetch is exit code 1.
 */
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POOL = 1024, FETCH_BATCH = 10000, MAX_PARTITIONS = 20000 };

struct options {
    const char *bootstrap, *topic, *lines, *batch_bytes, *linger_ms, *acks, *client_id;
    int partitions, producers;
    long long bytes;
    size_t size;
};

/* Values to send, made once and shared by the producers. */
struct payloads {
    char **value;
    size_t *size;
    size_t count;
};

static atomic_llong delivered, delivered_bytes, failed;

static void die(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static unsigned long long next_random(unsigned long long *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Lower-case words with numbers between them: compresses about as well as logs do. */
static struct payloads make_text(size_t size) {
    static const char *words[] = {"order", "shipped", "status", "error", "customer", "warehouse", "latency", "user",
                                  "session", "GET", "https", "amount", "retry", "payment", "cart", "timeout"};
    struct payloads made = {calloc(POOL, sizeof(char *)), calloc(POOL, sizeof(size_t)), POOL};
    unsigned long long state = 88172645463325252ULL;
    for (size_t i = 0; i < POOL; i++) {
        char *text = malloc(size + 64);
        size_t used = 0;
        while (used < size) {
            unsigned long long random = next_random(&state);
            used += (size_t)snprintf(text + used, 32, "%s=%llu ", words[random & 15], (random >> 8) % 100000);
        }
        made.value[i] = text;
        made.size[i] = size;
    }
    return made;
}

static struct payloads read_lines(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) die(path, "cannot be opened");
    struct payloads made = {NULL, NULL, 0};
    size_t room = 0;
    char *line = NULL;
    size_t line_room = 0;
    ssize_t length;
    while ((length = getline(&line, &line_room, file)) > 0) {
        if (made.count == room) {
            room = room ? 2 * room : 4096;
            made.value = realloc(made.value, room * sizeof(char *));
            made.size = realloc(made.size, room * sizeof(size_t));
        }
        size_t size = (size_t)length - (line[length - 1] == '\n');
        made.value[made.count] = memcpy(malloc(size + 1), line, size);
        made.size[made.count++] = size;
    }
    fclose(file);
    free(line);
    if (made.count == 0) die(path, "has no lines");
    return made;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) die(name, error);
}

static rd_kafka_t *open_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char error[512];
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) die("rd_kafka_new", error);
    return client;
}

/* -- produce ---------------------------------------------------------------- */

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    if (message->err) {
        if (atomic_fetch_add(&failed, 1) == 0) fprintf(stderr, "load: not delivered: %s\n", rd_kafka_err2str(message->err));
    } else {
        atomic_fetch_add_explicit(&delivered, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&delivered_bytes, (long long)message->len, memory_order_relaxed);
    }
}

struct producer {
    pthread_t thread;
    const struct options *options;
    const struct payloads *payloads;
    int number;
};

static void *run_producer(void *argument) {
    const struct producer *self = argument;
    const struct options *options = self->options;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", options->bootstrap);
    set(conf, "acks", options->acks);
    set(conf, "linger.ms", options->linger_ms);
    set(conf, "batch.size", options->batch_bytes);
    set(conf, "batch.num.messages", "1000000");
    set(conf, "message.max.bytes", "1000000");
    set(conf, "queue.buffering.max.messages", "2000000");
    set(conf, "queue.buffering.max.kbytes", "262144");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = open_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options->topic, NULL);

    long long share = options->bytes / options->producers, sent = 0;
    size_t next = (size_t)self->number * 101;
    int partition = self->number;
    while (sent < share) {
        size_t pick = next++ % self->payloads->count;
        size_t size = self->payloads->size[pick];
        /* Not copied: the pool outlives the client. */
        while (rd_kafka_produce(topic, partition % options->partitions, 0, self->payloads->value[pick], size, NULL, 0, NULL) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(client, 5);
        }
        partition++;
        sent += (long long)size;
        if ((next & 1023) == 0) rd_kafka_poll(client, 0);
    }
    if (rd_kafka_flush(client, 300000)) die("flush", "records without an answer after 300 s");
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
    return NULL;
}

static int produce(const struct options *options) {
    struct payloads payloads = options->lines ? read_lines(options->lines) : make_text(options->size);
    struct producer *producers = calloc((size_t)options->producers, sizeof *producers);
    double start = now();
    for (int i = 0; i < options->producers; i++) {
        producers[i] = (struct producer){.options = options, .payloads = &payloads, .number = i};
        if (pthread_create(&producers[i].thread, NULL, run_producer, &producers[i])) die("pthread_create", "failed");
    }
    for (int i = 0; i < options->producers; i++) pthread_join(producers[i].thread, NULL);
    printf("{\"records\": %lld, \"bytes\": %lld, \"failed\": %lld, \"seconds\": %.3f}\n", atomic_load(&delivered),
           atomic_load(&delivered_bytes), atomic_load(&failed), now() - start);
    return atomic_load(&failed) ? 1 : 0;
}

/* -- fetch ------------------------------------------------------------------ */

static int fetch(const struct options *options) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", options->bootstrap);
    set(conf, "group.id", "load");
    set(conf, "enable.auto.commit", "false");
    set(conf, "auto.offset.reset", "error");
    set(conf, "fetch.message.max.bytes", "8000000");
    set(conf, "fetch.wait.max.ms", "100");
    set(conf, "queued.min.messages", "1000000");
    if (options->client_id) set(conf, "client.id", options->client_id);
    rd_kafka_t *client = open_client(RD_KAFKA_CONSUMER, conf);

    static int64_t end[MAX_PARTITIONS];
    long long expected = 0;
    int open_partitions = 0;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(options->partitions);
    for (int p = 0; p < options->partitions; p++) {
        int64_t low;
        rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(client, options->topic, p, &low, &end[p], 30000);
        if (error) die("watermarks", rd_kafka_err2str(error));
        if (end[p] == low) continue;
        expected += end[p] - low;
        open_partitions++;
        rd_kafka_topic_partition_list_add(list, options->topic, p)->offset = low;
    }
    if (open_partitions == 0) die(options->topic, "is empty");
    rd_kafka_poll_set_consumer(client);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    double start = now();
    rd_kafka_assign(client, list);

    rd_kafka_message_t **messages = calloc(FETCH_BATCH, sizeof *messages);
    long long records = 0, bytes = 0;
    double last = now();
    while (open_partitions > 0) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 20, messages, FETCH_BATCH);
        for (ssize_t i = 0; i < count; i++) {
            rd_kafka_message_t *message = messages[i];
            if (message->err) die("fetch", rd_kafka_message_errstr(message));
            records++;
            bytes += (long long)message->len;
            if (message->offset + 1 == end[message->partition]) open_partitions--;
            rd_kafka_message_destroy(message);
        }
        if (count > 0) last = now();
        if (now() - last > 60) die("fetch", "nothing came for 60 s");
    }
    printf("{\"records\": %lld, \"offsets\": %lld, \"bytes\": %lld, \"seconds\": %.3f}\n", records, expected, bytes, now() - start);
    return 0; /* without the client's own slow goodbye */
}

static const char *value_of(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 2; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return otherwise;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc % 2) die("usage", "load produce|fetch --bootstrap HOST:PORT --topic T ... (see load.c)");
    struct options options = {
        .bootstrap = value_of(argc, argv, "--bootstrap", "127.0.0.1:9092"),
        .topic = value_of(argc, argv, "--topic", "load"),
        .lines = value_of(argc, argv, "--lines", NULL),
        .batch_bytes = value_of(argc, argv, "--batch-bytes", "1000000"),
        .linger_ms = value_of(argc, argv, "--linger-ms", "50"),
        .acks = value_of(argc, argv, "--acks", "all"),
        .client_id = value_of(argc, argv, "--client-id", NULL),
        .partitions = atoi(value_of(argc, argv, "--partitions", "1")),
        .producers = atoi(value_of(argc, argv, "--producers", "1")),
        .bytes = atoll(value_of(argc, argv, "--bytes", "1000000000")),
        .size = (size_t)atoll(value_of(argc, argv, "--size", "1024")),
    };
    if (options.partitions < 1 || options.partitions > MAX_PARTITIONS) die("--partitions", "between 1 and 20000");
    if (options.producers < 1 || options.size < 1) die("--producers, --size", "at least 1");
    if (strcmp(argv[1], "produce") == 0) return produce(&options);
    if (strcmp(argv[1], "fetch") == 0) return fetch(&options);
    die(argv[1], "is neither produce nor fetch");
}
