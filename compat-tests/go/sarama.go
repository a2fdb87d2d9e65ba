package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct{}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.MaxMessageBytes = 2_000_000
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	return config
}

// encoder keeps null and empty apart: a nil Encoder is null.
func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func saramaMessage(topic string, r record) *sarama.ProducerMessage {
	headers := make([]sarama.RecordHeader, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = sarama.RecordHeader{Key: []byte(h.name), Value: h.value}
	}
	return &sarama.ProducerMessage{
		Topic: topic, Partition: r.Partition, Key: encoder(r.Key), Value: encoder(r.Value),
		Headers: headers, Timestamp: r.time(),
	}
}

func fromSarama(m *sarama.ConsumerMessage) record {
	headers := make([]header, len(m.Headers))
	for i, h := range m.Headers {
		headers[i] = header{string(h.Key), h.Value}
	}
	return record{m.Key, m.Value, headers, milliseconds(m.Timestamp), m.Partition, m.Offset}
}

func (saramaClient) produce(_ context.Context, to target, records []record, codec string, idempotent bool) ([]int64, error) {
	config := saramaConfig()
	config.Producer.Compression = saramaCodecs[codec]
	if idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{to.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	messages := make([]*sarama.ProducerMessage, len(records))
	for i, r := range records {
		messages[i] = saramaMessage(to.Topic, r)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, errors.Join(firstError(err), producer.Close())
	}
	offsets := make([]int64, len(messages))
	for i, m := range messages {
		offsets[i] = m.Offset
	}
	return offsets, producer.Close()
}

// firstError is the text of the first record's failure; sarama's own names only their number.
func firstError(err error) error {
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) && len(failed) > 0 {
		return failed[0].Err
	}
	return err
}

func (saramaClient) fetch(ctx context.Context, from source, count int) (records []record, err error) {
	config := saramaConfig()
	if from.ClientID != "" {
		config.ClientID = from.ClientID
	}
	if from.ReadCommitted {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{from.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	partition, err := consumer.ConsumePartition(from.Topic, from.Partition, from.Start)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, partition.Close()) }()
	for len(records) < count {
		select {
		case m := <-partition.Messages():
			records = append(records, fromSarama(m))
		case err := <-partition.Errors():
			return records, err
		case <-ctx.Done():
			return records, ctx.Err()
		}
	}
	return records, nil
}

func (saramaClient) offsetAt(_ context.Context, from target, partition int32, timestamp int64) (int64, error) {
	client, err := sarama.NewClient([]string{from.Bootstrap}, saramaConfig())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return client.GetOffset(from.Topic, partition, timestamp)
}

// polled is a message and the session that it was read in.
type polled struct {
	message *sarama.ConsumerMessage
	session sarama.ConsumerGroupSession
}

// saramaMember is also the group's handler: claims hand their messages over as the verbs ask for them.
type saramaMember struct {
	holdings
	group    sarama.ConsumerGroup
	messages chan polled
	stop     context.CancelFunc
	stopped  sync.WaitGroup
	session  sarama.ConsumerGroupSession // of the last message polled
}

func (saramaClient) join(group membership) (member, error) { return saramaJoin(group, saramaConfig()) }

func saramaJoin(group membership, config *sarama.Config) (*saramaMember, error) {
	config.Consumer.Group.Session.Timeout = group.sessionTimeout()
	config.Consumer.Group.InstanceId = group.Instance
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	if group.Cooperative {
		cooperative := sarama.NewBalanceStrategyCooperativeSticky()
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{cooperative}
	}
	joined, err := sarama.NewConsumerGroup([]string{group.Bootstrap}, group.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &saramaMember{group: joined, messages: make(chan polled), stop: stop}
	m.stopped.Go(func() {
		for ctx.Err() == nil {
			if err := joined.Consume(ctx, []string{group.Topic}, m); errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
		}
	})
	return m, nil
}

func (m *saramaMember) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim hands the claim's messages over as they are asked for. It goes on receiving meanwhile (a test's few
// records), since the closing of the claim's channel is all that tells of a cooperative revocation.
func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m.add([]int32{claim.Partition()})
	defer m.remove([]int32{claim.Partition()})
	var queue []polled
	for {
		var ready chan polled
		var first polled
		if len(queue) > 0 {
			ready, first = m.messages, queue[0]
		}
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			queue = append(queue, polled{message, session})
		case ready <- first:
			queue = queue[1:]
		case <-session.Context().Done():
			return nil
		}
	}
}

// take waits for messages; it answers early when none came for a moment after some did.
func (m *saramaMember) take(wait time.Duration, limit int) ([]polled, error) {
	var taken []polled
	deadline := time.After(wait)
	for len(taken) < limit {
		pause := wait
		if len(taken) > 0 {
			pause = 20 * time.Millisecond
		}
		select {
		case next := <-m.messages:
			taken = append(taken, next)
			m.session = next.session
		case err := <-m.group.Errors():
			return taken, err
		case <-deadline:
			return taken, nil
		case <-time.After(pause):
			return taken, nil
		}
	}
	return taken, nil
}

