// The Node clients of the compatibility matrix: kafkajs, and librdkafka as Confluent binds it.
//
// The tests are in Python; this program does their verbs with the library named by its one argument. Each line of
// standard input is one request as JSON, each line of standard output its answer: {"ok": ...} or {"refused": "text"}.
// Bytes travel as base64, null as null. Group members live in this process between requests, by number.
'use strict'

const readline = require('node:readline')
const { program } = require('./verbs')

const libraries = { kafkajs: './kafkajs_client', librdkafka: './librdkafka_client' }
const library = libraries[process.argv[2]]
if (library === undefined) {
  console.error(`usage: main.js ${Object.keys(libraries).join('|')}`)
  process.exit(2)
}

async function main() {
  const answer = program(require(library))
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(line))}\n`)
  }
  process.exit(0) // librdkafka's threads of members that were never closed
}

main()
