// Compact images, whose channels come last: the bits of the same convolutions of planes.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { isSmallImage } from '#lib/kernels/compact.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { winogradSize } from '#lib/kernels/js/winograd.js'
import type { KernelArgs } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { close, identical } from '../../fixtures/close.js'
import { type ConvCase, convCase, f32Weight, shapeOf, transposedImages } from '../../fixtures/conv.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

type Args = KernelArgs['conv'] & { x: Float32Array; y: Float32Array }

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

/** Pointwise: one position and the most, sums across chunks, filters across tiles. Depthwise: around vectors of channels. */
const cases = [
  convCase([1, 3, 5, 1], [1, 1], [1, 1]),
  convCase([3, 19, 35, 1], [3, 5], [1, 1]),
  convCase([1, 600, 33, 1], [3, 5], [1, 1]),
  convCase([2, 35, 270, 1], [8, 8], [1, 1]),
  convCase([1, 300, 70, 1], [60], [1]),
  convCase([5, 33, 63, 1], [7, 7], [1, 1]),
  convCase([0, 4, 4, 1], [7, 7], [1, 1]),
  convCase([1, 35, 35, 35], [3, 5], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([2, 16, 16, 16], [8, 8], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([1, 67, 67, 67], [6, 10], [5, 5], { pads: [2, 2, 2, 2] }),
  convCase([3, 5, 5, 5], [7, 7], [5, 5], { strides: [2, 2], pads: [2, 1, 2, 3] }),
  convCase([1, 33, 33, 33], [8, 7], [3, 3], { strides: [2, 2], pads: [0, 0, 1, 1] }),
  convCase([1, 40, 40, 40], [4, 1], [3, 3], { pads: [5, 2, 9, 1] }),
  convCase([1, 40, 40, 40], [7, 9], [3, 3], { pads: [-1, 0, -2, 0] }),
  convCase([1, 3, 3, 3], [3, 3], [3, 3]),
  convCase([2, 48, 64, 1], [13, 5], [1, 1]),
  convCase([2, 64, 64, 64], [13, 15], [3, 3], { strides: [2, 2], pads: [1, 1, 1, 1] }),
  convCase([3, 45, 45, 45], [5, 13], [5, 5], { pads: [2, 2, 2, 2] }),
  convCase([1, 80, 80, 80], [15, 17], [5, 5], { strides: [2, 2], pads: [2, 2, 2, 2] }),
  convCase([1, 17, 17, 17], [1, 16], [3, 3], { pads: [1, 1, 1, 1] }),
]

/** Full kernels, with strides and dilations, along one to three axes. */
const full = [
  convCase([1, 5, 7, 1], [4, 4], [3, 3]),
  convCase([3, 33, 40, 1], [7, 7], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([1, 70, 300, 1], [3, 3], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([2, 19, 21, 1], [8, 8], [5, 3], { strides: [2, 1], pads: [2, 1, 2, 1] }),
  convCase([2, 9, 6, 1], [7, 8], [3, 3], { dilations: [2, 3], pads: [2, 3, 2, 3] }),
  convCase([2, 9, 20, 1], [8, 7], [1, 1], { strides: [2, 2] }),
  convCase([1, 6, 17, 1], [6, 6], [3, 3], { pads: [-1, 0, 2, 1] }),
  convCase([9, 48, 96, 1], [7, 7], [1, 2]),
  convCase([2, 8, 12, 1], [50], [4], { pads: [2, 1] }),
  convCase([1, 4, 9, 1], [3, 4, 5], [3, 2, 3], { pads: [1, 0, 1, 1, 1, 1] }),
  convCase([4, 7, 5, 1], [1, 1], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([1, 1, 1, 1], [6, 6], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([2, 48, 96, 1], [9, 9], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([1, 64, 64, 1], [16, 16], [3, 3], { strides: [2, 2], pads: [1, 1, 1, 1] }),
]

/** Images that are not small, and those of the output alone are as few. */
const large = [
  convCase([2, 19, 35, 1], [13, 5], [1, 1]),
  convCase([2, 19, 19, 19], [9, 8], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([2, 35, 35, 35], [13, 15], [3, 3], { strides: [2, 2], pads: [1, 1, 1, 1] }),
  convCase([2, 19, 37, 1], [13, 15], [3, 3], { strides: [2, 2], pads: [1, 1, 1, 1] }),
  convCase([2, 7, 9, 1], [6, 7], [3, 3], { pads: [3, 3, 3, 3] }),
  convCase([1, 48, 48, 48], [17, 16], [3, 3], { pads: [1, 1, 1, 1] }),
]

function argsOf(at: ConvCase, more: Partial<Args> = {}): Args {
  const random = randomGenerator(at.filters + at.channels)
  const { batch, channels, filters, groups, image, kernel, out } = at
  return {
    ...shapeOf(at),
    weight: f32Weight(at, uniform(random, ((filters * channels) / groups) * numel(kernel))),
    x: uniform(random, batch * channels * numel(image)),
    y: new Float32Array(batch * filters * numel(out)).fill(Number.NaN),
    ...more,
  }
}

/** The result as planes, of operands that are laid out as the flags say. */
function compactly(at: ConvCase, args: Args, run: (args: Args) => void): Float32Array {
  const { batch, channels, filters, image, out } = at
  const isCompact = (flag: boolean | undefined, sizes: readonly number[], of: number) =>
    flag && isSmallImage(numel(sizes), of)
  const [x, y] = [isCompact(args.xCompact, image, channels), isCompact(args.yCompact, out, filters)]
  const laidOut = (values: Float32Array) =>
    y ? transposedImages(values, batch, filters, numel(out)) : values.slice()
  const result = args.y.slice().fill(Number.NaN)
  run({
    ...args,
    x: x ? transposedImages(args.x, batch, channels, numel(image)) : args.x,
    residual: args.residual && laidOut(args.residual),
    y: result,
  })
  return y ? transposedImages(result, batch, numel(out), filters) : result
}

const layouts = [{ xCompact: true, yCompact: true }, { xCompact: true }, { yCompact: true }]

/** What follows the sums; a depthwise convolution has no residual. */
function variantsOf(at: ConvCase): Partial<Args>[] {
  const random = randomGenerator(7)
  const bias = uniform(random, at.filters)
  const residual = uniform(random, at.batch * at.filters * numel(at.out))
  const alone: Partial<Args>[] = [{}, { bias, activation: 'relu6' }, { bias, activation: 'silu' }]
  if (at.groups > 1) return alone
  return [
    ...alone,
    { bias, residual, activation: 'relu' },
    { residual, residualFirst: true, activation: 'relu' },
    { bias, residual, activation: 'gelu' },
    { bias, residual, residualFirst: true, activation: 'silu' },
  ]
}

t.test('the bits of planes', t => {
  for (const at of [...cases, ...full, ...large]) {
    for (const more of variantsOf(at)) {
      const args = argsOf(at, more)
      addon.setThreads(1)
      addon.run('conv', args)
      for (const layout of layouts) {
        for (const threads of [1, 2]) {
          addon.setThreads(threads)
          const y = compactly(at, { ...args, ...layout }, all => addon.run('conv', all))
          const label = `${JSON.stringify(at)} ${Object.keys(more)} ${Object.keys(layout)}, ${threads} threads`
          identical(t, y, args.y, label)
        }
      }
    }
  }
  t.end()
})

t.test('the same in TypeScript', t => {
  for (const at of [...cases, ...full, ...large].filter(({ channels }) => channels < 60)) {
    for (const more of variantsOf(at)) {
      const args = argsOf(at, more)
      const run = (all: Args) => jsKernels.runSync('conv', all)
      run(args)
      for (const layout of layouts) {
        const label = `${JSON.stringify(at)} ${Object.keys(more)} ${Object.keys(layout)}`
        identical(t, compactly(at, { ...args, ...layout }, run), args.y, label)
      }
      close(
        t,
        compactly(at, { ...args, ...layouts[0] }, all => addon.run('conv', all)),
        args.y,
        1e-5,
        'natively',
      )
    }
  }
  t.end()
})

t.test('an expansion and the depthwise convolution behind it', t => {
  for (const at of [...cases, ...large].filter(({ groups, batch }) => groups > 1 && batch > 0)) {
    const { batch, channels, image, filters, out } = at
    const random = randomGenerator(9)
    const pointwise = {
      format: 'f32' as const,
      rows: channels,
      cols: 21,
      data: uniform(random, channels * 21),
    }
    const { weight, y, ...shape } = argsOf(at)
    const x = uniform(random, batch * 21 * numel(image))
    const args = { ...shape, weight, pointwise, x, y, pointwiseActivation: 'relu6' as const }
    addon.run('pointwiseDepthwise', args)
    for (const run of [addon.run, jsKernels.runSync.bind(jsKernels)]) {
      const expected = new Float32Array(y.length)
      run('pointwiseDepthwise', { ...args, y: expected })
      for (const layout of layouts) {
        const xLast = layout.xCompact && isSmallImage(numel(image), 21)
        const yLast = layout.yCompact && isSmallImage(numel(out), filters)
        const result = new Float32Array(y.length)
        const laidOut = xLast ? transposedImages(x, batch, 21, numel(image)) : x
        run('pointwiseDepthwise', { ...args, x: laidOut, y: result, ...layout })
        const planes = yLast ? transposedImages(result, batch, numel(out), filters) : result
        identical(t, planes, expected, `${JSON.stringify(at)} ${Object.keys(layout)}`)
      }
    }
  }
  t.end()
})

t.test('what cannot be compact is refused', t => {
  const residual = new Float32Array(16)
  const wrong: [ConvCase, Partial<Args>][] = [
    [convCase([1, 4, 4, 2], [4, 4], [1, 1]), {}],
    [convCase([1, 4, 12, 4], [4, 4], [3, 3]), {}],
    [convCase([1, 1, 1, 1], [4, 4], [3, 3]), { winograd: new Float32Array(winogradSize(1, 9)) }],
    [convCase([1, 4, 4, 4], [4, 4], [3, 3], { dilations: [2, 1], pads: [1, 1, 1, 1] }), {}],
    [convCase([1, 4, 4, 4], [4, 4], [3, 3], { pads: [1, 3, 1, 1] }), {}],
    [convCase([1, 4, 4, 4], [4, 4], [3, 3]), { residual }],
    [convCase([1, 4, 4, 1], [4, 4], [1, 1]), { compute: 'bf16' }],
  ]
  for (const [at, more] of wrong) {
    for (const run of [addon.run, jsKernels.runSync.bind(jsKernels)]) {
      for (const flag of ['xCompact', 'yCompact'] as const) {
        const expected = { code: 'ERR_SHAPE', message: new RegExp(flag) }
        t.throws(() => run('conv', { ...argsOf(at, more), [flag]: true }), expected, JSON.stringify(at))
      }
    }
  }
  t.end()
})
