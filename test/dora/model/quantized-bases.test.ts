// Adapters of weights that nodes make of other numbers: forward passes, merges, files and gradients against plain loops.
import { AdaptedModel, type Adapter, createAdapter, Model, Tensor, Trainer } from 'dgx-spark'
import t, { type Test } from 'tap'
import { optimizedGraph } from '#lib/cli/inspection.js'
import { resetWarnings } from '#lib/core/log.js'
import { numel } from '#lib/core/shape.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { decompose } from '#lib/graph/rewrites/decompose.js'
import { optimize } from '#lib/graph/rewrites/optimize.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { passesOf } from '#lib/training/passes.js'
import { backends } from '../../fixtures/backends.js'
import { maxAbs, within } from '../../fixtures/close.js'
import { noExactInt8, runOnnxRuntime } from '../../fixtures/onnx-runtime.js'
import { type QuantizedBase, quantizedBases } from '../../fixtures/quantized-bases.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const rank = 2
const backend = backends.at(-1)!

/** An adapter whose rows are up to a third longer or shorter than before. */
async function trained(graph: Graph): Promise<Adapter> {
  const adapter = await createAdapter(graph, { targetModules: ['fc'], rank, init: false, alpha: 3 })
  const magnitude = adapter.read('fc.lora_magnitude_vector')
  const factors = uniform(randomGenerator(4), magnitude.length, 0.7, 1.3)
  adapter.write(
    'fc.lora_magnitude_vector',
    magnitude.map((length, i) => length * factors[i]!),
  )
  return adapter
}

/** magnitude ∘ V / ‖V‖ with V = W + alpha / rank · B·A */
function adaptedWeight({ weight }: QuantizedBase, adapter: Adapter): number[][] {
  const [a, b, magnitude] = ['A', 'B', 'magnitude_vector'].map(part => adapter.read(`fc.lora_${part}`))
  return weight.map((row, o) => {
    const v = row.map((w, i) => {
      let sum = 0
      for (let r = 0; r < rank; r++) sum += b![o * rank + r]! * a![r * row.length + i]!
      return w + (3 / rank) * sum
    })
    return v.map(value => (magnitude![o]! * value) / Math.hypot(...v))
  })
}

async function run(graph: Graph, x: Tensor, engine: 'js' | 'cpu'): Promise<Float32Array> {
  using model = await Model.fromGraph(graph, { backend: engine, precision: 'fp32' })
  return Float32Array.from((await model.run({ x })).y!.data as Float32Array)
}

/** Within `tolerance` of the largest, or, where y is quantized, within a step of it. */
function near(
  t: Test,
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  step: number,
  name: string,
): void {
  const limit = 1e-5 * maxAbs(expected) + 1.001 * step
  within(t, actual, expected, () => limit, name)
  const mean =
    Array.from(expected).reduce((sum, value, i) => sum + Math.abs(value - actual[i]!), 0) / expected.length
  t.ok(mean <= 1e-5 * maxAbs(expected) + step / 10, `${name}: ${mean} apart on average`)
}

