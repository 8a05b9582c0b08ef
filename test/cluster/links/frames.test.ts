// Frames: the reader of records against peers that lie, the queue against senders that push, and new keys under load.
import { type Duplex, duplexPair } from 'node:stream'
import t, { type Test } from 'tap'
import { FrameQueue } from '#lib/cluster/links/frame-queue.js'
import { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { parseHello } from '#lib/cluster/links/hello.js'
import { openTransport, transportNames } from '#lib/cluster/links/open-transport.js'
import { type LinkOptions, linkLimits } from '#lib/cluster/links/options.js'
import type { Pipe } from '#lib/cluster/links/pipe.js'
import {
  decodeHeader,
  encodeControl,
  encodeHeader,
  type Frame,
  pieceBytes,
  RecordReader,
  recordKinds,
} from '#lib/cluster/links/record.js'
import { tcpTransport } from '#lib/cluster/links/tcp.js'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import type { ListenOptions, StreamTransport } from '#lib/cluster/links/transport.js'
import { randomGenerator } from '#lib/core/random.js'
import { lab, openDoor } from '../../fixtures/cluster/lab.js'
import { transports } from '../../fixtures/cluster/transports.js'

const [a, b] = await lab(t, 2)

/** A reader that keeps what it finds and lets frames of up to 1000 bytes begin. */
function reader(): { reader: RecordReader; frames: Frame[]; controls: number[]; begun: number[] } {
  const found = { frames: [] as Frame[], controls: [] as number[], begun: [] as number[] }
  const sink = {
    begins(total: number) {
      if (total > 1000) throw Object.assign(new Error('too long'), { code: 'ERR_FORMAT' })
      found.begun.push(total)
    },
    frame: (frame: Frame) => found.frames.push(frame),
    control: ({ kind }: { kind: number }) => found.controls.push(kind),
    probe() {},
  }
  return { reader: new RecordReader(sink as never), ...found }
}

const { ack, call, data, more, ping, end, hello, reply } = recordKinds

t.test('records in chunks of any size', async t => {
  const bytes = Buffer.concat([
    encodeHeader(data, 7, 9, 5, 2),
    Buffer.from('he'),
    encodeControl(ping, 1, 0, Buffer.from('x')),
    encodeHeader(more, 7, 9, 5, 3),
    Buffer.from('llo'),
    encodeHeader(data, 8, 10, 0, 0),
    encodeControl(end),
  ])
  for (const size of [1, 2, 3, 15, 16, 17, bytes.length]) {
    const found = reader()
    for (let at = 0; at < bytes.length; at += size) found.reader.push(bytes.subarray(at, at + size))
    const seen = found.frames.map(({ type, id, payload }) => [type, id, payload.toString()])
    t.same(seen, [
      [7, 9, 'hello'],
      [8, 10, ''],
    ])
    t.same(found.controls, [ping, end])
    t.equal(found.reader.unfinished, undefined)
  }
})

t.test('records that no node sends', async t => {
  const refused: [string, Buffer][] = [
    ['an unknown kind', encodeHeader(99 as never, 0, 0, 0, 0)],
    ['a kind above the last', encodeHeader((reply + 1) as never, 0, 0, 0, 0)],
    ['bits that are zero', Buffer.concat([Buffer.from([0, 0, 1, 0]), Buffer.alloc(12)])],
    ['a frame that is too long', encodeHeader(data, 0, 0, 0xffffffff, 16)],
    ['a piece of 2 MiB', encodeHeader(data, 0, 0, 2 << 20, 2 << 20)],
    ['a control record of 1 MiB', encodeHeader(ping, 0, 0, 0, 1 << 20)],
    ['a piece of no frame', encodeHeader(more, 0, 0, 10, 10)],
    ['more than its frame', encodeHeader(data, 0, 0, 4, 5)],
    ['a frame that begins with nothing', encodeHeader(data, 0, 0, 4, 0)],
    [
      'a frame inside another',
      Buffer.concat([encodeHeader(data, 0, 0, 4, 1), Buffer.alloc(1), encodeHeader(data, 0, 0, 4, 1)]),
    ],
    [
      'a piece of another frame',
      Buffer.concat([encodeHeader(data, 0, 1, 4, 1), Buffer.alloc(1), encodeHeader(more, 0, 2, 4, 1)]),
    ],
    [
      'a piece beyond the end',
      Buffer.concat([encodeHeader(data, 0, 1, 4, 1), Buffer.alloc(1), encodeHeader(more, 0, 1, 4, 4)]),
    ],
  ]
  for (const [name, bytes] of refused)
    t.throws(() => reader().reader.push(bytes), { code: 'ERR_FORMAT' }, name)
  t.throws(() => decodeHeader(Buffer.alloc(16, 0xff)), { code: 'ERR_FORMAT' })
})

t.test('random bytes and broken records', async t => {
  const random = randomGenerator(Number(process.env.FUZZ_SEED ?? 19))
  const rounds = Number(process.env.FUZZ_ROUNDS ?? 3000)
  const valid = Buffer.concat([
    encodeHeader(data, 1, 2, 300, 200),
    Buffer.alloc(200),
    encodeControl(hello, 0, 0, Buffer.from('{}')),
    encodeHeader(more, 1, 2, 300, 100),
    Buffer.alloc(100),
  ])
  let refusals = 0
  for (let round = 0; round < rounds; round++) {
    const bytes = Buffer.concat([valid, valid])
    for (let i = 0; i <= round % 4; i++)
      bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256)
    const found = reader()
    try {
      for (let at = 0; at < bytes.length; ) {
        const size = 1 + Math.floor(random() * 90)
        found.reader.push(bytes.subarray(at, at + size))
        at += size
      }
    } catch (error) {
      if ((error as { code?: string }).code !== 'ERR_FORMAT') throw error
      refusals++
    }
    if (found.begun.some(total => total > 1000)) t.fail(`round ${round} began a frame that is too long`)
    if (found.frames.some(({ payload }) => payload.length > 1000))
      t.fail(`round ${round} gave a frame that is too long`)
  }
  t.ok(refusals > rounds / 20 && refusals < rounds, `${refusals} of ${rounds}`)
})

