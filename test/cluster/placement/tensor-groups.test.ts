// Groups of devices that share each layer: which may, what they gain, and hybrids of groups and stages.
import t from 'tap'
import { type FleetFile, readFleet } from '#lib/cluster/placement/fleet.js'
import { place, taskOf } from '#lib/cluster/placement/place.js'
import { allReduceSeconds } from '#lib/cluster/placement/problem.js'
import { canShare, groupings } from '#lib/cluster/placement/tensor-groups.js'
import { decoderCosts } from '../../fixtures/placement.js'

const device = { backend: 'cuda', memory: 24e9, bandwidth: 1e12, flops: { f16: 1e14 } }
const fabric = { latency: 1e-6, bandwidth: 5e10, fabric: true }

const sparks = (count: number, network: FleetFile['network']) =>
  readFleet({ nodes: [{ name: 'spark', count, devices: [device] }], ...(network && { network }) })

t.test('all-reduces: doubling for short messages, a ring for long ones', async t => {
  t.equal(allReduceSeconds({ latency: 1e-5, bandwidth: 1e9 }, 2, 0), 1e-5)
  t.equal(allReduceSeconds({ latency: 0, bandwidth: 1e9 }, 8, 1e9), 2 * 7 * 0.125)
  t.equal(allReduceSeconds({ latency: 1e-5, bandwidth: 1e12 }, 8, 1000), 3 * (1e-5 + 1e-9))
})

t.test('two devices on a fast link halve the time of a token', async t => {
  const costs = decoderCosts(16)
  const one = await place(costs, await sparks(1, fabric))
  const two = await place(costs, await sparks(2, fabric))
  t.strictSame(
    two.stages.map(({ devices }) => devices),
    [['spark-1', 'spark-2']],
  )
  const reduces = 16 * 2 * allReduceSeconds(fabric, 2, 16384)
  t.ok(Math.abs(two.latency - (one.latency / 2 + reduces)) < 1e-9)
  t.ok(two.stages[0]!.bytes < 0.51 * one.stages[0]!.bytes)
})

t.test('who may share layers', async t => {
  const costs = decoderCosts(4)
  const shares = async (file: FleetFile, model = costs) => {
    const fleet = await readFleet(file)
    return canShare(taskOf(model, fleet, {}).task, fleet.devices)
  }
  const nodes = [{ name: 'a', count: 2, devices: [device] }]
  t.ok(await shares({ nodes, network: fabric }))
  t.notOk(await shares({ nodes, network: { ...fabric, fabric: false } }), 'a link that is no trusted fabric')
  t.notOk(await shares({ nodes, network: { ...fabric, latency: 2e-3 } }), 'a link that is too long')
  t.notOk(await shares({ nodes }), 'no link')
  const mixed = [nodes[0]!, { name: 'b', devices: [{ ...device, backend: 'metal' }] }]
  t.notOk(await shares({ nodes: mixed, network: fabric }), 'two backends')
  const slower = (bandwidth: number): FleetFile['nodes'] => [
    { name: 'a', devices: [device] },
    { name: 'b', devices: [{ ...device, bandwidth }] },
  ]
  t.ok(await shares({ nodes: slower(9e11), network: fabric }), 'rates as they are measured')
  t.notOk(await shares({ nodes: slower(7e11), network: fabric }), 'two kinds')
  const odd = { ...costs, divisible: { heads: 64, kvHeads: 3, hiddenSize: 8192 } }
  t.notOk(await shares({ nodes, network: fabric }, odd), 'heads that two do not divide')
  t.ok(await shares({ nodes: [{ name: 'box', devices: [{ ...device, count: 8 }] }] }), 'cards of a machine')
})

t.test('ways to divide eight equal devices', async t => {
  const costs = decoderCosts(4)
  const fleet = await sparks(8, fabric)
  const ways = groupings(taskOf(costs, fleet, {}).task, fleet.devices, 10)
  t.ok(ways.every(way => way.flatMap(({ members }) => members).length === 8))
  const shapes = new Set(
    ways.map(way =>
      way
        .map(({ members }) => members.length)
        .sort()
        .join(''),
    ),
  )
  // Partitions of 8 into parts of 1, 2, 4 and 8.
  t.equal(shapes.size, 10)
  t.ok(ways[0]!.every(({ members }) => members.length === 1))
  const without = await place(costs, fleet, { tensorParallel: false })
  t.ok(without.stages.every(({ devices }) => devices.length === 1))
})

t.test('a hybrid: a group of two, and a stage on what has another backend', async t => {
  const costs = decoderCosts(60)
  const fleet = await readFleet({
    nodes: [
      { name: 'spark', count: 2, devices: [device] },
      { name: 'mac', devices: [{ ...device, backend: 'metal', memory: 32e9, bandwidth: 5e11 }] },
    ],
    links: [{ between: ['spark-1', 'spark-2'], ...fabric }],
    network: { latency: 3e-4, bandwidth: 1e9 },
  })
  const { stages } = await place(costs, fleet)
  t.strictSame(
    stages.map(({ devices }) => devices).sort((a, b) => b.length - a.length),
    [['spark-1', 'spark-2'], ['mac']],
  )
  for (const { bytes, freeBytes } of stages) t.ok(bytes <= freeBytes)
})
