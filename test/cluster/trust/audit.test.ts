// The audit log: what is acknowledged stays, and every way to change it is found.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { open } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { AuditLog, type AuditOptions } from '#lib/cluster/trust/audit.js'
import { parseNote } from '#lib/cluster/trust/checkpoint.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { verifyAudit } from '#lib/cluster/trust/verify-audit.js'
import { askWitness, type CosignRequest, proofText, Witness } from '#lib/cluster/trust/witness.js'

type TapTest = Pick<typeof t, 'testdir'>

const event = { actor: 'someone', op: 'compute', device: 'GPU-1', bytes: 4096, result: 'ok' } as const

/** Appends events together. */
const fill = (log: AuditLog, count: number, text = 'ok') =>
  Promise.all(Array.from({ length: count }, (_, i) => log.append({ ...event, jti: `${i}`, result: text })))

async function makeLog(t: TapTest, count: number, options: AuditOptions = {}) {
  const home = t.testdir()
  const identity = await NodeIdentity.open(home)
  const log = await AuditLog.open(identity, options)
  await fill(log, count)
  await log.close()
  return { home, identity, folder: log.folder, segment: path.join(log.folder, 'audit-00000001.jsonl') }
}

t.test('records are numbered, survive, and are archived', async t => {
  const home = t.testdir()
  const identity = await NodeIdentity.open(home)
  const notes: string[] = []
  const options = {
    segmentBytes: 20_000,
    checkpointRecords: 50,
    onCheckpoint: (note: string) => notes.push(note),
  }
  const log = await AuditLog.open(identity, options)
  t.same(await fill(log, 3), [0, 1, 2])
  await t.rejects(AuditLog.open(identity), { code: 'ERR_BUSY' })
  for (let i = 0; i < 4; i++) await fill(log, 60)
  t.equal(log.size, 243)
  await log.close()
  await log.close()
  await t.rejects(log.append(event), { code: 'ERR_DISPOSED' })
  const again = await AuditLog.open(identity, options)
  t.equal(await again.append(event), 243)
  await again.close()
  const names = readdirSync(log.folder)
  t.ok(names.filter(name => name.endsWith('.gz')).length >= 2, names.join())
  t.equal(names.filter(name => name.endsWith('.jsonl') && name.startsWith('audit')).length, 1)
  t.ok(notes.length >= 4)
  t.equal(parseNote(notes.at(-1)).size, 244)
  const report = await verifyAudit(log.folder)
  t.match(report, {
    isIntact: true,
    nodeId: identity.nodeId,
    records: 244,
    covered: 244,
    cosigned: 0,
    problems: [],
  })
})

t.test('what is no event', async t => {
  const log = await AuditLog.open(await NodeIdentity.open(t.testdir()))
  const bad = { op: 'steal' } as never as { op: 'free' }
  for (const wrong of [
    bad,
    { actor: 5 as never },
    { bytes: -1 },
    { bytes: 0.5 },
    { device: 'x'.repeat(501) },
  ])
    await t.rejects(log.append({ ...event, ...wrong }), { code: 'ERR_ARGUMENT' })
  await log.append({ ...event, result: 'x'.repeat(10_000), actor: 'a\nb' })
  t.equal(log.size, 1)
  await log.close()
  t.ok((await verifyAudit(log.folder)).isIntact)
})

t.test('each byte of a record that is changed is found', async t => {
  const { folder, segment } = await makeLog(t, 6)
  const bytes = readFileSync(segment)
  const unseen: number[] = []
  for (let at = 0; at < bytes.byteLength; at += 7) {
    const changed = Buffer.from(bytes)
    changed[at]! ^= 1
    writeFileSync(segment, changed)
    if ((await verifyAudit(folder)).isIntact) unseen.push(at)
  }
  t.same(unseen, [])
  const last = Buffer.from(bytes)
  last[bytes.lastIndexOf('"result":"ok"') + 11]! ^= 1
  writeFileSync(segment, last)
  t.match((await verifyAudit(folder)).problems, [{ kind: 'fork' }], 'the last record')
  writeFileSync(segment, bytes)
  t.ok((await verifyAudit(folder)).isIntact)
})

