// LoRA adapters: what they compute, their gradients, dropout, training and files.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { AdaptedModel, Adapter, createAdapter, readSafetensors, Trainer } from 'dgx-spark'
import t from 'tap'
import { float, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { addDropout, dropoutState } from '#lib/graph/rewrites/dropout.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'
import { close, maxAbs, within } from '../fixtures/close.js'
import { gradientError } from '../fixtures/gradients.js'
import { adaptableGraph, inputShapes, inputsOf } from '../fixtures/models/adaptable-graph.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-lora-'))
t.teardown(() => rmSync(scratch, { recursive: true }))

const graph = adaptableGraph()
const everything = { targetModules: '.*', method: 'lora', rank: 3, alpha: 5, seed: 2 } as const

t.test('the adapted model is the merged one', async t => {
  for (const backend of backends) {
    for (const rslora of [false, true]) {
      const adapter = await createAdapter(graph, { ...everything, rslora, init: false, backend })
      using model = new AdaptedModel(graph, { backend })
      model.add('lora', adapter)
      const adapted = await model.run(inputsOf(3), { adapters: 'lora' })
      const { graph: plain, losses } = await adapter.merge({ backend })
      t.ok([...losses.values()].every(loss => loss === 0))
      using merged = new AdaptedModel(plain, { backend })
      for (const [name, y] of Object.entries(await merged.run(inputsOf(3)))) {
        const expected = y.toFloat32()
        within(
          t,
          adapted[name]!.toFloat32(),
          expected,
          () => 4e-6 * maxAbs(expected),
          `${name} on ${backend}`,
        )
      }
    }
  }
  const unchanged = await createAdapter(graph, everything)
  using model = new AdaptedModel(graph)
  model.add('new', unchanged)
  const [plain, adapted] = [await model.run(inputsOf(2)), await model.run(inputsOf(2), { adapters: 'new' })]
  for (const [name, y] of Object.entries(plain)) {
    close(t, adapted[name]!.toFloat32(), y.toFloat32(), 1e-6, `${name}: B is zero at first`)
  }
})

t.test('gradients', async t => {
  for (const [transA, transB] of [
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
  ] as const) {
    const node = makeNode('FusedMatMul', ['a', 'b'], ['y'], {
      domain: 'dgx.spark',
      attributes: { transA: int(transA), transB: int(transB) },
    })
    for (const batch of [[], [2]]) {
      const inputs = {
        a: { shape: [...batch, ...(transA ? [4, 3] : [3, 4])] },
        b: { shape: transB ? [5, 4] : [4, 5] },
      }
      const errors = await gradientError({ inputs, nodes: [node] })
      for (const [name, error] of Object.entries(errors)) t.ok(error < 1e-6, `${name} ${error}`)
    }
  }
  const adapter = await createAdapter(graph, { ...everything, init: false })
  t.equal(adapter.parameters.length, 2 * adapter.modules.length, 'A and B of each module')
  const { nodes, initializers } = adapter.graph
  for (const { name: module, kind } of adapter.modules) {
    const own = adapter.parameters.filter(name => name.startsWith(`${module}.lora_`))
    // The nodes that the adapter of this module reaches, as one function of A and B.
    const reached = new Set(own)
    for (const { inputs, outputs } of nodes) {
      if (inputs.some(name => reached.has(name))) for (const name of outputs) reached.add(name)
    }
    const last = graph.outputs.find(({ name }) => reached.has(name))!.name
    const constants = Object.fromEntries(
      [...initializers].filter(([name]) => !own.includes(name)).map(([name, value]) => [name, value]),
    )
    const feeds = inputsOf(2)
    for (const [name, tensor] of Object.entries(feeds)) {
      constants[name] = Constant.from(tensor.dtype as 'f32', tensor.shape, tensor.data as Float32Array)
    }
    const inputs = Object.fromEntries(own.map(name => [name, { shape: initializers.get(name)!.shape }]))
    const all = [...nodes, makeNode('Identity', [last], ['y'])]
    const errors = await gradientError({ inputs, nodes: all, constants })
    for (const [name, error] of Object.entries(errors)) t.ok(error < 1e-5, `${kind} ${name} ${error}`)
  }
})

