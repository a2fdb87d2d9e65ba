// The Go clients of the compatibility matrix: franz-go, sarama and segmentio's kafka-go behind the same verbs.
//
// The tests are in Python; this program does their verbs with the library named by its one argument. Each line of
// standard input is one request as JSON, each line of standard output its answer: {"ok": ...} or {"refused": "text"}.
// Bytes travel as base64, null as null. Group members live in this process between requests, by number.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"
)

// How long a verb without a limit of its own may take.
const verbTimeout = 60 * time.Second

// errNotInLibrary answers a verb that the library cannot do; the tests do not ask for those.
var errNotInLibrary = errors.New("not in its library")

// client is one library behind the verbs.
type client interface {
	// produce sends with acks=all, each record to its partition; the offsets come in the order given.
	produce(ctx context.Context, to target, records []record, codec string, idempotent bool) ([]int64, error)
	// fetch reads the first count records of a partition at or above an offset.
	fetch(ctx context.Context, from source, count int) ([]record, error)
	// offsetAt is the first offset whose timestamp is at or after `timestamp` (ms).
	offsetAt(ctx context.Context, from target, partition int32, timestamp int64) (int64, error)
	join(group membership) (member, error)

	topics(ctx context.Context, bootstrap string) (map[string]int, error)
	createTopic(ctx context.Context, topic target, partitions int, config map[string]string) error
	deleteTopic(ctx context.Context, topic target) error
	topicConfig(ctx context.Context, topic target) (map[string]*string, error)
	// alterTopicConfig sets some configs and leaves the others (IncrementalAlterConfigs).
	alterTopicConfig(ctx context.Context, topic target, config map[string]string) error
	// replaceTopicConfig replaces all of a topic's configs (AlterConfigs).
	replaceTopicConfig(ctx context.Context, topic target, config map[string]string) error

	// transact runs transactions one after the other with one producer.
	transact(ctx context.Context, to target, transactionalID string, transactions []transaction) error
	// copyInTransaction reads as a group member and produces what it read, offsets included, in one transaction.
	copyInTransaction(ctx context.Context, job copyJob) error
}

// member is a consumer in a group, from the earliest offset, committing only when told to.
type member interface {
	// poll answers records that came within the time, perhaps none.
	poll(wait time.Duration) ([]record, error)
	assignment() []int32
	// revoked lists the partitions taken from the member so far, once for each time.
	revoked() []int32
	// commit commits what was polled, and waits for the answer.
	commit() error
	close() error
}

type target struct {
	Bootstrap string
	Topic     string
}

type source struct {
	target
	Partition     int32
	Start         int64
	ClientID      string
	ReadCommitted bool
}

type membership struct {
	target
	Group       string
	Cooperative bool
	// Instance makes the member a static one (KIP-345).
	Instance string
	// ServerSide asks for the consumer group protocol of KIP-848.
	ServerSide bool
}

func (m membership) sessionTimeout() time.Duration {
	if m.Instance != "" {
		return 30 * time.Second
	}
	return 6 * time.Second
}

type transaction struct {
	Records []record
	Commit  bool
}

type copyJob struct {
	target
	To              string
	Group           string
	TransactionalID string
	Count           int
	Commit          bool
}

type request struct {
	target
	Verb            string
	Records         []record
	Codec           string
	Idempotent      bool
	Partition       int32
	Partitions      int
	Start           int64
	Count           int
	ClientID        string `json:"client_id"`
	ReadCommitted   bool   `json:"read_committed"`
	Timeout         float64
	Timestamp       int64
	Group           string
	Cooperative     bool
	Instance        string
	ServerSide      bool `json:"server_side"`
	Member          int
	Seconds         float64
	Config          map[string]string
	TransactionalID string `json:"transactional_id"`
	Transactions    []transaction
	To              string
	Commit          bool
}

type session struct {
	client  client
	members map[int]member
	joined  int
}

func (s *session) answer(ctx context.Context, r request) (any, error) {
	switch r.Verb {
	case "produce":
		return s.client.produce(ctx, r.target, r.Records, r.Codec, r.Idempotent)
	case "fetch":
		from := source{r.target, r.Partition, r.Start, r.ClientID, r.ReadCommitted}
		records, err := s.client.fetch(ctx, from, r.Count)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("read %d of %d records in %g s", len(records), r.Count, r.Timeout)
		}
		return records, err
	case "offset_at":
		return s.client.offsetAt(ctx, r.target, r.Partition, r.Timestamp)
	case "join":
		joined, err := s.client.join(membership{r.target, r.Group, r.Cooperative, r.Instance, r.ServerSide})
		if err != nil {
			return nil, err
		}
		s.joined++
		s.members[s.joined] = joined
		return s.joined, nil
	case "poll", "assignment", "revoked", "commit", "close":
		return s.askMember(r)
	case "topics":
		return s.client.topics(ctx, r.Bootstrap)
	case "create_topic":
		return nil, s.client.createTopic(ctx, r.target, r.Partitions, r.Config)
	case "delete_topic":
		return nil, s.client.deleteTopic(ctx, r.target)
	case "topic_config":
		return s.client.topicConfig(ctx, r.target)
	case "alter_topic_config":
		return nil, s.client.alterTopicConfig(ctx, r.target, r.Config)
	case "replace_topic_config":
		return nil, s.client.replaceTopicConfig(ctx, r.target, r.Config)
	case "transact":
		return nil, s.client.transact(ctx, r.target, r.TransactionalID, r.Transactions)
	case "copy_in_transaction":
		job := copyJob{r.target, r.To, r.Group, r.TransactionalID, r.Count, r.Commit}
		return nil, s.client.copyInTransaction(ctx, job)
	}
	return nil, fmt.Errorf("no verb %q", r.Verb)
}

func (s *session) askMember(r request) (any, error) {
	m, ok := s.members[r.Member]
	if !ok {
		return nil, fmt.Errorf("no member %d: it was closed or never joined", r.Member)
	}
	switch r.Verb {
	case "poll":
		return m.poll(seconds(r.Seconds))
	case "assignment":
		return m.assignment(), nil
	case "revoked":
		return m.revoked(), nil
	case "commit":
		return nil, m.commit()
	}
	delete(s.members, r.Member)
	return nil, m.close()
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

// respond answers one request within its time.
func (s *session) respond(line []byte) any {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return map[string]string{"refused": err.Error()}
	}
	limit := verbTimeout
	if r.Timeout > 0 {
		limit = seconds(r.Timeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	value, err := s.answer(ctx, r)
	if err != nil {
		return map[string]string{"refused": err.Error()}
	}
	return map[string]any{"ok": value}
}

func main() {
	libraries := map[string]client{"franz-go": franzGo{}, "sarama": saramaClient{}, "kafka-go": kafkaGo{}}
	if len(os.Args) != 2 || libraries[os.Args[1]] == nil {
		log.Fatal("usage: weir-compat-go franz-go|sarama|kafka-go")
	}
	s := session{client: libraries[os.Args[1]], members: map[int]member{}}
	input := bufio.NewReader(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		if err := output.Encode(s.respond(line)); err != nil {
			log.Fatal(err)
		}
	}
}
