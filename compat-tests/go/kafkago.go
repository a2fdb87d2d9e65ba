package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// kafkaGo lacks an idempotent and a transactional producer, cooperative and static members, and KIP-848. Its reader
// asks for read_committed, and then does not drop the aborted records that brokers leave to the client.
type kafkaGo struct{}

var kafkaGoCodecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func kafkaGoClient(bootstrap string) *kafka.Client { return &kafka.Client{Addr: kafka.TCP(bootstrap)} }

func (kafkaGo) produce(ctx context.Context, to target, records []record, codec string, idempotent bool) ([]int64, error) {
	if idempotent {
		return nil, errNotInLibrary
	}
	offsets := make([]int64, len(records))
	var mutex sync.Mutex
	writer := &kafka.Writer{
		Addr:         kafka.TCP(to.Bootstrap),
		Topic:        to.Topic,
		RequiredAcks: kafka.RequireAll,
		Compression:  kafkaGoCodecs[codec],
		BatchBytes:   2_000_000,
		BatchTimeout: 5 * time.Millisecond,
		MaxAttempts:  3,
		Transport:    &kafka.Transport{},
		// A writer's message cannot name its partition: it carries its place in `records` instead.
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int {
			return int(records[m.WriterData.(int)].Partition)
		}),
		Completion: func(messages []kafka.Message, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			for _, m := range messages {
				offsets[m.WriterData.(int)] = m.Offset
			}
		},
	}
	messages := make([]kafka.Message, len(records))
	for i, r := range records {
		headers := make([]kafka.Header, len(r.Headers))
		for j, h := range r.Headers {
			headers[j] = kafka.Header{Key: h.name, Value: h.value}
		}
		messages[i] = kafka.Message{Key: r.Key, Value: r.Value, Headers: headers, Time: r.time(), WriterData: i}
	}
	err := writer.WriteMessages(ctx, messages...)
	var each kafka.WriteErrors
	if errors.As(err, &each) {
		err = errors.Join(each...)
	}
	return offsets, errors.Join(err, writer.Close())
}

func fromKafkaGo(m kafka.Message) record {
	headers := make([]header, len(m.Headers))
	for i, h := range m.Headers {
		headers[i] = header{h.Key, h.Value}
	}
	return record{m.Key, m.Value, headers, milliseconds(m.Time), int32(m.Partition), m.Offset}
}

func kafkaGoReader(bootstrap, topic string, partition int, clientID string) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers:   []string{bootstrap},
		Topic:     topic,
		Partition: partition,
		MinBytes:  1,
		MaxBytes:  10_000_000,
		MaxWait:   100 * time.Millisecond,
		Dialer:    &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true, ClientID: clientID},
	})
}

func (kafkaGo) fetch(ctx context.Context, from source, count int) (records []record, err error) {
	if from.ReadCommitted {
		return nil, errNotInLibrary
	}
	reader := kafkaGoReader(from.Bootstrap, from.Topic, int(from.Partition), from.ClientID)
	defer func() { err = errors.Join(err, reader.Close()) }()
	if err := reader.SetOffset(from.Start); err != nil {
		return nil, err
	}
	for len(records) < count {
		m, err := reader.ReadMessage(ctx)
		if err != nil {
			return records, err
		}
		records = append(records, fromKafkaGo(m))
	}
	return records, nil
}

func (kafkaGo) offsetAt(ctx context.Context, from target, partition int32, timestamp int64) (int64, error) {
	wanted := kafka.TimeOffsetOf(int(partition), time.UnixMilli(timestamp))
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{from.Topic: {wanted}}}
	response, err := kafkaGoClient(from.Bootstrap).ListOffsets(ctx, request)
	if err != nil {
		return 0, err
	}
	for _, found := range response.Topics[from.Topic] {
		if found.Error != nil {
			return 0, found.Error
		}
		for offset := range found.Offsets {
			return offset, nil
		}
	}
	return 0, fmt.Errorf("no offset for timestamp %d", timestamp)
}

// kafkaGoMember uses the library's ConsumerGroup, which tells its assignment; its group Reader does not.
type kafkaGoMember struct {
	holdings
	where    membership
	group    *kafka.ConsumerGroup
	messages chan kafka.Message
	stop     context.CancelFunc
	stopped  sync.WaitGroup

	mutex      sync.Mutex
	generation *kafka.Generation
	failure    error
	next       map[int]int64 // per partition, the offset to commit
}

