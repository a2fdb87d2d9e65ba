// librdkafka for Node: @confluentinc/kafka-javascript, by the API that follows librdkafka's own. Its admin client
// creates and deletes topics and cannot describe or alter configs; a header value cannot be null.
'use strict'

const { AdminClient, KafkaConsumer, Producer } = require('@confluentinc/kafka-javascript')

const TEN_SECONDS = 10_000
const ASSIGN = -175
const REVOKE = -174

// Calls `method` of a handle with a callback as its last argument.
const call = (handle, method, ...values) =>
  new Promise((resolve, reject) =>
    handle[method](...values, (error, result) => (error ? reject(error) : resolve(result))),
  )

const connect = (handle) => call(handle, 'connect', {})
const disconnect = (handle) => new Promise((resolve) => handle.disconnect(() => resolve()))

const toHeaders = (pairs) => pairs.map(([name, value]) => ({ [name]: value }))

const fromLibrdkafka = (message) => ({
  key: message.key,
  value: message.value,
  headers: (message.headers ?? []).flatMap((each) => Object.entries(each)),
  timestamp: message.timestamp,
  offset: message.offset,
  partition: message.partition,
})

// A producer that counts its delivery reports.
class Sender {
  constructor(bootstrap, settings) {
    this.producer = new Producer({
      'bootstrap.servers': bootstrap,
      acks: 'all',
      'message.max.bytes': 2_000_000,
      'message.timeout.ms': 30_000,
      'linger.ms': 5,
      dr_cb: true,
      ...settings,
    })
    this.offsets = []
    this.errors = []
    this.producer.on('delivery-report', (error, report) => {
      if (error) this.errors.push(error)
      else this.offsets[report.opaque] = report.offset
    })
  }

  async start() {
    await connect(this.producer)
    this.producer.setPollInBackground(true)
    return this
  }

  send(topic, records) {
    for (const record of records) {
      const { partition, value, key, timestamp, headers } = record
      const place = this.offsets.push(-1) - 1
      this.producer.produce(topic, partition, value, key, timestamp, place, toHeaders(headers))
    }
  }

  async flush() {
    await call(this.producer, 'flush', 60_000)
    const deadline = Date.now() + 5000
    while (this.errors.length === 0 && this.offsets.includes(-1) && Date.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 5)) // reports come by an event of their own
    }
    if (this.errors.length > 0) throw this.errors[0]
    return this.offsets
  }

  close() {
    return disconnect(this.producer)
  }
}

async function produce({ bootstrap, topic, records, codec, idempotent }) {
  const settings = { 'compression.type': codec, 'enable.idempotence': idempotent }
  const sender = await new Sender(bootstrap, settings).start()
  try {
    sender.send(topic, records)
    return await sender.flush()
  } finally {
    await sender.close()
  }
}

const consumerSettings = (bootstrap, more) => ({
  'bootstrap.servers': bootstrap,
  'group.id': 'unused',
  'enable.auto.commit': false,
  'check.crcs': true,
  'fetch.wait.max.ms': 100,
  'fetch.message.max.bytes': 4_000_000,
  ...more,
})

const isolation = (committed) => ({ 'isolation.level': committed ? 'read_committed' : 'read_uncommitted' })

function consume(consumer, count, ms) {
  consumer.setDefaultConsumeTimeout(Math.max(1, Math.round(ms)))
  consumer.setDefaultIsTimeoutOnlyForFirstMessage(true)
  return call(consumer, 'consume', count)
}

async function withConsumer(settings, topicSettings, work) {
  const consumer = new KafkaConsumer(settings, topicSettings)
  await connect(consumer)
  try {
    return await work(consumer)
  } finally {
    await disconnect(consumer)
  }
}

async function fetch({ bootstrap, topic, partition, start, count, client_id, read_committed }, deadline) {
  const more = { ...isolation(read_committed), ...(client_id ? { 'client.id': client_id } : {}) }
  const onMissing = { 'auto.offset.reset': 'error' }
  return withConsumer(consumerSettings(bootstrap, more), onMissing, async (consumer) => {
    consumer.assign([{ topic, partition, offset: start }])
    const records = []
    while (records.length < count) {
      if (Date.now() > deadline) throw new Error(`read ${records.length} of ${count} records in time`)
      records.push(...(await consume(consumer, count - records.length, 200)).map(fromLibrdkafka))
    }
    return records
  })
}

async function offset_at({ bootstrap, topic, partition, timestamp }) {
  return withConsumer(consumerSettings(bootstrap, {}), {}, async (consumer) => {
    const wanted = [{ topic, partition, offset: timestamp }]
    return (await call(consumer, 'offsetsForTimes', wanted, TEN_SECONDS))[0].offset
  })
}

