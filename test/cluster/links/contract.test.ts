// The contract of links, on each transport: frames of any size both ways, in order, held back by a slow reader, ended
// from either side, refused for the wrong node.
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import path from 'node:path'
import t, { type Test } from 'tap'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import type { ListenOptions, StreamListener, StreamTransport } from '#lib/cluster/links/transport.js'
import type { NodeCredentials } from '#lib/cluster/trust/credentials.js'
import { lab, openDoor } from '../../fixtures/cluster/lab.js'
import { quicFrom, transports } from '../../fixtures/cluster/transports.js'

const linkChild = path.resolve(import.meta.dirname, '../../fixtures/cluster/link-child.js')
const [a, b, stranger] = await lab(t, 3)

interface Pair {
  readonly left: FrameStream
  readonly right: FrameStream
  readonly listener: StreamListener
}

/** A link and both of its ends; everything ends with the test. */
async function pair(
  t: Test,
  transport: StreamTransport,
  options: ListenOptions = {},
  own: NodeCredentials = a,
): Promise<Pair> {
  const listener = await transport.listen(b, openDoor, options)
  t.teardown(() => listener.close())
  const arriving = listener[Symbol.asyncIterator]().next()
  const left = await transport.connect(listener.address, own, b.nodeId, options)
  t.teardown(() => left.close())
  return { left, right: (await arriving).value as FrameStream, listener }
}

