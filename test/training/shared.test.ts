// Ranks that train together: the bits of one machine for any number of ranks, and what they say when they differ.
import t from 'tap'
import type { TrainerOptions } from '#lib/training/options.js'
import type { GradientExchange } from '#lib/training/shared-gradients.js'
import { Trainer } from '#lib/training/trainer.js'
import { base, train } from '../fixtures/models/small-training.js'
import { bytesOf, smallAdapter, smallData } from '../fixtures/models/trainable.js'

/** Ranks in this process. */
function exchanges(world: number): GradientExchange[] {
  let waiting: { bytes: Uint8Array; resolve: (all: Uint8Array[]) => void }[] = []
  return Array.from({ length: world }, (_, rank) => ({
    rank,
    world,
    allGather: bytes =>
      new Promise(resolve => {
        waiting[rank] = { bytes: bytes.slice(), resolve }
        if (Object.keys(waiting).length < world) return
        const all = waiting.map(({ bytes }) => bytes)
        const resolvers = waiting
        waiting = []
        for (const { resolve } of resolvers) resolve(all)
      }),
  }))
}

async function together(world: number, options: Partial<TrainerOptions>, dropout = 0) {
  return Promise.all(
    exchanges(world).map(exchange => train({ ...options, exchange }, smallData(101), dropout)),
  )
}

const settings: Partial<TrainerOptions>[] = [
  { epochs: 2, batchSize: 8, accumulate: 6, schedule: { type: 'cosine', warmup: 2 } },
  {
    batchSize: 16,
    accumulate: 3,
    maxNorm: 0.5,
    optimizer: { type: 'sgd', learningRate: 0.1, momentum: 0.9 },
  },
  { batchSize: 7, accumulate: 4, precision: 'fp16' },
  { batchSize: 32, accumulate: 1 },
]

for (const options of settings)
  t.test(`one, two, three and five ranks: ${JSON.stringify(options)}`, async t => {
    const alone = await train(options)
    const losses = alone.events.map(({ loss, gradientNorm }) => [loss, gradientNorm])
    for (const world of [1, 2, 3, 5]) {
      const ranks = await together(world, options)
      for (const { adapter, events } of ranks) {
        t.ok(bytesOf(adapter).equals(bytesOf(alone.adapter)), `${world} ranks: the same bits`)
        t.same(
          events.map(({ loss, gradientNorm }) => [loss, gradientNorm]),
          losses,
        )
      }
    }
  })

t.test('dropout is that of one machine', async t => {
  const options = { batchSize: 16, accumulate: 3 }
  const alone = await train(options, smallData(101), 0.2)
  const [first] = await together(2, options, 0.2)
  t.ok(bytesOf(first!.adapter).equals(bytesOf(alone.adapter)))
})

t.test('ranks with other parameters or options are refused', async t => {
  const [a, b] = exchanges(2)
  const other = smallAdapter()
  const name = other.parameters[0]!
  other.write(name, other.read(name).fill(0.5))
  const trainer = new Trainer(other, other, { ...base, exchange: b! })
  const outcomes = await Promise.allSettled([train({ exchange: a! }), trainer.fit(smallData(101))])
  for (const outcome of outcomes) t.match(outcome, { status: 'rejected', reason: { code: 'ERR_CONFLICT' } })
  const adapter = smallAdapter()
  const make = (options: object) => () => new Trainer(adapter, adapter, { ...base, ...options })
  t.throws(make({ exchange: { rank: 2, world: 2, allGather() {} } }), { code: 'ERR_ARGUMENT' })
  t.throws(make({ exchange: {} }), { code: 'ERR_ARGUMENT' })
  t.throws(make({ exchange: a, memoryBudget: 1000 }), { code: 'ERR_ARGUMENT', message: /memoryBudget/ })
})
