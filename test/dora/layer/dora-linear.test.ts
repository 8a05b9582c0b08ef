// The behaviour of DoRALinear; its numbers are in dora-golden.test.ts.
import {
  DoRALinear,
  type DoRALinearOptions,
  dequantizeFP8,
  dequantizeNVFP4,
  type Precision,
  quantizeFP8,
  quantizeNVFP4,
  Tensor,
} from 'dgx-spark'
import t from 'tap'
import { backends } from '../../fixtures/backends.js'
import { scriptResult } from '../../fixtures/child.js'
import { close } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'
import { randomTensors } from '../../fixtures/values/random-tensors.js'

const [outs, ins] = [17, 48] // nvfp4 needs a multiple of 16
const precisions: readonly Precision[] = ['fp32', 'fp16', 'bf16', 'fp8', 'nvfp4']
process.on('warning', () => {}) // nvfp4 is experimental

const random = randomGenerator(42)
const tensor = randomTensors(random)
const linear = { weight: tensor(outs, ins), bias: tensor(outs) }

/** A layer whose adapter is not at its start: B and magnitude are random. */
async function layerOf(options: DoRALinearOptions = {}): Promise<DoRALinear> {
  const generator = randomGenerator(7)
  const initial = {
    b: Tensor.from(uniform(generator, outs * 5, -0.3, 0.3), { shape: [outs, 5] }),
    magnitude: Tensor.from(uniform(generator, outs, 0.5, 2)),
  }
  return DoRALinear.fromLinear(linear, { rank: 5, alpha: 7, initial, ...options })
}

function plainLinear(weight: Float32Array, x: Tensor): Float64Array {
  const values = x.toFloat32()
  const bias = linear.bias.data
  const y = new Float64Array((values.length / ins) * outs)
  return y.map((_, at) => {
    const [token, o] = [Math.floor(at / outs), at % outs]
    let sum = bias[o]!
    for (let i = 0; i < ins; i++) sum += values[token * ins + i]! * weight[o * ins + i]!
    return sum
  })
}

