// Placements of models on fleets: properties that always hold, goldens, and what cannot be.
import t from 'tap'
import { InfeasibleError } from '#lib/cluster/placement/constraints.js'
import { type Fleet, type FleetFile, readFleet } from '#lib/cluster/placement/fleet.js'
import { type Placement, type PlaceOptions, place } from '#lib/cluster/placement/place.js'
import { decoderCosts, randomNumbers } from '../../fixtures/placement.js'

const device = { backend: 'cuda', memory: 24e9, bandwidth: 1e12, flops: { f16: 1e14 } }
const network = { latency: 5e-4, bandwidth: 1e9 }

/** A fleet of nodes with a device each. */
const fleetOf = (devices: readonly object[], parts: Partial<FleetFile> = {}): Promise<Fleet> => {
  const nodes = devices.map((given, i) => ({ name: `node-${i}`, devices: [{ ...device, ...given }] }))
  return readFleet({ nodes, network, ...parts })
}

const objectiveOf = ({ objective, latency, bottleneck }: Placement): number =>
  objective === 'latency' ? latency : bottleneck

/** The placement, or the constraint that fails. */
async function tryPlace(...given: Parameters<typeof place>): Promise<Placement | InfeasibleError> {
  return place(...given).catch(error => {
    if (error instanceof InfeasibleError) return error
    throw error
  })
}

t.test('properties of random fleets', async t => {
  for (let seed = 1; seed <= 60; seed++) {
    const random = randomNumbers(seed)
    const objective = seed % 2 === 0 ? 'latency' : 'throughput'
    const count = 2 + Math.floor(3 * random())
    const costs = decoderCosts(4 + Math.floor(12 * random()))
    const devices = Array.from({ length: count }, () => ({
      memory: 2e9 + 10e9 * random(),
      bandwidth: 1e11 + 1e12 * random(),
      overhead: 1e-4 * random(),
    }))
    const options: PlaceOptions = { objective, context: 1024 }
    const placed = await tryPlace(costs, await fleetOf(devices), options)
    const richer = await tryPlace(
      costs,
      await fleetOf(devices.map((each, i) => (i === 0 ? { ...each, memory: 2 * each.memory } : each))),
      options,
    )
    const fewer = await tryPlace(costs, await fleetOf(devices.slice(1)), options)
    if (placed instanceof InfeasibleError) {
      t.ok(fewer instanceof InfeasibleError, `seed ${seed}: a device less does not help`)
      continue
    }
    for (const { bytes, freeBytes } of placed.stages) t.ok(bytes <= freeBytes, `seed ${seed}: fits`)
    if (richer instanceof InfeasibleError) t.fail(`seed ${seed}: more memory does not hurt`)
    else
      t.ok(objectiveOf(richer) <= objectiveOf(placed) * (1 + 1e-8), `seed ${seed}: more memory does not hurt`)
    if (!(fewer instanceof InfeasibleError))
      t.ok(
        objectiveOf(fewer) >= objectiveOf(placed) * (1 - 1e-8),
        `seed ${seed}: a device less does not help`,
      )
  }
})

