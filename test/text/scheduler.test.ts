// Continuous batching: the memory of a sequence is its own, whatever is in the batch. The model of this test keeps tokens in place of keys and values.
import t from 'tap'
import type { Batch } from '#lib/text/generation/batch.js'
import { BlockPool } from '#lib/text/generation/block-pool.js'
import { CacheLost, type RunBatch, Scheduler, type SchedulerLimits } from '#lib/text/generation/scheduler.js'
import type { TokenRequest } from '#lib/text/generation/token-request.js'

const vocabulary = 97
const limits: SchedulerLimits = {
  blocks: 12,
  blockSize: 4,
  sequences: 4,
  tokens: 7,
  rows: 3,
  context: 40,
  shortLength: Number.POSITIVE_INFINITY,
}

/** What comes after tokens. */
const after = (ids: readonly number[]): number =>
  ids.reduce((sum, id, i) => (sum * 31 + id + i) % vocabulary, 7)

/** A model whose cache are the tokens themselves; what it says depends on all of them, as it finds them there. */
function fakeModel(seen: Batch[] = []): RunBatch {
  const cache = new Int32Array(limits.blocks * limits.blockSize).fill(-1)
  return async batch => {
    seen.push(batch)
    const [tokens, starts, past, rows] = ['tokens', 'starts', 'past', 'rows'].map(
      name => batch.feeds[name]!.data as Int32Array,
    ) as [Int32Array, Int32Array, Int32Array, Int32Array]
    const { data, shape } = batch.feeds.blocks!
    const logits = new Float32Array(rows.length * vocabulary)
    for (let b = 0; b < past.length; b++) {
      const at = (p: number): number =>
        data[b * shape[1]! + Math.floor(p / limits.blockSize)]! * limits.blockSize + (p % limits.blockSize)
      for (let row = starts[b]!; row < starts[b + 1]!; row++) {
        const position = past[b]! + row - starts[b]!
        cache[at(position)] = tokens[row]!
        const ids = Array.from({ length: position + 1 }, (_, p) => cache[at(p)]!)
        for (const [r, wanted] of rows.entries()) if (wanted === row) logits[r * vocabulary + after(ids)] = 1
      }
    }
    return { logits }
  }
}

const request = (
  ids: readonly number[],
  maxTokens: number,
  more: Partial<TokenRequest> = {},
): TokenRequest => ({
  ids,
  maxTokens,
  output: 'logits',
  rows: 'last',
  next: rows => rows.indexOf(1),
  ...more,
})

/** What a sequence becomes. */
function expected(ids: readonly number[], count: number): number[] {
  const all = [...ids]
  for (let i = 0; i < count; i++) all.push(after(all))
  return all
}

const prompt = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => (seed * 13 + i * i) % vocabulary)

t.test('requests that join and leave give what each gives alone', async t => {
  const seen: Batch[] = []
  const scheduler = new Scheduler(fakeModel(seen), limits)
  const sizes = [1, 9, 20, 3, 30, 2, 17, 8]
  const done = sizes.map((length, i) => scheduler.submit(request(prompt(length, i), (i % 3) * 4 + 1)))
  for (const [i, sequence] of (await Promise.all(done)).entries())
    t.strictSame(sequence.ids, expected(prompt(sizes[i]!, i), (i % 3) * 4 + 1), `request ${i}`)
  t.ok(
    seen.some(({ rows }) => rows.length > 1),
    'some were in one batch',
  )
  t.ok(seen.every(({ feeds }) => feeds.tokens!.data.length <= limits.tokens))
  t.equal(scheduler.active, 0)
})

t.test('a beginning that is in the cache is not computed again', async t => {
  const seen: Batch[] = []
  const scheduler = new Scheduler(fakeModel(seen), limits)
  await scheduler.submit(request(prompt(13, 1), 1))
  seen.length = 0
  const again = await scheduler.submit(request([...prompt(13, 1), 5], 2))
  t.equal(again.reused, 12)
  t.strictSame(again.ids, expected([...prompt(13, 1), 5], 2))
  t.equal(seen[0]?.feeds.tokens?.data.length, 2)
})

