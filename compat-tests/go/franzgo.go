package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzGo struct{}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func franzRecord(topic string, r record) *kgo.Record {
	headers := make([]kgo.RecordHeader, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = kgo.RecordHeader{Key: h.name, Value: h.value}
	}
	return &kgo.Record{
		Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: headers, Timestamp: r.time(),
	}
}

func fromFranz(r *kgo.Record) record {
	headers := make([]header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = header{h.Key, h.Value}
	}
	return record{r.Key, r.Value, headers, milliseconds(r.Timestamp), r.Partition, r.Offset}
}

func franzProducer(bootstrap, codec string, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(franzCodecs[codec]),
		kgo.ProducerBatchMaxBytes(2_000_000),
		kgo.RecordDeliveryTimeout(30 * time.Second),
	}, more...)...)
}

func (franzGo) produce(ctx context.Context, to target, records []record, codec string, idempotent bool) ([]int64, error) {
	var more []kgo.Opt
	if !idempotent {
		more = append(more, kgo.DisableIdempotentWrite())
	}
	cl, err := franzProducer(to.Bootstrap, codec, more...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	sent := make([]*kgo.Record, len(records))
	for i, r := range records {
		sent[i] = franzRecord(to.Topic, r)
	}
	if err := cl.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(sent))
	for i, r := range sent {
		offsets[i] = r.Offset
	}
	return offsets, nil
}

func (franzGo) fetch(ctx context.Context, from source, count int) ([]record, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(from.Bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			from.Topic: {from.Partition: kgo.NewOffset().At(from.Start)},
		}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if from.ClientID != "" {
		options = append(options, kgo.ClientID(from.ClientID))
	}
	if from.ReadCommitted {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var records []record
	for len(records) < count {
		found, err := franzPoll(ctx, cl)
		records = append(records, found...)
		if err != nil {
			return records, err
		}
	}
	return records[:count], nil
}

// franzPoll waits for records until the context is done.
func franzPoll(ctx context.Context, cl *kgo.Client) ([]record, error) {
	fetches := cl.PollFetches(ctx)
	var records []record
	fetches.EachRecord(func(r *kgo.Record) { records = append(records, fromFranz(r)) })
	return records, fetches.Err()
}

func (franzGo) offsetAt(ctx context.Context, from target, partition int32, timestamp int64) (int64, error) {
	return franzAdmin(from.Bootstrap, func(admin *kadm.Client) (int64, error) {
		listed, err := admin.ListOffsetsAfterMilli(ctx, timestamp, from.Topic)
		if err != nil {
			return 0, err
		}
		offset, ok := listed.Lookup(from.Topic, partition)
		if !ok {
			return 0, fmt.Errorf("no offset for partition %d", partition)
		}
		return offset.Offset, offset.Err
	})
}

type franzMember struct {
	holdings
	client *kgo.Client
}

func (franzGo) join(group membership) (member, error) {
	m := &franzMember{}
	gone := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		m.remove(partitions[group.Topic])
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(group.Bootstrap),
		kgo.ConsumerGroup(group.Group),
		kgo.ConsumeTopics(group.Topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.SessionTimeout(group.sessionTimeout()),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.add(partitions[group.Topic])
		}),
		kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsLost(gone),
	}
	if group.Cooperative {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	if group.Instance != "" {
		options = append(options, kgo.InstanceID(group.Instance))
	}
	if group.ServerSide {
		options = append(options, kgo.ServerSideBalancer())
	}
	cl, err := kgo.NewClient(options...)
	m.client = cl
	return m, err
}

func (m *franzMember) poll(wait time.Duration) ([]record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	records, err := franzPoll(ctx, m.client)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return records, err
}

func (m *franzMember) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), verbTimeout)
	defer cancel()
	return m.client.CommitUncommittedOffsets(ctx)
}

func (m *franzMember) close() error {
	m.client.Close()
	return nil
}

