// Placements beside HiGHS: the exact ones beside a program of each layer, those of many devices beside the exact ones.
import loadHighs from 'highs'
import t from 'tap'
import { type Chain, type Objective, objectiveOf } from '#lib/cluster/placement/chain.js'
import { solveExactly } from '#lib/cluster/placement/dynamic-programming.js'
import { type Fleet, readFleet } from '#lib/cluster/placement/fleet.js'
import { solveMany } from '#lib/cluster/placement/milp.js'
import { place, taskOf } from '#lib/cluster/placement/place.js'
import { chainOf } from '#lib/cluster/placement/problem.js'
import { single } from '#lib/cluster/placement/tensor-groups.js'
import { decoderCosts, randomChain, randomNumbers } from '../../fixtures/placement.js'

/** Whether the long cases run, too: in the nightly run. */
const isLong = process.env.PLACEMENT_CASES === 'all'

interface Highs {
  solve(problem: string): { readonly Status: string; readonly ObjectiveValue: number }
}

/** A binary for each layer and device, z, and one for each begin of a block, b; h: what is sent in front of a layer. */
function layerProgram({ devices, layers, seconds, fixed, first, hops }: Chain, objective: Objective): string {
  const all = Array.from({ length: devices }, (_, d) => d)
  const steps = Array.from({ length: layers }, (_, l) => l)
  const sum = (terms: readonly string[]): string => terms.join(' + ')
  const rows: string[] = steps.map(l => `${sum(all.map(d => `z${d}_${l}`))} = 1`)
  for (const d of all) {
    rows.push(`${sum(steps.map(l => `b${d}_${l}`))} <= 1`)
    for (const l of steps) {
      rows.push(`b${d}_${l} - z${d}_${l} ${l === 0 ? '' : `+ z${d}_${l - 1} `}>= 0`)
      const begin = first[d * (layers + 1) + l + 1]!
      if (begin > l) rows.push(`z${d}_${l} = 0`)
      else if (begin > 0) rows.push(`z${d}_${begin - 1} + z${d}_${l} <= 1`)
    }
  }
  for (const d of all)
    for (const e of all)
      for (const p of d === e ? [] : steps.slice(1)) {
        const hop = hops[(d * devices + e) * layers + p]!
        if (hop === Number.POSITIVE_INFINITY) rows.push(`z${d}_${p - 1} + z${e}_${p} <= 1`)
        else rows.push(`h${p} - ${hop} z${d}_${p - 1} - ${hop} z${e}_${p} >= -${hop}`)
      }
  const own = (d: number): string[] => [
    ...steps.map(l => `${seconds[d * layers + l]} z${d}_${l}`),
    ...steps.map(l => `${fixed[d]} b${d}_${l}`),
  ]
  const sent = steps.slice(1).map(p => `h${p}`)
  if (objective === 'throughput') {
    for (const d of all) rows.push(`t - ${own(d).join(' - ')} >= 0`)
    for (const h of sent) rows.push(`t - ${h} >= 0`)
  }
  const cost = objective === 'latency' ? sum([...all.flatMap(own), ...sent]) : 't'
  const binaries = all.flatMap(d => steps.map(l => `z${d}_${l} b${d}_${l}`))
  return `Minimize\ncost: ${cost}\nSubject To\n${rows.join('\n')}\nBinary\n${binaries.join('\n')}\nEnd\n`
}

t.test('the exact solver beside a program of each layer', async t => {
  const highs = (await (loadHighs as unknown as () => Promise<Highs>)()) as Highs
  const short = [
    [3, 3, 12, 'latency'],
    [5, 5, 6, 'latency'],
    [11, 3, 8, 'throughput'],
    [12, 4, 6, 'throughput'],
  ] as const
  const long = [
    [3, 3, 24, 'latency'],
    [4, 4, 12, 'latency'],
    [5, 5, 8, 'latency'],
    [11, 3, 10, 'throughput'],
    [6, 5, 24, 'latency'],
  ] as const
  for (const [seed, devices, layers, objective] of isLong ? [...short, ...long] : short) {
    const chain = randomChain(seed, devices, layers, true)
    const blocks = solveExactly(chain, objective)
    const { Status, ObjectiveValue } = highs.solve(layerProgram(chain, objective))
    t.equal(Status === 'Infeasible', blocks === undefined, `${devices} x ${layers}: ${Status}`)
    if (!blocks) continue
    const value = objectiveOf(chain, blocks, objective)
    t.ok(
      Math.abs(value / ObjectiveValue - 1) < 1e-4,
      `${objective}, ${devices} x ${layers}: ${value}, ${ObjectiveValue}`,
    )
  }
})