func (kafkaGo) join(where membership) (member, error) {
	if where.Cooperative || where.Instance != "" || where.ServerSide {
		return nil, errNotInLibrary
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                where.Group,
		Brokers:           []string{where.Bootstrap},
		Topics:            []string{where.Topic},
		HeartbeatInterval: 500 * time.Millisecond,
		SessionTimeout:    where.sessionTimeout(),
		RebalanceTimeout:  10 * time.Second,
		JoinGroupBackoff:  500 * time.Millisecond,
		StartOffset:       kafka.FirstOffset,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &kafkaGoMember{where: where, group: group, messages: make(chan kafka.Message), stop: stop, next: map[int]int64{}}
	m.stopped.Go(func() {
		for {
			generation, err := group.Next(ctx)
			if ctx.Err() != nil || errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			if err == nil {
				m.begin(generation)
			}
		}
	})
	return m, nil
}

// begin reads each partition of a new generation until the generation ends.
func (m *kafkaGoMember) begin(generation *kafka.Generation) {
	m.mutex.Lock()
	m.generation, m.next = generation, map[int]int64{}
	m.mutex.Unlock()
	for _, assigned := range generation.Assignments[m.where.Topic] {
		partition := []int32{int32(assigned.ID)}
		m.add(partition)
		generation.Start(func(ctx context.Context) {
			defer m.remove(partition)
			if err := m.read(ctx, assigned); err != nil && ctx.Err() == nil {
				m.mutex.Lock()
				m.failure = err
				m.mutex.Unlock()
				<-ctx.Done()
			}
		})
	}
}

func (m *kafkaGoMember) read(ctx context.Context, assigned kafka.PartitionAssignment) (err error) {
	reader := kafkaGoReader(m.where.Bootstrap, m.where.Topic, assigned.ID, "")
	defer func() { err = errors.Join(err, reader.Close()) }()
	if err := reader.SetOffset(assigned.Offset); err != nil {
		return err
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return err
		}
		select {
		case m.messages <- message:
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *kafkaGoMember) poll(wait time.Duration) ([]record, error) {
	var records []record
	deadline := time.After(wait)
	for len(records) < 500 {
		pause := wait
		if len(records) > 0 {
			pause = 20 * time.Millisecond
		}
		select {
		case message := <-m.messages:
			records = append(records, fromKafkaGo(message))
			m.mutex.Lock()
			m.next[message.Partition] = message.Offset + 1
			m.mutex.Unlock()
		case <-deadline:
			return records, m.failed()
		case <-time.After(pause):
			return records, m.failed()
		}
	}
	return records, m.failed()
}

func (m *kafkaGoMember) failed() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.failure
}

func (m *kafkaGoMember) commit() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.generation == nil {
		return errors.New("not in the group yet")
	}
	return m.generation.CommitOffsets(map[string]map[int]int64{m.where.Topic: m.next})
}

func (m *kafkaGoMember) close() error {
	m.stop()
	err := m.group.Close()
	m.stopped.Wait()
	return err
}

func (kafkaGo) transact(context.Context, target, string, []transaction) error { return errNotInLibrary }
func (kafkaGo) copyInTransaction(context.Context, copyJob) error              { return errNotInLibrary }

func (kafkaGo) topics(ctx context.Context, bootstrap string) (map[string]int, error) {
	response, err := kafkaGoClient(bootstrap).Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, topic := range response.Topics {
		counts[topic.Name] = len(topic.Partitions)
	}
	return counts, nil
}

func (kafkaGo) createTopic(ctx context.Context, topic target, partitions int, config map[string]string) error {
	wanted := kafka.TopicConfig{Topic: topic.Topic, NumPartitions: partitions, ReplicationFactor: 1}
	for name, value := range config {
		wanted.ConfigEntries = append(wanted.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}}
	response, err := kafkaGoClient(topic.Bootstrap).CreateTopics(ctx, request)
	if err != nil {
		return err
	}
	return response.Errors[topic.Topic]
}

func (kafkaGo) deleteTopic(ctx context.Context, topic target) error {
	request := &kafka.DeleteTopicsRequest{Topics: []string{topic.Topic}}
	response, err := kafkaGoClient(topic.Bootstrap).DeleteTopics(ctx, request)
	if err != nil {
		return err
	}
	return response.Errors[topic.Topic]
}

func (kafkaGo) topicConfig(ctx context.Context, topic target) (map[string]*string, error) {
	resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic.Topic}
	request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}}
	response, err := kafkaGoClient(topic.Bootstrap).DescribeConfigs(ctx, request)
	if err != nil {
		return nil, err
	}
	values := map[string]*string{}
	for _, described := range response.Resources {
		if described.Error != nil {
			return nil, described.Error
		}
		for _, entry := range described.ConfigEntries {
			values[entry.ConfigName] = &entry.ConfigValue
		}
	}
	return values, nil
}

func (kafkaGo) alterTopicConfig(ctx context.Context, topic target, config map[string]string) error {
	resource := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic.Topic,
	}
	for name, value := range config {
		change := kafka.IncrementalAlterConfigsRequestConfig{
			Name: name, Value: value, ConfigOperation: kafka.ConfigOperationSet,
		}
		resource.Configs = append(resource.Configs, change)
	}
	request := &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
	}
	response, err := kafkaGoClient(topic.Bootstrap).IncrementalAlterConfigs(ctx, request)
	if err != nil {
		return err
	}
	for _, altered := range response.Resources {
		err = errors.Join(err, altered.Error)
	}
	return err
}

func (kafkaGo) replaceTopicConfig(ctx context.Context, topic target, config map[string]string) error {
	resource := kafka.AlterConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic.Topic}
	for name, value := range config {
		resource.Configs = append(resource.Configs, kafka.AlterConfigRequestConfig{Name: name, Value: value})
	}
	request := &kafka.AlterConfigsRequest{Resources: []kafka.AlterConfigRequestResource{resource}}
	response, err := kafkaGoClient(topic.Bootstrap).AlterConfigs(ctx, request)
	if err != nil {
		return err
	}
	for _, failure := range response.Errors {
		err = errors.Join(err, failure)
	}
	return err
}