t.test('a sequence that becomes long is computed anew', async t => {
  const seen: Batch[] = []
  const scheduler = new Scheduler(fakeModel(seen), { ...limits, shortLength: 6 })
  const { ids } = await scheduler.submit(request(prompt(5, 2), 3))
  t.strictSame(ids, expected(prompt(5, 2), 3))
  t.strictSame(
    seen.map(({ feeds }) => [...(feeds.long!.data as Int32Array)]),
    [[0, 0, 0, 0, 0], [0], [1, 1, 1, 1, 1, 1, 1]],
  )
})

t.test('all rows come once, in their order', async t => {
  const scheduler = new Scheduler(fakeModel(), limits)
  const ids = prompt(11, 3)
  const positions: number[] = []
  const next: TokenRequest['next'] = (rows, width, first) => {
    for (let r = 0; r < rows.length / width; r++) positions.push(first + r)
    return undefined
  }
  await Promise.all([
    scheduler.submit(request(ids, 0, { rows: 'all', next })),
    scheduler.submit(request(prompt(6, 4), 5)),
  ])
  t.strictSame(positions, [...ids.keys()])
})

t.test('cancelled, failing and impossible requests do not touch others', async t => {
  const scheduler = new Scheduler(fakeModel(), limits)
  const controller = new AbortController()
  const cancelled = scheduler.submit(request(prompt(6, 5), 30, { signal: controller.signal }))
  const failing = scheduler.submit(
    request(prompt(3, 6), 9, {
      next: () => {
        throw new RangeError('no more')
      },
    }),
  )
  const good = scheduler.submit(
    request(prompt(4, 7), 8, {
      next: rows => {
        controller.abort()
        return rows.indexOf(1)
      },
    }),
  )
  await Promise.all([
    t.rejects(cancelled, { name: 'AbortError' }),
    t.rejects(failing, { message: 'no more' }),
  ])
  t.strictSame((await good).ids, expected(prompt(4, 7), 8))
  await t.rejects(scheduler.submit(request(prompt(30, 1), 11)), {
    code: 'ERR_RANGE',
    message: /30 tokens and 11 new ones are more than the context of 40/,
  })
  const small = new Scheduler(fakeModel(), { ...limits, blocks: 3 })
  await t.rejects(small.submit(request(prompt(9, 1), 4)), { message: /do not fit into the cache of 12/ })
  const last = scheduler.submit(request(prompt(4, 8), 30))
  await Promise.all([t.rejects(last, { code: 'ERR_DISPOSED' }), scheduler.close()])
  await t.rejects(scheduler.submit(request([1], 1)), { code: 'ERR_DISPOSED' })
})

/** A model that works on several batches at a time, and may fail at one of them. */
function slowModel(run: ReturnType<typeof fakeModel>, { failAt = -1, error = new Error('no power') } = {}) {
  const stats = { most: 0, together: 0, batches: 0 }
  let open: Batch[] = []
  const slow: typeof run = async (batch, outputs) => {
    const isFailing = stats.batches++ === failAt
    const own = new Set(batch.rows.map(({ part }) => part.sequence))
    if (open.some(({ rows }) => rows.some(({ part }) => own.has(part.sequence)))) stats.together++
    open.push(batch)
    stats.most = Math.max(stats.most, open.length)
    await new Promise(resolve => setTimeout(resolve, stats.batches % 3))
    open = open.filter(other => other !== batch)
    if (isFailing) throw error
    return run(batch, outputs)
  }
  return { run: slow, stats }
}

