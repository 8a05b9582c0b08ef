// The exact solver beside a search of all placements.
import t, { type Test } from 'tap'
import { type Block, bottleneckOf, type Chain, latencyOf } from '#lib/cluster/placement/chain.js'
import { solveExactly } from '#lib/cluster/placement/dynamic-programming.js'
import { randomChain, searchAll } from '../../fixtures/placement.js'

function expectValid(t: Test, { layers, first }: Chain, blocks: readonly Block[]): void {
  t.equal(blocks[0]!.from, 0)
  t.equal(blocks.at(-1)!.end, layers)
  t.equal(new Set(blocks.map(({ device }) => device)).size, blocks.length, 'a device has one block')
  for (const [i, { device, from, end }] of blocks.entries()) {
    if (i > 0) t.equal(from, blocks[i - 1]!.end)
    t.ok(first[device * (layers + 1) + end]! <= from, 'fits')
  }
}

for (const objective of ['latency', 'throughput'] as const) {
  t.test(`${objective} of all placements of small chains`, async t => {
    let infeasible = 0
    for (let seed = 1; seed <= 120; seed++) {
      const chain = randomChain(seed, 1 + (seed % 4), 1 + (seed % 8), seed % 3 === 0)
      const blocks = solveExactly(chain, objective)
      const best = searchAll(chain, objective)
      if (!blocks) {
        infeasible++
        t.equal(best, Number.POSITIVE_INFINITY, `seed ${seed}`)
        continue
      }
      expectValid(t, chain, blocks)
      const value = objective === 'latency' ? latencyOf(chain, blocks) : bottleneckOf(chain, blocks)
      t.ok(Math.abs(value - best) <= 1e-8 * best, `seed ${seed}: ${value} and ${best}`)
    }
    t.ok(infeasible > 5 && infeasible < 60, `${infeasible} do not fit`)
  })

  t.test(`${objective} with devices that must be used`, async t => {
    for (let seed = 1; seed <= 60; seed++) {
      const chain = randomChain(seed, 3, 6)
      const required = 1 << (seed % 3)
      const blocks = solveExactly(chain, objective, required)
      const best = searchAll(chain, objective, required)
      if (!blocks) t.equal(best, Number.POSITIVE_INFINITY)
      else {
        t.ok(blocks.some(({ device }) => 1 << device === required))
        const value = objective === 'latency' ? latencyOf(chain, blocks) : bottleneckOf(chain, blocks)
        t.ok(Math.abs(value - best) <= 1e-8 * best, `seed ${seed}: ${value} and ${best}`)
      }
    }
  })
}

t.test('between equals the one with the fewest bytes moved', async t => {
  const [devices, layers] = [2, 4]
  const equal: Chain = {
    ...{ devices, layers },
    seconds: new Float64Array(devices * layers).fill(1),
    fixed: new Float64Array(devices),
    first: Int32Array.from([0, 0, 0, 1, 2, 0, 0, 0, 1, 2]),
    hops: new Float64Array(devices * devices * layers).fill(0.5),
    moved: Float64Array.from([9, 9, 0, 0, 0, 0, 9, 9]),
  }
  for (const objective of ['latency', 'throughput'] as const)
    t.strictSame(solveExactly(equal, objective), [
      { device: 1, from: 0, end: 2 },
      { device: 0, from: 2, end: 4 },
    ])
})
