// Packed weights: the layout against TypeScript, and every operation bit for bit as with the weight in rows.

import t from 'tap'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { holdWeight } from '#lib/kernels/hold-weight.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { decodeWeight } from '#lib/weights/encode.js'
import { kernelFormats } from '#lib/weights/formats.js'
import { inRows, panelSizes } from '#lib/weights/panels.js'
import { arraysOf } from '#lib/weights/weight.js'
import { identical } from '../fixtures/close.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { transfer } from '../fixtures/values/odd-values.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

function pack(weight: Weight): Weight {
  const sizes = panelSizes(weight)
  const data = weight.data.slice(0, 0).constructor as new (length: number) => Weight['data']
  const args: KernelArgs['packWeight'] = { weight, data: new data(sizes.data).fill(77) }
  if ('blockScale' in weight) args.blockScale = new Uint8Array(sizes.blockScale).fill(77)
  addon.run('packWeight', args)
  const { data: packed, blockScale } = args
  return { ...weight, data: packed, ...(blockScale && { blockScale }), layout: 'panels' } as Weight
}

// Out, in: within a panel of 32 rows, at its edge, and beyond a chunk of 256 columns; odd where a format allows it.
const shapes = [
  [1, 1],
  [31, 16],
  [32, 33],
  [33, 48],
  [70, 272],
  [101, 531],
  [0, 16],
  [3, 0],
] as const

t.test('panels of a matrix that is there column by column', async t => {
  for (const [rows, cols] of [...shapes, [1100, 37] as const]) {
    const weight = randomWeight(randomGenerator(rows), 'f32', rows, cols)
    const columns = Float32Array.from(
      weight.data,
      (_, i) => weight.data[(i % rows) * cols + Math.floor(i / rows)]!,
    )
    const size = panelSizes(weight).data
    for (const kernels of [openCpuKernels(), jsKernels]) {
      const data = new Float32Array(size).fill(77)
      kernels.runSync('packWeight', { weight: { ...weight, data: columns }, transposed: true, data } as never)
      t.strictSame(data, pack(weight).data, `${rows} x ${cols} by ${kernels.backend}`)
    }
  }
  const weight = randomWeight(randomGenerator(1), 'bf16', 4, 4)
  const args = { weight, transposed: true, data: new Uint16Array(128) } as never
  for (const kernels of [openCpuKernels(), jsKernels])
    t.throws(() => kernels.runSync('packWeight', args), { code: 'ERR_ARGUMENT', message: /bf16 is in rows/ })
})

