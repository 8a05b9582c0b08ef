// Groups of devices that share each layer: which may, what they gain, and hybrids of groups and stages.
import t from 'tap'
import { type FleetFile, readFleet } from '#lib/cluster/placement/fleet.js'
import { place, taskOf } from '#lib/cluster/placement/place.js'
import { allReduceSeconds, blockBytes } from '#lib/cluster/placement/problem.js'
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
  const prompt = 16 * 2 * allReduceSeconds(fabric, 2, 16384 * two.load.context)
  t.ok(Math.abs(two.promptSeconds! - (one.promptSeconds! / 2 + prompt)) < 1e-9)
  t.ok(two.stages[0]!.bytes < 0.51 * one.stages[0]!.bytes)
})

t.test('weights that each device of a group has whole', async t => {
  const costs = decoderCosts(1, { weightBytes: 3e9, replicatedBytes: 1e9, stateBytes: 0 })
  const load = { context: 1, batch: 1, sequences: 1 }
  t.strictSame(
    [1, 2, 4].map(size => blockBytes({ costs, load }, size, 0, 1)),
    [3e9, 2e9, 1.5e9],
  )
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

t.test('groups that layers are pinned to', async t => {
  const costs = decoderCosts(4)
  const fleet = await readFleet({
    nodes: [
      { name: 'a', count: 3, devices: [device] },
      { name: 'mac', devices: [{ ...device, backend: 'metal', bandwidth: 5e11 }] },
      { name: 'far', devices: [device] },
    ],
    links: [
      { between: ['a-1', 'a-2'], ...fabric },
      { between: ['a-1', 'a-3'], ...fabric },
      { between: ['a-2', 'a-3'], ...fabric },
      { between: ['a-1', 'mac'], ...fabric },
      { between: ['a-1', 'far'], ...fabric, fabric: false },
    ],
  })
  const { stages } = await place(costs, fleet, { pins: ['0-3=a-1+mac'] })
  t.strictSame(stages[0]?.devices, ['a-1', 'mac'], 'two kinds')
  const refused = (pins: string[], code: string, message: RegExp, backends?: string[]) =>
    t.rejects(place(costs, fleet, { pins, ...(backends && { backends }) }), { code, message }, `${pins}`)
  await refused(['0=a-1+a-1'], 'ERR_ARGUMENT', /^pins: a-1 is twice in 'a-1\+a-1'/)
  await refused(['0=a-1+a-2', '1=a-2+a-3'], 'ERR_ARGUMENT', /a-2 is in 'a-1\+a-2' and in 'a-2\+a-3'/)
  await refused(['0=a-1+a-2+a-3'], 'ERR_UNSUPPORTED', /heads of 64 is not divisible by 3$/)
  await refused(['0=a-2+mac'], 'ERR_UNSUPPORTED', /'a-2\+mac' .* no link joins a-2 and mac$/)
  await refused(['0=a-1+far'], 'ERR_UNSUPPORTED', /the link of a-1 and far is no trusted fabric$/)
  await refused(['0=a-1+mac'], 'ERR_UNSUPPORTED', /mac has none of the backends/, ['cuda'])
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