t.test('cuts, reorders, insertions and removed files are found', async t => {
  const { folder, segment, identity } = await makeLog(t, 8)
  const text = readFileSync(segment, 'utf8')
  const lines = text.split('\n').slice(0, -1)
  const kinds = async (changed: readonly string[]) => {
    writeFileSync(segment, changed.map(line => `${line}\n`).join(''))
    return [...new Set((await verifyAudit(folder)).problems.map(({ kind }) => kind))].sort()
  }
  const [a, b, c, ...rest] = lines as [string, string, string, ...string[]]
  t.same(await kinds(lines.slice(0, 5)), ['cut'], 'the end')
  t.same(await kinds([]), ['cut'], 'all')
  t.ok((await kinds([a, c, ...rest])).includes('cut'), 'one in the middle')
  t.ok((await kinds([a, c, b, ...rest])).includes('reorder'))
  t.ok((await kinds([a, b, b, c, ...rest])).includes('reorder'), 'twice')
  t.ok((await kinds([a, 'x', b, c, ...rest])).includes('edit'))
  t.ok((await kinds([a, '', b, c, ...rest])).includes('edit'))
  await t.rejects(AuditLog.open(identity), { code: 'ERR_FORMAT', message: /record 1 is damaged/ })
  writeFileSync(segment, text.slice(0, -30))
  t.match((await verifyAudit(folder)).problems, [{ kind: 'torn' }, { kind: 'cut' }])
  rmSync(segment)
  t.match((await verifyAudit(folder)).problems, [{ kind: 'cut' }])
  await t.rejects(AuditLog.open(identity), {
    code: 'ERR_FORMAT',
    message: /not the log of its last checkpoint/,
  })
  await t.rejects(verifyAudit(path.join(folder, 'none')), { code: 'ERR_IO' })
})

t.test('changed checkpoints and owners are found', async t => {
  const { folder } = await makeLog(t, 5)
  const file = path.join(folder, 'checkpoints.jsonl')
  const good = readFileSync(file, 'utf8')
  for (const [from, to] of [
    [/\\n5\\n/, '\\n4\\n'],
    [/"note"/, '"nope"'],
    [/audit\/./, 'audit/_'],
    [/ ([A-Za-z0-9+/]{40})/, ` ${'A'.repeat(40)}`],
  ] as const) {
    writeFileSync(file, good.replace(from, to))
    const { isIntact, problems } = await verifyAudit(folder)
    t.notOk(isIntact, String(from))
    t.match(problems[0]!.kind, /signature|damage/)
  }
  writeFileSync(file, good)
  const other = await NodeIdentity.open(path.join(folder, 'other'))
  const { problems } = await verifyAudit(folder, { owner: other })
  t.match(problems, [{ kind: 'signature' }])
})

t.test('an archive that was changed is found', async t => {
  const { folder } = await makeLog(t, 300, { segmentBytes: 10_000 })
  const archive = path.join(folder, 'audit-00000001.jsonl.gz')
  const bytes = readFileSync(archive)
  bytes[bytes.byteLength >> 1]! ^= 1
  writeFileSync(archive, bytes)
  const { problems } = await verifyAudit(folder)
  t.ok(problems.some(({ kind }) => kind === 'damage' || kind === 'edit'))
})

