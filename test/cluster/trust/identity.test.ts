// The identity of a node: kept, private, one for all processes, and refused by name when its file is torn.
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { withLock } from '#lib/cluster/trust/home.js'
import { isSignedBy, NodeIdentity, publicKeyFrom } from '#lib/cluster/trust/node-identity.js'
import { SparkError } from '#lib/core/errors.js'
import { scriptResult } from '../../fixtures/child.js'

const bytes = Buffer.from('some bytes')

t.test('work in a locked folder that finds something else busy is not done again', async t => {
  let count = 0
  const work = async () => {
    count++
    throw new SparkError('ERR_BUSY', 'a port is taken')
  }
  await t.rejects(withLock(t.testdir(), work), { code: 'ERR_BUSY', message: 'a port is taken' })
  t.equal(count, 1)
})

t.test('it is made once, in a folder and file of its owner', async t => {
  const folder = path.join(t.testdir(), 'a/b')
  const made = await NodeIdentity.open(folder)
  t.match(made.nodeId, /^[0-9a-f-]{36}$/)
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.equal(statSync(path.join(folder, 'identity.json')).mode & 0o777, 0o600)
  const opened = await NodeIdentity.open(folder)
  t.equal(opened.nodeId, made.nodeId)
  t.equal(opened.publicKey, made.publicKey)
  const signature = opened.sign(bytes)
  t.ok(isSignedBy(publicKeyFrom(made.publicKey), bytes, signature))
  t.notOk(isSignedBy(publicKeyFrom(made.publicKey), Buffer.from('others'), signature))
})

t.test('processes that open it together get the same one', async t => {
  const folder = path.join(t.testdir(), 'new')
  const script = `
    const { NodeIdentity } = await import('#lib/cluster/trust/node-identity.js')
    const { nodeId, publicKey } = await NodeIdentity.open(${JSON.stringify(folder)})
    console.log(JSON.stringify({ nodeId, publicKey }))`
  const [first, ...others] = await Promise.all([1, 2, 3].map(() => scriptResult(script)))
  const { nodeId, publicKey } = await NodeIdentity.open(folder)
  t.same(first, { nodeId, publicKey })
  for (const other of others) t.same(other, first)
})

t.test('a torn file and one that others may read are named', async t => {
  const folder = t.testdir()
  await NodeIdentity.open(folder)
  const file = path.join(folder, 'identity.json')
  const text = readFileSync(file, 'utf8')
  for (const torn of [text.slice(0, 60), '{}', 'null', text.replace('BEGIN', 'END'), '{"nodeId":3}']) {
    writeFileSync(file, torn)
    await t.rejects(NodeIdentity.open(folder), { code: 'ERR_FORMAT', message: /identity\.json/ }, torn)
  }
  writeFileSync(file, text)
  chmodSync(file, 0o644)
  await t.rejects(NodeIdentity.open(folder), {
    code: 'ERR_DENIED',
    message: /identity\.json.*mode 644.*chmod 600/,
  })
})

t.test('a key that is none', async t => {
  for (const text of ['', 'AAAA', 5, null, 'x'.repeat(100)])
    t.throws(() => publicKeyFrom(text), { code: 'ERR_FORMAT' })
})
