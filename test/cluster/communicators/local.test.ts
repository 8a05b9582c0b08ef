// Ranks of one process: epochs, ranks that do not come, many ranks, workers that end.
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import { join } from '#lib/cluster/communicators/join.js'

const local = { kind: 'local', timeoutMs: 20_000 } as const

t.test('refused', async t => {
  const wrong = { code: 'ERR_ARGUMENT' }
  await t.rejects(join({ ...local, epoch: 1, rank: 2, world: 2 }), wrong)
  await t.rejects(join({ ...local, epoch: -1, rank: 0, world: 2 }), wrong)
  await t.rejects(join({ ...local, epoch: 1, rank: 0, world: 0 }), wrong)
  await t.rejects(join({ ...local, epoch: 1, rank: 0, world: 1, timeoutMs: 0 }), wrong)
  await t.rejects(join({ ...local, epoch: 1, rank: 0, world: 1, name: '' }), wrong)
  await t.rejects(join({ ...local, epoch: 1, rank: 0, world: 1, link: 1 } as never), wrong)
  await t.rejects(join({ kind: 'fax' } as never), { ...wrong, message: /kind must be one of local/ })
})

t.test('ranks that do not come are named, and may try again', async t => {
  const place = { kind: 'local', name: 'late', epoch: 1, world: 3 } as const
  await t.rejects(join({ ...place, rank: 1, timeoutMs: 50 }), {
    code: 'ERR_IO',
    message: /join: rank 0, rank 2 did not come within 50 ms/,
  })
  const all = await Promise.all([0, 1, 2].map(rank => join({ ...place, rank })))
  await Promise.all(all.map(one => one.leave()))
})

t.test('epochs', async t => {
  const place = { ...local, name: 'epochs', world: 2 }
  const old = await Promise.all([0, 1].map(rank => join({ ...place, epoch: 3, rank })))
  await old[0]!.send(1, Uint8Array.of(3))
  await t.rejects(join({ ...place, epoch: 3, rank: 0 }), { code: 'ERR_CONFLICT', message: /rank 0 .* taken/ })
  await t.rejects(join({ ...place, epoch: 3, rank: 0, world: 3 }), { code: 'ERR_CONFLICT' })
  const waits = t.rejects(old[1]!.barrier(), { code: 'ERR_CONFLICT', message: /epoch 3 .* is over/ })
  const fresh = await Promise.all([0, 1].map(rank => join({ ...place, epoch: 4, rank })))
  await waits
  await t.rejects(join({ ...place, epoch: 3, rank: 0 }), {
    code: 'ERR_CONFLICT',
    message: /epoch 4 has begun/,
  })
  // The message of the old epoch does not arrive in the new one.
  const into = new Uint8Array(1)
  await Promise.all([fresh[0]!.send(1, Uint8Array.of(4)), fresh[1]!.recv(0, into)])
  t.equal(into[0], 4)
  await t.rejects(old[1]!.recv(0, into), { code: 'ERR_CONFLICT' })
  await Promise.all([...old, ...fresh].map(one => one.leave()))
})

t.test('a rank that left is not waited for', async t => {
  const [a, b] = await Promise.all(
    [0, 1].map(rank => join({ ...local, name: 'left', epoch: 1, rank, world: 2 })),
  )
  await a!.send(1, Uint8Array.of(1))
  const waits = t.rejects(b!.barrier(), { code: 'ERR_IO', message: /barrier: rank 0 left/ })
  await a!.leave()
  await waits
  await b!.leave()
})

t.test('sixteen ranks that wait for each other', async t => {
  const all = await Promise.all(
    Array.from({ length: 16 }, (_, rank) => join({ ...local, name: 'many', epoch: 1, rank, world: 16 })),
  )
  const values = all.map(({ rank }) => Float32Array.of(rank, 1))
  await Promise.all(all.map((one, rank) => one.allReduce(values[rank]!)))
  t.ok(values.every(([sum, count]) => sum === 120 && count === 16))
  await Promise.all(all.map(one => one.leave()))
})

t.test('arrays that are transferred meanwhile', async t => {
  const [a, b] = await Promise.all(
    [0, 1].map(rank => join({ ...local, name: 'transfer', epoch: 1, rank, world: 2 })),
  )
  const values = new Float32Array(1000).fill(1)
  const lost = t.rejects(a!.allReduce(values), { code: 'ERR_DISPOSED' })
  structuredClone(values, { transfer: [values.buffer] })
  const others = new Float32Array(1000).fill(2)
  await b!.allReduce(others)
  await lost
  t.equal(others[999], 3)
  await Promise.all([a!.leave(), b!.leave()])
})

t.test('a worker that is terminated ends the wait of the others', async t => {
  const seat = { ...local, name: 'worker', epoch: 1, world: 2 }
  const script = `
    const { parentPort, workerData } = require('node:worker_threads')
    import(workerData.url).then(async ({ join }) => {
      const communicator = await join({ ...workerData.seat, rank: 1 })
      parentPort.postMessage('joined')
      await communicator.recv(0, new Uint8Array(1))
    })`
  const url = import.meta.resolve('#lib/cluster/communicators/join.js')
  const worker = new Worker(script, { eval: true, workerData: { url, seat } })
  const [communicator] = await Promise.all([join({ ...seat, rank: 0 }), once(worker, 'message')])
  const waits = t.rejects(communicator.barrier(), { code: 'ERR_IO', message: /rank 1 ended without leaving/ })
  await worker.terminate()
  await waits
  await communicator.leave()
})