for (const [name, base] of Object.entries(quantizedBases)) {
  const { graph, step, forward } = base
  const x = Tensor.from(uniform(randomGenerator(3), numel(base.x)), { shape: base.x })
  const feeds = new Map([['x', Constant.from('f32', base.x, x.data)]])

  t.test(`${name}: forward, merge, ONNX Runtime`, async t => {
    near(t, await run(graph, x, backend), forward(x.data, base.weight), step, 'the base')
    const adapter = await trained(graph)
    const expected = forward(x.data, adaptedWeight(base, adapter))
    for (const engine of backends) near(t, await run(adapter.graph, x, engine), expected, step, engine)
    const { graph: merged, losses, unmerge } = await adapter.merge()
    t.equal(unmerge(), graph)
    const loss = losses.get('fc')!
    t.ok(base.grain === 0 ? loss === 0 : loss > 0 && loss < base.grain * 10, `the merge lost ${loss}`)
    const y = await run(merged, x, backend)
    // Lost digits of the weight are as many of y, whose products add up.
    const size = Math.hypot(...expected)
    const apart = Math.hypot(...expected.map((value, i) => value - y[i]!)) / size
    const quantum = (step * Math.sqrt(expected.length)) / size
    t.ok(apart <= 1e-5 + 4 * loss + quantum, `merged and adapted are ${apart} apart, the loss is ${loss}`)
    const isQuantized = step > 0
    t.equal(
      optimize(merged).graph.nodes.some(({ op }) => /^QLinear/.test(op)),
      isQuantized,
      'codes stay codes',
    )
    for (const [what, saved] of Object.entries({ merged, adapted: decompose(adapter.graph) })) {
      const own = what === 'merged' ? y : expected
      const { y: theirs } = await runOnnxRuntime(serializeOnnx(saved), feeds)
      near(t, theirs!.data as Float32Array, own, step, `${what} in ONNX Runtime`)
    }
    if (isQuantized) {
      await t.test('with the optimizations of ONNX Runtime', { skip: noExactInt8 }, async t => {
        const { y: fused } = await runOnnxRuntime(serializeOnnx(merged), feeds, true)
        near(t, fused!.data as Float32Array, y, step, 'merged')
      })
    }
    using model = new AdaptedModel(graph, { backend })
    model.add('a', adapter)
    near(
      t,
      (await model.run({ x }, { adapters: 'a' })).y!.data as Float32Array,
      expected,
      step,
      'AdaptedModel',
    )
    near(
      t,
      (await model.run({ x })).y!.data as Float32Array,
      forward(x.data, base.weight),
      step,
      'and without',
    )
  })

  t.test(`${name}: gradients`, async t => {
    const adapter = await trained(graph)
    const target = uniform(randomGenerator(8), forward(x.data, base.weight).length)
    const { graph: both, gradients } = passesOf({ adapter, loss: 'mse', precision: 'fp32' }, { x: base.x })
    const outputs = Array.from(gradients.values(), name => ({ name }))
    using plan = await Plan.create({ ...both, outputs }, jsKernels, {
      shapes: { x: base.x, target: await shapeOf(graph, x) },
    })
    const made = await plan.run({ x: x.data as Float32Array, target })
    const parts = Object.fromEntries(
      Array.from(gradients, ([key, value]) => [key, Float32Array.from(made[value] as Float32Array)]),
    )
    const magnitude = adapter.read('fc.lora_magnitude_vector')
    const lossAt = (): number => {
      const y = forward(x.data, adaptedWeight(base, adapter))
      return y.reduce((sum, value, i) => sum + (value - target[i]!) ** 2, 0) / y.length
    }
    if (step > 0) {
      for (const [key, values] of Object.entries(parts)) t.ok(maxAbs(values) > 1e-4, key)
      return
    }
    const numeric = magnitude.map((length, o) => {
      const moved = (by: number): number => {
        adapter.write('fc.lora_magnitude_vector', magnitude.with(o, length + by))
        return lossAt()
      }
      return (moved(0.01) - moved(-0.01)) / 0.02
    })
    // A parabola: a difference of two points is its slope but for rounding.
    within(t, parts['fc.lora_magnitude_vector']!, numeric, () => 1e-4 * maxAbs(numeric), 'magnitude')
  })

  t.test(`${name}: a training`, async t => {
    const adapter = await createAdapter(graph, { targetModules: ['fc'], rank })
    const shape = await shapeOf(graph, x)
    const target = Tensor.from(uniform(randomGenerator(8), numel(shape)), { shape })
    const trainer = new Trainer({ graph }, adapter, {
      ...{
        loss: 'mse',
        optimizer: { type: 'adamw', learningRate: 0.01 },
        batchSize: base.x[0]!,
        epochs: 20,
        backend,
      },
    })
    const losses: number[] = []
    for await (const { loss } of trainer.steps([{ x, target }])) losses.push(loss)
    t.ok(losses.at(-1)! < 0.98 * losses[0]!, `from ${losses[0]} to ${losses.at(-1)}`)
  })
}

async function shapeOf(graph: Graph, x: Tensor): Promise<readonly number[]> {
  using model = await Model.fromGraph(graph, { backend: 'js', precision: 'fp32' })
  return (await model.run({ x })).y!.shape
}

const dequantized = (codes: string, scale: string, out: string) =>
  makeNode('DequantizeLinear', [codes, scale], [out])

/** Two products whose weights share a scale, and a table that is a weight, too. */
function sharing(): Graph {
  const random = randomGenerator(5)
  const codes = (...shape: number[]) =>
    Constant.from('i8', shape, Int8Array.from(uniform(random, numel(shape), -127, 127)))
  return makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', 6]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      dequantized('a.weight_quantized', 'scale', 'a.w'),
      dequantized('b.weight_quantized', 'scale', 'b.w'),
      makeNode('MatMul', ['x', 'a.w'], ['h']),
      makeNode('MatMul', ['h', 'b.w'], ['y']),
    ],
    initializers: new Map([
      ['a.weight_quantized', codes(6, 5)],
      ['b.weight_quantized', codes(5, 3)],
      ['scale', Constant.f32(0.01)],
    ]),
  })
}

t.test('what others read stays as it was', async t => {
  const graph = sharing()
  const x = Tensor.from(uniform(randomGenerator(6), 24), { shape: [4, 6] })
  const adapter = await createAdapter(graph, { targetModules: ['a'], rank, init: false })
  t.strictSame(
    adapter.modules.map(({ name }) => name),
    ['a'],
  )
  const { graph: merged, losses } = await adapter.merge()
  t.equal(merged.initializers.get('scale'), graph.initializers.get('scale'), 'the scale of both')
  const [apart, exact] = [await run(merged, x, backend), await run(adapter.graph, x, backend)]
  const error = Math.hypot(...apart.map((value, i) => value - exact[i]!)) / Math.hypot(...exact)
  t.ok(error < 4 * losses.get('a')!, `${error}`)
  const again = await createAdapter(merged, { targetModules: ['a', 'b'], rank })
  const { graph: unchanged, losses: none } = await again.merge()
  t.ok(
    [...none.values()].every(loss => loss < 1e-6),
    'a new adapter changes nothing, and nothing is lost',
  )
  within(t, await run(unchanged, x, backend), apart, () => 1e-5 * maxAbs(apart), 'unchanged')
})

