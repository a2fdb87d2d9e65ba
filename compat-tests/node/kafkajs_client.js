// kafkajs, with its codec plug-ins. It has no static or cooperative members, no KIP-848 and no incremental config
// changes, and keeps headers as an object: the order among different names is lost.
'use strict'

const { randomUUID } = require('node:crypto')
const Lz4 = require('kafkajs-lz4')
const zstd = require('@bokuweb/zstd-wasm')
const {
  Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, Partitioners, logLevel,
} = require('kafkajs')
const { sleep } = require('./verbs')

const zstdReady = zstd.init()
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new Lz4().codec
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => {
    await zstdReady
    return Buffer.from(zstd.compress(encoder.buffer, 3))
  },
  decompress: async (buffer) => {
    await zstdReady
    return Buffer.from(zstd.decompress(buffer))
  },
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const kafka = (bootstrap, clientId) =>
  new Kafka({
    brokers: [bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, retries: 8 },
    ...(clientId ? { clientId } : {}),
  })

// Runs `work` with a connected producer, consumer or admin, and disconnects it.
async function connected(handle, work) {
  await handle.connect()
  try {
    return await work(handle)
  } finally {
    await handle.disconnect()
  }
}

const producerOf = (bootstrap, more = {}) =>
  kafka(bootstrap).producer({ createPartitioner: Partitioners.DefaultPartitioner, ...more })

function toKafkajs(record) {
  const headers = {}
  for (const [name, value] of record.headers) {
    if (name in headers) headers[name] = [].concat(headers[name], [value])
    else headers[name] = value
  }
  const timestamp = record.timestamp === null ? {} : { timestamp: String(record.timestamp) }
  return { key: record.key, value: record.value, partition: record.partition, headers, ...timestamp }
}

const fromKafkajs = (partition, message) => ({
  key: message.key,
  value: message.value,
  headers: Object.entries(message.headers ?? {}).flatMap(([name, value]) =>
    Array.isArray(value) ? value.map((each) => [name, each]) : [[name, value]],
  ),
  timestamp: Number(message.timestamp),
  offset: Number(message.offset),
  partition,
})

async function produce({ bootstrap, topic, records, codec, idempotent }) {
  const producer = producerOf(bootstrap, idempotent ? { idempotent: true, maxInFlightRequests: 1 } : {})
  return connected(producer, async () => {
    const sent = { topic, acks: -1, compression: CODECS[codec], messages: records.map(toKafkajs) }
    const results = await producer.send(sent)
    const next = new Map(results.map((result) => [result.partition, Number(result.baseOffset)]))
    return records.map(({ partition }) => {
      const offset = next.get(partition)
      next.set(partition, offset + 1)
      return offset
    })
  })
}

const consumerOf = (client, groupId, readUncommitted) =>
  client.consumer({
    groupId,
    readUncommitted,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    rebalanceTimeout: 10_000,
    maxWaitTimeInMs: 100,
    maxBytesPerPartition: 4_000_000,
  })

// kafkajs reads as a member of a group only: a group of its own, sought to the offset.
async function fetch({ bootstrap, topic, partition, start, count, client_id, read_committed }, deadline) {
  const consumer = consumerOf(kafka(bootstrap, client_id), `fetch-${randomUUID()}`, !read_committed)
  return connected(consumer, async () => {
    const records = []
    let failure
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) failure = payload.error
    })
    consumer.on(consumer.events.GROUP_JOIN, () => consumer.seek({ topic, partition, offset: String(start) }))
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async (each) => {
        if (each.partition === partition && Number(each.message.offset) >= start) {
          records.push(fromKafkajs(each.partition, each.message))
        }
      },
    })
    while (records.length < count) {
      if (failure) throw failure
      if (Date.now() > deadline) throw new Error(`read ${records.length} of ${count} records in time`)
      await sleep(5)
    }
    return records.slice(0, count)
  })
}