func (m *saramaMember) poll(wait time.Duration) ([]record, error) {
	taken, err := m.take(wait, 500)
	records := make([]record, len(taken))
	for i, next := range taken {
		next.session.MarkMessage(next.message, "")
		records[i] = fromSarama(next.message)
	}
	return records, err
}

func (m *saramaMember) commit() error {
	if m.session == nil {
		return errors.New("nothing was polled")
	}
	m.session.Commit()
	select { // Commit waits for the answer and reports failures here
	case err := <-m.group.Errors():
		return err
	default:
		return nil
	}
}

func (m *saramaMember) close() error {
	m.stop()
	m.stopped.Wait()
	return m.group.Close()
}

func saramaTransactional(bootstrap, transactionalID string) (sarama.SyncProducer, error) {
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = transactionalID
	config.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer([]string{bootstrap}, config)
}

func end(producer sarama.SyncProducer, commit bool) error {
	if commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func (saramaClient) transact(_ context.Context, to target, transactionalID string, transactions []transaction) (err error) {
	producer, err := saramaTransactional(to.Bootstrap, transactionalID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, producer.Close()) }()
	for _, t := range transactions {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		for _, r := range t.Records {
			if _, _, err := producer.SendMessage(saramaMessage(to.Topic, r)); err != nil {
				return err
			}
		}
		if err := end(producer, t.Commit); err != nil {
			return err
		}
	}
	return nil
}

func (saramaClient) copyInTransaction(ctx context.Context, job copyJob) (err error) {
	producer, err := saramaTransactional(job.Bootstrap, job.TransactionalID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, producer.Close()) }()
	config := saramaConfig()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	m, err := saramaJoin(membership{target: job.target, Group: job.Group}, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	for copied := 0; copied < job.Count; {
		taken, err := m.take(200*time.Millisecond, job.Count-copied)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("after %d records: %w", copied, err)
		}
		for _, next := range taken {
			copied++
			if err := copyOne(producer, next, job); err != nil {
				return err
			}
		}
	}
	return end(producer, job.Commit)
}

func copyOne(producer sarama.SyncProducer, next polled, job copyJob) error {
	copied := &sarama.ProducerMessage{Topic: job.To, Key: encoder(next.message.Key), Value: encoder(next.message.Value)}
	if _, _, err := producer.SendMessage(copied); err != nil {
		return err
	}
	metadata := sarama.NewConsumerGroupMetadataFromSession(next.session, job.Group, nil)
	return producer.AddMessageToTxnWithGroupMetadata(next.message, metadata, nil)
}

// saramaAdmin runs one admin call on a connection of its own.
func saramaAdmin(bootstrap string, call func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig())
	if err != nil {
		return err
	}
	return errors.Join(call(admin), admin.Close())
}

func (saramaClient) topics(_ context.Context, bootstrap string) (map[string]int, error) {
	counts := map[string]int{}
	err := saramaAdmin(bootstrap, func(admin sarama.ClusterAdmin) error {
		topics, err := admin.ListTopics()
		for name, detail := range topics {
			counts[name] = int(detail.NumPartitions)
		}
		return err
	})
	return counts, err
}

func pointers(config map[string]string) map[string]*string {
	values := map[string]*string{}
	for name, value := range config {
		values[name] = &value
	}
	return values
}

func (saramaClient) createTopic(_ context.Context, topic target, partitions int, config map[string]string) error {
	return saramaAdmin(topic.Bootstrap, func(admin sarama.ClusterAdmin) error {
		detail := sarama.TopicDetail{
			NumPartitions: int32(partitions), ReplicationFactor: 1, ConfigEntries: pointers(config),
		}
		return admin.CreateTopic(topic.Topic, &detail, false)
	})
}

func (saramaClient) deleteTopic(_ context.Context, topic target) error {
	return saramaAdmin(topic.Bootstrap, func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(topic.Topic) })
}

func (saramaClient) topicConfig(_ context.Context, topic target) (map[string]*string, error) {
	values := map[string]*string{}
	err := saramaAdmin(topic.Bootstrap, func(admin sarama.ClusterAdmin) error {
		resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic.Topic}
		entries, err := admin.DescribeConfig(resource)
		for _, entry := range entries {
			values[entry.Name] = &entry.Value
		}
		return err
	})
	return values, err
}

func (saramaClient) alterTopicConfig(_ context.Context, topic target, config map[string]string) error {
	return saramaAdmin(topic.Bootstrap, func(admin sarama.ClusterAdmin) error {
		changes := map[string]sarama.IncrementalAlterConfigsEntry{}
		for name, value := range pointers(config) {
			operation := sarama.IncrementalAlterConfigsOperationSet
			changes[name] = sarama.IncrementalAlterConfigsEntry{Operation: operation, Value: value}
		}
		return admin.IncrementalAlterConfig(sarama.TopicResource, topic.Topic, changes, false)
	})
}

func (saramaClient) replaceTopicConfig(_ context.Context, topic target, config map[string]string) error {
	return saramaAdmin(topic.Bootstrap, func(admin sarama.ClusterAdmin) error {
		return admin.AlterConfig(sarama.TopicResource, topic.Topic, pointers(config), false)
	})
}

var _ sarama.ConsumerGroupHandler = (*saramaMember)(nil)
