// Every operator with too few, too many and left out operands and results: it computes, or a SparkError says why not.
// Nightly checks try all operands with all results (OPERAND_COUNTS=all).
import { Model, SparkError } from 'dgx-spark'
import t from 'tap'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { contribUpgrades } from '#lib/graph/rewrites/canonicalise/contrib.js'
import { hostOperators } from '#lib/model/host/index.js'
import { loweredOperators } from '#lib/plan/lower/index.js'
import { backends } from '../fixtures/backends.js'

const operators: readonly (readonly [domain: string, op: string])[] = [
  ...[...loweredOperators()].flatMap(([domain, names]) => names.map(op => [domain, op] as const)),
  ...hostOperators.map(op => ['', op] as const),
  ...Object.keys(contribUpgrades).map(op => ['com.microsoft', op] as const),
]

const shape = [1, 2, 2, 2]
const feeds = { f32: new Float32Array(8).fill(1), i64: new BigInt64Array(8), bool: new Uint8Array(8) }
const operands = [
  [],
  ['x'],
  ['', 'x'],
  ['x', '', 'x'],
  ['x', 'x', 'x'],
  ['x', ...Array<string>(4).fill('list')],
  Array<string>(12).fill('x'),
]
const results = [['y'], ['', 'y'], ['y', 'second'], ['y', 'second', 'third'], ['y', ...'abcde']]
const usualOperands = ['x', 'x', 'x']
const pairs =
  process.env.OPERAND_COUNTS === 'all'
    ? operands.flatMap(inputs => results.map(outputs => [inputs, outputs] as const))
    : [
        ...operands.map(inputs => [inputs, ['y']] as const),
        ...results.slice(1).map(outputs => [usualOperands, outputs] as const),
      ]

for (const backend of backends) {
  t.test(backend, async t => {
    const wrong: string[] = []
    for (const [domain, op] of operators) {
      for (const dtype of ['f32', 'i64', 'bool'] as const) {
        const [type, list] = [tensorType(dtype, shape), tensorType(dtype, [2])]
        for (const [inputs, outputs] of pairs) {
          const others = outputs.filter(name => name !== '' && name !== 'y')
          const graph = makeGraph({
            inputs: [
              { name: 'x', type },
              { name: 'list', type: list },
            ],
            outputs: [{ name: 'y', type }, ...others.map(name => ({ name }))],
            nodes: [makeNode(op, inputs, outputs, { domain })],
            opsets: new Map([
              ['', 23],
              ['com.microsoft', 1],
            ]),
          })
          try {
            using model = await Model.fromGraph(graph, { backend })
            await model.run({ x: feeds[dtype], list: feeds[dtype].slice(0, 2) })
          } catch (error) {
            if (error instanceof SparkError) continue
            const where = (error as Error).stack?.split('\n').slice(0, 4).join('\n')
            wrong.push(`${op} of ${dtype} [${inputs}] -> [${outputs}]: ${where}`)
          }
        }
      }
    }
    t.same(wrong, [])
  })
}
