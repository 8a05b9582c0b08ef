// The control plane of one process: the contract, and what it does when the disk or the process fails.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { EmbeddedControlPlane } from '#lib/cluster/control/embedded.js'
import { Journal } from '#lib/cluster/control/journal.js'
import { scriptResult } from '../../fixtures/child.js'
import { contract, recordsOf } from '../../fixtures/cluster/contract.js'

const journalOf = (folder: string): string => path.join(folder, 'journal.jsonl')

t.test('contract', async t => {
  const plane = await EmbeddedControlPlane.open(t.testdir())
  await contract(t, [plane, plane])
  await plane.close()
})

t.test('everything is there again', async t => {
  const folder = t.testdir()
  let plane = await EmbeddedControlPlane.open(folder)
  const options = { ackWaitMs: 60_000, maxDeliveries: 2 }
  await plane.log.append('one')
  const revision = await plane.kv('placements').create('key', { a: 1 })
  await plane.kv('telemetry').put('node', 'hot')
  for (const id of ['out', 'waiting', 'done']) await plane.queue('work', options).push(id, id)
  const [out] = await plane.queue('work', options).pull()
  t.equal(out?.id, 'out')
  t.match(plane.quorum, { members: 1, needed: 1, writable: true, note: /decides alone/ })
  const lease = await plane.lease('leader', 'me', 1000).acquire()
  await plane.close()
  t.ok(lease!.lost.aborted, 'closing gives leases up')
  await t.rejects(plane.log.append(1), { code: 'ERR_DISPOSED' })
  t.throws(() => plane.kv('placements'), { code: 'ERR_DISPOSED' })
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.notMatch(readFileSync(journalOf(folder), 'utf8'), /hot/, 'telemetry never reaches the disk')

  plane = await EmbeddedControlPlane.open(folder)
  t.same(await recordsOf(plane), [{ seq: 1, record: 'one' }])
  t.same(await plane.kv('placements').get('key'), { key: 'key', value: { a: 1 }, revision })
  t.equal(await plane.kv('telemetry').get('node'), undefined)
  const jobs = await plane.queue('work', options).pull({ max: 9 })
  t.same(
    jobs.map(({ id, delivery }) => [id, delivery]),
    [
      ['out', 2],
      ['waiting', 1],
      ['done', 1],
    ],
    'what somebody had comes first',
  )
  const again = await plane.lease('leader', 'me', 1000).acquire()
  t.ok(again!.fencing > lease!.fencing, 'fencing numbers rise across restarts')
  await plane.close()
  await plane.close()
})

t.test('one process at a time', async t => {
  const folder = t.testdir()
  const plane = await EmbeddedControlPlane.open(folder)
  const message = new RegExp(`process ${process.pid}`)
  await t.rejects(EmbeddedControlPlane.open(folder), { code: 'ERR_BUSY', message })
  const found = await scriptResult(`
    const { EmbeddedControlPlane } = await import('#lib/cluster/control/embedded.js')
    const error = await EmbeddedControlPlane.open(${JSON.stringify(folder)}).catch(error => error)
    console.log(JSON.stringify([error.code, error.message]))`)
  t.match(found, ['ERR_BUSY', message])
  await plane.close()
  await (await EmbeddedControlPlane.open(folder)).close()
})

t.test('a torn end is cut off, wherever it is torn; damage in what was acknowledged is an error', async t => {
  const folder = t.testdir()
  const plane = await EmbeddedControlPlane.open(folder)
  for (const record of ['one', 'two', 'three']) await plane.log.append(record)
  await plane.close()
  const whole = readFileSync(journalOf(folder))
  const ends = [...whole.keys()].filter(i => whole[i] === 10)
  const header = ends[0]! + 1
  for (let bytes = header; bytes <= whole.length; bytes += 11) {
    // Zeros are what some file systems leave behind a file that was growing when the power failed.
    writeFileSync(
      journalOf(folder),
      Buffer.concat([whole.subarray(0, bytes), Buffer.alloc(bytes % 2 ? 7 : 0)]),
    )
    const reopened = await EmbeddedControlPlane.open(folder)
    const left = ends.filter(end => end < bytes).length - 1
    t.equal((await recordsOf(reopened)).length, left, `cut at ${bytes}`)
    t.equal(await reopened.log.append('next'), left + 1)
    await reopened.close()
    const last = await EmbeddedControlPlane.open(folder)
    t.equal((await recordsOf(last)).at(-1)?.record, 'next')
    await last.close()
  }
  const damaged = Buffer.from(whole)
  damaged[ends[1]! - 5]! ^= 1
  writeFileSync(journalOf(folder), damaged)
  const message = /journal\.jsonl, line 2 is damaged/
  await t.rejects(EmbeddedControlPlane.open(folder), { code: 'ERR_FORMAT', message })
  for (const content of ['', 'hello\n', whole.subarray(0, 9), whole.subarray(header)]) {
    writeFileSync(journalOf(folder), content)
    await t.rejects(EmbeddedControlPlane.open(folder), { code: 'ERR_FORMAT', message: /is no journal/ })
  }
})

t.test('the journal stays short where values are written again and again', async t => {
  const folder = t.testdir()
  const plane = await EmbeddedControlPlane.open(folder)
  const text = 'x'.repeat(400_000)
  await plane.log.append('first')
  await plane.kv('placements').put('kept', 1)
  let revision = 0
  for (let i = 0; i < 60; i++) revision = await plane.kv('placements').put('key', `${i}${text}`)
  t.ok(statSync(journalOf(folder)).size < 17_000_000, '24 MB were written')
  await plane.close()
  const again = await EmbeddedControlPlane.open(folder)
  t.same(await again.kv('placements').get('key'), { key: 'key', value: `59${text}`, revision })
  t.equal((await again.kv('placements').get('kept'))?.value, 1)
  t.same(await recordsOf(again), [{ seq: 1, record: 'first' }])
  t.ok((await again.kv('placements').put('key', 1)) > revision)
  t.equal(await again.log.append('second', 1), 2)
  await again.close()
})

t.test('a journal never has more bytes than it may be opened with', async t => {
  const file = path.join(t.testdir({}), 'journal.jsonl')
  const text = JSON.stringify('x'.repeat(1000))
  const { journal } = await Journal.open(file, 4096)
  const full = { code: 'ERR_IO', message: /journal.jsonl is full: it would have \d+ bytes of at most 4096/ }
  for (let n = 0; n < 3; n++) await journal.append(text)
  await t.rejects(journal.append(text), full)
  await t.rejects(journal.replace([text, text, text, text]), full)
  await journal.append('"short"')
  await journal.close()
  const again = await Journal.open(file, 4096)
  t.same(again.texts, [text, text, text, '"short"'])
  await again.journal.replace([text])
  await again.journal.append(text)
  await again.journal.close()
  const last = await Journal.open(file, 4096)
  t.same(last.texts, [text, text])
  await last.journal.close()
  t.same(readdirSync(path.dirname(file)), ['journal.jsonl'])
})

t.test('those who follow come to an end when it is closed', async t => {
  const plane = await EmbeddedControlPlane.open(t.testdir())
  await plane.log.append(1)
  const { signal } = new AbortController()
  const log = plane.log.follow(1, signal)[Symbol.asyncIterator]()
  t.match(await log.next(), { value: { record: 1 } })
  const next = log.next()
  await plane.close()
  t.equal((await next).done, true)
  await t.rejects(plane.log.follow(1, signal)[Symbol.asyncIterator]().next(), { code: 'ERR_DISPOSED' })
})