func (franzGo) transact(ctx context.Context, to target, transactionalID string, transactions []transaction) error {
	cl, err := franzProducer(to.Bootstrap, "none", kgo.TransactionalID(transactionalID))
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, t := range transactions {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		for _, r := range t.Records {
			if err := cl.ProduceSync(ctx, franzRecord(to.Topic, r)).FirstErr(); err != nil {
				return err
			}
		}
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(t.Commit)); err != nil {
			return err
		}
	}
	return nil
}

func (franzGo) copyInTransaction(ctx context.Context, job copyJob) error {
	transactional, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(job.Bootstrap),
		kgo.TransactionalID(job.TransactionalID),
		kgo.ConsumerGroup(job.Group),
		kgo.ConsumeTopics(job.Topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer transactional.Close()
	if err := transactional.Begin(); err != nil {
		return err
	}
	for copied := 0; copied < job.Count; {
		fetches := transactional.PollRecords(ctx, job.Count-copied)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			result := transactional.ProduceSync(ctx, &kgo.Record{Topic: job.To, Key: r.Key, Value: r.Value})
			if err := result.FirstErr(); err != nil {
				return err
			}
			copied++
		}
	}
	committed, err := transactional.End(ctx, kgo.TransactionEndTry(job.Commit))
	if err == nil && committed != job.Commit {
		err = fmt.Errorf("the transaction was to be committed: %t, and was: %t", job.Commit, committed)
	}
	return err
}

// franzAdmin runs one admin call on a connection of its own.
func franzAdmin[T any](bootstrap string, call func(*kadm.Client) (T, error)) (T, error) {
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		var none T
		return none, err
	}
	defer admin.Close()
	return call(admin)
}

func (franzGo) topics(ctx context.Context, bootstrap string) (map[string]int, error) {
	return franzAdmin(bootstrap, func(admin *kadm.Client) (map[string]int, error) {
		details, err := admin.ListTopicsWithInternal(ctx)
		counts := map[string]int{}
		for _, detail := range details {
			counts[detail.Topic] = len(detail.Partitions)
		}
		return counts, err
	})
}

func (franzGo) createTopic(ctx context.Context, topic target, partitions int, config map[string]string) error {
	values := map[string]*string{}
	for name, value := range config {
		values[name] = &value
	}
	_, err := franzAdmin(topic.Bootstrap, func(admin *kadm.Client) (any, error) {
		return admin.CreateTopic(ctx, int32(partitions), 1, values, topic.Topic)
	})
	return err
}

func (franzGo) deleteTopic(ctx context.Context, topic target) error {
	_, err := franzAdmin(topic.Bootstrap, func(admin *kadm.Client) (any, error) {
		return admin.DeleteTopic(ctx, topic.Topic)
	})
	return err
}

func (franzGo) topicConfig(ctx context.Context, topic target) (map[string]*string, error) {
	return franzAdmin(topic.Bootstrap, func(admin *kadm.Client) (map[string]*string, error) {
		described, err := admin.DescribeTopicConfigs(ctx, topic.Topic)
		if err != nil {
			return nil, err
		}
		resource, err := described.On(topic.Topic, nil)
		values := map[string]*string{}
		for _, config := range resource.Configs {
			values[config.Key] = config.Value
		}
		return values, errors.Join(err, resource.Err)
	})
}

func franzChanges(config map[string]string) []kadm.AlterConfig {
	var changes []kadm.AlterConfig
	for name, value := range config {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	return changes
}

func (franzGo) alterTopicConfig(ctx context.Context, topic target, config map[string]string) error {
	_, err := franzAdmin(topic.Bootstrap, func(admin *kadm.Client) (any, error) {
		return franzAltered(admin.AlterTopicConfigs(ctx, franzChanges(config), topic.Topic))
	})
	return err
}

func (franzGo) replaceTopicConfig(ctx context.Context, topic target, config map[string]string) error {
	_, err := franzAdmin(topic.Bootstrap, func(admin *kadm.Client) (any, error) {
		return franzAltered(admin.AlterTopicConfigsState(ctx, franzChanges(config), topic.Topic))
	})
	return err
}

func franzAltered(responses kadm.AlterConfigsResponses, err error) (any, error) {
	for _, response := range responses {
		err = errors.Join(err, response.Err)
	}
	return nil, err
}
