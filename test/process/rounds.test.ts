// A thousand rounds of what a service does all day: the same results, and memory that does not grow.
import t from 'tap'
import { backends } from '../fixtures/backends.js'
import { scriptResult } from '../fixtures/child.js'

/** The other one runs at night (test/fixtures/nightly.js). */
const engine = process.env.ROUNDS_ENGINE ?? backends.at(-1)!

/** What the rounds share: a model, and how heap, buffers and resident memory change from round `warm` to the last. */
const head = `
  import { AdaptedModel, ArrayDataset, createAdapter, DoRALinear, Model, Tensor, Trainer } from 'dgx-spark'
  import { int } from '#lib/graph/attributes.js'
  import { Constant } from '#lib/graph/constant.js'
  import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
  const backend = process.env.ENGINE
  const numbers = (count, step) => Float32Array.from({ length: count }, (_, i) => Math.sin(step * (i + 1)))
  const weight = (rows, cols, step) => Constant.from('f32', [rows, cols], numbers(rows * cols, step))
  const transB = { attributes: { transB: int(1) } }
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', 37]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Gemm', ['x', 'fc0.weight'], ['h'], transB),
      makeNode('Relu', ['h'], ['a']),
      makeNode('Gemm', ['a', 'fc1.weight'], ['y'], transB),
    ],
    initializers: new Map([['fc0.weight', weight(53, 37, 1)], ['fc1.weight', weight(5, 53, 2)]]),
  })
  const x = Tensor.from(numbers(7 * 37, 3), { shape: [7, 37] })
  const used = () => {
    for (let i = 0; i < 5; ++i) gc()
    const { heapUsed, arrayBuffers, external, rss } = process.memoryUsage()
    return { heap: heapUsed, buffers: arrayBuffers + external, rss }
  }
  const rounds = 1000
  const warm = 300
  let before
  const growth = () => {
    const after = used()
    return Object.fromEntries(Object.entries(after).map(([name, bytes]) => [name, bytes - before[name]]))
  }
  const same = (a, b) => Buffer.compare(Buffer.from(a.buffer), Buffer.from(b.buffer)) === 0
  const repeat = async round => {
    let [first, equal] = [undefined, 0]
    for (let i = 0; i < rounds; ++i) {
      if (i === warm) before = used()
      const y = Float32Array.from(await round(i))
      first ??= y
      equal += same(y, first)
    }
    return { equal, growth: growth() }
  }
  const results = []
`

const scripts = {
  'Model.run': `
    const model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
    results.push(await repeat(async () => (await model.run({ x })).y.data))`,
  'AdaptedModel.run with another adapter each time': `
    const model = new AdaptedModel(graph, { backend })
    model.add('a', await createAdapter(graph, { targetModules: 'all-linear', rank: 3, init: false, backend }))
    results.push(await repeat(async i => {
      await model.run({ x }, { adapters: i % 2 ? 'a' : null })
      return (await model.run({ x }, { rows: ['a', null, 'a', null, null, 'a', 'a'] })).y.data
    }))`,
  'DoRALinear.forward and backward': `
    const linear = { weight: Tensor.from(numbers(53 * 37, 5), { shape: [53, 37] }) }
    const layer = await DoRALinear.fromLinear(linear, { rank: 4, backend, seed: 2 })
    const dy = Tensor.from(numbers(7 * 53, 4), { shape: [7, 53] })
    results.push(await repeat(async () => {
      const y = await layer.forward(x, { training: true })
      const { x: dx } = await layer.backward(dy)
      return Float32Array.of(...y.data, ...dx.data)
    }))`,
  'steps of a Trainer': `
    const data = new ArrayDataset({ x: { shape: [7, 37], data: x.data }, target: { shape: [7], data: Int32Array.of(0, 1, 2, 3, 4, 0, 1) } })
    const train = async epochs => {
      const adapter = await createAdapter(graph, { targetModules: 'all-linear', rank: 3, backend })
      const trainer = new Trainer({ graph }, adapter, {
        loss: 'cross-entropy', optimizer: { type: 'adamw', learningRate: 1e-3 }, batchSize: 4, epochs, backend,
      })
      for await (const { step } of trainer.steps(data)) if (step === warm && epochs > warm) before = used()
      return adapter.read(adapter.parameters[0])
    }
    const once = await train(20)
    await train(rounds / 2 + warm)
    const grown = growth()
    results.push({ equal: same(once, await train(20)) ? rounds : 0, growth: grown })`,
}

interface Rounds {
  readonly equal: number
  readonly growth: Readonly<Record<'heap' | 'buffers' | 'rss', number>>
}

const blocks = Object.values(scripts).map(script => `{ ${script} }`)
const script = [head, ...blocks, 'console.log(JSON.stringify(results))'].join('\n')
const results = (await scriptResult(script, { ENGINE: engine }, ['--expose-gc'])) as Rounds[]

for (const [i, name] of Object.keys(scripts).entries()) {
  t.test(`${engine}: ${name}`, async t => {
    const { equal, growth } = results[i]!
    t.equal(equal, 1000, 'the same bits each time')
    // An array of these sizes that each of 700 rounds keeps is 1 MB at least; caches of the engine need less than that.
    t.ok(growth.heap < 500_000, `the heap grew by ${growth.heap}`)
    t.ok(growth.buffers < 500_000, `buffers grew by ${growth.buffers}`)
    t.ok(growth.rss < 40_000_000, `the process grew by ${growth.rss}`)
  })
}
