// Ranks over links: other processes, peers that die, epochs one after the other, frames that no rank sends.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import t, { type Test } from 'tap'
import type { Communicator } from '#lib/cluster/communicators/communicator.js'
import { join } from '#lib/cluster/communicators/join.js'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import { lab, openDoor } from '../../fixtures/cluster/lab.js'
import { makeMesh, nextLink } from '../../fixtures/cluster/mesh.js'
import { runRank } from '../../fixtures/cluster/rank-contract.js'

const script = path.resolve(import.meta.dirname, '../../fixtures/cluster/stream-rank.js')

/** Rank 0 here, rank 1 in a process of its own. */
async function withProcess(t: Test, scenario: string) {
  const [own, other] = await lab(t, 2)
  const listener = await tlsTransport().listen(own!, openDoor)
  const rank = { own: other, peer: own!.nodeId, address: listener.address, scenario }
  const env = { ...process.env, RANK: JSON.stringify(rank) }
  const child = spawn(process.execPath, [script], { env, stdio: 'inherit', timeout: 60_000 })
  const ended = once(child, 'exit')
  const link = await nextLink(listener)
  t.teardown(async () => {
    child.kill('SIGKILL')
    await listener.close()
  })
  const communicator = await join({ kind: 'stream', epoch: 1, rank: 0, world: 2, peers: [undefined, link] })
  return { child, ended, communicator, link }
}

t.test('two processes', async t => {
  const { ended, communicator, link } = await withProcess(t, 'works')
  await runRank('works', communicator, true)
  await link.close()
  t.same(await ended, [0, null])
})

t.test('a peer is killed', async t => {
  const { child, communicator } = await withProcess(t, '')
  await communicator.send(1, new Uint8Array(1 << 20))
  const dead = { code: 'ERR_IO', message: /rank 1 is gone/ }
  const waits = [communicator.barrier(), communicator.recv(1, new Uint8Array(1))].map(wait =>
    t.rejects(wait, dead),
  )
  child.kill('SIGKILL')
  await Promise.all(waits)
  await t.rejects(communicator.allReduce(new Float32Array(1)), dead)
  await communicator.leave()
})

t.test('epochs follow each other over the same links', async t => {
  const mesh = await makeMesh(t, 2)
  const enter = (epoch: number, rank: number, timeoutMs = 20_000): Promise<Communicator> =>
    join({ kind: 'stream', epoch, rank, world: 2, timeoutMs, peers: mesh.peersOf(rank, 2) })
  const [a, b] = await Promise.all([enter(1, 0), enter(1, 1)])
  await a.send(1, Uint8Array.of(1))
  await Promise.all([a.leave(), b.leave()])
  const [c, d] = await Promise.all([enter(2, 0), enter(2, 1)])
  const into = new Uint8Array(1)
  await Promise.all([c.send(1, Uint8Array.of(2)), d.recv(0, into)])
  t.equal(into[0], 2, 'not the message of epoch 1')
  await t.rejects(enter(1, 0), { code: 'ERR_CONFLICT', message: /epoch 1 is over/ })
  // One rank is placed anew, the other does not know yet.
  const waits = t.rejects(d.barrier(), {
    code: 'ERR_CONFLICT',
    message: /epoch 2 is over: rank 0 joined epoch 4/,
  })
  const fresh = enter(4, 0)
  await waits
  await t.rejects(enter(3, 1), { code: 'ERR_CONFLICT', message: /epoch 3 is over/ })
  const [e, f] = await Promise.all([fresh, enter(4, 1)])
  await Promise.all([e.barrier(), f.barrier()])
  await e.leave()
  await t.rejects(f.barrier(), { code: 'ERR_IO', message: /rank 0 left/ })
  await f.leave()
  await t.rejects(enter(5, 0, 100), { code: 'ERR_IO', message: /join: rank 1 did not come within 100 ms/ })
})

t.test('other ranks than those that were agreed on', async t => {
  const mesh = await makeMesh(t, 3)
  const both = [
    join({ kind: 'stream', epoch: 1, rank: 0, world: 2, peers: mesh.peersOf(0, 2) }),
    join({ kind: 'stream', epoch: 1, rank: 1, world: 3, peers: mesh.peersOf(1, 3) }),
  ]
  const ends = await Promise.allSettled(both)
  t.ok(ends.every(({ status }) => status === 'rejected'))
  t.match(ends[0], { reason: { code: 'ERR_CONFLICT', message: /joins as rank 1 of 3/ } })
  await t.rejects(join({ kind: 'stream', epoch: 2, rank: 0, world: 3, peers: mesh.peersOf(0, 2) }), {
    code: 'ERR_ARGUMENT',
    message: /peers must be 3 links, one for each rank/,
  })
  await t.rejects(join({ kind: 'stream', epoch: 2, rank: 0, world: 2, peers: 7 } as never), {
    code: 'ERR_ARGUMENT',
  })
})