/** Nodes with a device each, whose numbers and links follow from a seed. */
function randomFleet(seed: number, count: number): Promise<Fleet> {
  const random = randomNumbers(seed)
  const nodes = Array.from({ length: count }, (_, i) => ({
    name: `node-${i}`,
    devices: [
      {
        ...{ backend: 'cuda', memory: 4e9 + 12e9 * random(), bandwidth: 1e11 + 9e11 * random() },
        flops: { f16: 1e14 },
      },
    ],
  }))
  const links = nodes.flatMap(({ name }, i) =>
    nodes.slice(0, i).map(other => ({
      between: [name, other.name] as [string, string],
      ...{ latency: 5e-5 + 2e-3 * random(), bandwidth: 1e9 },
    })),
  )
  return readFleet({ nodes, links })
}

t.test('eleven devices: within 5 % of the best', async t => {
  const costs = decoderCosts(isLong ? 40 : 16)
  for (const [seed, objective] of [
    [1, 'latency'],
    [2, 'throughput'],
  ] as const) {
    const fleet = await randomFleet(seed, 11)
    const { task } = taskOf(costs, fleet, {})
    const candidates = fleet.devices.map(single)
    const chain = chainOf(task, candidates)
    const best = objectiveOf(chain, solveExactly(chain, objective)!, objective)
    const found = (await solveMany(task, candidates, objective))!
    const value = objectiveOf(found.chain, found.blocks, objective)
    t.ok(value >= best * (1 - 1e-9) && value <= 1.05 * best, `${objective}: ${value}, ${best}`)
    t.notOk(found.exact)
  }
})

t.test('twelve devices, and layers that are pinned to a slow one', async t => {
  const devices = [{ backend: 'cuda', memory: 16e9, bandwidth: 1e12, flops: { f16: 1e14 } }]
  const slow = [{ ...devices[0]!, memory: 8e9, bandwidth: 1e11 }]
  const nodes = [
    { name: 'fast', count: 11, devices },
    { name: 'slow', devices: slow },
  ]
  const fleet = await readFleet({ nodes, network: { latency: 1e-4, bandwidth: 1e9 } })
  for (const objective of ['latency', 'throughput'] as const)
    for (const [pin, from] of [
      ['0-3=slow', 0],
      ['7-8=slow', 7],
    ] as const) {
      const { stages, exact } = await place(decoderCosts(16), fleet, { objective, pins: [pin] })
      const stage = stages.find(({ devices }) => devices[0] === 'slow')
      t.equal(stage?.from, from, `${objective}, ${pin}`)
      t.notOk(exact)
    }
})

t.test('a thousand devices', async t => {
  const costs = decoderCosts(80)
  const presets = ['GB10', 'RTX 4090', 'RTX 3090', 'M3 Ultra', 'Jetson AGX Orin', 'CPU']
  const nodes = presets.map((preset, i) => ({
    name: `kind-${i}`,
    count: i < 4 ? 167 : 166,
    devices: [{ preset }],
  }))
  const fleet = await readFleet({ nodes, network: { latency: 2e-4, bandwidth: 1e9 } })
  t.equal(fleet.devices.length, 1000)
  for (const objective of ['latency', 'throughput'] as const) {
    const { stages, latency, bottleneck, exact, unused } = await place(costs, fleet, { objective })
    t.notOk(exact)
    t.equal(stages[0]!.from, 0)
    t.equal(stages.at(-1)!.end, 80)
    for (const { bytes, freeBytes } of stages) t.ok(bytes <= freeBytes)
    t.equal(unused.length + stages.length, 1000)
    // The fastest devices are the cards of 24 GB; 80 layers of 1 GB need four of them.
    if (objective === 'latency')
      t.ok(stages.length === 4 && latency < (80 * 1.05e9) / (0.85 * 1008e9) + 2e-3, `${latency}`)
    else t.ok(stages.length > 60 && bottleneck < 3e-3, `${bottleneck}`)
  }
})
