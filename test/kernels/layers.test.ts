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