t.test('dropout: the frozen path sees the input itself', async t => {
  const run = async (init: boolean, ratio: number): Promise<Record<string, Float32Array>> => {
    const adapter = await createAdapter(graph, { ...everything, init })
    const whole = ratio > 0 ? addDropout(adapter.graph, ratio, adapter.dropoutSites) : adapter.graph
    const shapes = { ...inputShapes(3), ...(ratio > 0 && { [dropoutState]: [3] }) }
    using plan = await Plan.create(whole, jsKernels, { shapes })
    const feeds = Object.entries(inputsOf(3)).map(([name, { data }]) => [name, data] as const)
    const state = ratio > 0 ? { [dropoutState]: Uint32Array.of(1, 2, 0) } : {}
    const results = await plan.run({ ...Object.fromEntries(feeds), ...state } as Record<string, Float32Array>)
    return Object.fromEntries(
      Object.entries(results).map(([name, y]) => [name, Float32Array.from(y as Float32Array)]),
    )
  }
  const [untrained, dropped] = [await run(true, 0), await run(true, 0.5)]
  // An embedding begins with A = 0; the others with B = 0: dropout changes nothing that is zero.
  for (const [name, y] of Object.entries(untrained)) close(t, dropped[name]!, y, 1e-6, name)
  const [trained, noisy] = [await run(false, 0), await run(false, 0.5)]
  for (const [name, y] of Object.entries(trained)) {
    const differs = noisy[name]!.some((value, i) => Math.abs(value - y[i]!) > 1e-3)
    t.equal(differs, name !== 'embedded', `${name}: all but embeddings have dropout`)
  }
})

/** Training of a linear layer in double precision, as the formulas say: y = x·Wᵀ + s·(x·Aᵀ)·Bᵀ, mean of squares, SGD. */
function trainedByHand(
  { x, w, target }: Record<'x' | 'w' | 'target', number[][]>,
  a: number[][],
  b: number[][],
  { scale, rate, steps }: { scale: number; rate: number; steps: number },
): { losses: number[]; a: number[][]; b: number[][] } {
  const times = (m: number[][], n: number[][]) =>
    m.map(row => n[0]!.map((_, j) => row.reduce((sum, value, k) => sum + value * n[k]![j]!, 0)))
  const turned = (m: number[][]) => m[0]!.map((_, j) => m.map(row => row[j]!))
  const losses: number[] = []
  for (let step = 0; step < steps; step++) {
    const down = times(x, turned(a))
    const [base, up] = [times(x, turned(w)), times(down, turned(b))]
    const error = base.map((row, i) => row.map((value, j) => value + scale * up[i]![j]! - target[i]![j]!))
    const count = error.length * error[0]!.length
    losses.push(error.flat().reduce((sum, value) => sum + value ** 2, 0) / count)
    const dy = error.map(row => row.map(value => (2 * scale * value) / count))
    const [da, db] = [times(turned(times(dy, b)), x), times(turned(dy), down)]
    const moved = (m: number[][], d: number[][]) => m.map((row, i) => row.map((v, j) => v - rate * d[i]![j]!))
    ;[a, b] = [moved(a, da), moved(b, db)]
  }
  return { losses, a, b }
}

const nested = (values: ArrayLike<number>, cols: number): number[][] =>
  Array.from({ length: values.length / cols }, (_, i) =>
    Array.from({ length: cols }, (_, j) => values[i * cols + j]!),
  )

