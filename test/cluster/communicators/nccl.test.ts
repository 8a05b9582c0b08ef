// Ranks over a fake NCCL, on the fake driver: the contract, a missing library, old versions, the secret over links.
import t from 'tap'
import { join } from '#lib/cluster/communicators/join.js'
import { ncclParameters } from '#lib/cluster/communicators/nccl.js'
import { scriptResult } from '../../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../../fixtures/fake-driver/fake-driver.js'
import { integrated } from '../../fixtures/machines.js'

const script = `
  import { requireAddon } from '#lib/native.js'
  import { NativeCommunicator } from '#lib/cluster/communicators/native.js'
  import { runRank } from './test/fixtures/cluster/rank-contract.js'
  const addon = requireAddon()
  const done = []
  const attempt = async call => { try { return await call() } catch (error) { return [error.code, error.message] } }
  const worldOf = async (world, timeoutMs, epochOf = () => 1) => {
    const secret = await addon.ncclSecret()
    return Promise.all(Array.from({ length: world }, (_, rank) => {
      const place = { epoch: epochOf(rank), rank, world }
      return NativeCommunicator.open('nccl', place, addon.communicatorNccl({ ...place, timeoutMs, device: 0, secret }))
    }))
  }
`

let driver: FakeDriver | undefined
const env = (more: Record<string, string> = {}): Record<string, string> => {
  driver ??= new FakeDriver(['cuda', 'nvml', 'nccl'])
  return { ...driver.env(integrated), ...more }
}
t.teardown(() => driver?.dispose())

t.test('contract', { skip: noCudaCalls }, async t => {
  const result = await scriptResult(
    `${script}
    for (const world of [2, 3]) {
      for (const scenario of ['works', 'lengths', 'order']) {
        const all = await worldOf(world, 20000)
        await Promise.all(all.map(one => runRank(scenario, one, true)))
        await Promise.all(all.map(one => one.leave()))
        done.push(scenario)
      }
    }
    console.log(JSON.stringify(done))`,
    env(),
  )
  t.same(result, ['works', 'lengths', 'order', 'works', 'lengths', 'order'])
})

t.test('ranks that abort, do not come, or are of another epoch', { skip: noCudaCalls }, async t => {
  const result = await scriptResult(
    `${script}
    const [a, b] = await worldOf(2, 20000)
    const waits = attempt(() => b.barrier())
    a.abort('the thermal limit was reached')
    done.push(await waits, await attempt(() => a.barrier()))
    const [c, d] = await worldOf(2, 100)
    done.push(await attempt(() => c.recv(1, new Uint8Array(1))))
    done.push(await attempt(() => worldOf(2, 20000, rank => 4 + rank)))
    console.log(JSON.stringify(done))`,
    env(),
  )
  t.match(result, [
    ['ERR_IO', /barrier: NCCL: remote process exited/],
    ['ERR_IO', 'the thermal limit was reached'],
    ['ERR_IO', /recv: other ranks did not come within 100 ms/],
    ['ERR_CONFLICT', /rank \d joins epoch \d, rank \d epoch \d/],
  ])
})

t.test('a call that NCCL refuses at once ends the communicator', { skip: noCudaCalls }, async t => {
  const result = await scriptResult(
    `${script}
    const [a, b] = await worldOf(2, 20000)
    const sums = [a, b].map(one => attempt(() => one.allReduce(new Float32Array(1))))
    done.push(...(await Promise.all(sums)), await attempt(() => a.barrier()))
    console.log(JSON.stringify(done))`,
    env({ FAKE_NCCL_NO_SUMS: '1' }),
  )
  const refused = ['ERR_IO', /allReduce: NCCL: invalid argument/]
  t.match(result, [refused, refused, refused])
})

t.test('the secret travels over links, to ranks of the same epoch', { skip: noCudaCalls }, async t => {
  const result = await scriptResult(
    `${script}
    import { join } from '#lib/cluster/communicators/join.js'
    // Both ends of a link, as far as questions go.
    const handlers = new Map()
    const missing = Object.assign(new Error('unknown'), { code: 'ERR_UNSUPPORTED' })
    const call = async (name, params) => {
      if (!handlers.has(name)) throw missing
      return handlers.get(name)(params)
    }
    const [here, there] = [{ handle: (name, answer) => handlers.set(name, answer) }, { call }]
    const place = { kind: 'nccl', epoch: 2, world: 2, interface: 'lo' }
    const first = join({ ...place, rank: 1, peers: [there] })
    const all = await Promise.all([join({ ...place, rank: 0, peers: [undefined, here] }), first])
    const values = all.map(() => Float32Array.of(1.5))
    await Promise.all(all.map((one, rank) => one.allReduce(values[rank])))
    done.push(...values.map(([sum]) => sum))
    await Promise.all(all.map(one => one.leave()))
    done.push(await attempt(() => join({ ...place, epoch: 1, rank: 1, peers: [there] })))
    const early = join({ ...place, epoch: 3, rank: 1, peers: [there] })
    const next = await Promise.all([early, join({ ...place, epoch: 3, rank: 0, peers: [undefined, here] })])
    await Promise.all(next.map(one => one.leave()))
    done.push(await attempt(() => join({ ...place, epoch: 4, timeoutMs: 100, rank: 1, peers: [there] })))
    console.log(JSON.stringify(done))`,
    env(),
  )
  t.match(result, [
    ...[3, 3, ['ERR_CONFLICT', /rank 0 is in epoch 2, not 1/]],
    ['ERR_IO', /rank 0 did not join epoch 4 within 100 ms/],
  ])
})

t.test('libraries that cannot be used', { skip: noCudaCalls }, async t => {
  const ask = `${script} console.log(JSON.stringify(await attempt(() => addon.ncclSecret())))`
  t.match(await scriptResult(ask, env({ FAKE_NCCL_VERSION: '21503' })), [
    'ERR_UNSUPPORTED',
    /NCCL 2.15 is installed; kind 'nccl' needs 2.18 or newer/,
  ])
  const bare = new FakeDriver()
  t.teardown(() => bare.dispose())
  t.match(await scriptResult(ask, bare.env(integrated)), [
    'ERR_UNSUPPORTED',
    /needs NCCL 2.18 or newer: apt-get install libnccl2/,
  ])
})

t.test('refused', async t => {
  const place = { kind: 'nccl', epoch: 1, rank: 1, world: 2, interface: 'lo' } as const
  await t.rejects(join({ ...place, peers: [] }), { code: 'ERR_ARGUMENT', message: /the link to rank 0/ })
  await t.rejects(join({ ...place, peers: 7 } as never), { code: 'ERR_ARGUMENT' })
  await t.rejects(join({ ...place, peers: [], device: -1 }), { code: 'ERR_ARGUMENT' })
  const parameters = { NCCL_SOCKET_IFNAME: '=lo', NCCL_IB_DISABLE: '1', NCCL_NET_GDR_LEVEL: 'LOC' }
  t.strictSame(ncclParameters('lo'), parameters, 'no GPUDirect, which GB10 lacks')
})