t.test('pins are kept', async t => {
  const costs = decoderCosts(12)
  const fleet = await fleetOf([{}, { bandwidth: 1e11 }, {}])
  const { stages } = await place(costs, fleet, { pins: ['3-5=node-1', '11=node-2'] })
  const holder = (l: number) => stages.find(({ from, end }) => l >= from && l < end)!.devices
  for (const l of [3, 4, 5]) t.strictSame(holder(l), ['node-1'])
  t.strictSame(holder(11), ['node-2'])
  for (const [pin, message] of [
    ['3-5=node-7', /pin '3-5=node-7': the fleet has no node or device 'node-7' \(did you mean/],
    ['3-99=node-1', /there is no layer '99': layers are 0, 1, 2, …, 10, 11/],
    ['5-3=node-1', /expected the first and the last layer/],
    ['node-1', /expected <layers>=<node>/],
  ] as const)
    await t.rejects(place(costs, fleet, { pins: [pin] }), { code: 'ERR_ARGUMENT', message })
  await t.rejects(place(costs, fleet, { pins: ['0-3=node-1', '2=node-0'] }), {
    message: /pinned to 'node-1', too/,
  })
  await t.rejects(place(costs, fleet, { pins: ['0=node-0', '1=node-1', '2=node-0'] }), {
    message: /what is pinned leaves no placement: layer 0 on node-0; layer 1 on node-1; layer 2 on node-0/,
  })
})

t.test('exo issue 2227: rounding to shares of memory gave a card of 24 GB a layer too many', async t => {
  const costs = decoderCosts(94, { weightBytes: 2.45e9, stateBytes: 4096 })
  const nodes = [
    { name: 'spark', count: 2, devices: [{ preset: 'GB10' }] },
    { name: 'mac', devices: [{ preset: 'M3 Ultra', memory: 96e9, reserve: 12e9 }] },
    { name: 'pc', devices: [{ preset: 'RTX 3090', reserve: 0 }] },
  ]
  const fleet = await readFleet({ nodes, network })
  const total = 94
  const memory = fleet.devices.map(each => each.memory)
  const share = Math.round((total * memory[3]!) / memory.reduce((a, b) => a + b, 0))
  t.ok(2.45e9 * Math.max(share, 10) > 24e9, 'ten layers, one more than fit')
  for (const objective of ['latency', 'throughput'] as const) {
    const { stages } = await place(costs, fleet, { objective, context: 4096 })
    t.equal(stages.at(-1)!.end, total)
    for (const { devices, bytes, freeBytes } of stages) t.ok(bytes <= freeBytes, devices.join())
    const pc = stages.find(({ devices }) => devices.includes('pc'))
    if (pc) t.ok(pc.end - pc.from <= 9, 'at most what fits')
  }
})

t.test("prima.cpp's 1:1:29:1 becomes 32:0:0:0 where a device has enough for all", async t => {
  const costs = decoderCosts(32, { weightBytes: 1.5e8 })
  const fleet = await fleetOf([
    {},
    { bandwidth: 5e10, backend: 'cpu' },
    { bandwidth: 2e11 },
    { bandwidth: 5e10 },
  ])
  const { stages, unused } = await place(costs, fleet)
  t.strictSame(
    stages.map(({ devices, from, end }) => [devices, from, end]),
    [[['node-0'], 0, 32]],
  )
  t.strictSame(
    unused.map(each => each.device),
    ['node-1', 'node-2', 'node-3'],
  )
})

t.test('one stream of a model that fits on the fastest device stays there', async t => {
  const costs = decoderCosts(16)
  const fast = await place(costs, await fleetOf([{}]))
  const both = await place(costs, await fleetOf([{}, {}]), { tensorParallel: false })
  t.equal(both.stages.length, 1)
  t.equal(both.latency, fast.latency)
  const busy = await place(costs, await fleetOf([{}, {}]), { tensorParallel: false, objective: 'throughput' })
  t.equal(busy.stages.length, 2)
  t.ok(busy.bottleneck < 0.51 * fast.bottleneck)
})

t.test('a layer whose output takes long on the link does not end a stage', async t => {
  const stages = async (cutBytes: number, bandwidth: number): Promise<number> => {
    const fleet = await fleetOf([{}, {}], { network: { ...network, bandwidth } })
    const options: PlaceOptions = { tensorParallel: false, objective: 'throughput' }
    return (await place(decoderCosts(16, { cutBytes }), fleet, options)).stages.length
  }
  // A device alone needs about 17 ms.
  t.equal(await stages(1e6, 1e9), 2, '1 ms')
  t.equal(await stages(1e8, 1e9), 1, '100 ms, as there are many bytes')
  t.equal(await stages(1e6, 1e7), 1, '100 ms, as the link is slow')
  t.equal(await stages(1e8, 1e11), 2, '1 ms again')
})

t.test('what cannot be is named', async t => {
  const costs = decoderCosts(80)
  const violation = async (devices: readonly object[], options?: PlaceOptions, model = costs, parts = {}) => {
    const placed = await tryPlace(model, await fleetOf(devices, parts), options)
    return placed instanceof InfeasibleError ? [placed.violation.kind, placed.message] : placed
  }
  t.match(await violation([{}]), [
    'memory',
    /^decoder needs 81\.3 GB with a context of 4096 tokens and 1 sequence, node-0 has 24\.0 GB free$/,
  ])
  t.match(await violation([{ memory: 5e8 }, { memory: 4e8 }]), [
    'memory',
    /^layer 0 needs 1\.0 GB, node-0 has 0\.5 GB free, and no other/,
  ])
  t.match(await violation([{ memory: 41e9 }, { memory: 41e9 }], {}, costs, { network: undefined }), [
    'link',
    /^no link joins node-0 and node-1/,
  ])
  t.match(await violation([{ memory: 41.9e9 }, { memory: 39.6e9 }]), [
    'memory',
    'stage of layers 41-79 needs 39.7 GB, node-1 has 39.6 GB free',
  ])
  t.match(await violation([{ memory: 1e11 }, {}], { pins: ['0-40=node-1'] }), [
    'memory',
    /^stage of layers 0-40 needs 41\.7 GB, node-1 has 24\.0 GB free$/,
  ])
  const needy = {
    ...costs,
    layers: costs.layers.map((layer, l) =>
      l === 31 ? { ...layer, operators: [{ op: 'MatMul', dtype: 'f8_e4m3' }] } : layer,
    ),
  }
  const operators = [{ op: '*', dtypes: ['f16', 'f32'] }]
  t.match(await violation([{ memory: 1e11, operators }], {}, needy), [
    'operator',
    'layer 31 needs f8_e4m3 MatMul, node-0 has none',
  ])
  t.match(await violation([{ memory: 1e11, operators }, {}], {}, needy), [
    'operator',
    'layer 31 needs f8_e4m3 MatMul, node-0 has none, and what can run it has too little memory',
  ])
  t.match(await violation([{ memory: 1e11, backend: 'metal' }], { backends: ['cuda'] }), [
    'backend',
    'node-0 runs metal, and only cuda may be used',
  ])
})

t.test('fleets that are wrong are named by their path', async t => {
  const one = { name: 'a', devices: [device] }
  for (const [json, message] of [
    [{}, /^fleet lacks 'nodes'/],
    [{ nodes: [] }, /^fleet\.nodes must be/],
    [
      { nodes: [{ name: 'a', devices: [{ preset: 'RTX 9090' }] }] },
      /fleet\.nodes\.0\.devices\.0\.preset: 'RTX 9090' is not known \(did you mean/,
    ],
    [{ nodes: [{ name: 'a', devices: [{ memory: 1 }] }] }, /fleet\.nodes\.0\.devices\.0 lacks 'backend'/],
    [
      { nodes: [{ name: 'a', devices: [{ ...device, memory: -1 }] }] },
      /fleet\.nodes\.0\.devices\.0\.memory must be > 0, got -1/,
    ],
    [{ nodes: [{ name: 'a', devices: [{ ...device, ram: 1 }] }] }, /has a field 'ram', which is not known/],
    [{ nodes: [one, one] }, /fleet\.nodes\.1\.name: 'a' is there twice/],
    [
      { nodes: [one], links: [{ between: ['a', 'b'], latency: 0, bandwidth: 1 }] },
      /fleet\.links\.0\.between: there is no node 'b'/,
    ],
    [
      { nodes: [{ name: 'a', count: 10_000, devices: [{ ...device, count: 10_000 }] }] },
      /100000000 devices: 10000 are the limit/,
    ],
    [
      { nodes: [{ name: 'a', devices: [{ ...device, operators: 'some' }] }] },
      /operators must be 'all', or a list/,
    ],
  ] as const)
    await t.rejects(readFleet(json), { code: 'ERR_FORMAT', message })
})

t.test('the first token of a prompt takes no less than a step takes to read the weights', async t => {
  const costs = decoderCosts(4, { flops: { f16: 2e9 } })
  const fleet = await fleetOf([{ overhead: 1e-3 }])
  const short = await place(costs, fleet, { context: 1 })
  t.ok(Math.abs(short.promptSeconds! - (1e-3 + (4 * 1e9) / 1e12)) < 1e-9)
  const long = await place(costs, fleet, { context: 1000 })
  t.ok(Math.abs(long.promptSeconds! - (1e-3 + (4 * 1000 * 2e9) / 1e14)) < 1e-9)
})
