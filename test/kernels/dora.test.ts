// The DoRA kernels against dense double precision: every stored format, odd sizes, dropout, both norm gradients.
import t from 'tap'
import type { Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { kernelFormats } from '#lib/weights/formats.js'
import { close, identical, within } from '../fixtures/close.js'
import {
  type DoraLayer,
  doraOracle,
  doraOutputs,
  runDora,
  sum,
  weightValues,
} from '../fixtures/models/dora-layer.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

function randomLayer(
  seed: number,
  [tokens, rows, cols, rank]: readonly number[],
  changes: Partial<DoraLayer> = {},
): DoraLayer {
  const random = randomGenerator(seed)
  return {
    weight: randomWeight(random, 'f32', rows, cols),
    rank,
    scale: 1.25,
    a: uniform(random, rank * cols, -0.5, 0.5),
    b: uniform(random, rows * rank, -0.5, 0.5),
    magnitude: uniform(random, rows, -2, 2),
    bias: uniform(random, rows),
    tokens,
    x: uniform(random, tokens * cols),
    dy: uniform(random, tokens * rows),
    exactNorm: false,
    ...changes,
  }
}

const dropout = (seed: number, count: number) => {
  const random = randomGenerator(seed)
  return Float32Array.from({ length: count }, () => (random() < 0.3 ? 0 : 1 / 0.7))
}

// Tokens, out, in, rank: one of each, odd, nothing, rank above the sizes, and across the kernel's tiles.
const sizes = [
  [1, 1, 1, 1],
  [7, 17, 31, 3],
  [0, 5, 3, 2],
  [3, 5, 2, 9],
  [4, 6, 5, 0],
  [3, 7, 16, 2],
  [70, 101, 304, 50],
] as const

for (const dtype of kernelFormats) {
  for (const [exactNorm, mask] of [
    [false, false],
    [true, false],
    [false, true],
    [true, true],
  ]) {
    t.test(`${dtype}${exactNorm ? ', exact norm' : ''}${mask ? ', dropout' : ''}`, t => {
      for (const size of sizes) {
        const [tokens, rows, cols] = size
        if (dtype === 'nvfp4' && cols % 16) continue
        const layer = randomLayer(rows * cols, size, {
          weight: randomWeight(randomGenerator(rows), dtype, rows, cols),
          mask: mask ? dropout(7, tokens * cols) : undefined,
          exactNorm,
        })
        const actual = runDora(addon, layer)
        const expected = doraOracle(layer)
        for (const name of doraOutputs) {
          // The exact gradients of a single column are zero: what is left is rounding.
          if (exactNorm && cols === 1 && (name === 'da' || name === 'db')) continue
          close(t, actual[name], expected[name], 3e-6, `${name} of ${size}`)
        }
      }
      t.end()
    })
  }
}

t.test('gradients are those of finite differences', t => {
  for (const mask of [undefined, dropout(3, 5 * 11)]) {
    const layer = randomLayer(21, [5, 9, 11, 3], { exactNorm: true, mask })
    const gradients = runDora(addon, layer)
    const loss = (changed: DoraLayer) => {
      const { y } = doraOracle(changed)
      return sum(y.length, at => y[at] * layer.dy[at])
    }
    const names = { a: 'da', b: 'db', magnitude: 'dmagnitude', x: 'dx', bias: 'dbias' } as const
    for (const [operand, gradient] of Object.entries(names) as [keyof typeof names, 'da'][]) {
      const numeric = Float64Array.from({ length: layer[operand]!.length }, (_, at) => {
        const moved = (step: number) => {
          const values = layer[operand]!.slice()
          values[at] += step
          return { value: values[at], loss: loss({ ...layer, [operand]: values }) }
        }
        const [up, down] = [moved(2 ** -9), moved(-(2 ** -9))]
        return (up.loss - down.loss) / (up.value - down.value)
      })
      // The differences are of second order: their own error is about step² · third derivative.
      close(t, gradients[gradient], numeric, 1e-4, gradient)
    }
  }
  t.end()
})

t.test('unmerge undoes merge', t => {
  for (const dtype of kernelFormats) {
    const layer = randomLayer(31, [1, 53, 304, 5], {
      weight: randomWeight(randomGenerator(32), dtype, 53, 304),
    })
    const { gain, merged } = runDora(addon, layer)
    const restored = new Float32Array(merged.length)
    const args = { ...layer, rows: 53, cols: 304, gain }
    addon.run('doraUnmerge', { ...args, merged, restored })
    close(t, restored, weightValues(layer.weight), 1e-6, dtype)
    addon.run('doraUnmerge', { ...args, merged, restored: merged })
    identical(t, merged, restored, `${dtype}, in place`)
  }
  t.end()
})

t.test('rows without length, without magnitude, scale 0', t => {
  const layer = randomLayer(41, [5, 6, 8, 2])
  const data = layer.weight.data as Float32Array
  data.fill(0, 0, 16) // row 0 is dead, row 1 has only its low-rank part, row 2 has no magnitude
  layer.b.fill(0, 0, 2)
  layer.magnitude[2] = 0
  const result = runDora(addon, layer)
  const expected = doraOracle(layer)
  for (const name of doraOutputs) {
    t.ok(result[name].every(Number.isFinite), `${name} is finite`)
    if (name !== 'gain') close(t, result[name], expected[name], 2e-6, name)
  }
  for (let token = 0; token < 5; token++) t.equal(result.y[token * 6], layer.bias![0], 'y is the bias')
  t.equal(result.dmagnitude[0], 0)
  t.ok(result.merged.subarray(0, 8).every(value => value === 0))

  const off = runDora(addon, { ...layer, scale: 0, exactNorm: true })
  t.ok(
    [...off.da, ...off.db].every(value => value === 0),
    'scale 0 gives no factor gradients',
  )
  t.end()
})

t.test('norms of rows that cancel, and of very long and very short rows', t => {
  const [rows, cols, rank] = [8, 40, 3]
  const layer = randomLayer(51, [2, rows, cols, rank], { scale: 1 })
  const weight = layer.weight as Weight & { data: Float32Array }
  const fractions = [3e-1, 1e-1, 5e-2, 1e-2, 1e-3, 1e-5]
  fractions.forEach((fraction, o) => {
    for (let i = 0; i < cols; i++) {
      const delta = sum(rank, r => layer.b[o * rank + r] * layer.a[r * cols + i])
      weight.data[o * cols + i] = -(1 - fraction) * delta
    }
  })
  weight.data.subarray(6 * cols, 7 * cols).forEach((_, i, row) => {
    row[i] *= 1e25
  })
  weight.data.subarray(7 * cols, 8 * cols).forEach((_, i, row) => {
    row[i] *= 1e-25
  })
  layer.b.fill(0, 7 * rank)
  const { norm } = runDora(addon, layer)
  const expected = doraOracle(layer).norm
  within(t, norm, expected, o => (o < 3 ? 3e-6 : 1e-6) * expected[o], 'norm')
  t.end()
})

t.test('inference needs neither z nor gradients', t => {
  for (const mask of [undefined, dropout(5, 5 * 31)]) {
    const layer = randomLayer(61, [5, 17, 31, 3], { mask, bias: undefined })
    const { gain, xa, y, z, norm, da, db, dmagnitude } = runDora(addon, layer)
    const alone = { xa: new Float32Array(xa.length), y: new Float32Array(y.length) }
    addon.run('doraForward', { ...layer, gain, ...alone })
    t.same(alone, { xa, y })
    const few = {
      da: new Float32Array(da.length),
      db: new Float32Array(db.length),
      dmagnitude: new Float32Array(17),
    }
    addon.run('doraBackward', { ...layer, xa, z, norm, gain, ...few })
    t.same(few, { da, db, dmagnitude })
  }
  t.end()
})

t.test('a result depends on neither the other tokens nor the threads', t => {
  for (const dtype of kernelFormats) {
    const [T, O, I, R] = [101, 97, 400, 17]
    const weight = randomWeight(randomGenerator(71), dtype, O, I)
    const layer = randomLayer(72, [T, O, I, R], { weight, exactNorm: true, mask: dropout(8, T * I) })
    addon.setThreads(1)
    const one = runDora(addon, layer)
    for (const threads of [2, 5]) {
      addon.setThreads(threads)
      const several = runDora(addon, layer)
      for (const name of doraOutputs) {
        identical(t, several[name], one[name], `${dtype}: ${name} with ${threads} threads`)
      }
    }
    for (const row of [0, 63, 64, 100]) {
      const part = (values: Float32Array, width: number) => values.subarray(row * width, (row + 1) * width)
      const alone = runDora(addon, {
        ...layer,
        tokens: 1,
        x: part(layer.x, I),
        dy: part(layer.dy, O),
        mask: part(layer.mask!, I),
      })
      for (const [name, width] of [
        ['xa', R],
        ['z', O],
        ['y', O],
        ['dx', I],
      ] as const) {
        identical(t, alone[name], part(one[name], width), `${dtype}: ${name} of row ${row} alone`)
      }
    }
  }
  t.end()
})
