// Models that make no sense, or want more than there is: a SparkError names what is wrong, and the process lives.

import { totalmem } from 'node:os'
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { bind } from '#lib/plan/bind.js'
import { compile } from '#lib/plan/compile.js'
import { backends } from '../fixtures/backends.js'
import { mutationProblem } from '../fixtures/random-graph/mutate.js'
import { randomGraph } from '../fixtures/random-graph/random-graph.js'

interface Refused {
  readonly op: string
  readonly constants: readonly Constant[]
  readonly attributes?: Attributes
  readonly code: string
  readonly message: RegExp
}

const huge = 2 ** 45
const memory = { code: 'ERR_OUT_OF_MEMORY', message: /needs (an array of )?\d+ bytes|does not fit/ }
const refused: readonly Refused[] = [
  { op: 'Expand', constants: [Constant.i64([huge, 1, 1])], ...memory },
  { op: 'Tile', constants: [Constant.i64([huge, 1])], ...memory },
  { op: 'Pad', constants: [Constant.i64([huge, 0, 0, 0])], ...memory },
  {
    op: 'Compress',
    constants: [Constant.from('bool', [5], Uint8Array.of(0, 1, 0, 0, 1))],
    attributes: { axis: int(0) },
    code: 'ERR_SHAPE',
    message: /\(Compress\): condition 4 is true, but axis 0 has 2 elements/,
  },
  {
    op: 'QuantizeLinear',
    constants: [Constant.f32([1, 2, 3, 4, 5])],
    attributes: { axis: int(0) },
    code: 'ERR_SHAPE',
    message: /\(QuantizeLinear\): \[5\] cannot become \[2, 1\]/,
  },
  {
    op: 'BitCast',
    constants: [],
    attributes: { to: int(11) },
    code: 'ERR_UNSUPPORTED',
    message: /\(BitCast\): f32 and f64 differ in size/,
  },
]

for (const backend of backends) {
  t.test(`one node on ${backend}`, async t => {
    for (const { op, constants, attributes = {}, code, message } of refused) {
      const names = constants.map((_, i) => `c${i}`)
      const graph = makeGraph({
        inputs: [{ name: 'x', type: tensorType('f32', [2, 3]) }],
        outputs: [{ name: 'y' }],
        nodes: [makeNode(op, ['x', ...names], ['y'], { attributes })],
        initializers: new Map(constants.map((constant, i) => [names[i]!, constant])),
      })
      using model = await Model.fromGraph(graph, { backend })
      await t.rejects(model.run({ x: new Float32Array(6) }), { code, message }, op)
    }
  })

  t.test(`counting further than memory goes on ${backend}`, async t => {
    const counts: readonly (readonly [string, readonly Constant[]])[] = [
      ['Range', [Constant.i64(0), Constant.i64(huge), Constant.i64(1)]],
      ['OneHot', [Constant.i64([1]), Constant.i64(huge), Constant.f32([0, 1])]],
    ]
    for (const [op, constants] of counts) {
      const initializers = new Map(constants.map((constant, i) => [`c${i}`, constant]))
      const nodes = [makeNode(op, [...initializers.keys()], ['y'])]
      using model = await Model.fromGraph(makeGraph({ outputs: [{ name: 'y' }], nodes, initializers }), {
        backend,
      })
      await t.rejects(model.run(), memory, op)
    }
  })

  t.test(`numbers of four bits in sizes of a run on ${backend}`, async t => {
    const nodes = [
      makeNode('Pad', ['x', 'pads'], ['padded']),
      makeNode('Concat', ['padded', 'x'], ['y'], { attributes: { axis: int(0) } }),
    ]
    for (const dtype of ['i4', 'u4', 'i2'] as const) {
      const graph = makeGraph({
        inputs: [{ name: 'x', type: tensorType(dtype, ['N']) }],
        outputs: [{ name: 'y' }],
        nodes,
        initializers: new Map([['pads', Constant.i64([1, 1])]]),
      })
      using model = await Model.fromGraph(graph, { backend })
      for (const count of [3, 40]) {
        const { y } = await model.run({ x: Tensor.of(new Uint8Array(count).fill(1), [count], dtype) })
        t.same([y!.shape, y!.data.length], [[2 * count + 2], 2 * count + 2], dtype)
      }
    }
  })

  t.test(`attributes of other operators on ${backend}`, async t => {
    const codes = (shape: readonly number[]) => Constant.from('u8', shape, Uint8Array.of(1, 2, 3, 4, 5, 6))
    const [scale, zero] = [Constant.f32(1), Constant.from('u8', [], new Uint8Array(1))]
    const initializers = new Map([...Object.entries({ scale, zero, a: codes([2, 3]), b: codes([3, 2]) })])
    const transposed = { transA: int(1), transB: int(1) }
    for (const attributes of [{}, transposed]) {
      const nodes = [
        makeNode('Cast', ['a'], ['left'], { attributes: { to: int(1) } }),
        makeNode('Cast', ['b'], ['right'], { attributes: { to: int(1) } }),
        makeNode('MatMul', ['left', 'right'], ['floats'], { attributes }),
        makeNode('MatMulInteger', ['a', 'b'], ['integers'], { attributes }),
        makeNode('QLinearMatMul', ['a', 'scale', 'zero', 'b', 'scale', 'zero', 'scale', 'zero'], ['codes'], {
          attributes,
        }),
      ]
      const outputs = [{ name: 'floats' }, { name: 'integers' }, { name: 'codes' }]
      using model = await Model.fromGraph(makeGraph({ outputs, nodes, initializers }), { backend })
      for (const [name, { data }] of Object.entries(await model.run()))
        t.same([...data].map(Number), [22, 28, 49, 64], name)
    }
  })

  t.test(`graphs that are nearly right on ${backend}`, async t => {
    for (let seed = 1; seed <= 20; seed++)
      t.same(await mutationProblem(await randomGraph(seed), backend), undefined, `seed ${seed}`)
  })
}

t.test('more memory than there is', async t => {
  // Each output alone could be had: Linux grants memory until it is written.
  const [count, size] = [64, Math.ceil(totalmem() / 32 / 4)]
  const names = Array.from({ length: count }, (_, i) => `y${i}`)
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1]) }],
    outputs: names.map(name => ({ name })),
    nodes: names.map(name => makeNode('Expand', ['x', 'shape'], [name])),
    initializers: new Map([['shape', Constant.i64([size])]]),
  })
  const program = compile(graph)
  t.throws(() => atOnce(bind(program)), {
    code: 'ERR_OUT_OF_MEMORY',
    message: /the plan needs \d+ bytes, but only \d+ are free/,
  })
  const buffers = new Map(names.map(name => [name, new Float32Array(1)]))
  t.throws(() => atOnce(bind(program, { buffers })), { code: 'ERR_SHAPE' }, 'memory of the caller')
})