t.test(
  'a node that rewrites or cuts its log, and signs it again, is found by what peers have cosigned',
  async t => {
    const home = t.testdir()
    const identity = await NodeIdentity.open(path.join(home, 'node'))
    const peer = await NodeIdentity.open(path.join(home, 'peer'))
    const witness = new Witness(peer)
    const ask = (request: CosignRequest) => witness.cosign(identity, JSON.parse(JSON.stringify(request)))
    const options = { checkpointRecords: 1, segmentBytes: 1 << 20 }
    const log = await AuditLog.open(identity, options)
    t.notOk(await askWitness(log, peer, ask), 'no checkpoint yet')
    await fill(log, 5)
    await log.close()
    const before = path.join(home, 'before')
    cpSync(log.folder, before, { recursive: true })
    for (const count of [3, 4, 0]) {
      const next = await AuditLog.open(identity, options)
      await fill(next, count)
      await next.append(event)
      await next.close()
      const open = await AuditLog.open(identity, options)
      t.ok(await askWitness(open, peer, ask))
      t.ok(await askWitness(open, peer, ask), 'again')
      await open.close()
    }
    const good = await verifyAudit(log.folder, { peers: [peer] })
    t.match(good, { isIntact: true, records: 15, cosigned: 15 })
    const kept = await witness.noteOf(identity.nodeId)
    const fork = await AuditLog.open(identity, { ...options, folder: before })
    t.match(await verifyAudit(before, { notes: [kept!] }), { problems: [{ kind: 'cut' }] })
    await fill(fork, 20, 'another story')
    await fork.close()
    t.ok((await verifyAudit(before)).isIntact, 'the folder alone does not show it')
    t.match(await verifyAudit(before, { notes: [kept!] }), { problems: [{ kind: 'fork' }] })
    const reopened = await AuditLog.open(identity, { ...options, folder: before })
    await t.rejects(askWitness(reopened, peer, ask), {
      code: 'ERR_DENIED',
      message: /was rewritten before record 15/,
    })
    await t.rejects(
      askWitness(reopened, peer, async () => ({ cosignature: '— x AAAAAAAA\n' })),
      { code: 'ERR_DENIED', message: /did not cosign/ },
    )
    await reopened.close()
    for (const bad of [null, {}, { note: 'x' }, { note: kept, oldSize: 0, proof: 'x' }])
      await t.rejects(witness.cosign({ ...peer, nodeId: peer.nodeId, publicKey: peer.publicKey }, bad))
  },
)

t.test(
  'a node that shows two witnesses different logs is found when they compare what they hold',
  async t => {
    const home = t.testdir()
    const identity = await NodeIdentity.open(path.join(home, 'node'))
    const logOf = (name: string) =>
      AuditLog.open(identity, { folder: path.join(home, name), checkpointRecords: 1 })
    const witnessOf = async (name: string) => {
      const peer = await NodeIdentity.open(path.join(home, name))
      const witness = new Witness(peer)
      return { witness, peer, ask: (request: CosignRequest) => witness.cosign(identity, request) }
    }
    const [one, two] = [await witnessOf('one'), await witnessOf('two')]
    const first = await logOf('first')
    await fill(first, 3)
    await askWitness(first, one.peer, one.ask)
    const held = (await one.witness.noteOf(identity.nodeId))!
    await fill(first, 2)
    await askWitness(first, two.peer, two.ask)
    const prove = async (oldSize: number, size: number) => proofText(first, oldSize, size)
    await two.witness.compare(identity, held, prove)
    await one.witness.compare(identity, (await two.witness.noteOf(identity.nodeId))!, prove)

    const second = await logOf('second')
    await fill(second, 4, 'another story')
    const other = second.checkpoint!
    await t.rejects(two.witness.compare(one.peer, other, prove), { message: /is not signed by node/ })
    await t.rejects(two.witness.compare(identity, other, prove), {
      code: 'ERR_DENIED',
      message: /has forked before record \d/,
    })
    await fill(first, 1)
    await t.rejects(askWitness(first, two.peer, two.ask), { message: /has forked before record \d/ })
    await askWitness(first, one.peer, one.ask)
    await first.close()
    await second.close()
  },
)

