package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// record as it travels between the tests and this program. A nil slice is null, an empty one is empty: encoding/json
// writes and reads them as null and as base64.
type record struct {
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
}

// time is the record's timestamp, or the zero time where its producer is to choose.
func (r record) time() time.Time {
	if r.Timestamp == nil {
		return time.Time{}
	}
	return time.UnixMilli(*r.Timestamp)
}

// header travels as a pair: ["name", "base64 or null"].
type header struct {
	name  string
	value []byte
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.value}) }

func (h *header) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("a header is a pair, got %s", data)
	}
	if err := json.Unmarshal(pair[0], &h.name); err != nil {
		return err
	}
	return json.Unmarshal(pair[1], &h.value)
}

func milliseconds(t time.Time) *int64 {
	millis := t.UnixMilli()
	return &millis
}

// holdings are the partitions that a group member holds now and those that were taken from it; callbacks write them,
// the verbs read them.
type holdings struct {
	mutex sync.Mutex
	held  map[int32]bool
	taken []int32
}

func (h *holdings) add(partitions []int32) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.held == nil {
		h.held = map[int32]bool{}
	}
	for _, partition := range partitions {
		h.held[partition] = true
	}
}

func (h *holdings) remove(partitions []int32) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, partition := range partitions {
		delete(h.held, partition)
		h.taken = append(h.taken, partition)
	}
}

func (h *holdings) assignment() []int32 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	partitions := []int32{}
	for partition := range h.held {
		partitions = append(partitions, partition)
	}
	return partitions
}

func (h *holdings) revoked() []int32 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append([]int32{}, h.taken...)
}
