// Dropout in front of adapters: what PEFT computes, gradients by finite differences, and what is left alone.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { decompose } from '#lib/graph/rewrites/decompose.js'
import { addDropout, dropoutState } from '#lib/graph/rewrites/dropout.js'
import { doraParameters, insertDora } from '#lib/graph/rewrites/insert-dora.js'
import { openKernels } from '#lib/kernels/open.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { gradientError } from '../../fixtures/gradients.js'
import { goldenJson, noGolden } from '../../fixtures/values/golden-bytes.js'
import { goldenFloats } from '../../fixtures/values/golden-values.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'
import { randomConstants } from '../../fixtures/values/random-tensors.js'

const random = randomGenerator(17)
const f32 = randomConstants(random)
const state = Constant.from('u32', [3], Uint32Array.of(11, 3, 1))

interface Case {
  readonly x: readonly number[]
  readonly weight: Constant
  readonly rows: number
  readonly node: Node
  /** Where the weight lies [in, out]. */
  readonly inColumns?: boolean
}

const cases: Readonly<Record<string, Case>> = {
  Gemm: {
    x: [3, 5],
    weight: f32(7, 5),
    rows: 7,
    node: makeNode('Gemm', ['x', 'w', 'bias'], ['y'], { attributes: { transB: int(1) } }),
  },
  MatMul: {
    x: [2, 3, 5],
    weight: f32(5, 7),
    rows: 7,
    inColumns: true,
    node: makeNode('MatMul', ['x', 'w'], ['y']),
  },
  'Conv, in groups, dilated, strided': {
    x: [2, 4, 7, 5],
    weight: f32(6, 2, 3, 2),
    rows: 6,
    node: makeNode('Conv', ['x', 'w', 'bias'], ['y'], {
      attributes: { group: int(2), dilations: ints([1, 2]), strides: ints([2, 1]), pads: ints([1, 0, 1, 1]) },
    }),
  },
  'Conv, one axis': {
    x: [1, 3, 9],
    weight: f32(5, 3, 3),
    rows: 5,
    node: makeNode('Conv', ['x', 'w'], ['y']),
  },
  'a table read as a weight': {
    x: [3, 5],
    weight: f32(7, 5),
    rows: 5,
    inColumns: true,
    node: makeNode('Gemm', ['x', 'w'], ['y'], { attributes: { transB: int(1) } }),
  },
}

/** The layer with an adapter, whose parameters `wrt` names. */
function adapted({ x, weight, rows, node, inColumns }: Case) {
  const cols = weight.count / rows
  const inner = weight.shape.length > 2 ? weight.shape.slice(1) : [cols]
  const plain = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', x) }],
    outputs: [{ name: 'y' }],
    nodes: [node],
    initializers: new Map([
      ['w', weight],
      ['bias', f32(node.op === 'Conv' ? weight.shape[0]! : rows)],
    ]),
  })
  const target = {
    weight: 'w',
    module: 'layer',
    scale: 0.7,
    normGradient: 'exact' as const,
    ...(inColumns && { inColumns }),
  }
  const values = { a: f32(2, ...inner), b: f32(rows, 2), magnitude: f32(rows) }
  const graph = insertDora(plain, [{ ...target, ...values }])
  return { plain, graph, wrt: doraParameters('layer') }
}

async function run(graph: Graph, feeds: Record<string, Float32Array | Uint32Array>, backend: 'js' | 'cpu') {
  using plan = await Plan.create(graph, await openKernels({ backend }))
  const results = Object.entries(await plan.run(feeds))
  return new Map(results.map(([name, values]) => [name, Float32Array.from(values as Float32Array)]))
}

/** The graph with the mask and the adapted weight among its outputs. */
function shown(graph: Graph): Graph {
  const masks = graph.nodes.filter(({ op }) => op === 'DropoutMask').map(({ outputs }) => outputs[0]!)
  return { ...graph, outputs: [...graph.outputs, ...masks.map(name => ({ name }))] }
}

