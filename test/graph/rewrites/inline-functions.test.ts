// Functions of a model become nodes: what they compute, names, attributes, opsets, and what is refused.
import t from 'tap'
import { float, int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import {
  type Attributes,
  type Graph,
  type GraphFunction,
  makeGraph,
  makeNode,
  type Node,
  tensorType,
} from '#lib/graph/graph.js'
import { inlineFunctions } from '#lib/graph/rewrites/inline-functions.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { type HostTensor, hostTensor } from '#lib/model/values.js'

const domain = 'own'
const define = (name: string, parts: Partial<GraphFunction>): GraphFunction => ({
  name,
  domain,
  overload: '',
  inputs: ['a'],
  outputs: ['b'],
  attributes: [],
  defaults: {},
  nodes: [],
  opsets: new Map([['', 25]]),
  ...parts,
})
const call = (
  op: string,
  inputs: readonly string[],
  outputs: readonly string[],
  attributes: Attributes = {},
): Node => makeNode(op, inputs, outputs, { domain, attributes })

const model = (nodes: readonly Node[], functions: readonly GraphFunction[], outputs = ['y']): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [2]) }],
    outputs: outputs.map(name => ({ name })),
    nodes,
    functions,
    initializers: new Map([['yes', Constant.from('bool', [], Uint8Array.of(1))]]),
  })

async function run(graph: Graph, x = Float32Array.of(3, -2)): Promise<number[][]> {
  const { graph: flat } = inlineFunctions(graph)
  t.equal(flat.functions.length, 0)
  const results = await new GraphRunner(flat, jsKernels).run([hostTensor('f32', [2], x)])
  return results.map(result => [...((result as HostTensor).data as Float32Array)])
}

/** b = slope · a + a², with a value called as one of the model. */
const curve = define('Curve', {
  nodes: [
    makeNode('LeakyRelu', ['a'], ['x'], {
      attributes: { alpha: { type: 'reference', value: 'slope', of: 1 } },
    }),
    makeNode('Mul', ['a', 'a'], ['square']),
    makeNode('Add', ['x', 'square'], ['b']),
  ],
  defaults: { slope: float(0.5) },
})

t.test('calls, twice and in each other', async t => {
  const twice = define('Twice', { nodes: [call('Curve', ['a'], ['once']), call('Curve', ['once'], ['b'])] })
  t.strictSame(await run(model([call('Curve', ['x'], ['y'], { slope: float(2) })], [curve])), [[12, 0]])
  t.strictSame(await run(model([call('Curve', ['x'], ['h']), call('Curve', ['h'], ['y'])], [curve])), [
    [156, 12],
  ])
  t.strictSame(await run(model([call('Twice', ['x'], ['y'])], [curve, twice])), [[156, 12]])
})

t.test('outputs that are inputs, are left out, or are read by the rest', async t => {
  const both = define('Both', {
    inputs: ['a', 'c'],
    outputs: ['a', 'b', 'd'],
    nodes: [makeNode('Neg', ['a'], ['b']), makeNode('Add', ['b', 'b'], ['d'])],
  })
  const nodes = [call('Both', ['x'], ['same', '', 'y']), makeNode('Add', ['same', 'y'], ['z'])]
  t.strictSame(await run(model(nodes, [both], ['y', 'z', 'same'])), [
    [-6, 4],
    [-3, 2],
    [3, -2],
  ])
})

t.test('branches of a function have names of their own in every call', async t => {
  const branch = (op: string) => ({
    type: 'graph' as const,
    value: makeGraph({
      nodes: [makeNode(op, ['a'], ['local']), makeNode('Add', ['local', 'a'], ['out'])],
      outputs: [{ name: 'out' }],
    }),
  })
  const attributes = { then_branch: branch('Neg'), else_branch: branch('Abs') }
  const choose = define('Choose', {
    inputs: ['c', 'a'],
    nodes: [makeNode('If', ['c'], ['b'], { attributes })],
  })
  const graph = model([call('Choose', ['yes', 'x'], ['h']), call('Choose', ['yes', 'h'], ['y'])], [choose])
  const inner = inlineFunctions(graph).graph.nodes.flatMap(node =>
    Object.values(node.attributes).flatMap(attribute =>
      attribute.type === 'graph' ? attribute.value.nodes.flatMap(({ outputs }) => outputs) : [],
    ),
  )
  t.equal(inner.length, 8)
  t.equal(new Set(inner).size, 8)
  t.strictSame(await run(graph), [[0, -0]])
})

t.test('nodes of functions remember their opsets', async t => {
  const old = define('Old', {
    nodes: [makeNode('Neg', ['a'], ['b'])],
    opsets: new Map([['', 7]]),
  })
  const { graph, opsets } = inlineFunctions(
    model([call('Old', ['x'], ['h']), makeNode('Neg', ['h'], ['y'])], [old]),
  )
  t.strictSame(
    graph.nodes.map(node => opsets.get(node)?.get('')),
    [7, undefined],
  )
})

t.test('overloads, attributes that are missing', async t => {
  const [one, two] = ['1', '2'].map(overload =>
    define('F', { overload, nodes: [makeNode(overload === '1' ? 'Neg' : 'Abs', ['a'], ['b'])] }),
  )
  const nodes = [{ ...call('F', ['x'], ['y']), overload: '2' }]
  t.strictSame(await run(model(nodes, [one!, two!])), [[3, 2]])
  const optional = define('G', {
    nodes: [
      makeNode('Elu', ['a'], ['b'], { attributes: { alpha: { type: 'reference', value: 'none', of: 1 } } }),
    ],
  })
  t.strictSame(
    inlineFunctions(model([call('G', ['x'], ['y'], { other: int(1) })], [optional])).graph.nodes[0]!
      .attributes,
    {},
  )
})

t.test('what is refused', async t => {
  const refused = (functions: readonly GraphFunction[], message: RegExp) =>
    t.throws(() => inlineFunctions(model([call('F', ['x'], ['y'])], functions)), {
      code: 'ERR_FORMAT',
      message,
    })
  refused(
    [define('F', { nodes: [call('G', ['a'], ['b'])] }), define('G', { nodes: [call('F', ['a'], ['b'])] })],
    /calls itself/,
  )
  refused([define('F', { attributes: ['needed'] })], /lacks the attribute 'needed'/)
  const doubling = Array.from({ length: 40 }, (_, i) =>
    define(i === 0 ? 'F' : `F${i}`, {
      nodes:
        i === 39
          ? [makeNode('Neg', ['a'], ['b'])]
          : [call(`F${i + 1}`, ['a'], ['h']), call(`F${i + 1}`, ['h'], ['b'])],
    }),
  )
  refused(doubling, /expand to more than 1000000 nodes/)
})
