// Nodes that no exporter writes: every operator with attributes of wrong types, graphs in graphs in graphs, states and
// outputs that are not there. Each ends in an answer or in a SparkError that names the node.
import { Model, SparkError, Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, floats, graph as graphAttribute, int, ints, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import {
  type Attribute,
  canonicalOpset,
  type Graph,
  type GraphFunction,
  makeGraph,
  makeNode,
  type Node,
  sparkDomain,
  tensorType,
} from '#lib/graph/graph.js'
import { contribUpgrades } from '#lib/graph/rewrites/canonicalise/contrib.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { hostOperators } from '#lib/model/host/index.js'
import { loweredOperators } from '#lib/plan/lower/index.js'
import { backends } from '../fixtures/backends.js'

const backend = backends.at(-1)!
const opsets = new Map([
  ['', canonicalOpset],
  ['com.microsoft', 1],
  [sparkDomain, 1],
  ['local', 1],
])

const attributeNames =
  'K N activation activations alpha antialias approximate auto_pad axes axis batch_dims beta bias bits block_size blocksize ' +
  'body ceil_mode coordinate_transformation_mode count_include_pad dilations direction do_rotary dtype else_branch epsilon ' +
  'equation exclusive gather_axis group hidden_size interleaved is_causal k keepdims kernel_shape kv_num_heads largest ' +
  'layout local_window_size mode nearest_mode num_groups num_heads num_outputs num_scan_inputs output_dtype output_padding ' +
  'output_shape pads perm q_num_heads quantize_axis reduction rotary_embedding_dim saturate scale scan_input_axes shape ' +
  'size softcap start stash_type strides then_branch to transA transB upper value value_ints'
const kinds: readonly Attribute[] = [
  int(-1),
  int(0),
  int(2 ** 40),
  ints([]),
  ints([-1, 0, 2 ** 40]),
  float(Number.NaN),
  floats([1]),
  string('odd'),
  { type: 'strings', value: ['a', 'b'] } as const,
  graphAttribute(makeGraph({})),
]

/** One node that reads some inputs of ones of some type and rank; every other one has no attributes. */
function oddGraph(domain: string, op: string, at: number): Graph {
  const shape = [[], [2, 4], [1, 2, 4, 4]][at % 3]!
  const dtype = (['f32', 'i64', 'u8'] as const)[Math.floor(at / 3) % 3]!
  const inputs = Array.from({ length: 1 + (at % 6) }, (_, i) => ({
    name: `i${i}`,
    type: tensorType(i > 0 && at % 4 === 0 ? 'i64' : dtype, shape),
  }))
  const outputs = ['y', 'z'].slice(0, 1 + (at % 2))
  const attribute = kinds[at % kinds.length]!
  const present = at % 2 === 0 ? attributeNames.split(' ') : []
  const attributes = Object.fromEntries(present.map(name => [name, attribute]))
  const names = inputs.map(({ name }) => name)
  return makeGraph({
    inputs,
    opsets,
    outputs: outputs.map(name => ({ name })),
    nodes: [makeNode(op, names, outputs, { domain, name: 'it', attributes })],
  })
}

async function runOnes(graph: Graph): Promise<void> {
  using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
  const feeds = graph.inputs.map(({ name, type }) => {
    const { dtype, shape } = type as unknown as { dtype: 'f32' | 'i64' | 'u8'; shape: number[] }
    const array = { f32: Float32Array, i64: BigInt64Array, u8: Uint8Array }[dtype]
    const data = new array(numel(shape)).fill((dtype === 'i64' ? 1n : 1) as never)
    return [name, Tensor.of(data as Float32Array, shape, dtype as 'f32')]
  })
  await model.run(Object.fromEntries(feeds))
}

t.test('attributes of wrong types', async t => {
  const standard = [...(loweredOperators().get('') ?? []), ...hostOperators].map(op => ['', op] as const)
  const contrib = Object.keys(contribUpgrades).map(op => ['com.microsoft', op] as const)
  const own = [...(loweredOperators().get(sparkDomain) ?? [])].map(op => [sparkDomain, op] as const)
  let refused = 0
  for (const [i, [domain, op]] of [...standard, ...contrib, ...own].entries()) {
    for (const at of [i, i + 31, i + 77, i + 106]) {
      const error = await runOnes(oddGraph(domain, op, at)).catch((error: unknown) => error)
      if (error === undefined) continue
      refused++
      const message = (error as Error).message
      if (
        !(
          error instanceof SparkError &&
          /^node '|^step \d+ of the plan, \w+ of node '|^the plan/.test(message)
        )
      )
        t.fail(`${domain} ${op} (${at}): ${(error as Error).stack}`)
    }
  }
  t.ok(refused > 300, `${refused} were refused`)
})

t.test('graphs inside of graphs', async t => {
  const nested = (depth: number, base: Graph): Graph => {
    let graph = base
    for (let i = 0; i < depth; i++) {
      const other = makeGraph({
        nodes: [makeNode('Identity', ['x'], [`z${i}`])],
        outputs: [{ name: `z${i}` }],
      })
      const attributes = { then_branch: graphAttribute(graph), else_branch: graphAttribute(other) }
      graph = makeGraph({
        nodes: [makeNode('If', ['c'], [`y${i}`], { attributes })],
        outputs: [{ name: `y${i}` }],
      })
    }
    return graph
  }
  const inputs = [
    { name: 'x', type: tensorType('f32', [2]) },
    { name: 'c', type: tensorType('bool', []) },
  ]
  const leaf = makeGraph({ nodes: [makeNode('Relu', ['x'], ['l'])], outputs: [{ name: 'l' }] })
  const refused = { code: 'ERR_UNSUPPORTED', message: /graphs lie inside each other deeper than 200/ }
  for (const depth of [201, 10_000])
    await t.rejects(
      Model.fromGraph({ ...nested(depth, leaf), inputs }, { backend }),
      refused,
      `${depth} deep`,
    )
  using model = await Model.fromGraph({ ...nested(100, leaf), inputs }, { backend, precision: 'fp32' })
  const c = Tensor.of(Uint8Array.of(1) as never, [], 'bool')
  const { y99 } = await model.run<Tensor>({ x: Float32Array.of(-1, 2), c })
  t.same(Array.from(y99!.data as Float32Array), [0, 2])

  const calls = (i: number, nodes: readonly Node[]): GraphFunction => ({
    name: `F${i}`,
    domain: 'local',
    overload: '',
    inputs: ['x', 'c'],
    outputs: ['y29'],
    attributes: [],
    defaults: {},
    opsets,
    nodes,
  })
  const functions = Array.from({ length: 10 }, (_, i) => {
    const next = makeNode(`F${i + 1}`, ['x', 'c'], ['l'], { domain: 'local' })
    const inner = makeGraph({
      nodes: [i < 9 ? next : makeNode('Relu', ['x'], ['l'])],
      outputs: [{ name: 'l' }],
    })
    return calls(i, nested(30, inner).nodes)
  })
  const called = makeGraph({
    inputs,
    opsets,
    functions,
    outputs: [{ name: 'y' }],
    nodes: [makeNode('F0', ['x', 'c'], ['y'], { domain: 'local' })],
  })
  await t.rejects(Model.load(serializeOnnx(called), { backend }), refused, 'by way of functions')
})

t.test('a weight that thousands of nodes make', async t => {
  const count = 20_000
  const names = Array.from({ length: count }, (_, i) => `w${i}`)
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [2, 2]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      ...names.map((name, i) => makeNode('Neg', [i === 0 ? 'c' : names[i - 1]!], [name])),
      makeNode('MatMul', ['x', names.at(-1)!], ['y']),
    ],
    initializers: new Map([['c', Constant.f32([1, 2, 3, 4], [2, 2])]]),
  })
  using model = await Model.fromGraph(graph, { backend, precision: 'bf16' })
  const { y } = await model.run<Tensor>({ x: Float32Array.of(1, 0, 0, 1) })
  t.same(Array.from(y!.data as Float32Array), [1, 2, 3, 4])
})

t.test('a loop without its state', async t => {
  const scalar = (name: string, dtype: 'i64' | 'bool') => ({ name, type: tensorType(dtype, []) })
  const state = (name: string) => ({ name, type: tensorType('f32', [2]) })
  const body = makeGraph({
    inputs: [scalar('i', 'i64'), scalar('alive', 'bool'), state('s')],
    outputs: [scalar('again', 'bool'), state('next')],
    nodes: [makeNode('Identity', ['alive'], ['again']), makeNode('Tanh', ['s'], ['next'])],
  })
  const graph = makeGraph({
    inputs: [scalar('n', 'i64')],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Loop', ['n', '', ''], ['y'], { name: 'it', attributes: { body: graphAttribute(body) } }),
    ],
  })
  using model = await Model.fromGraph(graph, { backend })
  const n = Tensor.of(BigInt64Array.of(0n) as never, [], 'i64')
  await t.rejects(model.run({ n }), { code: 'ERR_FORMAT', message: /node 'it' \(Loop\): state 0/ })
})
