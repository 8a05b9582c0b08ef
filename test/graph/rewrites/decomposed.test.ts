// Operators that become several others when a graph is brought to the canonical opset.

import { Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { graph as graphAttribute, int, ints } from '#lib/graph/attributes.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { sameOutputs, single } from '../../fixtures/one-node.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

/** (x − mean) / deviation over axes of x [n, c, h, w]. */
function normalized(
  x: Float32Array,
  shape: readonly number[],
  axes: readonly number[],
  scaled: boolean,
): number[] {
  const groups = new Map<string, number[]>()
  const keys = Array.from(x, (_, flat) => {
    let rest = flat
    const position = [...shape].reverse().map(size => {
      const at = rest % size
      rest = Math.floor(rest / size)
      return at
    })
    const key = position
      .reverse()
      .filter((_, axis) => !axes.includes(axis))
      .join()
    groups.set(key, [...(groups.get(key) ?? []), x[flat]!])
    return key
  })
  return Array.from(x, (value, i) => {
    const group = groups.get(keys[i]!)!
    const mean = group.reduce((a, b) => a + b) / group.length
    const variance = group.reduce((sum, item) => sum + (item - mean) ** 2, 0) / group.length
    return scaled ? (value - mean) / (Math.sqrt(variance) + 1e-9) : value - mean
  })
}

const shape = [2, 3, 4, 5]
const x = Float32Array.from(uniform(randomGenerator(5), 120), value => 3 * value + 1)

t.test('MeanVarianceNormalization of every opset', async t => {
  const cases = [
    { opset: 13, attributes: {}, axes: [0, 2, 3] },
    { opset: 9, attributes: { axes: ints([2, 3]) }, axes: [2, 3] },
    { opset: 9, attributes: { axes: ints([-1]) }, axes: [3] },
    { opset: 8, attributes: {}, axes: [0, 2, 3] },
    { opset: 1, attributes: { across_channels: int(1) }, axes: [0, 1, 2, 3] },
    { opset: 1, attributes: { normalize_variance: int(0) }, axes: [0, 2, 3] },
  ]
  for (const { opset, attributes, axes } of cases) {
    const graph = single('MeanVarianceNormalization', { opset, attributes, inputs: { x: shape } })
    const expected = normalized(x, shape, axes, !('normalize_variance' in attributes))
    for (const backend of backends) {
      using model = await Model.fromGraph(graph, { backend })
      const { y } = await model.run({ x })
      close(t, y!.data as Float32Array, expected, 1e-5, `opset ${opset}, axes ${axes}, ${backend}`)
    }
  }
  await sameOutputs(t, single('MeanVarianceNormalization', { opset: 13, inputs: { x: shape } }), 1e-5)
})

t.test('halves and doubles are normalized in a type that has 1e-9', async t => {
  for (const [dtype, limit] of [
    ['f16', 2e-3],
    ['f64', 1e-12],
  ] as const) {
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType(dtype, [1, 1, 2, 2]) }],
      outputs: [{ name: 'y' }],
      nodes: [makeNode('MeanVarianceNormalization', ['x'], ['y'])],
    })
    using model = await Model.fromGraph(graph)
    const rows = [
      [
        [
          [1, 2],
          [3, 4],
        ],
      ],
    ]
    const { y } = await model.run({ x: Tensor.from(rows, { dtype }) })
    t.equal(y!.dtype, dtype)
    close(t, y!.toFloat32(), [-1.3416408, -0.4472136, 0.4472136, 1.3416408], Math.max(limit, 1e-6), dtype)
    const { y: zeros } = await model.run({
      x: Tensor.from(
        [
          [
            [
              [1, 1],
              [1, 1],
            ],
          ],
        ],
        { dtype },
      ),
    })
    t.same([...zeros!.toFloat32()], [0, 0, 0, 0])
  }
})

