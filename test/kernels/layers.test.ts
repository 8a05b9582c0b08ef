// Resizing and sampling of images: the CPU against TypeScript.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { requireAddon } from '#lib/native.js'
import { within } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
const random = randomGenerator(31)
const numbers = (count: number): Float32Array => uniform(random, count)

t.test('resizing along an axis', t => {
  const [taps, weights] = [Int32Array.of(0, 1, 3, 4, 4, 4), numbers(6)]
  const args = {
    outer: 3,
    size: 5,
    inner: 7,
    out: 3,
    count: 2,
    x: numbers(105),
    taps,
    weights,
    offset: numbers(3),
  }
  const [js, cpu] = [new Float32Array(63), new Float32Array(63)]
  jsKernels.runSync('resample', { ...args, y: js })
  addon.run('resample', { ...args, y: cpu })
  within(t, cpu, js, () => 1e-6, 'both engines')
  t.throws(() => addon.run('resample', { ...args, taps: Int32Array.of(0, 1, 3, 5, 4, 4), y: cpu }), {
    code: 'ERR_ARGUMENT',
    message: /taps\[3\] is 5/,
  })
  t.end()
})

t.test('nearest elements along an axis: repeated, in other orders, weighed', t => {
  const size = 19
  const upTo = (times: number) => Int32Array.from({ length: size * times }, (_, q) => Math.floor(q / times))
  const ones = (count: number) => new Float32Array(count).fill(1)
  const weighed = ones(2 * size)
  weighed[7] = 0.5
  for (const inner of [1, 5])
    for (const [taps, weights] of [
      ...[1, 2, 3].map(times => [upTo(times), ones(size * times)] as const),
      [upTo(2).reverse(), ones(2 * size)] as const,
      [upTo(2), weighed] as const,
      [upTo(1).filter(tap => tap % 2 === 0), ones(10)] as const,
    ]) {
      const args = {
        ...{ outer: 3, size, inner, out: taps.length, count: 1 },
        x: numbers(3 * size * inner),
        ...{ taps, weights },
      }
      const [js, cpu] = [0, 1].map(() => new Float32Array(3 * taps.length * inner)) as [
        Float32Array,
        Float32Array,
      ]
      jsKernels.runSync('resample', { ...args, y: js })
      addon.run('resample', { ...args, y: cpu })
      t.strictSame(cpu, js, `${taps.length} of ${size}, lines of ${inner}`)
    }
  t.end()
})

t.test('weighted elements along an axis, of single lines and of many, on any number of threads', t => {
  t.teardown(() => addon.setThreads(0))
  const [size, out] = [13, 17]
  for (const outer of [1, 15, 16, 37, 1200]) {
    for (const inner of [1, 7]) {
      for (const count of [1, 2, 3, 4]) {
        for (const offset of [undefined, numbers(out)]) {
          const taps = Int32Array.from({ length: out * count }, (_, i) => (i * 5) % size)
          const args = {
            ...{ outer, size, inner, out, count, taps, offset },
            ...{ x: numbers(outer * size * inner), weights: numbers(out * count) },
          }
          const single = new Float32Array(outer * out * inner)
          const js = single.slice()
          jsKernels.runSync('resample', { ...args, y: js })
          addon.setThreads(1)
          addon.run('resample', { ...args, y: single })
          const label = `${outer} lines of ${inner}, ${count} taps, ${offset ? 'an' : 'no'} offset`
          within(t, single, js, () => 1e-5, label)
          for (const threads of [2, 3]) {
            const y = new Float32Array(single.length).fill(Number.NaN)
            addon.setThreads(threads)
            addon.run('resample', { ...args, y })
            t.ok(Buffer.from(y.buffer).equals(Buffer.from(single.buffer)), `${label}, ${threads} threads`)
          }
        }
      }
    }
  }
  t.end()
})

t.test('images at the points of a grid', t => {
  for (const image of [
    [5, 7],
    [3, 1, 4],
  ]) {
    const voxels = numel(image)
    const grid = uniform(random, 2 * 11 * image.length, -2.5, 2.5)
    grid[3] = Number.NaN
    grid[4] = 1e30
    for (const interpolation of ['nearest', 'linear', 'cubic'] as const) {
      for (const outOfImage of ['zeros', 'border', 'reflection'] as const) {
        for (const alignCorners of [false, true]) {
          const shape = { batch: 2, channels: 3, points: 11, image, x: numbers(6 * voxels), grid }
          const args = { interpolation, outOfImage, alignCorners, ...shape }
          const [js, cpu] = [new Float32Array(66), new Float32Array(66)]
          jsKernels.runSync('gridSample', { ...args, y: js })
          addon.run('gridSample', { ...args, y: cpu })
          within(t, cpu, js, () => 1e-4, `${interpolation} ${outOfImage} ${alignCorners} [${image.join()}]`)
        }
      }
    }
  }
  t.end()
})