t.test('a process that is killed loses nothing that was acknowledged', async t => {
  const home = t.testdir()
  const identity = await NodeIdentity.open(home)
  const script = `
    const { AuditLog } = await import('#lib/cluster/trust/audit.js')
    const { NodeIdentity } = await import('#lib/cluster/trust/node-identity.js')
    const log = await AuditLog.open(await NodeIdentity.open(${JSON.stringify(home)}), { segmentBytes: 30000, checkpointRecords: 20 })
    for (;;) {
      const done = await Promise.all(Array.from({ length: 7 }, () => log.append({ actor: 'x', op: 'free', result: 'ok' })))
      console.log(done.at(-1))
    }`
  for (let round = 0; round < 2; round++) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, NODE_OPTIONS: '' },
    })
    let acknowledged = -1
    for await (const line of createInterface({ input: child.stdout })) {
      acknowledged = Number(line)
      if (acknowledged > 150 * (round + 1)) child.kill('SIGKILL')
    }
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    t.ok(acknowledged > 150)
    const log = await AuditLog.open(identity)
    t.ok(log.size > acknowledged, `${log.size} records, ${acknowledged} acknowledged`)
    await log.close()
    t.match(await verifyAudit(log.folder), { isIntact: true })
  }
})

t.test('a torn last line is cut off by name, and so is a torn checkpoint', async t => {
  const { folder, segment, identity } = await makeLog(t, 4)
  appendFileSync(segment, '{"seq":4,"time":"20')
  appendFileSync(path.join(folder, 'checkpoints.jsonl'), '{"note":"dgx')
  const log = await AuditLog.open(identity)
  await log.append(event)
  await log.close()
  const records = readFileSync(segment, 'utf8')
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))
  t.match(records[4], {
    seq: 4,
    op: 'repair',
    result: /^19 bytes of a torn line .* audit-00000001\.jsonl were cut off/,
  })
  t.match(await verifyAudit(folder), { isIntact: true, records: 6 })
})

t.test('checkpoints do not grow without bound', async t => {
  const { folder, identity } = await makeLog(t, 4)
  const file = path.join(folder, 'checkpoints.jsonl')
  const peer = await NodeIdentity.open(path.join(folder, '..', 'peer'))
  const witness = new Witness(peer)
  const ask = (request: CosignRequest) => witness.cosign(identity, request)
  const log = await AuditLog.open(identity)
  await askWitness(log, peer, ask)
  const once = readFileSync(file, 'utf8')
  await askWitness(log, peer, ask)
  t.equal(readFileSync(file, 'utf8'), once, 'a witness that has cosigned adds nothing')
  await log.close()
  writeFileSync(file, once.repeat(Math.ceil(2 ** 20 / once.length) + 1))
  const again = await AuditLog.open(identity)
  await again.append(event)
  await again.close()
  t.equal(readFileSync(file, 'utf8').trim().split('\n').length, 2, 'the last one, and the last cosigned one')
  t.match(await verifyAudit(folder, { peers: [peer] }), { isIntact: true, covered: 5, cosigned: 4 })
})

t.test('a log goes on where the next file cannot be opened', async t => {
  const { folder, identity } = await makeLog(t, 4)
  const next = path.join(folder, 'audit-00000002.jsonl')
  const log = await AuditLog.open(identity, { segmentBytes: 100 })
  mkdirSync(next)
  t.same(await fill(log, 2), [4, 5])
  t.same(await fill(log, 2), [6, 7])
  rmdirSync(next)
  t.same(await fill(log, 2), [8, 9])
  await log.close()
  t.match(await verifyAudit(folder), { isIntact: true, records: 10 })
})

t.test('a disk that is full in the middle of a checkpoint', async t => {
  const home = t.testdir()
  const identity = await NodeIdentity.open(home)
  const log = await AuditLog.open(identity, { checkpointRecords: 1 })
  await log.append(event)
  const handle = await open(path.join(home, 'probe'), 'w')
  const kind = Object.getPrototypeOf(handle)
  const { appendFile } = kind
  t.teardown(() => Object.assign(kind, { appendFile }))
  kind.appendFile = async function (data: string | Buffer) {
    if (typeof data !== 'string') return appendFile.call(this, data)
    Object.assign(kind, { appendFile })
    await appendFile.call(this, data.slice(0, 40))
    throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' })
  }
  for (let i = 0; i < 3; i++) await log.append(event)
  await log.close()
  await handle.close()
  t.match(await verifyAudit(log.folder), { isIntact: true, records: 4 })
  const again = await AuditLog.open(identity)
  t.equal(again.size, 4)
  await again.close()
})