t.test('column-major indices of MaxPool', async t => {
  const pool = { storage_order: int(1), strides: ints([1, 2]), pads: ints([1, 0, 0, 1]) }
  const graph = single('MaxPool', {
    opset: 12,
    inputs: { x: [2, 3, 5, 4] },
    attributes: { kernel_shape: ints([2, 2]), ...pool },
    outputs: ['y', 'indices'],
  })
  await sameOutputs(t, graph)
  const deep = single('MaxPool', {
    opset: 12,
    inputs: { x: [1, 2, 3, 4, 5] },
    attributes: { kernel_shape: ints([2, 2, 2]), storage_order: int(1) },
    outputs: ['y', 'indices'],
  })
  for (const backend of backends) {
    using model = await Model.fromGraph(deep, { backend })
    const image = Float32Array.from(uniform(randomGenerator(9), 120))
    const { y, indices } = await model.run({ x: image })
    const found = Array.from(indices!.data as BigInt64Array, index => {
      const [at, plane] = [Number(index) % 60, Math.floor(Number(index) / 60)]
      const [d, h, w] = [at % 3, Math.floor(at / 3) % 4, Math.floor(at / 12)]
      return image[plane * 60 + d * 20 + h * 5 + w]
    })
    t.same(found, [...(y!.data as Float32Array)], backend)
  }
  await sameOutputs(
    t,
    single('MaxPool', {
      opset: 8,
      attributes: { kernel_shape: ints([2]), storage_order: int(1) },
      outputs: ['y', 'i'],
    }),
  )
})

/** Sums along sequences, and doubled elements: state s [N], x [N, T] to last [N], sums [N, T]. */
function scan8({ lengths, reverse = false }: { lengths: boolean; reverse?: boolean }): Graph {
  const number = tensorType('f32', [])
  const body = makeGraph({
    inputs: ['sum', 'item'].map(name => ({ name, type: number })),
    outputs: ['next', 'seen'].map(name => ({ name, type: number })),
    nodes: [makeNode('Add', ['sum', 'item'], ['next']), makeNode('Identity', ['next'], ['seen'])],
  })
  return makeGraph({
    inputs: [
      ...(lengths ? [{ name: 'lengths', type: tensorType('i64', ['N']) }] : []),
      { name: 's', type: tensorType('f32', ['N']) },
      { name: 'x', type: tensorType('f32', ['N', 'T']) },
    ],
    outputs: ['last', 'sums'].map(name => ({ name })),
    nodes: [
      makeNode('Scan', [lengths ? 'lengths' : '', 's', 'x'], ['last', 'sums'], {
        attributes: {
          body: graphAttribute(body),
          num_scan_inputs: int(1),
          ...(reverse && { directions: ints([1]) }),
        },
      }),
    ],
    opsets: new Map([['', 8]]),
  })
}

async function scans(
  t: Test,
  graph: Graph,
  feeds: Record<string, Tensor<'f32'> | BigInt64Array>,
  expected: object,
) {
  for (const backend of backends) {
    using model = await Model.fromGraph(graph, { backend })
    const { last, sums } = await model.run(feeds)
    t.same({ last: last!.toArray(), sums: sums!.toArray() }, expected, backend)
  }
}

t.test('Scan of opset 8 runs over sequences of a batch', async t => {
  const s = Tensor.from([10, 20])
  const x = Tensor.from([
    [1, 2, 3],
    [4, 5, 6],
  ])
  await scans(
    t,
    scan8({ lengths: false }),
    { s, x },
    {
      last: [16, 35],
      sums: [
        [11, 13, 16],
        [24, 29, 35],
      ],
    },
  )
  const lengths = BigInt64Array.of(3n, 2n)
  await scans(
    t,
    scan8({ lengths: true }),
    { lengths, s, x },
    {
      last: [16, 29],
      sums: [
        [11, 13, 16],
        [24, 29, 0],
      ],
    },
  )
  const reversed = scan8({ lengths: true, reverse: true })
  await scans(
    t,
    reversed,
    { lengths, s, x },
    {
      last: [16, 29],
      sums: [
        [13, 15, 16],
        [25, 29, 0],
      ],
    },
  )
  const missing = { ...single('Scan', { opset: 8 }) }
  await t.rejects(Model.fromGraph(missing), { code: 'ERR_UNSUPPORTED', message: /lacks its graph 'body'/ })
})
