// A batch whose rows go through different adapters: bit for bit what separate runs give, in every stored format.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { MixedAdapter, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { kernelFormats } from '#lib/weights/formats.js'
import { close } from '../fixtures/close.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

function mixedBatch(seed: number, weight: Weight, tokens: number, ranks: readonly number[]) {
  const random = randomGenerator(seed)
  const { rows, cols } = weight
  const adapters = ranks.map(rank => ({
    rank,
    scale: 1.25 - rank / 1024,
    a: uniform(random, rank * cols, -0.5, 0.5),
    b: uniform(random, rows * rank, -0.5, 0.5),
    gain: uniform(random, rows, -2, 2),
  }))
  const index = Int32Array.from({ length: tokens }, () => Math.floor(random() * (adapters.length + 1)) - 1)
  return { weight, tokens, adapters, index, x: uniform(random, tokens * cols), bias: uniform(random, rows) }
}
type MixedBatch = ReturnType<typeof mixedBatch>

/** Row t of the run that its adapter makes of the whole batch. */
function separately({ weight, tokens, adapters, index, x, bias }: MixedBatch, biased: boolean): Float32Array {
  const { rows } = weight
  const shared = { weight, tokens, x, ...(biased && { bias }) }
  const run = (adapter: MixedAdapter | null) => {
    const y = new Float32Array(tokens * rows)
    if (!adapter) addon.run('linear', { ...shared, y })
    else addon.run('doraForward', { ...shared, ...adapter, xa: new Float32Array(tokens * adapter.rank), y })
    return y
  }
  const runs = [null, ...adapters].map(run)
  return Float32Array.from(
    { length: tokens * rows },
    (_, at) => runs[index[Math.floor(at / rows)]! + 1]![at]!,
  )
}

// Tokens, out, in, and the ranks of the adapters: none, more than a chunk of a sum, nothing at all.
const cases: readonly (readonly [number, number, number, readonly number[]])[] = [
  [1, 1, 16, [1]],
  [7, 17, 48, [3, 5]],
  [5, 33, 304, [0, 16, 300]],
  [70, 101, 304, [8, 513, 2, 64, 7]],
  [3, 7, 16, []],
  [0, 5, 16, [2]],
]

for (const dtype of kernelFormats) {
  t.test(`${dtype}: the bits of separate runs`, t => {
    for (const [tokens, rows, cols, ranks] of cases) {
      const random = randomGenerator(rows)
      const batch = mixedBatch(tokens + 1, randomWeight(random, dtype, rows, cols), tokens, ranks)
      for (const biased of [true, false]) {
        for (const threads of [1, 3]) {
          addon.setThreads(threads)
          const y = new Float32Array(tokens * rows).fill(Number.NaN)
          addon.run('doraMixed', { ...batch, bias: biased ? batch.bias : undefined, y })
          t.same(y, separately(batch, biased), `T${tokens} ${rows}x${cols}, ranks ${ranks}`)
        }
      }
      const [y, plain] = [new Float32Array(tokens * rows), new Float32Array(tokens * rows)]
      addon.run('doraMixed', { ...batch, y })
      jsKernels.runSync('doraMixed', { ...batch, y: plain })
      close(t, plain, y, 1e-5, 'js')
    }
    t.end()
  })
}

t.test('what does not fit is refused', async t => {
  const weight = randomWeight(randomGenerator(1), 'f32', 5, 16)
  const batch = { ...mixedBatch(2, weight, 3, [2, 3]), y: new Float32Array(15) }
  const refused = (changes: object, code: string, message: RegExp) => {
    const args = { ...batch, ...changes }
    t.throws(() => addon.run('doraMixed', args), { code, message })
    t.throws(() => jsKernels.runSync('doraMixed', args), { code, message })
  }
  refused({ index: Int32Array.of(0, 2, 1) }, 'ERR_ARGUMENT', /index\[1\] is 2; there are 2 adapters/)
  refused({ index: Int32Array.of(0, 1, -2) }, 'ERR_ARGUMENT', /index\[2\] is -2/)
  const index = Int32Array.of(0, 1, -1)
  const plan = addon.planCreate([{ op: 'doraMixed', args: { ...batch, index } }])
  await addon.planRun(plan)
  index[1] = 1e9
  await t.rejects(async () => addon.planRun(plan), {
    code: 'ERR_ARGUMENT',
    message: /index\[1\] is 1000000000/,
  })
  refused({ index: Int32Array.of(0, 1) }, 'ERR_SHAPE', /index has 2 elements but 3 are needed/)
  refused({ adapters: undefined }, 'ERR_ARGUMENT', /adapters must be an array/)
  refused({ adapters: Array(65).fill(batch.adapters[0]) }, 'ERR_ARGUMENT', /adapters.*65|65.*adapters/)
  const short = { ...batch.adapters[1]!, gain: new Float32Array(4) }
  refused({ adapters: [batch.adapters[0], short] }, 'ERR_SHAPE', /gain has 4 elements but 5 are needed/)
})
