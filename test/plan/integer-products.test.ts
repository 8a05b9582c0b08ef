// Products and convolutions of quantized numbers in plans for CUDA, where tensor cores read weights as they lie there: plain kernels make
// of them what they make of other plans.
import t from 'tap'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import type { Step } from '#lib/plan/program.js'
import { randomGenerator } from '../fixtures/values/random.js'

type ByteType = 'u8' | 'i8'
const random = randomGenerator(5)
const [rows, depth, cols] = [5, 67, 9]
const forCuda = { bytes: true, backend: 'cuda' } as const

function bytes(dtype: ByteType, count: number): Uint8Array | Int8Array {
  const unsigned = Uint8Array.from({ length: count }, () => 256 * random())
  return dtype === 'u8' ? unsigned : new Int8Array(unsigned.buffer)
}
const constant = (dtype: ByteType, shape: number[]): Constant =>
  Constant.from(
    dtype,
    shape,
    bytes(
      dtype,
      shape.reduce((a, b) => a * b, 1),
    ) as never,
  )

interface Product {
  op?: 'MatMulInteger' | 'QLinearMatMul'
  types: readonly [ByteType, ByteType]
  /** Whether b is a constant; else it is an input. */
  known?: boolean
  /** Shapes of the zero points; none: MatMulInteger without them. */
  zeros?: readonly [number[], number[]] | undefined
  b?: number[]
}

function graphOf({ op = 'MatMulInteger', types, known = true, zeros, b = [depth, cols] }: Product): Graph {
  const initializers = new Map<string, Constant>()
  if (known) initializers.set('b', constant(types[1], b))
  if (zeros) {
    initializers.set('az', constant(types[0], zeros[0])).set('bz', constant(types[1], zeros[1]))
  }
  for (const [name, scale] of Object.entries({ as: 0.02, bs: 0.01, ys: 0.9 }))
    initializers.set(name, Constant.f32(scale))
  initializers.set('yz', Constant.from('u8', [], Uint8Array.of(119)))
  const given = zeros ? ['az', 'bz'] : []
  const inputs =
    op === 'MatMulInteger' ? ['a', 'b', ...given] : ['a', 'as', 'az', 'b', 'bs', 'bz', 'ys', 'yz']
  return makeGraph({
    inputs: [
      { name: 'a', type: tensorType(types[0], [rows, depth]) },
      ...(known ? [] : [{ name: 'b', type: tensorType(types[1], b) }]),
    ],
    outputs: [{ name: 'y' }],
    nodes: [makeNode(op, inputs, ['y'])],
    initializers,
  })
}

const stepsOf = (graph: Graph, op: string) => compile(graph, forCuda).steps.filter(step => step.op === op)

/** What the plain kernels make of the plan of a backend. */
async function results(graph: Graph, feeds: Record<string, unknown>, options: object) {
  const kernels = await openKernels({ backend: 'js' })
  using plan = await Plan.create(graph, kernels, options)
  return (await plan.run(feeds as never)).y!.slice()
}

t.test('products, with weights as they are', async t => {
  const each: ByteType[] = ['u8', 'i8']
  const zeros: Product['zeros'][] = [undefined, [[], []], [[rows], [cols]]]
  const cases = each.flatMap(left =>
    each.flatMap(right =>
      zeros.flatMap(zeros =>
        [true, false].map(known => ({
          types: [left, right] as const,
          zeros,
          known,
        })),
      ),
    ),
  )
  for (const product of cases) {
    const graph = graphOf(product)
    t.match(stepsOf(graph, 'linearInteger'), [
      { args: { packed: false, wSigned: product.types[1] === 'i8', wSum: undefined } },
    ])
    const feeds = {
      a: bytes(product.types[0], rows * depth),
      ...(!product.known && { b: bytes(product.types[1], depth * cols) }),
    }
    const expected = await results(graph, feeds, { bytes: false })
    t.strictSame(await results(graph, feeds, forCuda), expected, JSON.stringify(product))
  }
})

t.test('products that become bytes', async t => {
  for (const type of ['u8', 'i8'] as const) {
    const graph = graphOf({ op: 'QLinearMatMul', types: [type, 'i8'], zeros: [[], [cols]] })
    t.match(stepsOf(graph, 'linearInteger'), [{ args: { packed: false, yDtype: 'u8' } }])
    const feeds = { a: bytes(type, rows * depth) }
    t.strictSame(await results(graph, feeds, forCuda), await results(graph, feeds, { bytes: true }), type)
  }
})