function groupSettings({ group, cooperative, instance, server_side }) {
  const settings = { 'group.id': group, ...(instance ? { 'group.instance.id': instance } : {}) }
  if (server_side) return { ...settings, 'group.protocol': 'consumer' }
  return {
    ...settings,
    'session.timeout.ms': instance ? 30_000 : 6000,
    'heartbeat.interval.ms': 500,
    'partition.assignment.strategy': cooperative ? 'cooperative-sticky' : 'range',
  }
}

class Member {
  constructor(request, more = isolation(false)) {
    const settings = { ...groupSettings(request), ...more, rebalance_cb: true }
    this.consumer = new KafkaConsumer(consumerSettings(request.bootstrap, settings), { 'auto.offset.reset': 'earliest' })
    this.topic = request.topic
    this.taken = []
    this.next = new Map() // per partition, the offset to commit
    this.consumer.on('rebalance', (error, partitions) => {
      if (error.code === REVOKE) {
        for (const { partition } of partitions) this.next.delete(partition)
        this.taken.push(...partitions.map(({ partition }) => partition))
      } else if (error.code !== ASSIGN) {
        this.failure = error
      }
    })
    this.consumer.on('rebalance.error', (error) => {
      this.failure = error
    })
  }

  async start() {
    await connect(this.consumer)
    this.consumer.subscribe([this.topic])
    return this
  }

  async poll(ms, limit = 500) {
    if (this.failure) throw this.failure
    const records = (await consume(this.consumer, limit, ms)).map(fromLibrdkafka)
    for (const { partition, offset } of records) this.next.set(partition, offset + 1)
    return records
  }

  assignment() {
    return this.consumer.assignments().map(({ partition }) => partition)
  }

  revoked() {
    return this.taken
  }

  offsets() {
    return [...this.next].map(([partition, offset]) => ({ topic: this.topic, partition, offset }))
  }

  async commit() {
    await call(this.consumer, 'commitCb', this.offsets())
  }

  close() {
    return disconnect(this.consumer)
  }
}

const join = (request) => new Member(request).start()

async function transactional(bootstrap, id) {
  const sender = await new Sender(bootstrap, { 'transactional.id': id }).start()
  await call(sender.producer, 'initTransactions', 30_000)
  return sender
}

const end = (sender, commit) => call(sender.producer, commit ? 'commitTransaction' : 'abortTransaction', 30_000)

async function transact({ bootstrap, topic, transactional_id, transactions }) {
  const sender = await transactional(bootstrap, transactional_id)
  try {
    for (const { records, commit } of transactions) {
      await call(sender.producer, 'beginTransaction')
      sender.send(topic, records)
      await sender.flush()
      await end(sender, commit)
    }
  } finally {
    await sender.close()
  }
}

async function copy_in_transaction(request, deadline) {
  const { bootstrap, topic, to, group, transactional_id, count, commit } = request
  const member = await new Member({ bootstrap, group, topic }, isolation(true)).start()
  const sender = await transactional(bootstrap, transactional_id)
  try {
    await call(sender.producer, 'beginTransaction')
    for (let copied = 0; copied < count; ) {
      if (Date.now() > deadline) throw new Error(`read ${copied} of ${count} records in time`)
      const records = await member.poll(200, count - copied)
      copied += records.length
      sender.send(to, records.map((record) => ({ ...record, partition: null, headers: [] })))
    }
    await sender.flush()
    await call(sender.producer, 'sendOffsetsToTransaction', member.offsets(), member.consumer, 30_000)
    await end(sender, commit)
  } finally {
    await sender.close()
    await member.close()
  }
}

async function admin(bootstrap, method, ...values) {
  const client = AdminClient.create({ 'bootstrap.servers': bootstrap })
  try {
    return await call(client, method, ...values, TEN_SECONDS)
  } finally {
    client.disconnect()
  }
}

const create_topic = ({ bootstrap, topic, partitions, config }) =>
  admin(bootstrap, 'createTopic', { topic, num_partitions: partitions, replication_factor: 1, config })

const delete_topic = ({ bootstrap, topic }) => admin(bootstrap, 'deleteTopic', topic)

async function topics({ bootstrap }) {
  return withConsumer(consumerSettings(bootstrap, {}), {}, async (consumer) => {
    const metadata = await call(consumer, 'getMetadata', { timeout: TEN_SECONDS })
    return Object.fromEntries(metadata.topics.map(({ name, partitions }) => [name, partitions.length]))
  })
}

module.exports = {
  produce, fetch, join, offset_at, transact, copy_in_transaction, topics, create_topic, delete_topic,
}
