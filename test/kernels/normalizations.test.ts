// Softmax, layer, RMS, group, instance and batch normalization: against TypeScript, whose gradients are checked by
// finite differences.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import { requireAddon } from '#lib/native.js'
import { close, identical } from '../fixtures/close.js'
import { agree, finiteDifferences, type Op } from '../fixtures/kernel-pair.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))
const f32 = (count: number) => new Float32Array(count)

const matrices = [
  [1, 1],
  [3, 7],
  [5, 16],
  [2, 33],
  [67, 129],
  [3, 1003],
  [0, 5],
] as const

for (const log of [false, true]) {
  t.test(log ? 'log softmax' : 'softmax', t => {
    for (const [rows, cols] of matrices) {
      const random = randomGenerator(rows * 100 + cols)
      const x = uniform(random, rows * cols, -30, 30)
      const dy = uniform(random, rows * cols)
      const name = `${rows} x ${cols}`
      const { y } = agree(t, 'softmax', { rows, cols, log, x, y: f32(x.length) }, ['y'], 1e-6, name)
      agree(t, 'softmaxBackward', { rows, cols, log, y, dy, dx: f32(x.length) }, ['dx'], 2e-6, name)
    }
    const [rows, cols] = [3, 5]
    const [x, dy] = [uniform(randomGenerator(1), 15), uniform(randomGenerator(2), 15)]
    const forward = (x: Float32Array) => {
      const y = f32(15)
      jsKernels.runSync('softmax', { rows, cols, log, x, y })
      return y
    }
    const dx = f32(15)
    jsKernels.runSync('softmaxBackward', { rows, cols, log, y: forward(x), dy, dx })
    close(t, dx, finiteDifferences(forward, x, dy), 2e-3, 'finite differences')
    t.end()
  })
}

t.test('softmax of large, infinite and missing logits', t => {
  const x = Float32Array.of(1e38, 1e38, -Infinity, 3, -Infinity, 3, 0, -200, 88, 1, Number.NaN, 2)
  const args = { rows: 4, cols: 3, log: false, x, y: f32(12) }
  addon.run('softmax', args)
  const expected = [0.5, 0.5, 0, 0.5, 0, 0.5, Math.exp(-88), 0, 1]
  close(t, args.y.subarray(0, 9), expected, 1e-7, 'what is left')
  t.ok(
    args.y.subarray(9).every(value => Number.isNaN(value)),
    'a NaN makes its row NaN',
  )
  addon.run('softmax', { ...args, y: x })
  identical(t, x, args.y, 'in place')
  t.end()
})

/** Rows, columns, groups, inner, centered: layer, RMS, group and instance normalization. */
const norms = [
  [1, 1, 1, 1, true],
  [5, 37, 1, 1, true],
  [301, 65, 1, 1, true],
  [5, 37, 1, 1, false],
  [300, 64, 1, 1, false],
  [6, 3 * 35, 3, 35, true],
  [14, 19, 7, 19, true],
  [4, 2 * 17, 2, 17, false],
  [0, 5, 1, 1, true],
] as const

t.test('norm', t => {
  for (const [rows, cols, groups, inner, centered] of norms) {
    const random = randomGenerator(rows + cols)
    const shape = { rows, cols, groups, inner, centered }
    const scales = (groups * cols) / inner
    const x = uniform(random, rows * cols, 9, 12)
    const [scale, bias] = [uniform(random, scales), uniform(random, scales)]
    const name = JSON.stringify(shape)
    const saved = { mean: f32(rows), invStd: f32(rows) }
    const given = { ...shape, eps: 1e-5, x, scale, bias, y: f32(x.length), ...saved }
    const { mean, invStd } = agree(t, 'norm', given, ['y', 'mean', 'invStd'], 5e-6, name)
    agree(t, 'norm', { ...shape, eps: 0.1, x, y: f32(x.length) }, ['y'], 5e-6, `${name} alone`)
    const dy = uniform(random, rows * cols)
    const gradients = { dx: f32(x.length), dscale: f32(scales), dbias: f32(scales) }
    const backward = { ...shape, x, scale, mean, invStd, dy, ...gradients }
    agree(t, 'normBackward', backward, ['dx', 'dscale', 'dbias'], 1e-5, name)
    agree(
      t,
      'normBackward',
      { ...shape, x, mean, invStd, dy, dx: f32(x.length) },
      ['dx'],
      1e-5,
      `${name} alone`,
    )
  }
  t.end()
})

