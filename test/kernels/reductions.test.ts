// Sums, means and maxima of f32: their order is the same on every instruction set (docs/numerics.md, section 9).
import t from 'tap'
import { openKernels } from '#lib/kernels/open.js'
import { loadAddon } from '#lib/native.js'
import { identical } from '../fixtures/close.js'
import { randomGenerator } from '../fixtures/values/random.js'

const skip = loadAddon().addon ? false : 'the addon does not load'
const lanes = 16
const runLength = 512

/** Whole vectors of 16 in as many lanes, which are added in pairs; then the elements behind. */
function sumOfRun(run: Float32Array): number {
  const whole = run.length - (run.length % lanes)
  const sums = new Float64Array(lanes)
  for (let i = 0; i < whole; i++) sums[i % lanes]! += run[i]!
  for (let half = lanes / 2; half >= 1; half /= 2)
    for (let lane = 0; lane < half; lane++) sums[lane]! += sums[lane + half]!
  return run.subarray(whole).reduce((sum, element) => sum + element, sums[0]!)
}

function sumOf(row: Float32Array): number {
  let sum = 0
  for (let at = 0; at < row.length; at += runLength) sum += sumOfRun(row.subarray(at, at + runLength))
  return sum
}

t.test('sums and means of rows', { skip }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const random = randomGenerator(11)
  for (const size of [1, 7, 15, 16, 17, 49, 196, 511, 512, 513, 1000, 3136]) {
    const rows = 37
    // Of very different magnitudes, so that another order gives other bits.
    const x = Float32Array.from({ length: rows * size }, () => (random() - 0.5) * 10 ** (12 * random() - 6))
    for (const fn of ['sum', 'mean'] as const) {
      const y = new Float32Array(rows)
      const args = {
        fn,
        dtype: 'f32',
        shape: [rows],
        strides: [size],
        reduced: [size],
        reducedStrides: [1],
        x,
        y,
      } as const
      await kernels.run('reduce', args)
      const expected = Float32Array.from({ length: rows }, (_, row) => {
        const sum = sumOf(x.subarray(row * size, (row + 1) * size))
        return fn === 'sum' ? sum : sum / size
      })
      t.strictSame(y, expected, `${fn} of ${size}`)
    }
  }
})

t.test('sums and means of columns', { skip }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const random = randomGenerator(12)
  for (const [images, size, columns] of [
    [1, 1, 2],
    [3, 15, 17],
    [2, 16, 8],
    [2, 49, 131],
    [1, 513, 65],
    [2, 1100, 3],
  ] as const) {
    const x = Float32Array.from(
      { length: images * size * columns },
      () => (random() - 0.5) * 10 ** (12 * random() - 6),
    )
    const column = (image: number, c: number) =>
      Float32Array.from({ length: size }, (_, i) => x[(image * size + i) * columns + c]!)
    for (const fn of ['sum', 'mean'] as const) {
      const y = new Float32Array(images * columns)
      const kept = { shape: [images, columns], strides: [size * columns, 1] }
      await kernels.run('reduce', {
        fn,
        dtype: 'f32',
        ...kept,
        reduced: [size],
        reducedStrides: [columns],
        x,
        y,
      })
      const expected = Float32Array.from(y, (_, i) => {
        const sum = sumOf(column(Math.floor(i / columns), i % columns))
        return fn === 'sum' ? sum : sum / size
      })
      t.strictSame(y, expected, `${fn} of ${images} times ${size} in ${columns} columns`)
    }
  }
})

t.test('maxima of columns', { skip }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const random = randomGenerator(13)
  for (const [images, rows, columns] of [
    [1, 1, 2],
    [3, 15, 17],
    [2, 49, 131],
    [1, 513, 65],
    [2, 0, 5],
  ] as const) {
    // Among them NaN and -∞, and zeros of both signs, the largest of some columns.
    const x = Float32Array.from({ length: images * rows * columns }, (_, i) => {
      if (i % 11 === 3 && random() < 0.02) return Number.NaN
      if (i % columns === 1) return Number.NEGATIVE_INFINITY
      return i % columns < 8 ? [-0, 0, -1][Math.floor(3 * random())]! : random() - 0.5
    })
    const [y, one] = [new Float32Array(images * columns), new Float32Array(images * columns)]
    const args = { fn: 'max', dtype: 'f32', reduced: [rows], reducedStrides: [columns], x } as const
    await kernels.run('reduce', { ...args, shape: [images, columns], strides: [rows * columns, 1], y })
    for (let i = 0; i < one.length; i++) {
      const first = Math.floor(i / columns) * rows * columns + (i % columns)
      await kernels.run('reduce', {
        ...{ ...args, shape: [1], strides: [1] },
        ...{ x: x.subarray(first), y: one.subarray(i, i + 1) },
      })
    }
    identical(t, y, one, `${images} times ${rows} in ${columns} columns`)
  }
})

t.test('sums over two axes around one that stays', { skip }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const [images, rows, columns, across] = [5, 3, 19, 20]
  const x = Float32Array.from(
    { length: images * rows * columns * across },
    (_, i) => Math.sin(i) * 10 ** (i % 7),
  )
  const y = new Float32Array(columns)
  await kernels.run('reduce', {
    ...{ fn: 'sum', dtype: 'f32', shape: [columns], strides: [1] },
    ...{ reduced: [images, rows * across], reducedStrides: [rows * across * columns, columns], x, y },
  })
  const expected = Float32Array.from(y, (_, c) => {
    let sum = 0
    for (let image = 0; image < images; image++) {
      const run = Float32Array.from(
        { length: rows * across },
        (_, i) => x[(image * rows * across + i) * columns + c]!,
      )
      sum += sumOf(run)
    }
    return sum
  })
  t.strictSame(y, expected)
})
