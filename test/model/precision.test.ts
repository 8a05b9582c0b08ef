// Precision modes of models: how far outputs move, which weights are rounded, and the measure itself.
import {
  ArrayDataset,
  type BackendName,
  compare,
  createAdapter,
  type Feeds,
  Model,
  type Precision,
  Tensor,
  Trainer,
} from 'dgx-spark'
import t from 'tap'
import { float, int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { roundProducts } from '#lib/graph/rewrites/half-precision.js'
import { insertDora } from '#lib/graph/rewrites/insert-dora.js'
import { optimize } from '#lib/graph/rewrites/optimize.js'
import { quantizeWeights } from '#lib/graph/rewrites/quantize-weights.js'
import { roundWeights } from '#lib/graph/rewrites/round-weights.js'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { Bf16Support } from '#lib/kernels/kernels.js'
import { choosePrecision } from '#lib/model/precision.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'
import { scriptResult } from '../fixtures/child.js'
import { close, identical } from '../fixtures/close.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete } from '../fixtures/machines.js'
import { modelFile, noModels } from '../fixtures/models/onnx-models.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'
import { randomConstants } from '../fixtures/values/random-tensors.js'

const random = randomGenerator(6)
const f32 = randomConstants(random)

/** Conv, Gemm both ways, MatMul, and a weight that a Gather reads too. */
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [2, 16, 3, 3]) }],
  outputs: [{ name: 'y' }],
  nodes: [
    makeNode('Conv', ['x', 'filter'], ['image']),
    makeNode('Flatten', ['image'], ['row'], { attributes: { axis: int(1) } }),
    makeNode('Gemm', ['row', 'rows', 'bias'], ['a'], { attributes: { transB: int(1) } }),
    makeNode('Gemm', ['a', 'columns'], ['b']),
    makeNode('MatMul', ['b', 'matrix'], ['c']),
    makeNode('MatMul', ['c', 'table'], ['d']),
    makeNode('Gather', ['table', 'first'], ['e']),
    makeNode('Add', ['d', 'e'], ['y']),
  ],
  initializers: new Map([
    ['filter', f32(5, 16, 2, 2)],
    ['rows', f32(32, 20)],
    ['bias', f32(32)],
    ['columns', f32(32, 48)],
    ['matrix', f32(48, 7)],
    ['table', f32(7, 7)],
    ['first', Constant.i64(0)],
  ]),
})
const data = (count: number): Feeds[] => Array.from({ length: count }, () => ({ x: uniform(random, 288) }))

t.test(
  'what products are formed of follows from the weights, and on a GPU they take tensor cores',
  async t => {
    const layers = (size: number) =>
      makeGraph({
        inputs: [{ name: 'x', type: tensorType('f32', [2, 16, size, size]) }],
        outputs: [{ name: 'y' }, { name: 'z' }],
        nodes: [makeNode('Conv', ['x', 'filter'], ['y']), makeNode('ConvTranspose', ['x', 'turned'], ['z'])],
        initializers: new Map([
          ['filter', f32(5, 16, 2, 2)],
          ['turned', f32(16, 3, 2, 4)],
        ]),
      })
    const computesOf = async (
      size: number,
      mode: Precision,
      backend: 'cpu' | 'cuda',
      bf16Support: Bf16Support,
    ) => {
      const rounded = roundWeights(layers(size), { mode })
      const { steps } = compile(rounded, { backend, bf16Support })
      return steps.flatMap(({ op, args }) =>
        op === 'conv' || op === 'convTranspose' ? [`${op} ${args.compute}`] : [],
      )
    }
    const modes = { fp16: ['f32', 'f16'], bf16: ['bf16', 'bf16'], fp8: ['f32', 'bf16'] } as const
    for (const [mode, [onCpu, onGpu]] of Object.entries(modes) as [Precision, [string, string]][]) {
      const cpu = await computesOf(9, mode, 'cpu', 'simd')
      t.same(cpu.sort(), [`conv ${onCpu}`, `convTranspose ${onCpu}`], `${mode} on the CPU`)
      const gpu = await computesOf(9, mode, 'cuda', 'matrix')
      t.same(gpu.sort(), [`conv ${onGpu}`, `convTranspose ${onGpu}`], `${mode} on a GPU`)
    }
    t.match(await computesOf(9, 'bf16', 'cpu', 'none'), ['conv f32'], 'a CPU that cannot multiply bf16')
    t.match(await computesOf(3, 'bf16', 'cpu', 'matrix'), ['conv f32'], 'too few positions for a vector')
    t.match(await computesOf(3, 'bf16', 'cuda', 'matrix'), ['conv bf16'], 'which are enough for a GPU')
  },
)

