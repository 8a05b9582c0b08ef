// Convolutions: one to three axes, groups, strides, dilations, pads on one side, gradients, stored formats.
import { Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { activations } from '#lib/kernels/js/activations.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Activation, KernelArgs, KernelOp, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { kernelFormats } from '#lib/weights/formats.js'
import { panelSizes } from '#lib/weights/panels.js'
import { close, identical } from '../../fixtures/close.js'
import {
  type ConvCase,
  convCase,
  convCases,
  f32Weight,
  forEachTerm,
  shapeOf,
  weightCols,
} from '../../fixtures/conv.js'
import { weightValues } from '../../fixtures/models/dora-layer.js'
import { randomWeight } from '../../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const addon = requireAddon()
const noBf16 = () => addon.cpuBf16Support() === 'none' && 'this machine does not multiply bf16'
t.teardown(() => addon.setThreads(0))

type Run = <Op extends KernelOp>(op: Op, args: KernelArgs[Op]) => void
const engines: Readonly<Record<string, Run>> = {
  cpu: (op, args) => addon.run(op, args),
  js: (op, args) => jsKernels.runSync(op, args),
}

const output = (count: number) => new Float32Array(count).fill(Number.NaN)

function operands(at: ConvCase, seed: number) {
  const random = randomGenerator(seed)
  return {
    x: uniform(random, at.batch * at.channels * numel(at.image)),
    w: uniform(random, at.filters * weightCols(at)),
    dy: uniform(random, at.batch * at.filters * numel(at.out)),
    bias: uniform(random, at.filters),
    channelBias: uniform(random, at.channels),
  }
}

/** The outputs of all operations, in double precision. */
function expected(at: ConvCase, { x, w, dy, bias, channelBias }: ReturnType<typeof operands>) {
  const perImage = numel(at.out)
  const y = new Float64Array(dy.length).map((_, i) => bias[Math.floor(i / perImage) % at.filters])
  const dx = new Float64Array(x.length)
  const dweight = new Float64Array(w.length)
  const dbias = new Float64Array(at.filters)
  forEachTerm(at, (toY, fromX, atW) => {
    y[toY] += x[fromX] * w[atW]
    dx[fromX] += dy[toY] * w[atW]
    dweight[atW] += dy[toY] * x[fromX]
  })
  dy.forEach((value, i) => {
    dbias[Math.floor(i / perImage) % at.filters] += value
  })
  const transposed = dx.map((value, i) => value + channelBias[Math.floor(i / numel(at.image)) % at.channels])
  return { y, dx, dweight, dbias, transposed }
}

for (const [engine, run] of Object.entries(engines)) {
  t.test(`${engine}: every option`, t => {
    convCases.forEach((at, seed) => {
      const given = operands(at, seed)
      const { x, dy, bias, channelBias } = given
      const shape = { ...shapeOf(at), weight: f32Weight(at, given.w) }
      const want = expected(at, given)
      const y = output(dy.length)
      run('conv', { ...shape, x, bias, y })
      close(t, y, want.y, 1e-6, `y of ${JSON.stringify(at)}`)
      const [dx, dweight, dbias] = [output(x.length), output(given.w.length), output(at.filters)]
      run('convBackward', { ...shape, x, dy, dx, dweight, dbias })
      close(t, dx, want.dx, 1e-6, 'dx')
      close(t, dweight, want.dweight, 1e-6, 'dweight')
      close(t, dbias, want.dbias, 1e-6, 'dbias')
      const transposed = output(x.length)
      run('convTranspose', { ...shape, x: dy, bias: channelBias, y: transposed })
      close(t, transposed, want.transposed, 1e-6, 'the transposed convolution')
    })
    t.end()
  })
}

t.test('what follows the product', t => {
  for (const at of [
    convCase([2, 3, 5, 1], [29, 31], [3, 3]),
    convCase([2, 3, 6, 3], [29, 31], [2, 3]),
    convCase([1, 3, 6, 3], [31, 23], [3, 3], { strides: [2, 1] }),
  ]) {
    const given = operands(at, 12)
    const z = expected(at, given).y
    const residual = uniform(randomGenerator(13), z.length)
    for (const activation of Object.keys(activations) as Activation[]) {
      const activate = activations[activation]
      for (const residualFirst of [false, true]) {
        const want = z.map((value, i) =>
          residualFirst ? activate(value + residual[i]) : activate(value) + residual[i],
        )
        for (const [engine, run] of Object.entries(engines)) {
          const y = residual.slice()
          const { x, bias, w } = given
          const weight = f32Weight(at, w)
          run('conv', { ...shapeOf(at), weight, x, bias, residual: y, residualFirst, activation, y })
          close(t, y, want, 2e-6, `${engine}: ${activation}${residualFirst ? ' of the sum' : ''}`)
        }
      }
    }
  }
  t.end()
})

t.test('every stored format, without a bias', t => {
  for (const filters of [5, 31]) {
    const at = convCase([2, 16, filters, 1], [7, 6], [3, 2], { pads: [1, 0, 1, 1] })
    for (const dtype of kernelFormats) {
      const weight = randomWeight(randomGenerator(3), dtype, at.filters, weightCols(at))
      const w = Float32Array.from(weightValues(weight))
      const given = { ...operands(at, 4), w, bias: new Float32Array(at.filters) }
      const want = expected(at, given)
      for (const [engine, run] of Object.entries(engines)) {
        const [y, dx] = [output(given.dy.length), output(given.x.length)]
        run('conv', { ...shapeOf(at), weight, x: given.x, y })
        run('convBackward', { ...shapeOf(at), weight, dy: given.dy, dx })
        close(t, y, want.y, 1e-6, `${engine} ${dtype}: y`)
        close(t, dx, want.dx, 1e-6, `${engine} ${dtype}: dx`)
      }
    }
  }
  t.end()
})

/** The nearest numbers of bf16. */
const inBf16 = (values: Float32Array) => Tensor.from(values).to('bf16').toFloat32().slice()

t.test('in bf16', t => {
  convCases.forEach((at, seed) => {
    const given = operands(at, seed)
    const rounded = { ...given, x: inBf16(given.x), w: inBf16(given.w) }
    const want = expected(at, rounded).y
    const { x, bias, w } = rounded
    for (const dtype of ['f32', 'bf16'] as const) {
      const data = dtype === 'f32' ? w : Tensor.from(w).to('bf16').data
      const weight: Weight = { format: dtype, rows: at.filters, cols: weightCols(at), data }
      const y = output(given.dy.length)
      addon.run('conv', { ...shapeOf(at), weight, compute: 'bf16', x, bias, y })
      close(t, y, want, 1e-6, `${dtype}: y of ${JSON.stringify(at)}`)
    }
  })
  t.end()
})

t.test('in bf16: what is rounded, what stays apart', { skip: noBf16() }, t => {
  const at = convCase([3, 5, 35, 1], [9, 7], [3, 3], { pads: [1, 1, 1, 1] })
  const { x, w } = operands(at, 21)
  const run = (of: ConvCase, image: Float32Array) => {
    const y = output(of.batch * of.filters * numel(of.out))
    const weight = f32Weight(of, w)
    addon.run('conv', { ...shapeOf(of), weight, compute: 'bf16', x: image, y })
    return y
  }
  const y = run(at, x)
  identical(t, run(at, inBf16(x)), y, 'the image is rounded')
  const [image, result] = [x.length / 3, y.length / 3]
  for (let n = 0; n < 3; n++) {
    const alone = run({ ...at, batch: 1 }, x.slice(n * image, (n + 1) * image))
    identical(t, alone, y.slice(n * result, (n + 1) * result), `image ${n} alone`)
  }
  addon.setThreads(1)
  identical(t, run(at, x), y, 'by one thread')
  addon.setThreads(0)
  const infinite = x.slice(0, image).fill(Number.POSITIVE_INFINITY, image - 1)
  const reached = run({ ...at, batch: 1 }, infinite).map(value => Number(!Number.isFinite(value)))
  t.equal(
    reached.reduce((sum, one) => sum + one),
    4 * at.filters,
    'a number that is not finite reaches the positions that see it, the other half of its last lane being 0',
  )
  t.notOk(run({ ...at, batch: 1 }, infinite).some(Number.isNaN), 'and makes no NaN')
  t.end()
})

t.test('the gradient of a depthwise weight reads its own positions only', t => {
  const at = convCase([1, 5, 5, 5], [3, 38], [1, 2])
  const { x, w, dy } = operands(at, 14)
  x[37] = Number.POSITIVE_INFINITY // seen by the second tap of the first channel alone
  for (const [engine, run] of Object.entries(engines)) {
    const dweight = output(w.length)
    run('convBackward', { ...shapeOf(at), weight: f32Weight(at, w), x, dy, dweight })
    const finite = Array.from(dweight, Number.isFinite)
    t.same(
      finite,
      finite.map((_, i) => i !== 1),
      engine,
    )
  }
  t.end()
})

t.test('a depthwise convolution gives the bits of its channels alone', t => {
  t.teardown(() => addon.setThreads(0))
  for (const [kernel, stride] of [
    [3, 1],
    [3, 2],
    [5, 1],
    [5, 2],
  ]) {
    const options = { strides: [stride, stride], pads: [1, 2, 2, 1] }
    const one = convCase([1, 1, 1, 1], [27, 13], [kernel, kernel], options)
    const all = { ...one, batch: 2, channels: 35, filters: 35, groups: 35 }
    const { x, w, bias, dy } = operands(all, kernel + stride)
    const alone = output(dy.length)
    const [taps, pixels, positions] = [kernel ** 2, numel(one.image), numel(one.out)]
    for (let plane = 0; plane < 70; plane++) {
      const [c, y] = [plane % 35, alone.subarray(plane * positions, (plane + 1) * positions)]
      const weight = f32Weight(one, w.slice(c * taps, (c + 1) * taps))
      const image = x.slice(plane * pixels, (plane + 1) * pixels)
      addon.run('conv', { ...shapeOf(one), weight, x: image, bias: bias.slice(c, c + 1), y })
    }
    for (const threads of [1, 3]) {
      addon.setThreads(threads)
      const y = output(dy.length)
      addon.run('conv', { ...shapeOf(all), weight: f32Weight(all, w), x, bias, y })
      identical(t, y, alone, `${kernel} x ${kernel}, stride ${stride}, ${threads} threads`)
    }
  }
  t.end()
})

t.test('a packed weight gives the same bits', t => {
  const random = randomGenerator(6)
  for (const dtype of kernelFormats) {
    for (const at of [
      convCase([2, 16, 37, 1], [7, 6], [3, 2]),
      convCase([2, 32, 74, 2], [7, 6], [3, 2]),
      convCase([1, 32, 63, 1], [7, 6], [3, 2]),
      convCase([1, 16, 1, 1], [5, 53], [1, 1]),
      convCase([2, 32, 70, 1], [23, 19], [3, 3], { pads: [1, 1, 1, 1] }), // beyond a chunk, two tiles
      convCase([1, 48, 289, 1], [16, 17], [1, 1]),
      convCase([1, 6, 6, 6], [7, 6], [4, 4]),
      convCase([2, 16, 37, 1], [8, 6], [2, 2], { strides: [2, 2] }),
    ]) {
      const { x, dy, bias } = operands(at, 6)
      const weight = randomWeight(random, dtype, at.filters, weightCols(at))
      const sizes = panelSizes(weight)
      const data = new (weight.data.constructor as new (length: number) => Weight['data'])(sizes.data)
      const blockScale = 'blockScale' in weight ? { blockScale: new Uint8Array(sizes.blockScale) } : {}
      addon.run('packWeight', { weight, data, ...blockScale })
      const run = (weight: Weight) => {
        const [y, dx, active] = [output(dy.length), output(x.length), output(dy.length)]
        addon.run('conv', { ...shapeOf(at), weight, x, bias, y })
        addon.run('convBackward', { ...shapeOf(at), weight, dy, dx })
        addon.run('conv', { ...shapeOf(at), weight, x, bias, residual: dy, activation: 'relu', y: active })
        return { y, dx, active }
      }
      const expected = run(weight)
      for (const threads of [1, 3]) {
        addon.setThreads(threads)
        const actual = run({ ...weight, data, ...blockScale, layout: 'panels' } as Weight)
        for (const name of ['y', 'dx', 'active'] as const) {
          identical(t, actual[name], expected[name], `${name}, ${dtype}, ${threads} threads`)
        }
      }
    }
  }
  t.end()
})

t.test('a result depends on neither the other images nor the threads', t => {
  for (const at of [
    convCase([5, 7, 34, 1], [17, 16], [3, 3], { strides: [2, 1], pads: [1, 1, 1, 1] }),
    convCase([5, 33, 35, 1], [17, 16], [1, 1]),
    convCase([5, 33, 41, 1], [7, 7], [3, 3], { pads: [1, 1, 1, 1] }),
    convCase([5, 8, 8, 8], [17, 16], [3, 3], { pads: [1, 1, 1, 1] }),
    convCase([5, 8, 16, 8], [67, 50], [5, 5], { strides: [2, 2], pads: [2, 2, 2, 2] }),
    convCase([5, 67, 34, 1], [34, 26], [2, 2], { strides: [2, 2] }),
    convCase([5, 43, 3, 1], [9, 15], [3, 3], { strides: [3, 3] }),
    convCase([5, 240, 959, 1], [1, 1], [1, 1]), // a tile for each thread
  ]) {
    const { x, w, dy, bias } = operands(at, 9)
    const weight = f32Weight(at, w)
    const all = (batch: number, image: Float32Array, gradient: Float32Array) => {
      const shape = { ...shapeOf(at), weight, batch }
      const [y, dx] = [output(gradient.length), output(image.length)]
      addon.run('conv', { ...shape, x: image, bias, y })
      addon.run('convBackward', { ...shape, dy: gradient, dx })
      return [y, dx] as const
    }
    addon.setThreads(1)
    const one = all(5, x, dy)
    const weightGradient = () => {
      const dweight = output(w.length)
      addon.run('convBackward', { ...shapeOf(at), weight, x, dy, dweight })
      return dweight
    }
    const dweight = weightGradient()
    for (const threads of [1, 2, 5]) {
      addon.setThreads(threads)
      all(5, x, dy).forEach((result, i) => {
        identical(t, result, one[i], `result ${i}, ${threads} threads`)
      })
      identical(t, weightGradient(), dweight, `dweight, ${threads} threads`)
      for (const n of [0, 3, 4]) {
        const piece = (values: Float32Array) =>
          values.subarray((n * values.length) / 5, ((n + 1) * values.length) / 5)
        all(1, piece(x), piece(dy)).forEach((result, i) => {
          identical(t, result, piece(one[i]), `result ${i} of image ${n} alone, ${threads} threads`)
        })
      }
    }
  }
  t.end()
})

t.test('what does not fit is refused', t => {
  const at = convCase([1, 4, 6, 2], [5, 5], [3, 3])
  const { x, w } = operands(at, 1)
  const args = { ...shapeOf(at), weight: f32Weight(at, w), x, y: output(54) }
  for (const [engine, run] of Object.entries(engines)) {
    const refused = (changes: Partial<KernelArgs['conv']>, code: string, what: string) => {
      t.throws(() => run('conv', { ...args, ...changes }), { code }, `${engine}: ${what}`)
    }
    refused({ groups: 4 }, 'ERR_SHAPE', 'filters that are no multiple of the groups')
    refused({ groups: 0 }, engine === 'js' ? 'ERR_ARGUMENT' : 'ERR_SHAPE', 'no groups')
    refused({ kernel: [3, 0] }, engine === 'js' ? 'ERR_ARGUMENT' : 'ERR_SHAPE', 'a kernel of nothing')
    refused({ kernel: [3, 5] }, 'ERR_SHAPE', 'a kernel that the weight does not hold')
    refused({ strides: [1] }, 'ERR_SHAPE', 'too few strides')
    refused({ strides: [1, 0] }, engine === 'js' ? 'ERR_ARGUMENT' : 'ERR_SHAPE', 'a stride of 0')
    refused({ image: [5, 5, 5, 5] }, 'ERR_SHAPE', 'four axes')
    refused({ image: [5, 6] }, 'ERR_SHAPE', 'an image that is larger than x')
    refused({ out: [3, 4] }, 'ERR_SHAPE', 'an output that is larger than y')
    refused({ image: [2 ** 31 - 1, 2 ** 31 - 1], batch: 2 ** 31 }, 'ERR_SHAPE', 'more than memory')
    const nvfp4 = { ...shapeOf(at), weight: args.weight, compute: 'nvfp4' as 'bf16' }
    const [image, positions] = [output(x.length), output(54)]
    const code = 'ERR_UNSUPPORTED'
    t.throws(() => run('conv', { ...nvfp4, x, y: positions }), { code }, `${engine}: conv in NVFP4`)
    t.throws(
      () => run('convBackward', { ...nvfp4, dy: positions, dx: image }),
      { code },
      `${engine}: its gradient`,
    )
    t.throws(
      () => run('convTranspose', { ...nvfp4, x: positions, y: image }),
      { code },
      `${engine}: transposed`,
    )
    const channelsLast = { channelsLast: new Uint16Array(1), compute: 'bf16' as const }
    refused(channelsLast, engine === 'js' ? 'ERR_SHAPE' : 'ERR_UNSUPPORTED', 'a layout of CUDA')
    const huge = 2 ** 31 - 1
    if (engine === 'cpu') refused({ dilations: [huge, huge] }, 'ERR_SHAPE', 'a reach of more than memory')
  }
  t.end()
})
