// From lines of JSON to calls of a client, and records between the two.
'use strict'

const decode = (text) => (text === null || text === undefined ? null : Buffer.from(text, 'base64'))
const encode = (bytes) => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64'))

// A record of a request: bytes are Buffers or null, headers are [name, Buffer or null] pairs.
const incoming = (record) => ({
  ...record,
  key: decode(record.key),
  value: decode(record.value),
  headers: (record.headers ?? []).map(([name, value]) => [name, decode(value)]),
})

const outgoing = (record) => ({
  ...record,
  key: encode(record.key),
  value: encode(record.value),
  headers: record.headers.map(([name, value]) => [name, encode(value)]),
})

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

const VERB_TIMEOUT_MS = 60_000

// `work(deadline)` until it is done or the request's time is over; deadline is in ms of the clock.
const deadlineOf = (request) => Date.now() + (request.timeout ? request.timeout * 1000 : VERB_TIMEOUT_MS)

// The function from one line to its answer, for a client with the verbs as async functions.
function program(client) {
  const members = new Map()
  let joined = 0

  async function memberVerb(request) {
    const member = members.get(request.member)
    if (member === undefined) throw new Error(`no member ${request.member}: it was closed or never joined`)
    if (request.verb === 'poll') return (await member.poll(request.seconds * 1000)).map(outgoing)
    if (request.verb === 'close') members.delete(request.member)
    return (await member[request.verb]()) ?? null
  }

  async function ask(request) {
    switch (request.verb) {
      case 'join':
        joined += 1
        members.set(joined, await client.join(request))
        return joined
      case 'poll':
      case 'assignment':
      case 'revoked':
      case 'commit':
      case 'close':
        return memberVerb(request)
      case 'fetch':
        return (await client.fetch(request, deadlineOf(request))).map(outgoing)
      case 'produce':
        return client.produce({ ...request, records: request.records.map(incoming) })
      case 'transact': {
        const decoded = request.transactions.map((each) => ({ ...each, records: each.records.map(incoming) }))
        return (await client.transact({ ...request, transactions: decoded })) ?? null
      }
      default:
        if (client[request.verb] === undefined) throw new Error(`no verb ${request.verb}`)
        return (await client[request.verb](request, deadlineOf(request))) ?? null
    }
  }

  return async (line) => {
    try {
      return { ok: await ask(JSON.parse(line)) }
    } catch (error) {
      return { refused: error.message || String(error) }
    }
  }
}

module.exports = { program, sleep }
