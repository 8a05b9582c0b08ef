// What precision modes cost in accuracy, on real models, through compare(). docs/numerics.md has the values.
import path from 'node:path'
import { compare, compareWeights, type Feeds, Model, Tensor } from 'dgx-spark'
import type { NVFP4Recipe } from 'dgx-spark/kernels'
import t from 'tap'
import { intOf } from '#lib/graph/attributes.js'
import { type Graph, makeGraph, type Node, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { backends } from '../fixtures/backends.js'
import { lightModel } from '../fixtures/models/light-models.js'
import { modelFile, modelFiles, noModels } from '../fixtures/models/onnx-models.js'
import { normalized, rightDigits, type Scale } from '../fixtures/models/test-digits.js'
import { randomFeeds } from '../fixtures/onnx-runtime.js'
import { normal, randomGenerator } from '../fixtures/values/random.js'

const skip = noModels || (backends.includes('cpu') ? false : 'the addon does not load')
const random = randomGenerator(9)
const sizes: Record<string, number> = { batch: 1, sequence: 576, length: 7, b: 2 }

/** Something like a photograph: waves and some noise. */
function picture(channels: number, height: number, width: number): Float32Array {
  const data = new Float32Array(channels * height * width)
  for (let c = 0; c < channels; c++) {
    const [a, b, p, q] = [8 * random(), 8 * random(), 6 * random(), 6 * random()]
    for (let i = 0; i < height * width; i++) {
      const [y, x] = [Math.floor(i / width) / height, (i % width) / width]
      data[c * height * width + i] = 0.5 * Math.cos(a * y + p) * Math.cos(b * x + q) + 0.2 * (random() - 0.5)
    }
  }
  return data
}

function feedsFor(graph: Graph): Feeds {
  const tensors = Array.from(randomFeeds(graph, 3, sizes), ([name, { dtype, shape, data }]) => {
    const [batch, channels, height, width] = shape
    const values = width && batch === 1 && dtype === 'f32' ? picture(channels!, height!, width) : data
    if (name === 'sr') (data as BigInt64Array)[0] = 16000n
    return [name, Tensor.from(values, { dtype: dtype as 'f32', shape })] as const
  })
  return Object.fromEntries(tensors)
}

/**
 * The graph of a file. Those with random weights end before their last softmax, which hides all differences because one
 * class wins.
 */
async function graphOf(file: string): Promise<Graph> {
  if (!path.basename(file).startsWith('light_')) return canonicalise(await readOnnx(file))
  const graph = await lightModel(file)
  const last = graph.nodes.findLast(({ op }) => op === 'Softmax')
  return last ? { ...graph, outputs: [{ name: last.inputs[0]! }] } : graph
}

/** Models that store their weights in another format themselves. */
const others = ['mnist_float16.onnx', 'shufflenet-v2-12-int8.onnx']
/** Models whose filters for tiles, which are f32 in every precision, outweigh the rest. */
const tiled = ['super_resolution.onnx']
const limits = { fp16: 1e-2, bf16: 3e-2 } as const

if (!skip) {
  for (const file of modelFiles().filter(file => !others.includes(path.basename(file)))) {
    t.test(path.basename(file), async t => {
      const graph = await graphOf(file)
      const feeds = feedsFor(graph)
      const memory = tiled.includes(path.basename(file)) ? 'small' : 'fast'
      using exact = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32', memory })
      for (const precision of ['fp16', 'bf16'] as const) {
        using model = await Model.fromGraph(graph, { backend: 'cpu', precision, memory })
        for (const { name, relativeError } of await compare(model, exact, [feeds])) {
          t.ok(relativeError <= limits[precision], `${precision} ${name}: ${relativeError.toExponential(1)}`)
        }
        t.ok(model.stats.constantBytes < exact.stats.constantBytes, 'the plan holds fewer bytes')
      }
    })
  }
}

/** Outputs that a product needs for its cosine to say more about the format than about a single number. */
const leastOutputs = 16

/** Products with a weight of two dimensions that nvfp4 can hold, and its in features. */
function quantizedProducts(graph: Graph): { node: Node; inner: number }[] {
  return graph.nodes.flatMap(node => {
    const weight = graph.initializers.get(node.inputs[1] ?? '')
    if (!/^(MatMul|Gemm)$/.test(node.op) || weight?.dtype !== 'f32' || weight.shape.length !== 2) return []
    const transposed = node.op === 'Gemm' && intOf(node, 'transB') !== 0
    const [inner, outer] = (transposed ? weight.shape.toReversed() : weight.shape) as [number, number]
    return inner % 16 === 0 && outer >= leastOutputs ? [{ node, inner }] : []
  })
}

/** The cosine of a product in nvfp4 on the inputs x. */
async function cosineOf(graph: Graph, node: Node, x: Tensor, recipe: NVFP4Recipe): Promise<number> {
  const constants = node.inputs.slice(1)
  const alone = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', x.shape) }],
    outputs: [{ name: node.outputs[0]! }],
    nodes: [{ ...node, inputs: ['x', ...constants] }],
    initializers: new Map(constants.map(name => [name, graph.initializers.get(name)!])),
  })
  using exact = await Model.fromGraph(alone, { backend: 'cpu', precision: 'fp32' })
  using model = await Model.fromGraph(alone, { backend: 'cpu', precision: 'nvfp4', recipe })
  const [{ cosine } = { cosine: 0 }] = await compare(model, exact, [{ x }])
  return cosine
}