class Member {
  constructor({ bootstrap, group, topic }, readUncommitted = true) {
    this.topic = topic
    this.consumer = consumerOf(kafka(bootstrap), group, readUncommitted)
    this.queue = []
    this.held = []
    this.taken = []
    this.next = new Map() // per partition, the offset to commit
    this.consumer.on(this.consumer.events.REBALANCING, () => {
      this.taken.push(...this.held)
      this.held = []
    })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.held = payload.memberAssignment[topic] ?? []
      for (const partition of this.next.keys()) if (!this.held.includes(partition)) this.next.delete(partition)
    })
    this.consumer.on(this.consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) this.failure = payload.error
    })
  }

  async start() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.queue.push(fromKafkajs(partition, message))
      },
    })
    return this
  }

  async poll(ms, limit = 500) {
    const deadline = Date.now() + ms
    while (this.queue.length === 0 && Date.now() < deadline && !this.failure) await sleep(5)
    if (this.failure) throw this.failure
    const records = this.queue.splice(0, limit)
    for (const { partition, offset } of records) this.next.set(partition, offset + 1)
    return records
  }

  offsets() {
    return [...this.next].map(([partition, offset]) => ({ partition, offset: String(offset) }))
  }

  assignment() {
    return this.held
  }

  revoked() {
    return this.taken
  }

  async commit() {
    await this.consumer.commitOffsets(this.offsets().map((each) => ({ topic: this.topic, ...each })))
  }

  async close() {
    await this.consumer.disconnect()
  }
}

const join = (request) => new Member(request).start()

async function offset_at({ bootstrap, topic, partition, timestamp }) {
  return connected(kafka(bootstrap).admin(), async (admin) => {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
    return Number(found.find((each) => each.partition === partition).offset)
  })
}

const transactional = (bootstrap, transactionalId) =>
  producerOf(bootstrap, { transactionalId, idempotent: true, maxInFlightRequests: 1 })

const end = (transaction, commit) => (commit ? transaction.commit() : transaction.abort())

async function transact({ bootstrap, topic, transactional_id, transactions }) {
  await connected(transactional(bootstrap, transactional_id), async (producer) => {
    for (const { records, commit } of transactions) {
      const transaction = await producer.transaction()
      for (const record of records) await transaction.send({ topic, acks: -1, messages: [toKafkajs(record)] })
      await end(transaction, commit)
    }
  })
}

async function copy_in_transaction(request, deadline) {
  const { bootstrap, topic, to, group, transactional_id, count, commit } = request
  const member = await new Member({ bootstrap, group, topic }, false).start()
  try {
    await connected(transactional(bootstrap, transactional_id), async (producer) => {
      const transaction = await producer.transaction()
      for (let copied = 0; copied < count; ) {
        if (Date.now() > deadline) throw new Error(`read ${copied} of ${count} records in time`)
        const records = await member.poll(200, count - copied)
        copied += records.length
        const messages = records.map(({ key, value }) => ({ key, value }))
        if (messages.length > 0) await transaction.send({ topic: to, acks: -1, messages })
      }
      const topics = [{ topic, partitions: member.offsets() }]
      await transaction.sendOffsets({ consumerGroupId: group, topics })
      await end(transaction, commit)
    })
  } finally {
    await member.close()
  }
}

const admin = (bootstrap, work) => connected(kafka(bootstrap).admin(), work)

async function topics({ bootstrap }) {
  return admin(bootstrap, async (client) => {
    const listed = await client.fetchTopicMetadata()
    return Object.fromEntries(listed.topics.map(({ name, partitions }) => [name, partitions.length]))
  })
}

const entries = (config) => Object.entries(config).map(([name, value]) => ({ name, value }))

async function create_topic({ bootstrap, topic, partitions, config }) {
  const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries: entries(config) }
  const created = await admin(bootstrap, (client) => client.createTopics({ topics: [wanted] }))
  if (!created) throw new Error(`${topic} exists`)
}

const delete_topic = ({ bootstrap, topic }) => admin(bootstrap, (client) => client.deleteTopics({ topics: [topic] }))

async function topic_config({ bootstrap, topic }) {
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
  const described = await admin(bootstrap, (client) => client.describeConfigs({ resources, includeSynonyms: false }))
  return Object.fromEntries(
    described.resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]),
  )
}

async function replace_topic_config({ bootstrap, topic, config }) {
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: entries(config) }]
  await admin(bootstrap, (client) => client.alterConfigs({ validateOnly: false, resources }))
}

module.exports = {
  produce, fetch, join, offset_at, transact, copy_in_transaction,
  topics, create_topic, delete_topic, topic_config, replace_topic_config,
}