t.test('several batches at a time', async t => {
  const sizes = [1, 9, 20, 3, 30, 2, 17, 8]
  const { run, stats } = slowModel(fakeModel())
  const scheduler = new Scheduler(run, { ...limits, batches: 3 })
  const done = sizes.map((length, i) => scheduler.submit(request(prompt(length, i), (i % 3) * 4 + 1)))
  for (const [i, sequence] of (await Promise.all(done)).entries())
    t.strictSame(sequence.ids, expected(prompt(sizes[i]!, i), (i % 3) * 4 + 1), `request ${i}`)
  t.equal(stats.most, 3)
  t.equal(stats.together, 0, 'no sequence was in two of them')
  t.equal(scheduler.active, 0)
  const controller = new AbortController()
  const cancelled = scheduler.submit(request(prompt(6, 5), 30, { signal: controller.signal }))
  const good = scheduler.submit(request(prompt(4, 7), 8))
  setTimeout(() => controller.abort(), 3)
  await t.rejects(cancelled, { name: 'AbortError' })
  t.strictSame((await good).ids, expected(prompt(4, 7), 8))
  const last = [4, 8].map(seed => scheduler.submit(request(prompt(4, seed), 30)))
  await Promise.all([...last.map(each => t.rejects(each, { code: 'ERR_DISPOSED' })), scheduler.close()])
})

t.test('a batch beside others loses the cache, or fails', async t => {
  for (const error of [new CacheLost('gone'), new Error('no power')]) {
    let resets = 0
    const { run, stats } = slowModel(fakeModel(), { failAt: 4, error })
    const scheduler = new Scheduler(run, { ...limits, batches: 2 }, async () => {
      resets++
    })
    const results = await Promise.allSettled(
      [5, 9, 3, 12].map((length, i) => scheduler.submit(request(prompt(length, i), 6))),
    )
    t.equal(stats.most, 2)
    t.equal(resets, 1)
    const failed = results.filter(({ status }) => status === 'rejected')
    t.ok(error instanceof CacheLost ? failed.length === 0 : failed.length > 0 && failed.length < 4)
    for (const [i, result] of results.entries())
      if (result.status === 'fulfilled')
        t.strictSame(result.value.ids, expected(prompt([5, 9, 3, 12][i]!, i), 6), `${error}: request ${i}`)
  }
})

t.test('after a batch that failed no block is known, and the cache is begun anew', async t => {
  let [fails, resets] = [false, 0]
  const model = fakeModel()
  const run: RunBatch = async (...args) => {
    if (fails) throw new Error('the device is lost')
    return model(...args)
  }
  const scheduler = new Scheduler(run, limits, async () => void resets++)
  const known = () => scheduler.withBlocksOf(prompt(13, 1), false, async blocks => blocks.length)
  await scheduler.submit(request(prompt(13, 1), 1))
  t.equal(await known(), 3)
  fails = true
  await t.rejects(scheduler.submit(request([1], 1)), { message: 'the device is lost' })
  t.equal(await known(), 0)
  await scheduler.close()
  t.equal(resets, 1)
})

t.test('blocks that are read or written during a trim are not known after it', async t => {
  const seen: Batch[] = []
  const scheduler = new Scheduler(fakeModel(seen), limits)
  await scheduler.submit(request(prompt(13, 1), 1))
  let resolve = (): void => {}
  const trimmed = new Promise<void>(done => {
    resolve = done
  })
  const reading = scheduler.withBlocksOf(prompt(13, 1), false, () => trimmed)
  const writing = scheduler.addBlocks([...prompt(12, 1), 1, 2, 3, 4], false, () => trimmed)
  await scheduler.trim()
  resolve()
  await reading
  t.equal(await writing, 0)
  const again = await scheduler.submit(request([...prompt(12, 1), 1, 2, 3, 4, 5], 1))
  t.equal(again.reused, 0)
})

t.test('blocks are shared, kept and given out anew', async t => {
  const pool = new BlockPool(2, 2)
  const first = pool.take()!
  const serial = pool.name(first, 0, [1, 2])
  pool.release(first)
  t.equal(pool.free, 2)
  t.strictSame(pool.find(0, [1, 2]), { block: first, serial })
  t.equal(pool.free, 1)
  t.equal(pool.find(serial, [1, 2]), undefined)
  pool.release(first)
  t.not(pool.take(), first, 'what is known is kept for longest')
  t.equal(pool.take(), first)
  t.equal(pool.take(), undefined)
  t.equal(pool.find(0, [1, 2]), undefined)
})