t.test('the queue takes what the window allows', async t => {
  const consumed: number[][] = []
  const queue = new FrameQueue({ bytes: 10, frames: 3, maxFrameBytes: 8 }, (...counts) =>
    consumed.push(counts),
  )
  t.throws(() => queue.expect(9), { code: 'ERR_FORMAT' })
  for (const size of [4, 8]) {
    queue.expect(size)
    queue.push({ type: 0, id: size, payload: Buffer.alloc(size) })
  }
  t.throws(() => queue.expect(1), { code: 'ERR_FORMAT' }, '12 of 10 bytes wait')
  t.match(await queue.next(), { id: 4 })
  t.match(await queue.next(), { id: 8 })
  t.same(consumed, [
    [1, 4],
    [1, 8],
  ])
  queue.end()
  t.equal(await queue.next(), undefined)
  t.throws(() => queue.expect(1), { code: 'ERR_FORMAT' })
})

t.test('first words', async t => {
  const good = {
    version: 1,
    session: '0'.repeat(36),
    resumes: false,
    window: { bytes: 1, frames: 1, maxFrameBytes: 1 },
  }
  const parse = (changes: object): unknown => parseHello(Buffer.from(JSON.stringify({ ...good, ...changes })))
  t.match(parse({}), good)
  const bad = [
    { version: 2 },
    { session: '../..' },
    { session: 7 },
    { window: null },
    { window: { bytes: -1, frames: 1, maxFrameBytes: 1 } },
    { window: { bytes: 1, frames: 2 ** 31, maxFrameBytes: 1 } },
    { proof: { certificate: 7, nonce: '' } },
    { proof: { certificate: 'x'.repeat(20_000), nonce: '' } },
  ]
  for (const changes of bad)
    t.throws(() => parse(changes), { code: 'ERR_FORMAT' }, JSON.stringify(changes).slice(0, 60))
  for (const text of ['', 'null', '[]', '7', '{'])
    t.throws(() => parseHello(Buffer.from(text)), { code: 'ERR_FORMAT' })
})