for (const backend of backends) {
  t.test(`a new layer computes what the linear layer does (${backend})`, async t => {
    const x = tensor(3, ins)
    const { data } = linear.weight
    const stored: Record<Precision, Float32Array> = {
      fp32: data,
      fp16: linear.weight.to('f16').toFloat32(),
      bf16: linear.weight.to('bf16').toFloat32(),
      fp8: dequantizeFP8(quantizeFP8(data, [outs, ins])),
      nvfp4: dequantizeNVFP4(quantizeNVFP4(data, [outs, ins])),
    }
    for (const precision of precisions) {
      const layer = await DoRALinear.fromLinear(linear, { precision, backend, rank: 3 })
      t.equal(layer.precision, precision)
      t.equal(layer.backend, backend)
      const y = (await layer.forward(x)).toFloat32()
      close(t, y, plainLinear(stored[precision], x), 1e-6, precision)
      const norms = Array.from({ length: outs }, (_, o) =>
        Math.hypot(...stored[precision].subarray(o * ins, (o + 1) * ins)),
      )
      close(t, layer.parameters()[2]!.data, norms, 1e-6, `${precision} magnitude`)
    }
  })

  t.test(`shapes (${backend})`, async t => {
    const layer = await layerOf({ backend })
    for (const leading of [[], [1], [4], [0], [2, 3], [2, 0, 3], [1, 2, 1, 2]]) {
      const x = tensor(...leading, ins)
      const y = layer.forwardSync(x, { training: true })
      t.strictSame(y.shape, [...leading, outs])
      const gradients = layer.backwardSync(tensor(...leading, outs))
      t.strictSame(gradients.x!.shape, x.shape)
      t.strictSame(gradients.a.shape, [5, ins])
      t.strictSame(gradients.b.shape, [outs, 5])
      t.strictSame(gradients.magnitude.shape, [outs])
      t.strictSame(gradients.bias!.shape, [outs])
    }
    layer.forwardSync(tensor(0, ins), { training: true })
    const { a, magnitude } = layer.backwardSync(tensor(0, outs))
    t.ok(
      [...a.data, ...magnitude.data].every(value => value === 0),
      'no rows, no gradient',
    )
  })

  t.test(`the output has the dtype of the input (${backend})`, async t => {
    const layer = await layerOf({ backend })
    const x = tensor(3, ins)
    for (const dtype of ['f16', 'bf16'] as const) {
      const y = await layer.forward(x.to(dtype), { training: true })
      t.equal(y.dtype, dtype)
      t.strictSame(
        y,
        (await layer.forward(Tensor.from(x.to(dtype).toFloat32(), { shape: x.shape }))).to(dtype),
      )
      const gradients = await layer.backward(tensor(3, outs).to(dtype))
      t.equal(gradients.x!.dtype, dtype)
      t.equal(gradients.a.dtype, 'f32')
    }
    t.end()
  })

  t.test(`every write to a parameter is seen (${backend})`, async t => {
    const layer = await layerOf({ backend })
    const x = tensor(3, ins)
    for (const training of [false, true]) {
      for (const index of [0, 1, 2]) {
        layer.forwardSync(x, { training })
        layer.parameters()[index]!.data[3]! += 0.25
        const [a, b, magnitude] = layer.parameters().map(({ data, shape }) => Tensor.from(data, { shape }))
        const fresh = await layerOf({ backend, initial: { a: a!, b: b!, magnitude: magnitude! } })
        t.strictSame(layer.forwardSync(x, { training }), fresh.forwardSync(x, { training }))
      }
    }
  })

  t.test(`a backward pass belongs to its forward pass (${backend})`, async t => {
    const x = tensor(3, ins)
    const dy = tensor(3, outs)
    const layer = await layerOf({ backend, normGradient: 'exact' })
    layer.train().forwardSync(x)
    const gradients = layer.backwardSync(dy)
    for (const parameter of layer.parameters()) parameter.data.fill(0.5)
    t.strictSame(await layer.backward(dy), gradients)
    t.strictSame(
      layer.parameters().map(({ grad }) => grad),
      [gradients.a.data, gradients.b.data, gradients.magnitude.data],
    )
    const withoutInput = layer.backwardSync(dy, { input: false })
    t.notOk('x' in withoutInput)
    t.strictSame({ ...withoutInput, x: gradients.x }, gradients)
  })

  t.test(`concurrent passes do not disturb each other (${backend})`, async t => {
    const layers = [await layerOf({ backend }), await layerOf({ backend, alpha: 1, precision: 'bf16' })]
    const inputs = Array.from({ length: 6 }, (_, i) => tensor(i + 1, ins))
    const expected = layers.map(layer => inputs.map(x => layer.forwardSync(x)))
    const fresh = [await layerOf({ backend }), await layerOf({ backend, alpha: 1, precision: 'bf16' })]
    const actual = await Promise.all(
      fresh.map(layer => Promise.all(inputs.map(x => layer.train().forward(x)))),
    )
    t.strictSame(actual, expected)
    t.strictSame((await fresh[0]!.backward(tensor(6, outs))).x!.shape, [6, ins], 'the last call counts')
  })

  t.test(`merge and unmerge (${backend})`, async t => {
    const x = tensor(3, ins)
    for (const precision of precisions) {
      const layer = await layerOf({ backend, precision })
      layer.parameters()[2]!.data[4] = 0 // cannot be divided out again
      const before = layer.forwardSync(x)
      const bytes = layer.weightBytes
      await layer.unmerge()
      await layer.merge({ precision: 'fp32' })
      t.ok(layer.merged)
      t.equal(layer.precision, 'fp32')
      const merged = layer.forwardSync(x)
      close(t, merged.toFloat32(), before.toFloat32(), 2e-6, `${precision} merged`)
      await layer.merge({ precision: 'fp32' })
      t.strictSame(layer.forwardSync(x), merged, 'merging twice is merging once')
      close(t, plainLinear((await layer.mergedWeight()).data, x), before.toFloat32(), 2e-6, 'mergedWeight')
      await layer.unmerge()
      await layer.unmerge()
      t.notOk(layer.merged)
      t.equal(layer.weightBytes, bytes)
      t.strictSame(layer.forwardSync(x), before, `${precision} unmerged, bit for bit`)
      await layer.merge()
      t.equal(layer.precision, precision, 'stays in its format')
      t.equal(layer.weightBytes, bytes)
    }
  })

  t.test(`unmerging without the original (${backend})`, async t => {
    const x = tensor(3, ins)
    const layer = await layerOf({ backend })
    const before = layer.forwardSync(x)
    await layer.merge({ keepOriginal: false })
    for (const { data } of layer.parameters()) data.fill(9)
    await layer.unmerge()
    const fresh = await layerOf({ backend })
    for (const [i, { data }] of fresh.parameters().entries()) layer.parameters()[i]!.data.set(data)
    close(t, layer.forwardSync(x).toFloat32(), before.toFloat32(), 5e-6, 'restored')
    layer.parameters()[2]!.data[4] = 0
    await layer.merge({ keepOriginal: false })
    await t.rejects(layer.unmerge(), { code: 'ERR_RANGE', message: /gain of row 4 is 0/ })
    t.ok(layer.merged, 'still merged')
  })

  t.test(`NaN (${backend})`, async t => {
    const layer = await layerOf({ backend, name: 'broken-one' })
    const x = tensor(2, ins)
    const before = layer.forwardSync(x)
    const [a] = layer.parameters()
    const good = a!.data[5]!
    a!.data[5] = Number.NaN
    await t.rejects(layer.merge(), { code: 'ERR_NOT_FINITE', message: /'broken-one' seems to be broken/ })
    t.notOk(layer.merged)
    a!.data[5] = good
    t.strictSame(layer.forwardSync(x), before, 'the frozen weight is untouched')
    a!.data[5] = Number.NaN
    await layer.merge({ safe: false })
    t.ok(layer.merged)
    await layer.unmerge()
    a!.data[5] = good
    const spoiled = Tensor.from(x.data.slice(), { shape: x.shape })
    spoiled.data[1] = Number.NaN
    const y = layer.forwardSync(spoiled).data as Float32Array
    t.ok(y.subarray(0, outs).every(Number.isNaN), 'the row of a NaN is NaN')
    t.strictSame(y.subarray(outs), (before.data as Float32Array).subarray(outs), 'other rows are not')
  })

  t.test(`dropout (${backend})`, async t => {
    const x = Tensor.from(new Float32Array(64 * ins).fill(1), { shape: [64, ins] })
    const options = { backend, dropout: 0.25, seed: 3 } as const
    const [layer, again, other] = await Promise.all([
      layerOf(options),
      layerOf(options),
      layerOf({ ...options, seed: 4 }),
    ])
    t.strictSame(
      layer.forwardSync(x),
      (await layerOf({ ...options, dropout: 0 })).forwardSync(x),
      'not in eval',
    )
    const first = layer.forwardSync(x, { training: true })
    t.strictSame(again.forwardSync(x, { training: true }), first, 'the seed decides')
    t.notSame(layer.forwardSync(x, { training: true }), first, 'every pass drops anew')
    t.notSame(other.forwardSync(x, { training: true }), first)
  })
}

