// Loading and compiling a large model pause at least once per node and tensor, so that the event loop turns and a signal
// is heard; a few bytes of a file do not make either of them endless.
import { Model } from 'dgx-spark'
import t from 'tap'
import type { Paced } from '#lib/core/paced.js'
import { graph as graphAttribute, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import {
  type Graph,
  type GraphFunction,
  makeGraph,
  makeNode,
  type Node,
  tensorType,
} from '#lib/graph/graph.js'
import { canonicalisePaced } from '#lib/graph/rewrites/canonicalise.js'
import { inlineFunctionsPaced } from '#lib/graph/rewrites/inline-functions.js'
import { optimizePaced } from '#lib/graph/rewrites/optimize.js'
import { inferFactsPaced } from '#lib/graph/shape-inference.js'
import { checkGraphPaced } from '#lib/graph/validate.js'
import { decodeMessagePaced } from '#lib/io/onnx/decode.js'
import { encodeMessage } from '#lib/io/onnx/encode.js'
import { parseOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { compilePaced } from '#lib/plan/compile.js'
import { backends } from '../fixtures/backends.js'
import { bytesOf } from '../fixtures/values/onnx-bytes.js'

const input = (shape: readonly number[]) => [{ name: 'x', type: tensorType('f32', shape) }]

/** y = x + 1 + 1 + …, each 1 an initializer of its own. */
function chain(length: number): Graph {
  const node = (_: unknown, i: number): Node =>
    makeNode('Add', [i ? `v${i}` : 'x', `w${i}`], [i === length - 1 ? 'y' : `v${i + 1}`])
  return makeGraph({
    inputs: input([1]),
    outputs: [{ name: 'y' }],
    nodes: Array.from({ length }, node),
    initializers: new Map(Array.from({ length }, (_, i) => [`w${i}`, Constant.f32([1])])),
  })
}

/** How often work pauses; it is given up after `most` pauses. */
function pausesOf(work: Paced<unknown>, most = Number.POSITIVE_INFINITY): number {
  let pauses = 0
  for (const _ of work) if (++pauses > most) return pauses
  return pauses
}

t.test('passes pause for each node', t => {
  const passes: Readonly<Record<string, (graph: Graph) => Paced<unknown>>> = {
    decode: graph => decodeMessagePaced('model', 'Model', serializeOnnx(graph)),
    check: graph => checkGraphPaced(graph, 'model'),
    canonicalise: canonicalisePaced,
    infer: inferFactsPaced,
    optimize: optimizePaced,
    compile: compilePaced,
  }
  for (const [name, pass] of Object.entries(passes))
    for (const length of [50, 500]) t.ok(pausesOf(pass(chain(length))) >= length, `${name} of ${length}`)
  t.end()
})

const reason = new Error('no longer wanted')

/** A signal that is aborted as soon as the event loop turns. */
function abortedSoon(): AbortSignal {
  const controller = new AbortController()
  setImmediate(() => controller.abort(reason))
  return controller.signal
}

for (const backend of backends) {
  t.test(`a signal ends loading and compiling on ${backend}`, async t => {
    const length = 5000
    const bytes = serializeOnnx(chain(length))
    await t.rejects(Model.load(bytes, { backend, signal: abortedSoon() }), reason, 'load')
    await t.rejects(Model.load('no-such-file.onnx', { signal: AbortSignal.abort(reason) }), reason, 'before')
    await t.rejects(Model.fromGraph(chain(length), { backend, signal: abortedSoon() }), reason, 'graph')
    using model = await Model.load(bytes, { backend, signal: new AbortController().signal })
    const x = Float32Array.of(1)
    await t.rejects(model.run({ x }, { signal: abortedSoon() }), reason, 'first run')
    t.equal(model.stats.plans, 0, 'nothing was compiled')
    const { y } = await model.run({ x })
    t.same([...y!.data], [length + 1], 'and the next run compiles')
  })
}

/** y = x + 1, repeated as often as n says. */
function loop(): Graph {
  const scalar = tensorType('f32', [])
  const body = makeGraph({
    inputs: [
      { name: 'i', type: tensorType('i64', []) },
      { name: 'alive', type: tensorType('bool', []) },
      { name: 'before', type: scalar },
    ],
    nodes: [makeNode('Add', ['before', 'one'], ['after']), makeNode('Identity', ['alive'], ['still'])],
    outputs: [{ name: 'still' }, { name: 'after' }],
    initializers: new Map([['one', Constant.f32(1)]]),
  })
  return makeGraph({
    inputs: [
      { name: 'n', type: tensorType('i64', []) },
      { name: 'x', type: scalar },
    ],
    nodes: [makeNode('Loop', ['n', '', 'x'], ['y'], { attributes: { body: graphAttribute(body) } })],
    outputs: [{ name: 'y' }],
  })
}

for (const backend of backends) {
  t.test(`a signal ends a loop of short steps on ${backend}`, async t => {
    using model = await Model.fromGraph(loop(), { backend })
    const x = new Float32Array(1)
    const { y } = await model.run({ n: BigInt64Array.of(3n), x })
    t.same([...y!.data], [3])
    const controller = new AbortController()
    setTimeout(() => controller.abort(reason), 1)
    await t.rejects(model.run({ n: BigInt64Array.of(100_000n), x }, { signal: controller.signal }), reason)
  })
}

t.test('a signal that is none', async t => {
  const error = { code: 'ERR_ARGUMENT', message: /options.signal must be an AbortSignal/ }
  await t.rejects(Model.load(new Uint8Array(), { signal: 'soon' as never }), error)
  await t.rejects(Model.fromGraph(chain(1), { signal: {} as never }), error)
})

t.test('functions that call each other twice are counted, not expanded', t => {
  const depth = 30
  const functions = Array.from({ length: depth }, (_, i): GraphFunction => {
    const op = i === depth - 1 ? ['', 'Relu'] : ['own', `f${i + 1}`]
    const nodes = [
      makeNode(op[1]!, ['a'], ['b'], { domain: op[0]! }),
      makeNode(op[1]!, ['b'], ['c'], { domain: op[0]! }),
    ]
    return {
      name: `f${i}`,
      domain: 'own',
      overload: '',
      inputs: ['a'],
      outputs: ['c'],
      ...{
        attributes: [],
        defaults: {},
        nodes,
        opsets: new Map([
          ['', 25],
          ['own', 1],
        ]),
      },
    }
  })
  const bomb = (first: number): Graph =>
    makeGraph({
      inputs: input([1]),
      outputs: [{ name: 'y' }],
      functions,
      nodes: [makeNode(`f${first}`, ['x'], ['y'], { domain: 'own' })],
      opsets: new Map([
        ['', 25],
        ['own', 1],
      ]),
    })
  let pauses = 0
  const refused = (): void => {
    for (const _ of inlineFunctionsPaced(bomb(0))) pauses++
  }
  t.throws(refused, { code: 'ERR_FORMAT', message: /expand to more than 1000000 nodes/ })
  t.ok(pauses < 1000, `${pauses} pauses`)
  t.ok(pausesOf(inlineFunctionsPaced(bomb(depth - 10))) >= 1024, 'a smaller one is expanded')
  t.end()
})

t.test('loops in loops are inferred in time', t => {
  const nested = (depth: number): Node => {
    const body = makeGraph({
      inputs: ['i', 'on', 's'].map(name => ({ name: `${name}${depth}` })),
      outputs: [{ name: `on${depth}` }, { name: `r${depth}` }],
      nodes:
        depth === 0
          ? [makeNode('Concat', ['s0', 's0'], ['r0'], { attributes: { axis: int(0) } })]
          : [nested(depth - 1)],
    })
    const attributes = { body: graphAttribute(body) }
    return makeNode(
      'Loop',
      ['n', '', depth === 40 ? 'x' : `s${depth + 1}`],
      [depth === 40 ? 'y' : `r${depth + 1}`],
      {
        attributes,
      },
    )
  }
  const graph = makeGraph({
    inputs: input([1]),
    outputs: [{ name: 'y' }],
    nodes: [nested(40)],
    initializers: new Map([['n', Constant.i64(2)]]),
  })
  const most = 10_000
  t.ok(pausesOf(inferFactsPaced(graph), most) < most)
  t.end()
})

t.test('a sparse initializer takes memory when it is read', t => {
  const sparse = (count: number) => ({
    values: { dims: [2n], dataType: 1, floatData: [5, 7], name: 's' },
    indices: { dims: [2n], dataType: 7, int64Data: [1n, BigInt(count - 1)] },
    dims: [BigInt(count)],
  })
  const model = (count: number) =>
    bytesOf(
      encodeMessage('Model', {
        irVersion: 8n,
        opsetImport: [{ domain: '', version: 20n }],
        graph: { name: 'g', sparseInitializer: [sparse(count)], output: [{ name: 's' }] },
      } as never),
    )
  const before = process.memoryUsage().arrayBuffers
  const large = parseOnnx(model(2 ** 28)).initializers.get('s')!
  t.equal(large.byteLength, 2 ** 30)
  t.ok(process.memoryUsage().arrayBuffers - before < 2 ** 24)
  const small = parseOnnx(model(5)).initializers.get('s')!
  t.same([...small.data], [0, 5, 0, 0, 7])
  t.equal(small.bytes, small.bytes, 'who reads it again gets the same')
  t.end()
})