t.test('options', async t => {
  t.equal(linkLimits({}).rekeyBytes, 64e9)
  t.equal(linkLimits({}).rekeyMs, 43_200_000)
  t.throws(() => linkLimits({ rekeyMs: 43_200_001 }), /rekeyMs/)
  t.throws(() => linkLimits({ windowBytes: 0 }), /windowBytes/)
  t.throws(() => linkLimits({ windowByte: 1 } as never), /windowBytes/)
  await t.rejects(tlsTransport().connect({ host: '', port: 1 }, a, b.nodeId), { code: 'ERR_ARGUMENT' })
  await t.rejects(tlsTransport().connect({ host: '127.0.0.1', port: 0 }, a, b.nodeId), {
    code: 'ERR_ARGUMENT',
  })
})

async function listen(t: Test, transport: StreamTransport, options: ListenOptions = {}) {
  const listener = await transport.listen(b, openDoor, options)
  t.teardown(() => listener.close())
  return listener
}

t.test('tcp stays on loopback and declared networks', async t => {
  const refusal = { code: 'ERR_DENIED', message: /neither loopback nor in the declared fabric/ }
  const anywhere = { address: { host: '0.0.0.0', port: 0 } }
  await t.rejects(tcpTransport().listen(b, openDoor, anywhere), refusal)
  await t.rejects(tcpTransport(['10.9.0.0/16']).connect({ host: '10.8.0.1', port: 9 }, a, b.nodeId), refusal)
  for (const fabric of ['nothing0', '10.0.0.0', '10.0.0.0/0', '10.0.0.0/33', 'x/8'])
    t.throws(() => tcpTransport([fabric]), { code: 'ERR_ARGUMENT' }, fabric)
  t.ok(tcpTransport(['lo', '10.9.0.0/16', 'fd00::/8']))
})

/** A link whose other end is in the hands of the test. */
function exposed(options: LinkOptions = {}): { link: FrameStream; far: Duplex } {
  const { pipe, far } = pipeOfTest()
  const peer = { nodeId: b.nodeId, clusterId: b.clusterId, serial: b.serial, thumbprint: '' }
  const peerWindow = { bytes: 1 << 20, frames: 16, maxFrameBytes: 1 << 20 }
  const link = new FrameStream({ pipe, peer, transport: 'test', limits: linkLimits(options), peerWindow })
  return { link, far }
}

function pipeOfTest(): { pipe: Pipe; far: Duplex } {
  const [near, far] = duplexPair()
  far.on('error', () => {})
  far.resume()
  const ends = { localAddress: '', remoteAddress: '' }
  return { pipe: { duplex: near, peer: undefined, channel: Buffer.alloc(0), ...ends }, far }
}

t.test('a peer that moves twice before this node has read its first mark', async t => {
  const { link, far } = exposed()
  const [second, third, fourth] = [pipeOfTest(), pipeOfTest(), pipeOfTest()]
  const { peer } = link
  const moves = [link.moveTo(second.pipe, peer), link.moveTo(third.pipe, peer)]
  await t.rejects(link.moveTo(fourth.pipe, peer), { code: 'ERR_BUSY' })
  const mark = encodeControl(recordKinds.switch)
  third.far.write(encodeHeader(data, 0, 3, 0, 0))
  second.far.write(Buffer.concat([encodeHeader(data, 0, 2, 0, 0), mark]))
  far.write(Buffer.concat([encodeHeader(data, 0, 1, 0, 0), mark]))
  const ids = [await link.receive(), await link.receive(), await link.receive()].map(frame => frame?.id)
  t.same(ids, [1, 2, 3])
  await Promise.all(moves)
  await link.close()
})