t.test(
  'a layer beside an adapter takes tensor cores as one without, in training where it rounds operands',
  async t => {
    const adapted = (outputs: readonly string[]) =>
      makeGraph({
        inputs: [{ name: 'x', type: tensorType('f32', [3, 64]) }],
        outputs: outputs.map(name => ({ name })),
        nodes: [makeNode('DoRA', ['x', 'w', 'a', 'b', 'm'], outputs, { domain: sparkDomain })],
        initializers: new Map([
          ['w', f32(32, 64)],
          ['a', f32(4, 64)],
          ['b', f32(32, 4)],
          ['m', f32(32)],
        ]),
      })
    const computeOf = (mode: Precision, backend: 'cpu' | 'cuda', outputs: readonly string[]) => {
      const { steps } = compile(roundWeights(adapted(outputs), { mode }), { backend, bf16Support: 'matrix' })
      return steps.flatMap(({ op, args }) => (op === 'doraForward' ? [args.compute] : []))
    }
    for (const [mode, compute] of [
      ['fp32', 'f32'],
      ['fp16', 'f16'],
      ['bf16', 'bf16'],
      ['fp8', 'bf16'],
      ['nvfp4', 'bf16'],
    ] as const) {
      t.same(computeOf(mode, 'cuda', ['y']), [compute], `${mode} on a GPU`)
      t.same(computeOf(mode, 'cuda', ['y', 'xa']), ['f32'], `${mode} on a GPU, with a gradient`)
      t.same(computeOf(mode, 'cpu', ['y']), ['f32'], `${mode} on the CPU`)
    }
    for (const type of ['bf16', 'f16'] as const) {
      const graph = roundProducts(adapted(['y', 'xa']), type)
      const { steps } = compile(graph, { backend: 'cuda', bf16Support: 'matrix' })
      const computes = steps.flatMap(({ op, args }) => (op === 'doraForward' ? [args.compute] : []))
      t.same(computes, [type], `training in ${type} on a GPU`)
    }
  },
)

/** Greatest ‖a − b‖ / ‖b‖. */
const limits: Record<Precision, number> = { fp32: 0, fp16: 1e-2, bf16: 3e-2, fp8: 0.15, nvfp4: 0.4 }

t.test('modes', async t => {
  using exact = await Model.fromGraph(graph, { backend: 'js' })
  let before = -1
  for (const precision of Object.keys(limits) as Precision[]) {
    using model = await Model.fromGraph(graph, { backend: 'js', precision })
    t.equal(model.precision, precision)
    const [{ name, relativeError, cosine, elements } = { relativeError: 1, cosine: 0 }] = await compare(
      model,
      exact,
      data(3),
    )
    t.same([name, elements], ['y', 42])
    t.ok(relativeError <= limits[precision], `${precision}: ${relativeError}, cosine ${cosine}`)
    if (precision !== 'bf16') t.ok(relativeError > before, 'coarser than the mode before')
    before = relativeError
    for (const name of ['bias', 'table', 'first']) {
      t.equal(model.graph.initializers.get(name), graph.initializers.get(name), `${name} stays`)
    }
    const changed = ['filter', 'rows', 'columns', 'matrix'].filter(
      name => model.graph.initializers.get(name) !== graph.initializers.get(name),
    )
    // Rows of 20 are no whole blocks of 16.
    const kept = precision === 'nvfp4' ? ['rows'] : []
    const all = ['filter', 'rows', 'columns', 'matrix'].filter(name => !kept.includes(name))
    t.same(changed, precision === 'fp32' ? [] : all)
  }
})