for (const { name, open, skip } of transports) {
  // The nightly run sends 64 MiB on every transport.
  const largest = name === 'tls' || process.env.LARGE_FRAMES ? 64 << 20 : 8 << 20
  t.test(
    `${name}: frames from 0 B to ${largest >> 20} MiB in both directions at once, then both ends`,
    { skip },
    async t => {
      const { left, right } = await pair(t, open())
      t.same([left.peer.nodeId, right.peer.nodeId], [b.nodeId, a.nodeId])
      const large = randomBytes(largest)
      const sizes = [0, 1, 15, 16_384, 16_385, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_003, largest]
      const exchange = async (from: FrameStream, to: FrameStream, shift: number): Promise<void> => {
        const payloads = sizes.map(size => large.subarray(large.length - size - shift, large.length - shift))
        const sent = (async () => {
          for (const [id, payload] of payloads.entries()) await from.send({ type: id % 256, id, payload })
          await from.end()
        })()
        let next = 0
        for await (const { type, id, payload } of to) {
          if (type !== next % 256 || id !== next || !payload.equals(payloads[next]))
            t.fail(`frame ${next} of ${payloads[next].length} bytes came as ${id} of ${payload.length}`)
          next++
        }
        t.equal(next, sizes.length)
        await sent
      }
      await Promise.all([exchange(left, right, 0), exchange(right, left, 0)])
      t.equal(left.counts.framesSent, sizes.length)
      t.equal(left.counts.framesReceived, sizes.length)
      t.ok(right.counts.bytesReceived > largest)
    },
  )

  t.test(`${name}: 1,000 small frames in order, and half-close`, { skip }, async t => {
    const { left, right } = await pair(t, open(), { windowFrames: 64 })
    const sends = Array.from({ length: 1000 }, (_, id) =>
      left.send({ type: 1, id, payload: Buffer.from(`${id}`) }),
    )
    let next = 0
    const received = (async () => {
      for await (const { id, payload } of right) {
        if (id !== next || payload.toString() !== `${next}`) t.fail(`${id} came as number ${next}`)
        next++
      }
    })()
    await Promise.all(sends)
    await left.end()
    await received
    t.equal(next, 1000)
    await t.rejects(left.send({ type: 1, id: 0, payload: Buffer.alloc(1) }), { code: 'ERR_DISPOSED' })
    await right.send({ type: 2, id: 5, payload: Buffer.from('still open') })
    t.match(await left.receive(), { type: 2, id: 5 })
  })

  t.test(`${name}: a reader that does not read holds the sender back`, { skip }, async t => {
    const options = { windowBytes: 4 << 20, maxFrameBytes: 1 << 20 }
    const { left, right } = await pair(t, open(), options)
    const payload = randomBytes(1 << 20)
    let sent = 0
    const sending = (async () => {
      for (let id = 0; id < 40; id++) {
        await left.send({ type: 0, id, payload })
        sent++
      }
      await left.end()
    })()
    await right.ping()
    while (right.counts.waiting.bytes < 4 << 20) await left.ping()
    for (let i = 0; i < 20; i++) await left.ping()
    t.equal(sent, 4, 'a window of frames, and no more')
    t.equal(right.counts.waiting.bytes, 4 << 20)
    const abort = new AbortController()
    const refused = t.rejects(left.send({ type: 0, id: 99, payload }, abort.signal), { name: 'AbortError' })
    abort.abort()
    let count = 0
    for await (const _ of right) count++
    await sending
    await refused
    t.equal(count, 40)
    const tooLong = Buffer.alloc((1 << 20) + 1)
    await t.rejects(right.send({ type: 0, id: 1, payload: tooLong }), { code: 'ERR_RANGE' })
  })

  t.test(
    `${name}: another node at the address is refused, and one that the policy refuses`,
    { skip },
    async t => {
      const transport = open()
      const policy = {
        accepts: ({ nodeId }: { nodeId: string }) => (nodeId === stranger.nodeId ? 'it was revoked' : null),
      }
      const listener = await transport.listen(b, policy)
      t.teardown(() => listener.close())
      await t.rejects(transport.connect(listener.address, a, stranger.nodeId), {
        code: 'ERR_DENIED',
        message: `it is node ${b.nodeId}, not ${stranger.nodeId}`,
      })
      const link = transport.connect(listener.address, stranger, b.nodeId)
      await link.then(
        async link => t.match((await link.closed).error?.message ?? 'refused', /./),
        error => t.match(error.code, /ERR_DENIED|ERR_IO/),
      )
      t.ok(listener.refused.peer! >= 1, JSON.stringify(listener.refused))
    },
  )

  t.test(
    `${name}: ends with a reason, at once with an abort, and with the death of the peer`,
    { skip },
    async t => {
      const { left, right } = await pair(t, open())
      await left.send({ type: 0, id: 1, payload: Buffer.from('last') })
      await left.close('update')
      t.equal((await right.closed).reason, 'update')
      t.match(await right.receive(), { id: 1 })
      await t.rejects(right.receive(), /update/)
      await t.rejects(left.send({ type: 0, id: 2, payload: Buffer.alloc(1) }), /closed/)

      const transport = open()
      const abort = new AbortController()
      const listener = await transport.listen(b, openDoor)
      t.teardown(() => listener.close())
      const link = await transport.connect(listener.address, a, b.nodeId, { signal: abort.signal })
      abort.abort(new Error('enough'))
      t.match(await link.closed, { error: { message: 'enough' } })
      await t.rejects(transport.connect(listener.address, a, b.nodeId, { signal: abort.signal }), /enough/)
    },
  )

  t.test(`${name}: the death of the peer ends the link`, { skip }, async t => {
    const listener = await open().listen(b, openDoor, { keepAliveMs: 300 })
    t.teardown(() => listener.close())
    const task = { name, own: a, peer: b.nodeId, address: listener.address, quicFrom }
    const child = spawn(process.execPath, [linkChild], {
      env: { ...process.env, NODE_OPTIONS: '', LINK: JSON.stringify(task) },
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    const link = (await listener[Symbol.asyncIterator]().next()).value as FrameStream
    t.match(await link.receive(), { id: 7 })
    child.kill('SIGKILL')
    await once(child, 'exit')
    t.match((await link.closed).error, { code: 'ERR_IO' })
    await t.rejects(link.receive(), { code: 'ERR_IO' })
  })
}