t.test('a frame that the peer has read before it closed the link was sent', async t => {
  const { link, far } = exposed()
  far.pause()
  // More than the pair keeps: it is written when the peer reads.
  const frame = { type: 0, id: 0, payload: Buffer.alloc(pieceBytes) }
  const sent = link.send(frame)
  far.write(encodeControl(recordKinds.close, 0, 0, Buffer.from('done')))
  t.match(await link.closed, { reason: 'done' })
  far.resume()
  await sent
  await t.rejects(link.send(frame), { code: 'ERR_IO', message: /was closed: done/ })
})

t.test('a signal ends the wait of a frame for its turn', async t => {
  const { link } = exposed()
  // The peer takes 16 frames; the next one waits until it has read some.
  const sent = Array.from({ length: 17 }, () => link.send({ type: 0, id: 0, payload: Buffer.alloc(1) }))
  const ended = Promise.allSettled(sent)
  const stop = new AbortController()
  const unwanted = link.send({ type: 0, id: 1, payload: Buffer.alloc(1) }, stop.signal)
  const aborted = t.rejects(unwanted, { name: 'AbortError' })
  stop.abort()
  await aborted
  t.ok(link.counts.framesSent < 17)
  link.destroy(new Error('done'))
  await ended
})

t.test('peers that break the rules lose their link', async t => {
  const cases: [string, LinkOptions, Buffer, RegExp][] = [
    ['a frame that never ends', { stallMs: 100 }, encodeHeader(data, 0, 0, 100, 100), /did not end/],
    ['a header that never ends', { stallMs: 100 }, Buffer.alloc(3), /did not end/],
    ['silence', { keepAliveMs: 50 }, Buffer.alloc(0), /no sign of life/],
    [
      'a frame that is too long',
      { maxFrameBytes: 1000 },
      encodeHeader(data, 0, 0, 1001, 1001),
      /at most 1000/,
    ],
    ['a frame beyond the window', { windowFrames: 2 }, manyFrames(3), /2 frames of 0 bytes wait/],
    ['frames consumed that were not sent', {}, encodeControl(ack, 1, 5), /never sent/],
    ['a frame after the last one', {}, Buffer.concat([encodeControl(end), manyFrames(1)]), /after the last/],
    ['first words again', {}, encodeControl(hello), /after the start/],
    ['keys that are too old', { rekeyMs: 50 }, Buffer.alloc(0), /keys of the link are too old/],
  ]
  for (const [name, options, bytes, reason] of cases) {
    const { link, far } = exposed(options)
    far.write(bytes)
    t.match((await link.closed).error?.message, reason, name)
    await t.rejects(link.send({ type: 0, id: 0, payload: Buffer.alloc(1) }), { code: /ERR_/ })
  }
})

const manyFrames = (count: number): Buffer =>
  Buffer.concat(Array.from({ length: count }, () => encodeHeader(data, 0, 0, 0, 0)))

