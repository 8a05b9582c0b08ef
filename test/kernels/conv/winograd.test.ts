// Convolutions of 3 x 3 in tiles (Winograd): the transform of the weight, every option, odd sizes, stored formats.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import { winogradSize } from '#lib/kernels/js/winograd.js'
import type { KernelArgs, KernelOp, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { kernelFormats } from '#lib/weights/formats.js'
import { panelSizes } from '#lib/weights/panels.js'
import { close, identical } from '../../fixtures/close.js'
import { type ConvCase, convCase, f32Weight, shapeOf, weightCols } from '../../fixtures/conv.js'
import { randomWeight } from '../../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

const output = (count: number) => new Float32Array(count).fill(Number.NaN)
const numelOf = (sizes: readonly number[]) => sizes.reduce((product, size) => product * size, 1)

/** The weight as the addon transforms it. */
function transformed(weight: Weight): Float32Array {
  const data = output(winogradSize(weight.rows, weight.cols))
  addon.run('winogradWeight', { weight, data })
  return data
}

/** The weight in panels. */
function inPanels(weight: Weight): Weight {
  const sizes = panelSizes(weight)
  const data = new (weight.data.constructor as new (length: number) => Weight['data'])(sizes.data)
  const blockScale = 'blockScale' in weight ? new Uint8Array(sizes.blockScale) : undefined
  addon.run('packWeight', { weight, data, blockScale })
  return { ...weight, data, ...(blockScale && { blockScale }), layout: 'panels' } as Weight
}

function operands(at: ConvCase, seed: number) {
  const random = randomGenerator(seed)
  return {
    x: uniform(random, at.batch * at.channels * numelOf(at.image)),
    w: uniform(random, at.filters * weightCols(at)),
    bias: uniform(random, at.filters),
    residual: uniform(random, at.batch * at.filters * numelOf(at.out)),
  }
}

/** One tile, many lines of tiles, cut tiles, several blocks of lines, lines of one tile, pads that differ, crop or are tiles. */
const cases = [
  convCase([1, 1, 1, 1], [3, 3], [3, 3]),
  convCase([2, 5, 7, 1], [13, 11], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([1, 33, 65, 1], [17, 70], [3, 3], { pads: [1, 0, 1, 2] }),
  convCase([3, 3, 15, 1], [37, 66], [3, 3], { pads: [0, 2, 1, 0] }),
  convCase([1, 300, 9, 1], [29, 31], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([1, 3, 290, 1], [9, 5], [3, 3]),
  convCase([1, 4, 3, 1], [9, 12], [3, 3], { pads: [-1, -2, 3, 1] }),
  convCase([2, 9, 33, 1], [70, 3], [3, 3], { pads: [1, 1, 1, 1] }),
  convCase([1, 6, 3, 1], [14, 14], [3, 3], { pads: [7, 6, 9, 5] }),
  convCase([0, 2, 3, 1], [5, 5], [3, 3]),
]

t.test('the weight is that of the formula', t => {
  for (const dtype of kernelFormats) {
    const weight = randomWeight(randomGenerator(3), dtype, 37, 16 * 9)
    const data = output(winogradSize(37, 16 * 9))
    jsKernels.runSync('winogradWeight', { weight, data })
    const actual = transformed(weight)
    close(t, actual, data, 1e-7, dtype)
    identical(t, transformed(inPanels(weight)), actual, `${dtype} in panels`)
  }
  const refused = {
    weight: f32Weight(convCase([1, 1, 2, 1], [5, 5], [2, 2]), new Float32Array(8)),
    data: output(36 * 32),
  }
  for (const run of [addon.run, jsKernels.runSync.bind(jsKernels)]) {
    t.throws(() => run('winogradWeight' as KernelOp, refused), { code: 'ERR_SHAPE' })
  }
  t.end()
})

t.test('every option', t => {
  cases.forEach((at, seed) => {
    const { x, w, bias, residual } = operands(at, seed)
    const shape = { ...shapeOf(at), weight: f32Weight(at, w), x }
    const winograd = transformed(shape.weight)
    const variants: Partial<KernelArgs['conv']>[] = [
      {},
      { bias, activation: 'relu' },
      { bias, residual, activation: 'silu' },
      { bias, residual, residualFirst: true, activation: 'relu' },
    ]
    for (const more of variants) {
      const [y, expected] = [output(residual.length), output(residual.length)]
      addon.run('conv', { ...shape, ...more, winograd, y })
      jsKernels.runSync('conv', { ...shape, ...more, y: expected })
      close(t, y, expected, 6e-6, `${JSON.stringify(at)} ${Object.keys(more)}`)
      const over = residual.slice()
      if (!more.residual) continue
      addon.run('conv', { ...shape, ...more, winograd, residual: over, y: over })
      identical(t, over, y, 'over its residual')
    }
  })
  t.end()
})

t.test('a result depends on neither the other images nor the threads', t => {
  const at = convCase([3, 19, 35, 1], [41, 39], [3, 3], { pads: [1, 1, 1, 1] })
  const { x, w, bias } = operands(at, 5)
  const weight = f32Weight(at, w)
  const winograd = transformed(weight)
  const run = (batch: number, images: Float32Array) => {
    const y = output(batch * 35 * numelOf(at.out))
    addon.run('conv', { ...shapeOf(at), batch, weight, winograd, x: images, bias, y })
    return y
  }
  addon.setThreads(1)
  const one = run(3, x)
  for (const threads of [1, 2, 5]) {
    addon.setThreads(threads)
    identical(t, run(3, x), one, `${threads} threads`)
    identical(
      t,
      run(1, x.subarray((x.length / 3) * 2)),
      one.subarray((one.length / 3) * 2),
      'the last image alone',
    )
  }
  t.end()
})

t.test('images of few tiles take the weight itself', t => {
  const at = convCase([2, 8, 6, 1], [13, 10], [3, 3], { pads: [1, 1, 1, 1] })
  const { x, w, bias } = operands(at, 6)
  const weight = f32Weight(at, w)
  const winograd = transformed(weight)
  const run = (more: Partial<KernelArgs['conv']>) => {
    const y = output(2 * 6 * numelOf(at.out))
    addon.run('conv', { ...shapeOf(at), weight, x, bias, y, ...more })
    return y
  }
  const [direct, tiled] = [run({}), run({ winograd })]
  t.notSame(direct, tiled, 'other roundings')
  identical(t, run({ winograd, minTiles: 12 }), tiled, 'as many tiles as wanted')
  identical(t, run({ winograd, minTiles: 13 }), direct, 'one tile less')
  const none = { ...weight, data: new Float32Array(0) } as typeof weight
  identical(t, run({ winograd, weight: none }), tiled, 'always in tiles: no elements are read')
  for (const wrong of [{ winograd, weight: none, minTiles: 1 }, { weight: none }])
    t.throws(() => run(wrong), { code: 'ERR_SHAPE' })
  t.end()
})

t.test('other convolutions are refused', t => {
  const fits = convCase([1, 4, 6, 1], [9, 9], [3, 3])
  const others: Partial<KernelArgs['conv']>[] = [
    { strides: [2, 1] },
    { dilations: [1, 2] },
    { winograd: output(winogradSize(6, 4 * 9) - 1) },
    { kernel: [9], image: [81], out: [73], strides: [1], dilations: [1], padsBegin: [0] },
  ]
  const { x, w } = operands(fits, 1)
  const weight = f32Weight(fits, w)
  const args = { ...shapeOf(fits), weight, winograd: transformed(weight), x, y: output(6 * 73) }
  for (const other of others) {
    t.throws(() => addon.run('conv', { ...args, ...other }), { code: 'ERR_SHAPE' }, Object.keys(other)[0])
  }
  t.end()
})

t.test('a weight without elements has nothing to transform', t => {
  for (const [rows, cols] of [
    [0, 18],
    [3, 0],
  ] as const) {
    const weight = { format: 'f32', rows, cols, data: new Float32Array(0) } as const
    t.same(transformed(weight), new Float32Array(0), `${rows} x ${cols}`)
  }
  t.end()
})