/** Layers of every kind that reads a weight: batch normalization is folded, a weight is transposed by a node. */
const layers = insertDora(
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1, 16, 5, 3]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Conv', ['x', 'filter'], ['a']),
      makeNode('BatchNormalization', ['a', 'gain', 'shift', 'shift', 'gain'], ['b']),
      makeNode('Conv', ['b', 'grouped', 'shift'], ['c'], { attributes: { group: int(2) } }),
      makeNode('Conv', ['c', 'single'], ['d'], { attributes: { group: int(16) } }),
      makeNode('ConvTranspose', ['d', 'back'], ['e']),
      makeNode('Flatten', ['e'], ['f']),
      makeNode('Transpose', ['rows'], ['columns'], { attributes: { perm: ints([1, 0]) } }),
      makeNode('MatMul', ['f', 'columns'], ['g']),
      makeNode('Gemm', ['g', 'adapted', 'bias'], ['h'], { attributes: { transB: int(1) } }),
      makeNode('Gemm', ['h', 'last', 'bias'], ['y'], { attributes: { beta: float(0.5) } }),
    ],
    initializers: new Map([
      ['filter', f32(16, 16, 2, 2)],
      ['gain', Constant.f32(Array.from({ length: 16 }, random))],
      ['shift', f32(16)],
      ['grouped', f32(16, 8, 1, 2)],
      ['single', f32(16, 1, 2, 1)],
      ['back', f32(16, 4, 2, 2)],
      ['rows', f32(33, 32)],
      ['adapted', f32(32, 33)],
      ['bias', f32(32)],
      ['last', f32(32, 32)],
    ]),
  }),
  [
    {
      weight: 'adapted',
      module: 'adapted',
      scale: 2,
      a: f32(3, 33),
      b: f32(32, 3),
      magnitude: Constant.f32(Array.from({ length: 32 }, random)),
    },
  ],
)

/** The initializers of a graph as numbers in memory. */
const numbersOf = ({ initializers }: Graph): Map<string, Constant> =>
  new Map(
    [...initializers].map(([name, { shape, dtype, data }]) => [
      name,
      Constant.from(dtype as 'f32', shape, data),
    ]),
  )

t.test('stored weights give the bits of their numbers', async t => {
  const feeds = { x: uniform(random, 240) }
  for (const backend of backends) {
    for (const precision of ['fp16', 'bf16', 'fp8', 'nvfp4'] as const) {
      using model = await Model.fromGraph(layers, { backend, precision })
      const { graph } = model
      const plain = { ...graph, initializers: numbersOf(graph) }
      using numbers = await Model.fromGraph(plain, { backend, precision: 'fp32' })
      const [ours, theirs] = [await model.run(feeds), await numbers.run(feeds)]
      const name = `${precision} on ${backend}`
      // Products in bf16 round what they read.
      if (precision === 'bf16') close(t, ours.y!.toFloat32(), theirs.y!.toFloat32(), 2e-2, name)
      else identical(t, ours.y!.toFloat32(), theirs.y!.toFloat32(), name)
      const stored = [...graph.initializers].filter(([, constant]) => constant.weight).map(([name]) => name)
      const narrow = precision === 'nvfp4' ? [] : ['adapted']
      t.same(stored.sort(), [...narrow, 'back', 'filter', 'grouped', 'last', 'rows'].sort(), 'stored weights')
      const share = model.stats.constantBytes / numbers.stats.constantBytes
      t.ok(
        share < { fp16: 0.8, bf16: 0.8, fp8: 0.6, nvfp4: 0.6 }[precision],
        `${name} holds ${share} of fp32`,
      )
    }
  }
})

/** Losses of a short training of an adapter on `base`. */
async function losses(base: Graph, backend: BackendName): Promise<number[]> {
  const adapter = await createAdapter(base, { rank: 3, targetModules: ['filter', 'columns'], seed: 4 })
  const optimizer = { type: 'adamw', learningRate: 1e-2 } as const
  const trainer = new Trainer(adapter, adapter, { backend, loss: 'mse', optimizer, epochs: 6, batchSize: 12 })
  const found: number[] = []
  for await (const { loss } of trainer.steps(samples)) found.push(loss)
  return found
}
const batch = { x: f32(12, 16, 3, 3), target: f32(12, 48) }
const samples = new ArrayDataset({
  x: Tensor.from(batch.x.data, { shape: batch.x.shape }),
  target: Tensor.from(batch.target.data, { shape: batch.target.shape }),
})

t.test('training on a base in a format of less bits', { skip: !backends.includes('cpu') }, async t => {
  const nodes = graph.nodes.slice(0, 4)
  const untyped = { name: 'x', type: tensorType('f32', ['n', 16, 3, 3]) }
  for (const precision of ['fp8', 'nvfp4'] as const) {
    using model = await Model.fromGraph(
      { ...graph, nodes, inputs: [untyped], outputs: [{ name: 'b' }] },
      { backend: 'cpu', precision },
    )
    t.ok(model.graph.initializers.get('columns')?.weight?.shared.kept.layout === 'panels')
    const plain = { ...model.graph, initializers: numbersOf(model.graph) }
    for (const backend of ['cpu', 'js'] as const) {
      const [ours, theirs] = [await losses(model.graph, backend), await losses(plain, backend)]
      t.ok(ours.at(-1)! < ours[0]!, 'it learns')
      t.same(ours, theirs, `${precision} on ${backend}: the losses of its numbers`)
    }
  }
})

