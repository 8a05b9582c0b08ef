// Weights that a precision mode finds in its own format, or in fewer bits, stay as they are.
import t from 'tap'
import { precisions } from '#lib/core/config.js'
import { int } from '#lib/graph/attributes.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { roundWeights } from '#lib/graph/rewrites/round-weights.js'
import { weightConstant } from '#lib/graph/weight-constant.js'
import { encodeBlocks } from '#lib/weights/blocks/encode.js'
import type { Weight } from '#lib/weights/weight.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const [rows, cols] = [6, 64]

const sixteenBits = (format: 'f16' | 'bf16'): Weight => ({
  format,
  rows,
  cols,
  data: Uint16Array.from({ length: rows * cols }, (_, i) => 0x3c00 + i),
})
const blocks: Weight = {
  format: 'q4_0',
  rows,
  cols,
  data: encodeBlocks('Q4_0', uniform(randomGenerator(1), rows * cols)),
}
const bytes = (count: number): Uint8Array => Uint8Array.from({ length: count }, (_, i) => 0x30 + (i % 16))
const fp8: Weight = {
  format: 'f8_e4m3',
  rows,
  cols,
  data: bytes(rows * cols),
  rowScale: new Float32Array(rows).fill(0.5),
}
const nvfp4: Weight = {
  format: 'nvfp4',
  rows,
  cols,
  data: bytes((rows * cols) / 2),
  blockScale: bytes((rows * cols) / 16),
  tensorScale: 0.5,
}

/** The rows of a table and their products with the same table, whose codes are those of a file. */
function tied(weight: Weight): Graph {
  return makeGraph({
    inputs: [{ name: 'ids', type: tensorType('i64', [3]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Gather', ['table', 'ids'], ['x']),
      makeNode('Gemm', ['x', 'table'], ['y'], { attributes: { transB: int(1) } }),
    ],
    initializers: new Map([
      ['table', weightConstant([rows, cols], weight, { transposed: false, exact: true })],
    ]),
  })
}

for (const [name, weight, modes] of [
  ['bf16', sixteenBits('bf16'), ['bf16']],
  ['f16', sixteenBits('f16'), ['fp16']],
  ['blocks', blocks, ['fp16', 'bf16', 'fp8', 'nvfp4']],
  ['FP8', fp8, ['fp16', 'bf16']],
  ['NVFP4', nvfp4, ['fp16', 'bf16']],
] as const)
  t.test(`${name}: kept, and products round their rows, in ${modes.join(', ')}`, async t => {
    const graph = tied(weight)
    const before = graph.initializers.get('table')!
    for (const mode of precisions) {
      const after = roundWeights(graph, { mode }).initializers.get('table')!
      const isKept = (modes as readonly string[]).includes(mode)
      if (mode === 'fp32') t.equal(after, before, 'nothing is changed in fp32')
      if (!isKept) continue
      t.equal(after.weight!.exact, false, `${mode}: products round their rows`)
      t.equal(after.weight!.shared, before.weight!.shared, `${mode}: the same codes`)
      t.strictSame(after.data, before.data, `${mode}: the same elements`)
    }
  })
