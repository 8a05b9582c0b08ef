// Products of quantized matrices on a backend that has linearInteger and none of the other kernels for bytes, as CUDA: sums are
// exact, and results are those of the kernels for bytes.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../fixtures/backends.js'
import { randomGenerator } from '../fixtures/values/random.js'

type ByteType = 'u8' | 'i8'
const random = randomGenerator(5)
const [rows, depth, cols] = [5, 67, 9]
const sumsAlone = { bytes: false, multipliesBytes: true }

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

const products = (graph: Graph, options = sumsAlone) =>
  compile(graph, options).steps.filter(({ op }) => op === 'linearInteger')

t.test('products are exact, with weights as they are', async t => {
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
    t.match(products(graph), [
      { args: { packed: false, wSigned: product.types[1] === 'i8', wSum: undefined } },
    ])
    const feeds = {
      a: bytes(product.types[0], rows * depth),
      ...(!product.known && { b: bytes(product.types[1], depth * cols) }),
    }
    for (const backend of backends) {
      const kernels = await openKernels({ backend })
      const run = async (options: object) => {
        using plan = await Plan.create(graph, kernels, options)
        return (await plan.run(feeds)).y!.slice()
      }
      const expected = await run({ bytes: false, multipliesBytes: false })
      t.strictSame(await run(sumsAlone), expected, `${backend}, ${JSON.stringify(product)}`)
    }
  }
})

t.test('sums become the same bytes in steps of their own', async t => {
  for (const type of ['u8', 'i8'] as const) {
    const graph = graphOf({ op: 'QLinearMatMul', types: [type, 'i8'], zeros: [[], [cols]] })
    t.equal(products(graph).length, 1)
    const a = bytes(type, rows * depth)
    for (const backend of backends) {
      const kernels = await openKernels({ backend })
      const run = async (options: object) => {
        using plan = await Plan.create(graph, kernels, options)
        return (await plan.run({ a })).y!.slice()
      }
      t.strictSame(await run(sumsAlone), await run({ bytes: true }), `${backend}, ${type}`)
    }
  }
})

t.test('a batch of matrices on the right is computed in f32', async t => {
  t.strictSame(products(graphOf({ types: ['u8', 'i8'], b: [2, depth, cols] })), [])
})