t.test('files with weights of codes and scales', async t => {
  const matrices = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 96]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Gemm', ['x', 'a'], ['h'], { attributes: { transB: int(1) } }),
      makeNode('MatMul', ['h', 'b'], ['y']),
    ],
    initializers: new Map([
      ['a', f32(64, 96)],
      ['b', f32(64, 33)],
    ]),
  })
  const feeds = { x: uniform(random, 288) }
  for (const format of ['nvfp4', 'fp8'] as const) {
    const quantized = quantizeWeights(matrices, { format })
    for (const backend of backends) {
      using model = await Model.fromGraph(quantized, { backend, precision: 'fp32' })
      const kernels = backend === 'js' ? jsKernels : openCpuKernels()
      using plan = await Plan.create(optimize(quantized).graph, kernels)
      const [{ y }, expected] = [await model.run(feeds), await plan.run(feeds)]
      identical(t, y!.toFloat32(), expected.y as Float32Array, `${format} on ${backend}`)
      t.equal(model.graph.nodes.length, quantized.nodes.length, 'the graph is that of the file')
      t.ok(model.stats.constantBytes < plan.stats.constantBytes / (format === 'fp8' ? 3 : 5), 'held as codes')
    }
  }
})

t.test('who chooses the mode', async t => {
  using model = await Model.fromGraph(graph, { backend: 'js' })
  t.same([model.precision, model.precisionReason], ['fp32', 'what every processor computes in'])
  t.equal(model.graph.initializers.get('rows'), graph.initializers.get('rows'), 'the graph is the one given')
  const asked = { name: 'nvfp4', reason: 'the option asks for nvfp4', automatic: false }
  t.same(await choosePrecision('nvfp4'), asked)
  const script = `import { choosePrecision } from '#lib/model/precision.js'
    console.log(JSON.stringify([await choosePrecision(undefined, { backend: 'cuda' }), await choosePrecision()]))`
  const reason = 'DGX_SPARK_PRECISION asks for fp8'
  t.match(await scriptResult(script, { DGX_SPARK_PRECISION: 'fp8' }), [
    { name: 'fp8', reason },
    { name: 'fp8' },
  ])
  const off = { name: 'fp32', automatic: true }
  t.match(await scriptResult(script, { DGX_SPARK_ENABLED: '0' }), [off, off])
  if (noCudaCalls) return
  const fakeDriver = new FakeDriver()
  t.teardown(() => fakeDriver.dispose())
  const best = { name: 'bf16', reason: 'the best one for compute capability 9.0', automatic: true }
  t.same(await scriptResult(script, machine(fakeDriver, discrete).env), [best, best])
})

t.test('bad options, bad comparisons', async t => {
  await t.rejects(Model.fromGraph(graph, { precision: 'fp5' as Precision }), { code: 'ERR_ARGUMENT' })
  const large = {
    ...graph,
    initializers: new Map([...graph.initializers, ['rows', Constant.f32(Array(640).fill(1e6), [32, 20])]]),
  }
  await t.rejects(Model.fromGraph(large, { precision: 'fp16' }), {
    code: 'ERR_RANGE',
    message: /weight 'rows'/,
  })
  using model = await Model.fromGraph(graph, { backend: 'js' })
  await t.rejects(compare(model, model, []), { code: 'ERR_ARGUMENT', message: /data is empty/ })
  t.same(await compare(model, model, data(1)), [
    { name: 'y', cosine: 1, relativeError: 0, maxError: 0, meanError: 0, elements: 14 },
  ])
  const other = {
    ...graph,
    nodes: graph.nodes.with(-1, makeNode('Add', ['d', 'e'], ['z'])),
    outputs: [{ name: 'z' }],
  }
  using renamed = await Model.fromGraph(other, { backend: 'js' })
  await t.rejects(compare(model, renamed, data(1)), {
    code: 'ERR_ARGUMENT',
    message: "there is no output 'z' to compare with the other one",
  })
})

t.test('a real model', { skip: noModels || !backends.includes('cpu') }, async t => {
  const file = modelFile('mnist', 'mnist-8.onnx')
  using exact = await Model.load(file, { backend: 'cpu' })
  const digits = Array.from({ length: 5 }, () => ({ Input3: uniform(random, 784, 0, 255) }))
  for (const precision of ['fp16', 'bf16'] as const) {
    using model = await Model.load(file, { backend: 'cpu', precision })
    const [{ relativeError } = { relativeError: 1 }] = await compare(model, exact, digits)
    t.ok(relativeError > 0 && relativeError <= limits[precision], `${precision}: ${relativeError}`)
  }
})
