// A pointwise convolution and the depthwise one behind it in one step: the bits of both, one after the other, whether in
// bands of lines or not.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { panelSizes } from '#lib/weights/panels.js'
import { close, identical } from '../../fixtures/close.js'
import { type ConvCase, convCase, f32Weight, shapeOf } from '../../fixtures/conv.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

type Args = KernelArgs['pointwiseDepthwise']

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

const output = (count: number) => new Float32Array(count).fill(Number.NaN)
const numelOf = (sizes: readonly number[]) => sizes.reduce((product, size) => product * size, 1)

/** So many channels of the depthwise convolution that a thread does not keep them in its cache, and a few. */
const cases = [
  convCase([1, 35, 35, 35], [97, 91], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([2, 33, 33, 33], [71, 130], [3, 3], { strides: [2, 2], pads: [0, 0, 1, 1] }),
  convCase([3, 17, 17, 17], [150, 40], [5, 5], { pads: [2, 2, 2, 2] }),
  convCase([1, 64, 64, 64], [61, 80], [5, 5], { strides: [2, 2], pads: [2, 1, 2, 3] }),
  convCase([1, 9, 9, 9], [260, 131], [3, 3], { pads: [7, 1, 9, 0] }),
  convCase([1, 300, 300, 300], [31, 33], [3, 3], { pads: [-2, -1, -3, 1] }),
  convCase([1, 1200, 1200, 1200], [6, 40], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([2, 5, 5, 5], [9, 33], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([1, 40, 40, 40], [81, 90], [3, 3], { dilations: [2, 1], pads: [1, 1, 1, 1] }),
  convCase([1, 2, 2, 2], [0, 5], [3, 3], { pads: [1, 1, 2, 1] }),
  convCase([0, 8, 8, 8], [9, 9], [3, 3]),
]

function argsOf(at: ConvCase, depth: number, more: Partial<Args> = {}): Args {
  const random = randomGenerator(at.filters + depth)
  const { batch, channels, filters, image, kernel, out } = at
  const pointwise: Weight = {
    format: 'f32',
    rows: channels,
    cols: depth,
    data: uniform(random, channels * depth),
  }
  return {
    ...shapeOf(at),
    pointwise,
    weight: f32Weight(at, uniform(random, filters * numelOf(kernel))),
    x: uniform(random, batch * depth * numelOf(image)),
    y: output(batch * filters * numelOf(out)),
    ...more,
  }
}

/** What the two convolutions give, one after the other. */
function separately(args: Args, run: (op: 'conv', args: KernelArgs['conv']) => void): Float32Array {
  const { pointwise, pointwiseBias, pointwiseActivation, x, ...depthwise } = args
  const { batch, image } = args
  const window = {
    image,
    kernel: [1, 1],
    out: image,
    strides: [1, 1],
    dilations: [1, 1],
    padsBegin: [0, 0],
  }
  const between = output(batch * pointwise.rows * numelOf(image))
  const y = output(args.y.length)
  const first = { weight: pointwise, bias: pointwiseBias, activation: pointwiseActivation }
  run('conv', { batch, groups: 1, ...window, ...first, x, y: between })
  run('conv', { ...depthwise, x: between, y })
  return y
}

/** A weight in panels. */
function inPanels(weight: Weight): Weight {
  const data = new Float32Array(panelSizes(weight).data)
  addon.run('packWeight', { weight, data })
  return { ...weight, data, layout: 'panels' } as Weight
}

t.test('every option', t => {
  for (const at of cases) {
    const bias = uniform(randomGenerator(1), at.filters)
    const variants: Partial<Args>[] = [
      {},
      { pointwiseBias: bias, pointwiseActivation: 'relu6', bias: bias.slice().reverse(), activation: 'relu' },
      { pointwiseActivation: 'silu', activation: 'gelu' },
    ]
    for (const more of variants) {
      const args = argsOf(at, 5, more)
      const label = `${JSON.stringify(at)} ${Object.keys(more)}`
      for (const threads of [1, 2]) {
        addon.setThreads(threads)
        addon.run('pointwiseDepthwise', args)
        identical(t, args.y, separately(args, addon.run), `${label}, ${threads} threads`)
        args.y.fill(Number.NaN)
      }
    }
  }
  t.end()
})

t.test('the same as in TypeScript', t => {
  for (const at of cases.filter(({ channels }) => channels < 20)) {
    const args = argsOf(at, 3, { pointwiseActivation: 'relu', activation: 'relu6' })
    const expected = { ...args, y: output(args.y.length) }
    addon.run('pointwiseDepthwise', args)
    jsKernels.runSync('pointwiseDepthwise', expected)
    close(t, args.y, expected.y, 6e-6, JSON.stringify(at))
    identical(t, expected.y, separately(args, jsKernels.runSync.bind(jsKernels)), 'one after the other')
  }
  t.end()
})

t.test('weights in panels, deep sums, threads and other images give the same bits', t => {
  const at = convCase([4, 70, 70, 70], [57, 83], [3, 3], { pads: [1, 1, 1, 1] })
  const args = argsOf(at, 300)
  const packed = { ...args, pointwise: inPanels(args.pointwise) }
  addon.setThreads(1)
  const expected = separately(args, addon.run)
  const run = (more: Args): Float32Array => {
    const y = output(more.y.length)
    addon.run('pointwiseDepthwise', { ...more, y })
    return y
  }
  for (const threads of [1, 2, 3, 8]) {
    addon.setThreads(threads)
    identical(t, run(args), expected, `${threads} threads`)
    identical(t, run(packed), expected, `${threads} threads, in panels`)
    const [x, y] = [args.x, args.y].map(all => all.subarray((all.length / 4) * 3))
    identical(
      t,
      run({ ...packed, batch: 1, x: x!, y: y! }),
      expected.subarray((expected.length / 4) * 3),
      'the last image alone',
    )
  }
  t.end()
})

t.test('what does not fit is refused', t => {
  const args = argsOf(convCase([1, 4, 4, 4], [5, 5], [3, 3]), 3)
  const wrong: [Partial<Args>, string][] = [
    [{ groups: 2 }, 'ERR_SHAPE'],
    [{ pointwise: { ...args.pointwise, rows: 3 } }, 'ERR_SHAPE'],
    [{ x: args.x.subarray(1) }, 'ERR_SHAPE'],
    [{ y: args.y.subarray(1) }, 'ERR_SHAPE'],
    [{ activation: 'no' as 'relu' }, 'ERR_ARGUMENT'],
    [{ pointwiseActivation: 'no' as 'relu' }, 'ERR_ARGUMENT'],
  ]
  for (const [more, code] of wrong) {
    for (const run of [addon.run, jsKernels.runSync.bind(jsKernels)])
      t.throws(() => run('pointwiseDepthwise', { ...args, ...more }), { code }, Object.keys(more).join())
  }
  t.end()
})