t.test('layers without an adapter are named', async t => {
  resetWarnings()
  const warnings: string[] = []
  const listen = (warning: Error) => warnings.push(warning.message)
  process.on('warning', listen)
  const { graph } = quantizedBases.MatMulInteger!
  const raw = makeGraph({
    ...graph,
    outputs: [{ name: 'integers' }, { name: 'z' }],
    nodes: [
      ...graph.nodes.slice(0, 2),
      makeNode('MatMul', ['x', 'other.weight'], ['z']),
      makeNode('MatMul', ['x', 'odd'], ['v']),
      makeNode('Neg', ['odd.weight'], ['odd']),
      makeNode('MatMul', ['left.weight', 'z'], ['u']),
    ],
    initializers: new Map([
      ...graph.initializers,
      ['other.weight', Constant.f32(Array(30).fill(1), [10, 3])],
      ['odd.weight', Constant.f32(Array(30).fill(1), [10, 3])],
      ['left.weight', Constant.f32(Array(30).fill(1), [6, 5])],
    ]),
  })
  const adapter = await createAdapter(raw, { targetModules: ['fc', 'other', 'odd', 'left'], rank })
  t.equal(adapter.modules.length, 1)
  await new Promise(resolve => setImmediate(resolve))
  process.off('warning', listen)
  for (const reason of [
    /'fc' gets no adapter.*MatMulInteger/,
    /'odd'.*computed by Neg/,
    /'left'.*left operand/,
  ]) {
    t.ok(
      warnings.some(text => reason.test(text)),
      `${reason} in ${warnings.join('; ')}`,
    )
  }
  await t.rejects(createAdapter(raw, { targetModules: ['fc'] }), {
    code: 'ERR_ARGUMENT',
    message: /names 'fc', which cannot have an adapter: the scales of its MatMulInteger/,
  })
})

t.test('what saturates has no gradient', async t => {
  const { graph, x: shape, forward, weight } = quantizedBases.QLinearMatMul!
  const x = uniform(randomGenerator(3), numel(shape))
  const lengths: Float32Array[] = []
  for (const factor of [1, 1e4]) {
    const adapter = await createAdapter(graph, { targetModules: ['fc'], rank })
    const magnitude = adapter.read('fc.lora_magnitude_vector').map(length => factor * length)
    adapter.write('fc.lora_magnitude_vector', magnitude)
    const { graph: both, gradients } = passesOf({ adapter, loss: 'mse', precision: 'fp32' }, { x: shape })
    const name = gradients.get('fc.lora_magnitude_vector')!
    const sizes = { x: shape, target: [shape[0]!, 7] }
    using plan = await Plan.create({ ...both, outputs: [{ name }] }, jsKernels, { shapes: sizes })
    const target = new Float32Array(forward(x, weight).length)
    lengths.push(Float32Array.from((await plan.run({ x, target }))[name] as Float32Array))
  }
  t.ok(maxAbs(lengths[0]!) > 0)
  t.equal(maxAbs(lengths[1]!), 0)
})

t.test('modes of 16 bits round what codes beside an adapter stand for', async t => {
  for (const [name, base] of Object.entries(quantizedBases)) {
    const { graph } = await trained(base.graph)
    const x = Tensor.from(uniform(randomGenerator(3), numel(base.x)), { shape: base.x })
    const expected = await run(graph, x, 'cpu')
    for (const [mode, compute, limit] of [
      ['fp16', 'f16', 1e-2],
      ['bf16', 'bf16', 5e-2],
      ['fp8', 'bf16', 0.2],
    ] as const) {
      const shapes = { x: [...base.x] }
      const { graph: optimized } = await optimizedGraph(graph, shapes, mode)
      const { steps } = compile(optimized, { backend: 'cuda', mode, bf16Support: 'matrix' })
      const products = steps.flatMap(({ op, args }) =>
        op === 'doraForward' || op === 'conv' ? [args.compute ?? 'f32'] : [],
      )
      t.strictSame(products, [compute], `${name}, ${mode}: a GPU takes tensor cores`)
      using model = await Model.fromGraph(graph, { backend, precision: mode })
      const y = (await model.run({ x })).y!.data as Float32Array
      const error = Math.hypot(...y.map((value, i) => value - expected[i]!)) / Math.hypot(...expected)
      t.ok(error <= limit + base.step, `${name}, ${mode}: ${error}`)
    }
  }
})
