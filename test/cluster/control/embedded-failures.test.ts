// What an embedded control plane keeps when its process is killed at any moment, and when its disk is full.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { EmbeddedControlPlane } from '#lib/cluster/control/embedded.js'
import { recordsOf } from '../../fixtures/cluster/contract.js'

/** Kills of the process: a few in the suite, CONTROL_KILLS of them at night. */
const kills = Number(process.env.CONTROL_KILLS ?? 2)
const isRoot = process.platform === 'linux' && process.getuid?.() === 0

/** Appends records and moves a value on as fast as it can, and prints what was acknowledged. */
const writer = (folder: string): string => `
  import { writeSync } from 'node:fs'
  const { EmbeddedControlPlane } = await import('#lib/cluster/control/embedded.js')
  const plane = await EmbeddedControlPlane.open(${JSON.stringify(folder)})
  const say = (...words) => writeSync(1, words.join(' ') + '\\n')
  const kv = plane.kv('placements')
  const lease = await plane.lease('leader', 'writer', 100).acquire({ waitMs: 5000 })
  say('lease', lease.fencing)
  const big = 'x'.repeat(200_000)
  for (const worker of [0, 1, 2, 3]) {
    ;(async () => {
      for (let n = 0; ; n++) {
        const record = process.pid + '-' + worker + '-' + n
        say('log', await plane.log.append(record), record)
        say('kv', worker, await kv.put('key-' + worker, { n, big }), n)
      }
    })()
  }`

interface Acknowledged {
  readonly records: Map<number, string>
  readonly values: Map<string, { revision: number; n: number }>
  fencing: number
}

async function writeAndKill(folder: string, acknowledged: Acknowledged): Promise<void> {
  const child = spawn(process.execPath, ['--input-type=module', '--eval', writer(folder)], {
    cwd: path.resolve(import.meta.dirname, '../../..'),
    env: { ...process.env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let lines = 0
  const killAfter = Math.floor(Math.random() * 150)
  for await (const line of createInterface({ input: child.stdout })) {
    const [what, ...words] = line.split(' ') as [string, ...string[]]
    if (what === 'log') acknowledged.records.set(Number(words[0]), words[1]!)
    if (what === 'kv')
      acknowledged.values.set(`key-${words[0]}`, { revision: Number(words[1]), n: Number(words[2]) })
    if (what === 'lease') {
      if (Number(words[0]) <= acknowledged.fencing) throw new Error('the fencing number did not rise')
      acknowledged.fencing = Number(words[0])
    }
    if (lines++ === killAfter) child.kill('SIGKILL')
  }
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
}

t.test('nothing that was acknowledged is lost when the process is killed', async t => {
  const folder = t.testdir()
  const acknowledged: Acknowledged = { records: new Map(), values: new Map(), fencing: 0 }
  const times: number[] = []
  for (let round = 0; round < kills; round++) {
    await writeAndKill(folder, acknowledged)
    const began = performance.now()
    const plane = await EmbeddedControlPlane.open(folder)
    times.push(performance.now() - began)
    const records = new Map((await recordsOf(plane)).map(({ seq, record }) => [seq, record]))
    const lost = [...acknowledged.records].filter(([seq, record]) => records.get(seq) !== record)
    t.same(lost, [], `round ${round}: ${acknowledged.records.size} records`)
    for (const [key, { revision, n }] of acknowledged.values) {
      const entry = await plane.kv('placements').get(key)
      const isKept = entry && entry.revision >= revision && (entry.value as { n: number }).n >= 0
      t.ok(isKept && (entry.revision > revision || (entry.value as { n: number }).n === n), key)
    }
    await plane.close()
    t.same(readdirSync(folder), ['journal.jsonl'], 'nothing unfinished is left')
  }
  const slowest = Math.max(...times).toFixed(0)
  t.comment(`${kills} kills, ${acknowledged.records.size} records, opened again in at most ${slowest} ms`)
})

t.test('a full disk', { skip: !isRoot && 'needs root, to mount a small disk' }, async t => {
  const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-full-disk-'))
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder])
  if (status !== 0) return t.comment('nothing can be mounted here')
  try {
    await fillAndFree(t, folder)
  } finally {
    spawnSync('umount', ['-l', folder])
    rmdirSync(folder)
  }
})

async function fillAndFree(t: Test, folder: string): Promise<void> {
  const ballast = path.join(folder, 'ballast')
  writeFileSync(ballast, Buffer.alloc(600_000))
  const plane = await EmbeddedControlPlane.open(path.join(folder, 'state'))
  const kept: number[] = []
  let failure: unknown
  for (let n = 1; n <= 100 && !failure; n++) {
    const text = `${n}${'x'.repeat(20_000)}`
    await Promise.all([1, 2, 3].map(() => plane.log.append(text))).then(
      seqs => kept.push(...seqs),
      error => {
        failure = error
      },
    )
  }
  t.match(failure, { code: 'ERR_IO', message: /could not write .*journal\.jsonl: the disk is full/ })
  await t.rejects(plane.kv('placements').put('key', 'x'.repeat(50_000)), { code: 'ERR_IO' }, 'and stays so')
  t.match(plane.quorum, { writable: false, note: /nothing can be stored: .*the disk is full/ })
  const before = await recordsOf(plane)
  t.ok(before.length >= kept.length, 'what was acknowledged can be read')
  rmSync(ballast)
  const began = performance.now()
  const next = await plane.log.append('there is room')
  t.comment(`goes on ${(performance.now() - began).toFixed(1)} ms after there is room`)
  t.equal(next, before.length + 1)
  t.ok(plane.quorum.writable)
  await plane.close()
  const again = await EmbeddedControlPlane.open(path.join(folder, 'state'))
  t.same(await recordsOf(again), [...before, { seq: next, record: 'there is room' }])
  await again.close()
}

t.test('leases that expire while a process sleeps are noticed by it', async t => {
  const plane = await EmbeddedControlPlane.open(t.testdir())
  const lease = await plane.lease('leader', 'sleeper', 100).acquire()
  await sleep(20)
  // The thread is busy longer than the lease lasts: no timer can have told.
  for (const until = performance.now() + 150; performance.now() < until; );
  await t.rejects(lease!.renew(), { code: 'ERR_CONFLICT' })
  t.ok(lease!.lost.aborted)
  await plane.close()
})