t.test('starting values', async t => {
  const bound = 1 / Math.sqrt(ins)
  const [layer, same, other] = await Promise.all(
    [0, 0, 1].map(seed => DoRALinear.fromLinear(linear, { seed })),
  )
  const [a, b] = layer!.parameters()
  t.ok(a!.data.every(value => Math.abs(value) <= bound))
  t.ok(Math.max(...a!.data) > 0.95 * bound && Math.min(...a!.data) < -0.95 * bound, 'A fills ±1/√in')
  t.ok(
    b!.data.every(value => value === 0),
    'B is zero',
  )
  t.strictSame(same!.parameters(), layer!.parameters())
  t.notSame(other!.parameters()[0], a)
  t.strictSame(
    layer!.parameters().map(({ name, shape }) => [name, shape]),
    [
      ['lora_A', [16, ins]],
      ['lora_B', [outs, 16]],
      ['magnitude', [outs]],
    ],
  )
  t.equal(
    layer!.trainableCount,
    layer!.parameters().reduce((sum, { data }) => sum + data.length, 0),
  )
  t.equal(layer!.scale, 1)
  t.equal((await layerOf({ rslora: true })).scale, Math.fround(7 / Math.sqrt(5)))
})

t.test('a dead row is finite', async t => {
  const weight = Tensor.from(linear.weight.data.slice(), { shape: [outs, ins] })
  weight.data.fill(0, 2 * ins, 3 * ins)
  for (const backend of backends) {
    const layer = await DoRALinear.fromLinear({ weight }, { backend, normGradient: 'exact' })
    const y = layer.forwardSync(tensor(3, ins), { training: true })
    const gradients = layer.backwardSync(tensor(3, outs))
    for (const { data } of [y, gradients.x!, gradients.a, gradients.b, gradients.magnitude]) {
      t.ok((data as Float32Array).every(Number.isFinite))
    }
    await layer.merge()
  }
})

