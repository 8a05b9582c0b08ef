// Random graphs, the same ones each time: every way to run them against a computation node by node in double precision.
// `npm run nightly` runs thousands; a failing seed is made smaller by
// `node --import @tapjs/typescript/import test/fixtures/random-graph/main.ts <seed> 1`.
import t from 'tap'
import { backends } from '../fixtures/backends.js'
import { checks } from '../fixtures/random-graph/check-table.js'
import { type RandomGraph, randomGraph } from '../fixtures/random-graph/random-graph.js'

/** Graphs for each check. */
const counts = { js: 30, cpu: 60, onnxruntime: 30, gradient: 50, precision: 15 }

/** Checks share graphs: making one takes as long as some of the checks. */
const graphs = new Map<string, Promise<RandomGraph>>()
function graphOf(seed: number, differentiable: boolean): Promise<RandomGraph> {
  const key = `${seed} ${differentiable}`
  const graph = graphs.get(key) ?? randomGraph(seed, differentiable)
  graphs.set(key, graph)
  return graph
}

for (const [name, count] of Object.entries(counts)) {
  const engine = name === 'js' || name === 'onnxruntime' ? 'js' : 'cpu'
  const skip = backends.includes(engine) ? false : 'the addon does not load'
  t.test(name, { skip }, async t => {
    const operators = new Set<string>()
    for (let seed = 1; seed <= count; seed++) {
      const random = await graphOf(seed, name === 'gradient')
      t.same(await checks[name]!(random), undefined, `seed ${seed}`)
      for (const { op } of random.graph.nodes) operators.add(op)
    }
    t.ok(operators.size > 30, `${operators.size} operators`)
  })
}
