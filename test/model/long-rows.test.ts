// ArgMax and ArgMin over rows that fill much of the memory: LONG_ROW sets the number of elements.
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { scriptResult } from '../fixtures/child.js'

const elements = Number(process.env.LONG_ROW ?? 1e8)

/** What a run of `op` on a row finds, and by how many bytes it grows the process. */
const script = (op: string, dtype: string, count: number, backend: string): string => `
  import { readFileSync } from 'node:fs'
  import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
  import { openKernels } from '#lib/kernels/open.js'
  import { Plan } from '#lib/plan/plan.js'
  const status = name =>
    1024 * Number(readFileSync('/proc/self/status', 'utf8').split(name + ':')[1].split('kB')[0])
  const x = new ${dtype === 'u8' ? 'Uint8Array' : 'Float32Array'}(${count}).fill(7)
  x[${count} - 5] = ${op === 'ArgMax' ? 9 : 3}
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('${dtype}', [${count}]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('${op}', ['x'], ['y'])],
  })
  const kernels = await openKernels({ backend: '${backend}' })
  const plan = await Plan.create(graph, kernels, { buffers: new Map([['x', x]]) })
  const before = status('VmRSS')
  const { y } = await plan.run({ x })
  const { arenaBytes } = plan.stats
  console.log(JSON.stringify({ found: Number(y[0]), grown: status('VmHWM') - before, arenaBytes }))`

interface Outcome {
  readonly found: number
  readonly grown: number
  readonly arenaBytes: number
}

const skip = loadAddon().addon ? false : 'the addon does not load'
for (const op of ['ArgMax', 'ArgMin']) {
  t.test(`${op} of ${elements} bytes takes no memory of that size`, { skip }, async t => {
    const outcome = (await scriptResult(script(op, 'u8', elements, 'cpu'))) as Outcome
    t.comment(outcome)
    t.match(outcome, { found: elements - 5, arenaBytes: 0 })
    t.ok(outcome.grown < 0.2e9, `${outcome.grown} bytes beyond the input`)
  })
}

t.test('in TypeScript, with a heap that holds no list of the elements', async t => {
  const count = 1e7
  const outcome = await scriptResult(script('ArgMax', 'f32', count, 'js'), {}, ['--max-old-space-size=40'])
  t.match(outcome, { found: count - 5 })
})