t.test('gradients of norm by finite differences', t => {
  for (const [rows, cols, groups, inner, centered] of [
    [3, 7, 1, 1, true],
    [3, 7, 1, 1, false],
    [4, 6, 2, 3, true],
  ] as const) {
    const random = randomGenerator(cols)
    const shape = { rows, cols, groups, inner, centered }
    const scales = (groups * cols) / inner
    const [x, dy] = [uniform(random, rows * cols), uniform(random, rows * cols)]
    const [scale, bias] = [uniform(random, scales, 0.5, 1), uniform(random, scales)]
    const [mean, invStd] = [f32(rows), f32(rows)]
    const forward = (x: Float32Array, scale: Float32Array, bias: Float32Array) => {
      const y = f32(x.length)
      jsKernels.runSync('norm', { ...shape, eps: 1e-5, x, scale, bias, y, mean, invStd })
      return y
    }
    forward(x, scale, bias)
    const saved = { mean: mean.slice(), invStd: invStd.slice() }
    const gradients = { dx: f32(x.length), dscale: f32(scales), dbias: f32(scales) }
    jsKernels.runSync('normBackward', { ...shape, x, scale, ...saved, dy, ...gradients })
    const { dx, dscale, dbias } = gradients
    close(
      t,
      dx,
      finiteDifferences(x => forward(x, scale, bias), x, dy),
      5e-3,
      'dx',
    )
    close(
      t,
      dscale,
      finiteDifferences(scale => forward(x, scale, bias), scale, dy),
      5e-3,
      'dscale',
    )
    close(
      t,
      dbias,
      finiteDifferences(bias => forward(x, scale, bias), bias, dy),
      5e-3,
      'dbias',
    )
  }
  t.end()
})

t.test('batch normalization', t => {
  for (const [batch, channels, positions] of [
    [1, 1, 1],
    [3, 5, 7],
    [4, 3, 49],
    [2, 7, 1025],
  ] as const) {
    const random = randomGenerator(positions)
    const shape = { batch, channels, positions }
    const count = batch * channels * positions
    const [x, dy] = [uniform(random, count, 4, 6), uniform(random, count)]
    const [scale, bias] = [uniform(random, channels), uniform(random, channels)]
    const name = JSON.stringify(shape)
    const statistics = { ...shape, x, mean: f32(channels), variance: f32(channels) }
    const { mean, variance } = agree(t, 'batchStatistics', statistics, ['mean', 'variance'], 2e-6, name)
    const forward = { ...shape, eps: 1e-3, x, mean, variance }
    agree(t, 'batchNorm', { ...forward, scale, bias, y: f32(count) }, ['y'], 5e-6, name)
    agree(t, 'batchNorm', { ...forward, y: f32(count) }, ['y'], 5e-6, `${name} alone`)
    for (const training of [false, true]) {
      const gradients = { dx: f32(count), dscale: f32(channels), dbias: f32(channels) }
      const backward = { ...forward, training, scale, dy, ...gradients }
      agree(t, 'batchNormBackward', backward, ['dx', 'dscale', 'dbias'], 2e-5, `${name} training ${training}`)
    }
  }
  t.end()
})

t.test('gradients of batch normalization by finite differences', t => {
  const shape = { batch: 2, channels: 3, positions: 4 }
  const random = randomGenerator(8)
  const [x, dy, scale] = [uniform(random, 24), uniform(random, 24), uniform(random, 3, 0.5, 1)]
  const statistics = (x: Float32Array) => {
    const result = { mean: f32(3), variance: f32(3) }
    jsKernels.runSync('batchStatistics', { ...shape, x, ...result })
    return result
  }
  for (const training of [false, true]) {
    const fixed = statistics(x)
    const forward = (x: Float32Array) => {
      const y = f32(24)
      jsKernels.runSync('batchNorm', {
        ...shape,
        eps: 1e-2,
        x,
        ...(training ? statistics(x) : fixed),
        scale,
        y,
      })
      return y
    }
    const dx = f32(24)
    jsKernels.runSync('batchNormBackward', { ...shape, training, eps: 1e-2, x, ...fixed, scale, dy, dx })
    close(t, dx, finiteDifferences(forward, x, dy), 5e-3, training ? 'training' : 'inference')
  }
  t.end()
})

t.test('results do not depend on the threads', t => {
  const random = randomGenerator(5)
  const [rows, cols] = [515, 67]
  const [x, dy] = [uniform(random, rows * cols), uniform(random, rows * cols)]
  const shape = { rows, cols, groups: 1, inner: 1, centered: true }
  const run = (threads: number) => {
    addon.setThreads(threads)
    const saved = { mean: f32(rows), invStd: f32(rows) }
    const gradients = { dx: f32(x.length), dscale: f32(cols), dbias: f32(cols) }
    const y = f32(x.length)
    addon.run('norm', { ...shape, eps: 1e-5, x, y, ...saved } satisfies Op<'norm'>)
    addon.run('normBackward', { ...shape, x, dy, ...saved, ...gradients } satisfies Op<'normBackward'>)
    return [y, ...Object.values(gradients)]
  }
  const one = run(1)
  for (const threads of [2, 5]) {
    run(threads).forEach((result, i) => {
      identical(t, result, one[i], `result ${i}, ${threads} threads`)
    })
  }
  t.end()
})

t.test('what does not fit is refused', t => {
  const x = f32(12)
  const shape = { rows: 4, cols: 3, groups: 1, inner: 1, centered: true, eps: 1e-5, x, y: x }
  for (const run of [addon.run, jsKernels.runSync]) {
    for (const changes of [{ groups: 3 }, { inner: 2 }, { rows: 5 }]) {
      t.throws(() => run('norm', { ...shape, ...changes }), { code: 'ERR_SHAPE' }, JSON.stringify(changes))
    }
  }
  t.end()
})