for (const dtype of kernelFormats) {
  t.test(`${dtype}: panels`, async t => {
    for (const [rows, cols] of shapes) {
      if (dtype === 'nvfp4' && cols % 16) continue
      const weight = randomWeight(randomGenerator(rows + cols), dtype, rows, cols)
      const packed = pack(weight)
      const { data, blockScale } = panelSizes(weight)
      const twin: KernelArgs['packWeight'] = { weight, data: weight.data.slice(0, 0) }
      twin.data = new (packed.data.constructor as new (length: number) => Weight['data'])(data)
      if ('blockScale' in weight) twin.blockScale = new Uint8Array(blockScale)
      jsKernels.runSync('packWeight', twin)
      t.strictSame(packed.data, twin.data, `${rows} x ${cols} as in TypeScript`)
      t.strictSame('blockScale' in packed ? packed.blockScale : undefined, twin.blockScale)
      t.strictSame(inRows(packed), weight, 'and back')
      identical(t, decodeWeight(packed), decodeWeight(weight), 'decoded')
    }
  })

  t.test(`${dtype}: threads share the terms of a few deep sums in the same order`, async t => {
    const [rows, cols] = [37, 16 * 513]
    const random = randomGenerator(cols)
    const weight = randomWeight(random, dtype, rows, cols)
    const packed = pack(weight)
    for (const tokens of [1, 2, 4, 5]) {
      const x = uniform(random, tokens * cols)
      const run = (weight: Weight, threads: number) => {
        const y = new Float32Array(tokens * rows).fill(Number.NaN)
        addon.setThreads(threads)
        addon.run('linear', { weight, tokens, x, y })
        return y
      }
      const expected = run(weight, 1)
      for (const threads of [1, 2, 3, 7]) {
        identical(t, run(packed, threads), expected, `${tokens} x ${rows}, ${threads} threads`)
      }
    }
  })

  t.test(`${dtype}: operations give the same bits`, async t => {
    for (const [rows, cols] of shapes) {
      if (dtype === 'nvfp4' && cols % 16) continue
      const random = randomGenerator(rows * 7 + cols)
      const weight = randomWeight(random, dtype, rows, cols)
      const packed = pack(weight)
      for (const tokens of [1, 2, 3, 4, 5, 13, 14, 15, 29, 70]) {
        const x = uniform(random, tokens * cols)
        const dy = uniform(random, tokens * rows)
        const run = (weight: Weight) => {
          const y = new Float32Array(tokens * rows).fill(Number.NaN)
          const dx = new Float32Array(tokens * cols).fill(Number.NaN)
          addon.run('linear', { weight, tokens, x, y })
          addon.run('linearBackward', { weight, tokens, x, dy, dx })
          return { y, dx }
        }
        const expected = run(weight)
        for (const threads of [1, 3]) {
          addon.setThreads(threads)
          const actual = run(packed)
          identical(t, actual.y, expected.y, `y of ${tokens} x ${rows} x ${cols}, ${threads} threads`)
          identical(t, actual.dx, expected.dx, `dx of ${tokens} x ${rows} x ${cols}, ${threads} threads`)
        }
        const one = new Float32Array(rows)
        addon.run('linear', { weight: packed, tokens: 1, x: x.subarray((tokens - 1) * cols), y: one })
        identical(t, one, expected.y.subarray((tokens - 1) * rows), `the last of ${tokens} rows alone`)
      }
    }
  })

  t.test(`${dtype}: a DoRA layer gives the same bits`, async t => {
    const [rows, cols, rank, tokens] = [101, dtype === 'nvfp4' ? 528 : 531, 5, 9]
    const random = randomGenerator(3)
    const weight = randomWeight(random, dtype, rows, cols)
    const lowRank = { rank, scale: 0.5, a: uniform(random, rank * cols), b: uniform(random, rows * rank) }
    const magnitude = uniform(random, rows, 0.5, 2)
    const [x, dy] = [uniform(random, tokens * cols), uniform(random, tokens * rows)]
    const mask = Float32Array.from(x, value => (value > 0 ? 2 : 0))
    const f32 = (count: number) => new Float32Array(count).fill(Number.NaN)
    const run = (weight: Weight) => {
      const state = { weightNorm2: f32(rows), norm: f32(rows), gain: f32(rows), merged: f32(rows * cols) }
      const passes = { xa: f32(tokens * rank), z: f32(tokens * rows), y: f32(tokens * rows) }
      const gradients = {
        dx: f32(tokens * cols),
        da: f32(rank * cols),
        db: f32(rows * rank),
        dmagnitude: f32(rows),
      }
      const common = { weight, ...lowRank, magnitude, ...state }
      addon.run('weightNorm2', { weight, out: state.weightNorm2 })
      addon.run('doraNorm', common)
      addon.run('doraMerge', common)
      addon.run('doraForward', { ...common, tokens, x, mask, ...passes })
      addon.run('doraBackward', { ...common, tokens, exactNorm: true, x, mask, dy, ...passes, ...gradients })
      return { ...state, ...passes, ...gradients }
    }
    const [actual, expected] = [run(pack(weight)), run(weight)]
    for (const name of Object.keys(expected) as (keyof typeof expected)[]) {
      identical(t, actual[name], expected[name], name)
    }
  })
}

t.test('a held weight is packed on the CPU', async t => {
  const weight = randomWeight(randomGenerator(1), 'nvfp4', 40, 32)
  const held = await holdWeight(openCpuKernels(), weight)
  t.strictSame(held, pack(weight))
  t.equal((await holdWeight(openCpuKernels(), held)).data, held.data, 'once')
  t.equal((await holdWeight(jsKernels, weight)).data, weight.data, 'not in TypeScript')
  for (const dtype of kernelFormats) {
    const given = randomWeight(randomGenerator(3), dtype, 33, 48)
    const values = decodeWeight(given).slice()
    const holding = holdWeight(openCpuKernels(), given)
    for (const [, array] of arraysOf(given)) transfer(array)
    t.strictSame(decodeWeight(await holding), values, `${dtype}: a copy`)
  }
})

t.test('arrays that are too short are refused', async t => {
  const weight = randomWeight(randomGenerator(1), 'bf16', 33, 5)
  const packed = pack(weight)
  const x = new Float32Array(5)
  const y = new Float32Array(33)
  const short = { ...packed, data: packed.data.subarray(1) } as Weight
  for (const run of [addon.run, jsKernels.runSync]) {
    t.throws(() => run('linear', { weight: short, tokens: 1, x, y }), { code: 'ERR_SHAPE' })
    t.throws(() => run('packWeight', { weight, data: new Uint16Array(33 * 6) }), { code: 'ERR_SHAPE' })
  }
  t.throws(() => addon.run('packWeight', { weight: packed, data: packed.data }), { code: 'ERR_ARGUMENT' })
})

t.test('a packed weight of bf16 that begins in the middle of a pair is refused', t => {
  const weight = randomWeight(randomGenerator(1), 'bf16', 3, 4)
  const packed = pack(weight)
  const x = new Float32Array(4)
  const y = new Float32Array(3)
  const shifted = new Uint16Array(packed.data.length + 1).subarray(1)
  const run = (data: Weight['data']) => () =>
    addon.run('linear', { weight: { ...packed, data }, tokens: 1, x, y })
  t.doesNotThrow(run(packed.data))
  t.throws(run(shifted), { code: 'ERR_ARGUMENT', message: /multiple of 4 bytes/ })
  t.end()
})
