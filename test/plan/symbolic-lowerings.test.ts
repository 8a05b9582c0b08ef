// Operators whose kernels depend on sizes in more than their shapes: one compilation serves many sizes, and computes what
// a compilation for each of them does.
import t from 'tap'
import { int, ints, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { type HostTensor, hostTensor } from '#lib/model/values.js'
import { backends } from '../fixtures/backends.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const random = randomGenerator(3)

/** Shapes of the inputs of a run. */
type Shapes = Readonly<Record<string, readonly number[]>>

/** A graph whose inputs of f32 have any sizes, and the shapes that it is run with. */
interface Case {
  readonly name: string
  readonly nodes: readonly Node[]
  readonly lists?: Readonly<Record<string, readonly number[]>>
  readonly runs: readonly Shapes[]
  /** Compilations for all runs. Default: 1. */
  readonly compilations?: number
}

function graphOf({ nodes, lists = {}, runs }: Case): Graph {
  const inputs = Object.entries(runs[0]!).map(([name, shape]) => ({
    name,
    type: tensorType(
      'f32',
      shape.map(() => null),
    ),
  }))
  const initializers = new Map(Object.entries(lists).map(([name, list]) => [name, Constant.i64([...list])]))
  const scalars = ['zero', 'one'].map(
    (name, value) => [name, Constant.from('i64', [], BigInt64Array.of(BigInt(value)))] as const,
  )
  return makeGraph({
    inputs,
    outputs: [{ name: 'y' }],
    nodes: [...nodes],
    initializers: new Map([...initializers, ...scalars]),
  })
}

const node = (op: string, inputs: string, output: string, attributes: Attributes = {}): Node =>
  makeNode(
    op,
    inputs.split(' ').map(name => (name === '-' ? '' : name)),
    [output],
    { attributes },
  )

/** The size of an axis of `x` as a list of one number, and as a scalar `<output>0`. */
const sizeOf = (x: string, axis: number, output: string): Node[] => [
  node('Shape', x, output, { start: int(axis), end: int(axis + 1) }),
  node('Squeeze', output, `${output}0`),
]

const lengths = [3, 4, 7, 12].map(size => ({ x: [2, size] }))

const images = [
  [6, 9],
  [5, 5],
  [16, 11],
].map(([height = 0, width = 0]) => ({ x: [1, 2, height, width] }))

const resized = images.flatMap(({ x }) =>
  [
    [8, 12],
    [4, 31],
  ].map(([height = 0, width = 0]) => ({ x, goal: [height, width] })),
)

/** A Resize of the last two axes of x to the shape of another input. */
const resizeTo = (name: string, attributes: Attributes): Case => ({
  name: `Resize, ${name}`,
  nodes: [
    node('Shape', 'goal', 'sizes'),
    node('Resize', 'x - - sizes', 'y', { axes: ints([2, 3]), ...attributes }),
  ],
  runs: resized,
})

/** A Pad of the last axis by as much as another input is long. */
const padded = (mode: string): Case => ({
  name: `Pad, ${mode}`,
  nodes: [
    ...sizeOf('pad', 0, 'ends'),
    node('Concat', 'front ends', 'pads', { axis: int(0) }),
    node('Pad', 'x pads - last', 'y', { mode: string(mode) }),
  ],
  lists: { front: [2], last: [-1] },
  runs: [
    { x: [2, 6], pad: [2] },
    { x: [2, 9], pad: [5] },
    { x: [2, 17], pad: [13] },
  ],
})

/** A matrix of as many rows as x and columns as z, Trilu of which begins behind the columns that are more. */
const causal: Case = {
  name: 'Trilu behind a past',
  nodes: [
    ...sizeOf('x', 0, 'rows'),
    ...sizeOf('z', 0, 'cols'),
    node('Concat', 'rows cols', 'shape', { axis: int(0) }),
    node('Unsqueeze', 'x last', 'column'),
    node('Expand', 'column shape', 'matrix'),
    node('Sub', 'cols0 rows0', 'past'),
    node('Add', 'past one', 'k'),
    node('Trilu', 'matrix k', 'y'),
  ],
  lists: { last: [1] },
  runs: [
    { x: [3], z: [8] },
    { x: [2], z: [9] },
    { x: [5], z: [30] },
  ],
}

const cases: readonly Case[] = [
  ...['edge', 'wrap', 'reflect', 'constant'].map(padded),
  causal,
  resizeTo('nearest', { mode: string('nearest') }),
  resizeTo('linear', { mode: string('linear'), coordinate_transformation_mode: string('align_corners') }),
  resizeTo('cubic', { mode: string('cubic'), exclude_outside: int(1) }),
  {
    ...resizeTo('antialias', { mode: string('linear'), antialias: int(1) }),
    compilations: resized.length,
  },
  {
    name: 'EyeLike',
    nodes: [node('EyeLike', 'x', 'eye', { k: int(-1) }), node('Add', 'x eye', 'y')],
    runs: lengths.map(({ x }) => ({ x: [x[1]!, x[1]! + 2] })),
  },
  {
    name: 'Range and OneHot',
    nodes: [
      ...sizeOf('x', 1, 'size'),
      node('Range', 'zero size0 one', 'columns'),
      node('OneHot', 'columns size0 choices', 'eye'),
      node('Cast', 'eye', 'floats', { to: int(1) }),
      node('MatMul', 'x floats', 'y'),
    ],
    lists: { choices: [3, 5] },
    runs: lengths,
  },
  {
    name: 'Gather of the row at a position',
    nodes: [
      ...sizeOf('z', 0, 'length'),
      node('Sub', 'length one', 'last'),
      node('Gather', 'x last', 'row'),
      node('Gather', 'row zero', 'y', { axis: int(1) }),
    ],
    runs: [4, 9, 22].map(position => ({ x: [30, 4], z: [position] })),
  },
  {
    name: 'Slice from the middle, backwards',
    nodes: [
      ...sizeOf('x', 1, 'size'),
      node('Div', 'size two', 'half'),
      node('Slice', 'x half first last steps', 'y'),
    ],
    lists: { two: [2], first: [-99], last: [1], steps: [-1] },
    runs: lengths,
  },
  {
    name: 'AveragePool and SAME_UPPER',
    nodes: [
      node('MaxPool', 'x', 'pooled', {
        kernel_shape: ints([3, 3]),
        strides: ints([2, 2]),
        auto_pad: string('SAME_UPPER'),
      }),
      node('AveragePool', 'pooled', 'y', { kernel_shape: ints([2, 2]) }),
    ],
    runs: images,
  },
  {
    name: 'AveragePool of the whole image',
    nodes: [node('AveragePool', 'x', 'y', { kernel_shape: ints([6, 9]) })],
    runs: [images[0]!, images[2]!, { x: [3, 2, 6, 9] }].map(({ x }) => ({ x: [x[0]! + 1, 2, 6, x[3]!] })),
    compilations: 2,
  },
  {
    name: 'SpaceToDepth',
    nodes: [node('SpaceToDepth', 'x', 'y', { blocksize: int(2) })],
    runs: [
      [4, 6],
      [8, 2],
      [10, 10],
    ].map(([height = 0, width = 0]) => ({ x: [1, 3, height, width] })),
  },
  {
    name: 'Einsum with an ellipsis',
    nodes: [node('Einsum', 'x z', 'y', { equation: string('...ij,...jk->...ik') })],
    runs: [3, 5, 8].map(size => ({ x: [2, size, 4], z: [2, 4, size + 1] })),
  },
  {
    name: 'Attention with a past and a mask',
    nodes: [
      makeNode('Attention', ['q', 'k', 'v', 'mask', 'pastK', 'pastV'], ['y', 'presentK', 'presentV'], {
        attributes: { q_num_heads: int(2), kv_num_heads: int(1), is_causal: int(1) },
      }),
    ],
    runs: [
      [2, 3],
      [4, 9],
      [3, 30],
    ].map(([own = 0, past = 0]) => ({
      q: [2, own, 8],
      k: [2, own, 4],
      v: [2, own, 4],
      mask: [own, own + past],
      pastK: [2, 1, past, 4],
      pastV: [2, 1, past, 4],
    })),
  },
]

const feedsFor = (shapes: Shapes): HostTensor[] =>
  Object.values(shapes).map(shape => {
    const count = shape.reduce((product, size) => product * size, 1)
    return hostTensor('f32', [...shape], uniform(random, count))
  })

for (const backend of backends) {
  t.test(backend, async t => {
    const kernels = await openKernels({ backend })
    for (const one of cases) {
      const graph = graphOf(one)
      const symbolic = new GraphRunner(graph, kernels)
      for (const shapes of one.runs) {
        const feeds = feedsFor(shapes)
        const [actual] = (await symbolic.run(feeds)) as HostTensor[]
        const own = new GraphRunner(graph, kernels)
        const [expected] = (await own.run(feeds)) as HostTensor[]
        t.same(actual!.shape, expected!.shape, `${one.name} ${JSON.stringify(shapes)}`)
        t.same(actual!.data, expected!.data, `${one.name} ${JSON.stringify(shapes)}`)
        own.dispose()
      }
      t.equal(symbolic.compilations, one.compilations ?? 1, `compilations of ${one.name}`)
      symbolic.dispose()
    }
  })
}