t.test('quantized weights', async t => {
  const fp8 = quantizeFP8(linear.weight.data, [outs, ins])
  const nvfp4 = quantizeNVFP4(linear.weight.data, [outs, ins])
  const x = tensor(3, ins)
  for (const [weight, precision] of [
    [fp8, 'fp8'],
    [nvfp4, 'nvfp4'],
  ] as const) {
    const [given, made] = await Promise.all([
      DoRALinear.fromLinear({ ...linear, weight }),
      DoRALinear.fromLinear(linear, { precision }),
    ])
    t.strictSame(given.forwardSync(x), made.forwardSync(x))
    await t.rejects(DoRALinear.fromLinear({ weight }, { precision: 'fp16' }), { code: 'ERR_ARGUMENT' })
  }
  await t.rejects(DoRALinear.fromLinear({ weight: { ...fp8, rows: 18 } }), { code: 'ERR_SHAPE' })
  await t.rejects(DoRALinear.fromLinear({ weight: { ...nvfp4, cols: 32 } }), { code: 'ERR_SHAPE' })
})

t.test('what does not fit is refused by name', async t => {
  const refused = async (
    linear: Parameters<typeof DoRALinear.fromLinear>[0],
    options: object,
    code: string,
    message: RegExp,
  ) => t.rejects(DoRALinear.fromLinear(linear, options), { code, message })
  await refused(linear, { rank: 0 }, 'ERR_ARGUMENT', /options.rank must be an integer >= 1, got 0/)
  await refused(linear, { alpha: Number.NaN }, 'ERR_ARGUMENT', /options.alpha/)
  await refused(linear, { dropout: 1 }, 'ERR_ARGUMENT', /options.dropout/)
  await refused(linear, { seed: -1 }, 'ERR_ARGUMENT', /options.seed/)
  await refused(linear, { normGradient: 'none' }, 'ERR_ARGUMENT', /detached, exact/)
  await refused(linear, { precision: 'int8' }, 'ERR_ARGUMENT', /precision/)
  await refused(linear, { backend: 'gpu' }, 'ERR_ARGUMENT', /options.backend/)
  await refused(linear, { rnak: 4 }, 'ERR_ARGUMENT', /no option 'rnak'/)
  await refused(linear, { initial: { a: tensor(2, 3) } }, 'ERR_SHAPE', /options.initial.a/)
  await refused({ weight: tensor(4) }, {}, 'ERR_SHAPE', /linear.weight must have shape/)
  await refused({ weight: tensor(0, 4) }, {}, 'ERR_SHAPE', /empty/)
  await refused({ weight: tensor(4, 5).to('f8_e4m3') }, {}, 'ERR_DTYPE', /linear.weight/)
  await refused({ weight: [[1]] as unknown as Tensor }, {}, 'ERR_ARGUMENT', /linear.weight/)
  await refused({ ...linear, bias: tensor(3) }, {}, 'ERR_SHAPE', /linear.bias must have shape \[17\]/)
  await refused({ weight: tensor(4, 17) }, { precision: 'nvfp4' }, 'ERR_SHAPE', /multiple of 16/)
  await refused({ weight: Tensor.from([[1e5]]) }, { precision: 'fp16' }, 'ERR_RANGE', /fp16 ends at 65504/)
  await refused({ weight: Tensor.from([[Number.NaN]]) }, { precision: 'fp8' }, 'ERR_NOT_FINITE', /NaN/)

  const layer = await layerOf()
  await t.rejects(layer.forward(tensor(3, ins + 1)), {
    code: 'ERR_SHAPE',
    message: /\[..., 48\], got \[3, 49\]/,
  })
  await t.rejects(layer.forward(Tensor.from(5)), { code: 'ERR_SHAPE' })
  await t.rejects(layer.forward([1] as unknown as Tensor), {
    code: 'ERR_ARGUMENT',
    message: /x must be a Tensor/,
  })
  await t.rejects(layer.forward(tensor(ins).to('f8_e5m2')), { code: 'ERR_ARGUMENT', message: /x.dtype/ })
  await t.rejects(layer.forward(tensor(ins), { train: true } as object), { message: /no option 'train'/ })
  await t.rejects(layer.backward(tensor(outs)), {
    code: 'ERR_ARGUMENT',
    message: /backward needs a training pass/,
  })
  await layer.forward(tensor(2, ins))
  await t.rejects(layer.backward(tensor(2, outs)), { code: 'ERR_ARGUMENT' }, 'an eval pass keeps nothing')
  await layer.forward(tensor(2, ins), { training: true })
  await t.rejects(layer.backward(tensor(3, outs)), {
    code: 'ERR_SHAPE',
    message: /dy must have shape \[2, 17\]/,
  })
  layer.eval()
  await t.rejects(layer.backward(tensor(2, outs)), { code: 'ERR_ARGUMENT' }, 'eval() forgets')
  await layer.merge()
  await t.rejects(layer.forward(tensor(ins), { training: true }), {
    code: 'ERR_ARGUMENT',
    message: /unmerge/,
  })
})

