// Layers of experts as nodes of a graph: shapes, one compilation for all numbers of tokens, stored weights.
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { inferShapes } from '#lib/graph/shape-inference.js'
import { openKernels } from '#lib/kernels/open.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { type HostTensor, hostTensor } from '#lib/model/values.js'
import { decodeWeight } from '#lib/weights/encode.js'
import { SharedWeight } from '#lib/weights/shared-weight.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const [experts, out, cols, used] = [5, 33, 48, 2]
const random = randomGenerator(9)
const weight = randomWeight(random, 'nvfp4', experts * out, cols)
const values = decodeWeight(weight)
const bias = uniform(random, experts * out)

/** choice → y, for rows [N, cols] or [N, used, cols]. */
function graphOf(matrix: Constant, rank: number): Graph {
  const dims = (...sizes: (number | null)[]) => sizes
  return makeGraph({
    inputs: [
      { name: 'x', type: tensorType('f32', rank === 3 ? dims(null, used, cols) : dims(null, cols)) },
      { name: 'choice', type: tensorType('i64', dims(null, used)) },
    ],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('ExpertLinear', ['x', 'w', 'choice', 'bias'], ['y'], { domain: sparkDomain })],
    initializers: new Map([
      ['w', matrix],
      ['bias', Constant.from('f32', [experts, out], bias)],
    ]),
  })
}

const shape = [experts, out, cols]
const plain = Constant.from('f32', shape, values)
const stored = (): Constant =>
  Constant.lazy('f32', shape, {
    byteLength: values.byteLength,
    read: () => new Uint8Array(values.buffer),
    weight: { shared: new SharedWeight(weight), transposed: false },
  })

function expectedOf(x: Float32Array, choice: BigInt64Array, perChoice: boolean): Float32Array {
  return Float32Array.from({ length: choice.length * out }, (_, at) => {
    const [i, o] = [Math.floor(at / out), at % out]
    const row = Number(choice[i]) * out + o
    const from = (perChoice ? i : Math.floor(i / used)) * cols
    let sum = bias[row]!
    for (let c = 0; c < cols; c++) sum += x[from + c]! * values[row * cols + c]!
    return sum
  })
}

for (const backend of backends) {
  t.test(backend, async t => {
    const kernels = await openKernels({ backend })
    for (const rank of [2, 3])
      for (const [name, matrix] of Object.entries({ plain, stored: stored() })) {
        const runner = new GraphRunner(graphOf(matrix, rank), kernels)
        for (const tokens of [7, 2, 40]) {
          const x = uniform(random, tokens * (rank === 3 ? used : 1) * cols)
          const choice = BigInt64Array.from({ length: tokens * used }, () =>
            BigInt(Math.floor(random() * experts)),
          )
          const rows = rank === 3 ? [tokens, used, cols] : [tokens, cols]
          const feeds = [hostTensor('f32', rows, x), hostTensor('i64', [tokens, used], choice)]
          const [y] = (await runner.run(feeds)) as HostTensor[]
          t.strictSame(y!.shape, [tokens, used, out])
          const expected = expectedOf(x, choice, rank === 3)
          close(t, y!.data as Float32Array, expected, 2e-6, `${name} weight, ${tokens} tokens`)
        }
        t.equal(runner.compilations, 1, 'one plan for all numbers of tokens')
        runner.dispose()
      }
  })
}

t.test('operands that do not fit are refused by name', async t => {
  const refused = (graph: Graph, message: RegExp): void => {
    t.throws(() => inferShapes(graph), { code: 'ERR_SHAPE', message })
  }
  const base = graphOf(plain, 2)
  const withInputs = (x: number[], choice: number[]): Graph => ({
    ...base,
    inputs: [
      { name: 'x', type: tensorType('f32', x) },
      { name: 'choice', type: tensorType('i64', choice) },
    ],
  })
  const withConstant = (name: string, value: Constant): Graph => ({
    ...base,
    initializers: new Map([...base.initializers, [name, value]]),
  })
  refused(withInputs([3, cols + 1], [3, used]), /x is \[3, 49\]; it must be \[3, 48\]/)
  refused(withInputs([3, 1, cols], [3, used]), /x is \[3, 1, 48\]; it must be \[3, 2, 48\]/)
  refused(withInputs([3, cols], [4, used]), /x is \[3, 48\]/)
  refused(withInputs([3, cols], [3]), /the choice is \[3\]/)
  refused(withConstant('w', Constant.from('f32', [experts * out, cols], values)), /the weight is \[165, 48\]/)
  refused(withConstant('bias', Constant.f32(uniform(random, 33) as never)), /bias is \[33\]/)
})
