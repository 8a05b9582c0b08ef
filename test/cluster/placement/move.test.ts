// Whether layers should be moved.
import t from 'tap'
import { readFleet } from '#lib/cluster/placement/fleet.js'
import { shouldMove } from '#lib/cluster/placement/move.js'
import { decoderCosts } from '../../fixtures/placement.js'

const device = { backend: 'cuda', memory: 24e9, bandwidth: 1e12, flops: { f16: 1e14 } }
const costs = decoderCosts(16)
const network = { latency: 1e-4, bandwidth: 1e9 }

const fleetOf = (...bandwidths: number[]) =>
  readFleet({
    nodes: bandwidths.map((bandwidth, i) => ({ name: `node-${i}`, devices: [{ ...device, bandwidth }] })),
    network,
  })

const allOn = (name: string) => costs.layers.map(() => [name])

t.test('layers stay where nothing is better', async t => {
  const fleet = await fleetOf(1e12, 1e12)
  for (const name of ['node-0', 'node-1']) {
    const decision = await shouldMove(costs, fleet, {
      current: allOn(name),
      remainingSteps: Number.POSITIVE_INFINITY,
    })
    t.equal(decision.move, false, decision.why)
    t.equal(decision.placement.movedBytes, 0)
    t.equal(decision.moveSeconds, 0)
  }
})

t.test('they move when the steps that are left pay for it', async t => {
  const fleet = await fleetOf(1e12, 2e12)
  const current = allOn('node-0')
  // 16 layers of 1.03 GB over 1 GB/s take 16.6 s, and each step saves 8 ms.
  const few = await shouldMove(costs, fleet, { current, remainingSteps: 2500 })
  t.equal(few.move, false, few.why)
  t.match(few.why, /^50\.\d % of a step would be saved, which is not worth moving for 16\.\d s$/)
  const many = await shouldMove(costs, fleet, { current, remainingSteps: 5000 })
  t.equal(many.move, true, many.why)
  t.ok(Math.abs(many.currentSeconds! / many.newSeconds - 2) < 0.01)
})

t.test('a small gain moves nothing', async t => {
  const fleet = await fleetOf(1e12, 1.04e12)
  const options = { current: allOn('node-0'), remainingSteps: Number.POSITIVE_INFINITY }
  t.equal((await shouldMove(costs, fleet, options)).move, false)
  t.equal((await shouldMove(costs, fleet, { ...options, minGain: 0.01 })).move, true)
})

t.test('what cannot stay moves', async t => {
  const fleet = await fleetOf(1e12, 1e12)
  const gone = await shouldMove(costs, fleet, { current: allOn('node-9'), remainingSteps: 0 })
  t.match(gone, { move: true, why: 'node-9 has left the fleet', currentSeconds: undefined })
  const small = await readFleet({
    nodes: [
      { name: 'node-0', devices: [{ ...device, memory: 8e9 }] },
      { name: 'node-1', devices: [device] },
    ],
    network,
  })
  t.match(await shouldMove(costs, small, { current: allOn('node-0'), remainingSteps: 0 }), {
    move: true,
    why: 'node-0 cannot hold its layers any more',
  })
  const metal = { ...device, backend: 'metal' }
  const mixed = await readFleet({
    nodes: [
      { name: 'mac', devices: [metal] },
      { name: 'pc', devices: [device] },
    ],
  })
  const onMac = { current: allOn('mac'), remainingSteps: 0, backends: ['cuda'] }
  t.match(await shouldMove(costs, mixed, onMac), {
    move: true,
    why: 'mac runs metal, which may not be used any more',
  })
  const onBoth = { current: costs.layers.map(() => ['mac', 'pc']), remainingSteps: 0 }
  t.match(await shouldMove(costs, mixed, onBoth), {
    move: true,
    why: 'the devices of mac+pc cannot reach each other any more',
  })
  await t.rejects(shouldMove(costs, fleet, { current: [], remainingSteps: 1 }), {
    code: 'ERR_ARGUMENT',
    message: 'current has 0 layers, the model 16',
  })
})