t.test('after dispose', async t => {
  const layer = await layerOf()
  const pending = layer.forward(tensor(3, ins), { training: true })
  layer.dispose()
  layer[Symbol.dispose]()
  t.strictSame((await pending).shape, [3, outs], 'what was started ends')
  const gone = { code: 'ERR_DISPOSED' }
  await t.rejects(layer.forward(tensor(3, ins)), gone)
  await t.rejects(layer.backward(tensor(3, outs)), gone)
  await t.rejects(layer.merge(), gone)
  await t.rejects(layer.unmerge(), gone)
  await t.rejects(layer.mergedWeight(), gone)
  await t.rejects(layer.save('nowhere'), gone)
  t.throws(() => layer.forwardSync(tensor(3, ins)), gone)
  t.throws(() => layer.parameters(), gone)
  t.throws(() => layer.weightBytes, gone)
})

t.test('DGX_SPARK_PRECISION is the default precision', async t => {
  const script = `
    import { DoRALinear, quantizeFP8, Tensor } from 'dgx-spark'
    const weight = Tensor.from([[1, 2], [3, 4]])
    const fp8 = quantizeFP8(weight.data, [2, 2])
    const layers = [
      await DoRALinear.fromLinear({ weight }),
      await DoRALinear.fromLinear({ weight }, { precision: 'fp16' }),
      await DoRALinear.fromLinear({ weight: fp8 }),
    ]
    console.log(JSON.stringify(layers.map(layer => layer.precision)))`
  t.strictSame(await scriptResult(script, { DGX_SPARK_PRECISION: 'bf16' }), ['bf16', 'fp16', 'fp8'])
})