t.test('training follows the formulas', async t => {
  const [rows, cols, outs, rank, steps] = [6, 5, 4, 2, 8]
  const random = randomGenerator(3)
  const [w, x, target] = [outs * cols, rows * cols, rows * outs].map(count => uniform(random, count))
  const linear = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', cols]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Gemm', ['x', 'fc.weight'], ['y'], { attributes: { transB: int(1), alpha: float(1) } })],
    initializers: new Map([['fc.weight', Constant.from('f32', [outs, cols], w!)]]),
  })
  for (const backend of backends) {
    for (const [rslora, scale] of [
      [false, 3 / rank],
      [true, 3 / Math.sqrt(rank)],
    ] as const) {
      const options = {
        targetModules: ['fc'],
        method: 'lora',
        rank,
        alpha: 3,
        rslora,
        init: false,
        backend,
      } as const
      const adapter = await createAdapter(linear, options)
      const [a, b] = adapter.parameters.map(name => adapter.read(name))
      const given = { x: nested(x!, cols), w: nested(w!, cols), target: nested(target!, outs) }
      const expected = trainedByHand(given, nested(a!, cols), nested(b!, rank), { scale, rate: 0.5, steps })
      const trainer = new Trainer({ graph: linear }, adapter, {
        loss: 'mse',
        optimizer: { type: 'sgd', learningRate: 0.5 },
        epochs: steps,
        shuffle: false,
        backend,
      })
      const losses: number[] = []
      const batch = { x: { shape: [rows, cols], data: x! }, target: { shape: [rows, outs], data: target! } }
      for await (const { loss } of trainer.steps([batch])) losses.push(loss)
      close(t, losses, expected.losses, 2e-6, `losses on ${backend}, rslora ${rslora}`)
      close(t, adapter.read('fc.lora_A'), expected.a.flat(), 2e-6, 'A')
      close(t, adapter.read('fc.lora_B'), expected.b.flat(), 2e-6, 'B')
    }
  }
})

t.test('files are those of PEFT', async t => {
  const adapter = await createAdapter(graph, {
    ...everything,
    targetModules: 'all-linear',
    rslora: true,
    init: false,
  })
  const folder = path.join(scratch, 'lora')
  await adapter.save(folder)
  const config = JSON.parse(readFileSync(path.join(folder, 'adapter_config.json'), 'utf8'))
  t.match(config, { peft_type: 'LORA', use_dora: false, use_rslora: true, r: 3, lora_alpha: 5 })
  t.same(
    config.target_modules,
    adapter.modules.map(({ name }) => name),
    'names instead of all-linear',
  )
  const { tensors } = await readSafetensors(path.join(folder, 'adapter_model.safetensors'))
  t.notOk([...tensors.keys()].some(name => name.includes('magnitude')))
  t.same([...tensors.get('base_model.model.fc1.lora_A.weight')!.shape], [3, 5])
  const again = await Adapter.load(graph, folder)
  for (const name of adapter.parameters) t.strictSame(again.read(name), adapter.read(name), name)
  const count = adapter.modules.reduce((sum, { rank, rows, cols }) => sum + rank * (rows + cols), 0)
  t.equal(adapter.parameterCount, count)
})

t.test('resolved names exclude layers that end alike', async t => {
  const twice = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', 4]) }],
    outputs: [{ name: 'z' }],
    nodes: [
      makeNode('MatMul', ['x', 'fc.weight'], ['y']),
      makeNode('MatMul', ['y', 'block.fc.weight'], ['z']),
    ],
    initializers: new Map(
      ['fc.weight', 'block.fc.weight'].map(name => [name, Constant.f32(new Array(16).fill(1), [4, 4])]),
    ),
  })
  const { config } = await createAdapter(twice, { targetModules: '^fc$', method: 'lora', rank: 1 })
  t.same(config.targetModules, ['fc'])
  t.same(config.raw.exclude_modules, ['block.fc'])
  await t.rejects(createAdapter(twice, { targetModules: ['fc'], method: 'qlora' as 'lora' }), {
    code: 'ERR_ARGUMENT',
    message: /options\.method must be one of dora, lora/,
  })
})