for (const [name, layer] of Object.entries(cases)) {
  t.test(name, async t => {
    const { plain, graph } = adapted(layer)
    const dropped = shown(addDropout(graph, 0.4))
    t.ok(dropped.inputs.some(input => input.name === dropoutState))
    const x = uniform(random, numel(layer.x))
    for (const backend of backends) {
      const results = await run(dropped, { x, [dropoutState]: Uint32Array.of(1, 2, 3) }, backend)
      const mask = results.get(dropped.outputs[1]!.name)!
      t.equal(mask.length, x.length)
      t.ok(mask.some(value => value === 0) && mask.some(value => value !== 0))
      // y(x) of the frozen layer + what the adapter changes at mask ∘ x; without a bias in the difference.
      const d = x.map((value, i) => value * mask[i]!)
      const at = async (of: Graph, values: Float32Array) => (await run(of, { x: values }, backend)).get('y')!
      const [base, changed, frozen] = [await at(plain, x), await at(graph, d), await at(plain, d)]
      const expected = base.map((value, i) => value + changed[i]! - frozen[i]!)
      close(t, results.get('y')!, expected, 2e-6, backend)
    }
    const none = await run(addDropout(graph, 0), { x, [dropoutState]: new Uint32Array(3) }, 'js')
    const without = await run(graph, { x }, 'js')
    close(t, none.get('y')!, without.get('y')!, 2e-6, 'a ratio of 0 changes nothing')
  })

  t.test(`${name}: gradients`, async t => {
    const { graph, wrt } = adapted(layer)
    const dropped = addDropout(graph, 0.4)
    const shape = (parameter: string) => dropped.initializers.get(parameter)!.shape
    const constants = Object.fromEntries(dropped.initializers)
    for (const parameter of wrt) delete constants[parameter]
    const errors = await gradientError({
      inputs: {
        x: { shape: layer.x },
        ...Object.fromEntries(wrt.map(name => [name, { shape: shape(name) }])),
      },
      nodes: dropped.nodes,
      constants: { ...constants, [dropoutState]: state },
    })
    for (const [input, error] of Object.entries(errors)) {
      t.ok(error < 1e-7, `${input}: relative error ${error.toExponential(1)}`)
    }
  })
}

interface LinearCase {
  id: string
  file: string
  scaling: number
  bias: boolean
  dropout_p: number
}

t.test('PEFT', { skip: noGolden }, async t => {
  const { cases } = goldenJson<{ cases: LinearCase[] }>('peft/linear/cases.json')
  const withDropout = cases.filter(({ dropout_p }) => dropout_p > 0)
  t.equal(withDropout.length, 2)
  for (const { id, file, scaling, bias, dropout_p } of withDropout) {
    const golden = goldenFloats(`peft/linear/${file}`)
    const [rows = 1, cols = 1] = golden('W0').shape
    const tokens = golden('x').values.length / cols
    const floats = (name: string) => Float32Array.from(golden(name).values)
    const constant = (name: string) => Constant.from('f32', golden(name).shape, floats(name))
    const plain = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [tokens, cols]) }],
      outputs: [{ name: 'y' }],
      nodes: [
        makeNode('Gemm', bias ? ['x', 'w', 'bias'] : ['x', 'w'], ['y'], { attributes: { transB: int(1) } }),
        makeNode('Mul', ['y', 'dy'], ['product']),
        makeNode('ReduceSum', ['product'], ['loss'], { attributes: { keepdims: int(0) } }),
      ],
      initializers: new Map([
        ['w', constant('W0')],
        ['bias', bias ? constant('bias') : f32(1)],
        ['dy', Constant.from('f32', [tokens, rows], floats('dy'))],
      ]),
    })
    const [a, b, magnitude] = ['A', 'B', 'm'].map(name => constant(name))
    const target = { weight: 'w', module: 'layer', scale: scaling, a: a!, b: b!, magnitude: magnitude! }
    const dropped = addDropout(insertDora(plain, [target]), dropout_p)
    const wrt = [...doraParameters('layer'), 'x']
    const { graph, gradients } = differentiate(dropped, { loss: 'loss', wrt })
    // PEFT's own mask in the place of ours.
    const mask = graph.nodes.find(({ op }) => op === 'DropoutMask')!.outputs[0]!
    const fed: Graph = {
      ...graph,
      nodes: graph.nodes.filter(({ op }) => op !== 'DropoutMask'),
      inputs: graph.inputs.filter(({ name }) => name === 'x'),
      outputs: ['y', ...gradients.values()].map(name => ({ name })),
      initializers: new Map([
        ...graph.initializers,
        [mask, Constant.from('f32', [tokens, cols], floats('dropout_mask'))],
      ]),
    }
    for (const backend of backends) {
      const results = await run(fed, { x: floats('x') }, backend)
      const names = [
        ['y', 'y'],
        ...['dA', 'dB', 'dm', 'dx'].map((name, i) => [name, gradients.get(wrt[i]!)!]),
      ]
      for (const [name, result] of names) {
        close(t, results.get(result!)!, golden(`${name}_f64`).values, 2e-6, `${id} on ${backend}: ${name}`)
      }
    }
  }
})

t.test('an embedding has no dropout', async t => {
  const table = f32(9, 5)
  const plain = makeGraph({
    inputs: [{ name: 'ids', type: tensorType('i64', [3]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Gather', ['table', 'ids'], ['y'])],
    initializers: new Map([['table', table]]),
  })
  const values = { a: f32(2, 9), b: f32(5, 2), magnitude: f32(5) }
  const graph = insertDora(plain, [{ weight: 'table', module: 'emb', scale: 1, inColumns: true, ...values }])
  const dropped = addDropout(graph, 0.5)
  t.same(dropped.inputs, graph.inputs)
  t.notOk(dropped.nodes.some(({ op }) => op === 'DropoutMask'))
})

t.test('a graph with dropout is no model to save', async t => {
  const { graph } = adapted(cases.Gemm!)
  t.throws(() => decompose(addDropout(graph, 0.1)), { code: 'ERR_UNSUPPORTED' })
  t.doesNotThrow(() => decompose(graph))
})