/** Both ranks of an epoch. */
async function pair(t: Test) {
  const mesh = await makeMesh(t, 2)
  const enter = (epoch: number, rank: number, timeoutMs = 20_000): Promise<Communicator> =>
    join({ kind: 'stream', epoch, rank, world: 2, timeoutMs, peers: mesh.peersOf(rank, 2) })
  return { mesh, enter, both: (epoch: number) => Promise.all([enter(epoch, 0), enter(epoch, 1)]) }
}

t.test('large messages at a time keep their order and do not mix', async t => {
  const [a, b] = await (await pair(t)).both(1)
  const messages = [9, 5, 13].map((mebibytes, n) => new Uint8Array((mebibytes << 20) + n).fill(n + 1))
  const into = messages.map(({ length }) => new Uint8Array(length))
  await Promise.all([...messages.map(each => a.send(1, each)), ...into.map(each => b.recv(0, each))])
  for (const [n, each] of into.entries()) t.equal(Buffer.compare(each, messages[n]!), 0, `message ${n}`)
  await Promise.all([a.leave(), b.leave()])
})

t.test('a rank that leaves with much unread lets the next epoch begin', async t => {
  const { mesh, both } = await pair(t)
  const [a, b] = await both(1)
  const sent = Promise.allSettled([1, 2, 3].map(() => a.send(1, new Uint8Array(40 << 20))))
  const link = mesh.peersOf(1, 2)[0] as FrameStream
  // Pieces of 4 MiB, of which 64 MiB may wait.
  const isFull = (): boolean => link.counts.framesReceived > 18
  for (let i = 0; i < 1000 && !isFull(); i++) await new Promise(resolve => setTimeout(resolve, 10))
  t.ok(isFull())
  await b.leave()
  await sent
  await a.leave()
  const [c, d] = await both(2)
  await Promise.all([c.barrier(), d.barrier()])
  await Promise.all([c.leave(), d.leave()])
})

t.test('a message that does not end in time ends the communicator', async t => {
  const { mesh, enter } = await pair(t)
  const link = mesh.peersOf(1, 2)[0] as FrameStream
  await link.send({ type: 192, id: 1, payload: Buffer.from(new Uint32Array([1, 2]).buffer) })
  const communicator = await enter(1, 0, 200)
  const late = { code: 'ERR_IO', message: /recv: rank 1 did not answer within 200 ms/ }
  await t.rejects(communicator.recv(1, new Uint8Array(8)), late)
  const first = link.send({ type: 195, id: 1, payload: new Uint8Array(4) })
  await t.rejects(communicator.recv(1, new Uint8Array(8)), late)
  await first
  await t.rejects(communicator.send(1, new Uint8Array(1)), late)
})

t.test('frames that no rank sends', async t => {
  const join9 = Buffer.from(new Uint32Array([9, 9]).buffer)
  const frames: [string, { type: number; payload: Uint8Array }, string][] = [
    ['an unknown type', { type: 7, payload: new Uint8Array(0) }, 'ERR_FORMAT'],
    ['a type behind the last one', { type: 255, payload: new Uint8Array(0) }, 'ERR_FORMAT'],
    ['another operation', { type: 204, payload: new Uint8Array(0) }, 'ERR_SHAPE'],
    ['a wrong rank', { type: 192, payload: join9 }, 'ERR_CONFLICT'],
    ['too few bytes', { type: 192, payload: new Uint8Array(3) }, 'ERR_SHAPE'],
    ['too many bytes', { type: 192, payload: new Uint8Array(1 << 20) }, 'ERR_SHAPE'],
    ['an abort without a reason', { type: 206, payload: Buffer.from('{"message":7') }, 'ERR_IO'],
    ['a long abort', { type: 206, payload: new Uint8Array(1 << 20) }, 'ERR_IO'],
  ]
  const mesh = await makeMesh(t, 2)
  const link = mesh.peersOf(1, 2)[0] as FrameStream
  for (const [index, [name, frame, code]] of frames.entries()) {
    const epoch = index + 1
    await link.send({ id: epoch, ...frame })
    const peers = mesh.peersOf(0, 2)
    await t.rejects(
      join({ kind: 'stream', epoch, rank: 0, world: 2, timeoutMs: 20_000, peers }),
      { code },
      name,
    )
  }
})