t.test('a batch of matrices on the right is computed in f32', async t => {
  t.strictSame(stepsOf(graphOf({ types: ['u8', 'i8'], b: [2, depth, cols] }), 'linearInteger'), [])
})

/** A QLinearConv of filters [O, C/G, 3, 2]. */
function convGraph(type: ByteType, filters: number, channels: number, group: number): Graph {
  const initializers = new Map<string, Constant>([
    ['b', constant('i8', [filters, channels / group, 3, 2])],
    ['az', constant(type, [])],
    ['bz', constant('i8', [filters])],
    ['yz', constant(type, [])],
    ['bias', Constant.from('i32', [filters], new Int32Array(filters).fill(700))],
  ])
  for (const [name, scale] of Object.entries({ as: 0.02, bs: 0.01, ys: 0.9 }))
    initializers.set(name, Constant.f32(scale))
  const inputs = ['a', 'as', 'az', 'b', 'bs', 'bz', 'ys', 'yz', 'bias']
  const attributes = { group: int(group), pads: ints([1, 0, 2, 1]), strides: ints([1, 2]) }
  return makeGraph({
    inputs: [{ name: 'a', type: tensorType(type, [2, channels, 7, 9]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('QLinearConv', inputs, ['y'], { attributes })],
    initializers,
  })
}

/** Convolutions of 3 x 3, one behind another, and what else reads the image between the first two: a pool. */
function chainGraph(type: ByteType): Graph {
  const initializers = new Map<string, Constant>([
    ['az', constant(type, [])],
    ['bz', Constant.from('i8', [], Int8Array.of(3))],
    ['s', Constant.f32(0.04)],
  ])
  const conv = (x: string, channels: number, filters: number, y: string) => {
    initializers.set(`${y}.w`, constant('i8', [filters, channels, 3, 3]))
    const inputs = [x, 's', 'az', `${y}.w`, 's', 'bz', 's', 'az']
    return makeNode('QLinearConv', inputs, [y], { attributes: { pads: ints([1, 1, 1, 1]) } })
  }
  return makeGraph({
    inputs: [{ name: 'a', type: tensorType(type, [2, 20, 7, 9]) }],
    outputs: ['y', 'p'].map(name => ({ name })),
    nodes: [
      conv('a', 20, 32, 'h'),
      makeNode('MaxPool', ['h'], ['p'], { attributes: { kernel_shape: ints([2, 2]) } }),
      conv('h', 32, 48, 'i'),
      conv('i', 48, 5, 'y'),
    ],
    initializers,
    opsets: new Map([['', 17]]),
  })
}

t.test('convolutions hand on images with their channels last', async t => {
  for (const type of ['u8', 'i8'] as const) {
    const graph = chainGraph(type)
    const layouts = stepsOf(graph, 'convInteger').map(({ args }) => {
      const { xOutside, y, yChannelsLast } = args as Extract<Step, { op: 'convInteger' }>['args']
      return [xOutside, y, yChannelsLast].map(operand => operand !== undefined)
    })
    const expected = [
      [false, true, true],
      [true, false, true],
      [true, true, false],
    ]
    t.strictSame(layouts, expected)
    const feeds = { a: bytes(type, 2 * 20 * 63) }
    t.strictSame(await results(graph, feeds, forCuda), await results(graph, feeds, { bytes: true }), type)
  }
})

t.test('convolutions, with the channels of each tap side by side but in groups of few filters', async t => {
  for (const type of ['u8', 'i8'] as const) {
    for (const [filters, channels, group, channelsLast] of [
      [5, 19, 1, true],
      [2, 3, 1, true],
      [8, 34, 2, true],
      [6, 4, 2, undefined],
      [4, 4, 4, undefined],
    ] as const) {
      const graph = convGraph(type, filters, channels, group)
      t.match(stepsOf(graph, 'convInteger'), [{ args: { channelsLast } }])
      const feeds = { a: bytes(type, 2 * channels * 63) }
      const expected = await results(graph, feeds, { bytes: true })
      t.strictSame(
        await results(graph, feeds, forCuda),
        expected,
        `${type}, ${filters}, ${channels}, ${group}`,
      )
    }
  }
})