const recipes = { modelopt: 0.994, mse: 0.996 } as const

t.test('products in nvfp4, on independent normal inputs', { skip }, async t => {
  for (const file of modelFiles()) {
    const graph = await graphOf(file)
    for (const { node, inner } of quantizedProducts(graph)) {
      const x = Tensor.from(normal(random, 256 * inner), { shape: [256, inner] })
      for (const [recipe, limit] of Object.entries(recipes) as [keyof typeof recipes, number][]) {
        const cosine = await cosineOf(graph, node, x, recipe)
        t.ok(cosine >= limit, `${path.basename(file)} ${recipe} ${node.outputs[0]}: ${cosine}`)
      }
    }
  }
})

/** Drives for tinyphysics: lateral acceleration that wanders. */
function drives(batch: number, length: number): Feeds {
  const states = new Float32Array(batch * length * 4)
  const tokens = new BigInt64Array(batch * length)
  for (let b = 0; b < batch; b++) {
    let [token, steering] = [400 + 200 * random(), 0]
    const [roll, speed] = [0.2 * random() - 0.1, 20 + 15 * random()]
    for (let at = b * length; at < (b + 1) * length; at++) {
      token += 20 * random() - 10
      steering += 0.4 * random() - 0.2
      states.set([steering, roll, speed, 0.2 * random() - 0.1], 4 * at)
      tokens[at] = BigInt(Math.round(token))
    }
  }
  const shape = [batch, length]
  return {
    states: Tensor.from(states, { shape: [...shape, 4] }),
    tokens: Tensor.from(tokens, { shape, dtype: 'i64' }),
  }
}

// Inputs that go together multiply the errors of a row that go together: these are the worst products known.
t.test('products in nvfp4, on what the model feeds them', { skip }, async t => {
  const graph = await graphOf(modelFile('tinyphysics.onnx'))
  const products = quantizedProducts(graph)
  const outputs = [...new Set(products.map(({ node }) => node.inputs[0]!))].map(name => ({ name }))
  using whole = await Model.fromGraph({ ...graph, outputs }, { backend: 'cpu', precision: 'fp32' })
  const inputs = await whole.run<Tensor>(drives(8, 20))
  for (const { node } of products) {
    const cosine = await cosineOf(graph, node, inputs[node.inputs[0]!]!, 'modelopt')
    t.ok(cosine >= 0.985, `${node.outputs[0]}: ${cosine}`)
  }
})

t.test('nvfp4 without the weights that lose most', { skip }, async t => {
  const file = modelFile('tinyphysics.onnx')
  using exact = await Model.load(file, { backend: 'cpu', precision: 'fp32' })
  const [known, other] = [[drives(8, 20)], [drives(8, 20)]]
  const weights = await compareWeights(exact, known, { backend: 'cpu' })
  t.equal(weights.length, 17)
  const keep = weights.filter(({ cosine }) => cosine < 0.994).map(({ weight }) => weight)
  t.ok(keep.length > 0 && keep.length <= 6, keep.join(', '))
  for (const { weight, cosine } of await compareWeights(exact, other, { backend: 'cpu' })) {
    if (!keep.includes(weight)) t.ok(cosine >= 0.994, `${weight} on other drives: ${cosine}`)
  }
  const options = { backend: 'cpu', precision: 'nvfp4' } as const
  using all = await Model.load(file, options)
  using some = await Model.load(file, { ...options, keep })
  const [[before], [after]] = [await compare(all, exact, other), await compare(some, exact, other)]
  t.ok(after!.relativeError < before!.relativeError, `${before!.relativeError} → ${after!.relativeError}`)
  t.ok(some.stats.constantBytes < 0.4 * exact.stats.constantBytes, `${some.stats.constantBytes} bytes`)
})

t.test('activations in nvfp4', { skip }, async t => {
  const file = modelFile('tinyphysics.onnx')
  using exact = await Model.load(file, { backend: 'cpu', precision: 'fp32' })
  const options = { backend: 'cpu', precision: 'nvfp4' } as const
  using weights = await Model.load(file, options)
  using both = await Model.load(file, { ...options, activations: 'nvfp4' })
  const data = [drives(8, 20)]
  const [[ofWeights], [ofBoth]] = [await compare(weights, exact, data), await compare(both, exact, data)]
  const [before, after] = [ofWeights!.relativeError, ofBoth!.relativeError]
  t.comment(
    `tinyphysics: error ${before.toPrecision(3)} with weights in nvfp4, ${after.toPrecision(3)} with both`,
  )
  t.ok(after > before && after < 0.2, `${before} → ${after}`)
})

t.test('digits in nvfp4', { skip }, async t => {
  const plain: Scale = pixel => pixel
  for (const [name, scale, right] of [
    ['mnist-8', plain, 9891],
    ['burn_mnist', normalized, 9916],
  ] as const) {
    const file = modelFile('mnist', `${name}.onnx`)
    using model = await Model.load(file, { backend: 'cpu', precision: 'nvfp4' })
    const count = await rightDigits(model, scale)
    t.ok(Math.abs(count - right) <= 50, `${name}: ${count} of 10,000, ${right} in fp32`)
  }
})