t.test('questions, answers, and a peer that asks too much', async t => {
  const listener = await listen(t, tlsTransport())
  const arriving = listener[Symbol.asyncIterator]().next()
  const left = await tlsTransport().connect(listener.address, a, b.nodeId)
  const right = (await arriving).value as FrameStream
  const early = left.call('twice', 4)
  await left.ping()
  right.handle('twice', value => (value as number) * 2)
  t.equal(await early, 8, 'a question that came before its answerer')
  right.handle('fails', () => {
    throw new Error('secret')
  })
  right.handle('long', () => 'x'.repeat(70_000))
  right.handle('never', () => new Promise(() => {}))
  t.equal(await left.call('twice', 21), 42)
  await t.rejects(left.call('unheard of', null), { code: 'ERR_UNSUPPORTED' })
  await t.rejects(left.call('fails', null), { code: 'ERR_IO', message: /it failed/ })
  await t.rejects(left.call('long', null), /too long/)
  await t.rejects(left.call('twice', 'x'.repeat(70_000)), { code: 'ERR_RANGE' })
  await t.rejects(left.call('never', null, { timeoutMs: 20 }), /no answer to never in 20 ms/)
  const open = Array.from({ length: 63 }, () => left.call('never', null).catch(error => error.code))
  await left.close()
  t.same(new Set(await Promise.all(open)), new Set(['ERR_IO']))

  const { link, far } = exposed()
  link.handle('never', () => new Promise(() => {}))
  const question = encodeControl(call, 1, 0, Buffer.from('{"method":"never"}'))
  far.write(Buffer.concat(Array.from({ length: 65 }, () => question)))
  t.match((await link.closed).error, { message: /64 questions/ })
})

t.test('questions that no node asks, and answers that are no JSON', async t => {
  const { link, far } = exposed()
  far.pause()
  link.handle('big', () => 1n)
  const ask = (body: string, id: number): boolean => far.write(encodeControl(call, id, 0, Buffer.from(body)))
  for (const [i, body] of ['{', 'null', '7', '{"method":{"toString":1,"valueOf":1}}'].entries()) ask(body, i)
  ask('{"method":"big"}', 9)
  const bytes: Buffer[] = []
  far.on('data', chunk => bytes.push(chunk))
  far.resume()
  const answers = (): number => Buffer.concat(bytes).toString('latin1').split('{"unknown":true}').length - 1
  for (let i = 0; i < 500 && answers() < 4; i++) await new Promise(resolve => setTimeout(resolve, 10))
  t.equal(answers(), 4)
  await link.close()
})

for (const { name, open, skip } of transports) {
  t.test(`${name}: new keys under load lose no frame`, { skip }, async t => {
    const options = { rekeyBytes: 3_000_000 }
    const listener = await listen(t, open(), { ...options, rekeyBytes: 64e9 })
    const arriving = listener[Symbol.asyncIterator]().next()
    const left = await open().connect(listener.address, a, b.nodeId, options)
    const right = (await arriving).value as FrameStream
    const count = 400
    const send = async (link: FrameStream): Promise<void> => {
      for (let id = 0; id < count || left.counts.connections < 3; id++) {
        await link.send({ type: 1, id, payload: Buffer.alloc(20_000, id % 256) })
        if (id % 50 === 49) await new Promise(resolve => setTimeout(resolve, 5))
        if (id > 20_000) throw new Error('no new connection')
      }
      await link.end()
    }
    const receive = async (link: FrameStream): Promise<number> => {
      let next = 0
      for await (const { id, payload } of link) {
        if (id !== next || payload.length !== 20_000 || payload[19_999] !== id % 256)
          t.fail(`frame ${next} came as ${id}`)
        next++
      }
      return next
    }
    const [, , byRight, byLeft] = await Promise.all([send(left), send(right), receive(right), receive(left)])
    t.equal(byRight, left.counts.framesSent)
    t.equal(byLeft, right.counts.framesSent)
    t.ok(left.counts.connections >= 3, `${left.counts.connections} connections`)
    t.ok((await left.ping()) > 0)
  })
}

t.test('transports by name', async t => {
  for (const name of transportNames) t.equal((await openTransport(name)).name, name)
  await t.rejects(openTransport('udp' as never), { code: 'ERR_ARGUMENT', message: /tls, grpc, quic, tcp/ })
  const nowhere = await openTransport('quic', { quicFrom: t.testdir() })
  await t.rejects(nowhere.listen(a, openDoor), { code: 'ERR_UNSUPPORTED', message: /npm install @chainsafe/ })
})
