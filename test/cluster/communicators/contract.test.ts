// Communicators of every kind: the same contract.
import t from 'tap'
import type { Communicator } from '#lib/cluster/communicators/communicator.js'
import { join } from '#lib/cluster/communicators/join.js'
import { type Mesh, makeMesh } from '../../fixtures/cluster/mesh.js'
import { localJob, noMpi } from '../../fixtures/cluster/mpi.js'
import { runRank } from '../../fixtures/cluster/rank-contract.js'

let epoch = 0
const ranksOf = (world: number): number[] => Array.from({ length: world }, (_, rank) => rank)

/** All ranks of a world in this process. */
type Make = (world: number, timeoutMs: number) => Promise<Communicator[]>

const makeLocal: Make = (world, timeoutMs) => {
  epoch++
  const name = 'contract'
  return Promise.all(ranksOf(world).map(rank => join({ kind: 'local', name, epoch, rank, world, timeoutMs })))
}

let mesh: Mesh | undefined
const makeStream: Make = (world, timeoutMs) => {
  epoch++
  return Promise.all(
    ranksOf(world).map(rank =>
      join({ kind: 'stream', peers: mesh!.peersOf(rank, world), epoch, rank, world, timeoutMs }),
    ),
  )
}

for (const [kind, make] of [
  ['local', makeLocal],
  ['stream', makeStream],
] as const) {
  t.test(kind, async t => {
    if (kind === 'stream') mesh = await makeMesh(t, 3)
    for (const [scenario, timeoutMs] of [
      ['works', 20_000],
      ['lengths', 20_000],
      ['order', 20_000],
      ['abort', 20_000],
      ['late', 200],
    ] as const) {
      for (const world of [2, 3]) {
        const all = await make(world, timeoutMs)
        await Promise.all(all.map(one => runRank(scenario, one, true)))
        await Promise.all(all.map(one => one.leave()))
        t.pass(`${scenario}, ${world} ranks`)
      }
    }
  })
}

t.test('mpi', { skip: noMpi }, async t => {
  for (const [scenario, world] of [
    ['works', 2],
    ['works', 3],
    ['lengths', 2],
    ['order', 3],
    ['abort', 3],
    ['late', 3],
  ] as const) {
    const { job, lines } = await localJob(scenario, world, /^ok /)
    t.same(
      (await lines).sort(),
      ranksOf(world).map(rank => `ok ${rank}`),
      `${scenario}, ${world} ranks`,
    )
    if (scenario === 'works') t.equal(await job.ended, undefined)
    else await job.stop()
  }
})

t.test('a world of one rank needs no other', async t => {
  const alone = await join({ kind: 'local', name: 'alone', epoch: 1, rank: 0, world: 1 })
  const values = Float32Array.of(1, 2)
  await alone.allReduce(values)
  await alone.barrier()
  t.same(await alone.allGather(Uint8Array.of(7)), [Uint8Array.of(7)])
  t.same([...values], [1, 2])
  await alone.leave()
})
