// Numbers of links: formulas, interfaces, classes, and measurements on loopback and on networks that are slow and lossy.
import { spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import path from 'node:path'
import t, { type Test } from 'tap'
import { classifyLink } from '#lib/cluster/links/classify.js'
import { EchoResponder, measureLoss } from '#lib/cluster/links/echo-train.js'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { factsFromSys, interfaceOf, localAddressTo } from '#lib/cluster/links/interface-facts.js'
import { linkColumns, linkRow } from '#lib/cluster/links/link-rows.js'
import {
  answerMeasurements,
  LinkMeter,
  type LinkReport,
  measureLink,
  rttIntervalOf,
} from '#lib/cluster/links/measure.js'
import { nextJitter, quantile, roundTripsOf, stabilityOf } from '#lib/cluster/links/statistics.js'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import { TransferRate } from '#lib/cluster/links/transfer-rate.js'
import { delayProxy } from '../../fixtures/cluster/delay-proxy.js'
import { lab, openDoor } from '../../fixtures/cluster/lab.js'
import { canMakeNetworks, TestNetwork } from '../../fixtures/cluster/namespaces.js'
import { transports } from '../../fixtures/cluster/transports.js'

const linkHost = path.resolve(import.meta.dirname, '../../fixtures/cluster/link-host.js')
const [a, b] = await lab(t, 2)

t.test('statistics', async t => {
  t.same(
    [0, 0.25, 0.5, 1].map(part => quantile([4, 1, 3, 2, 5], part)),
    [1, 2, 3, 5],
  )
  t.equal(quantile([], 0.5), undefined)
  t.equal(nextJitter(16, 0), 15)
  t.same(roundTripsOf([10]), { minMs: 10, p50Ms: 10, p95Ms: 10, jitterMs: 0 })
  t.equal(roundTripsOf([10, 26])!.jitterMs, 1)
  t.equal(roundTripsOf([]), undefined)
  t.equal(stabilityOf([1, 2, 3]), undefined)
  t.equal(stabilityOf([10, 10, 10, 10]), 1)
  t.equal(stabilityOf([1, 1, 9, 9]), 0)
  t.equal(rttIntervalOf(undefined), 10_000)
  t.equal(rttIntervalOf(125e6), 10_000)
  const slow = 125_000
  t.ok((20 * 316) / (rttIntervalOf(slow) / 1000) <= slow * 0.001, 'a thousandth of 1 Mb/s')
})

t.test('the rate of transfers', async t => {
  const rate = new TransferRate()
  rate.add(1 << 20, 1, 1)
  t.equal(rate.value, undefined, 'a socket takes so much at once')
  for (let i = 1; i <= 32; i++) rate.add(1 << 20, 10, 1000 + i * 10)
  t.ok(Math.abs(rate.value! - (1 << 20) * 100) < 1e6, `${rate.value}`)
})

t.test('interfaces', async t => {
  const folder = t.testdir({
    lo: { type: '772\n' },
    eth0: { type: '1\n', speed: '1000\n', device: {}, uevent: 'INTERFACE=eth0\n' },
    down0: { type: '1\n', speed: '-1\n', device: {} },
    wlp1s0: { type: '1\n', wireless: {}, device: {}, uevent: 'DEVTYPE=wlan\n' },
    wwan0: { type: '65534\n', uevent: 'DEVTYPE=wwan\n', device: {} },
    ib0: { type: '32\n', speed: '200000\n', device: {} },
    veth1: { type: '1\n', speed: '10000\n' },
    tun0: { type: '65534\n', speed: '10\n' },
  })
  const kinds = async (name: string): Promise<unknown[]> => {
    const { kind, megabits } = await factsFromSys(name, folder)
    return [kind, megabits]
  }
  t.same(await kinds('lo'), ['loopback', undefined])
  t.same(await kinds('eth0'), ['wired', 1000])
  t.same(await kinds('down0'), ['wired', undefined])
  t.same(await kinds('wlp1s0'), ['wifi', undefined])
  t.same(await kinds('wwan0'), ['mobile', undefined])
  t.same(await kinds('ib0'), ['wired', 200_000])
  t.same(await kinds('veth1'), ['virtual', undefined])
  t.same(await kinds('tun0'), ['virtual', undefined])
  t.same(await kinds('gone'), ['unknown', undefined])
  t.match(await interfaceOf('127.0.0.1'), { kind: 'loopback' })
  t.equal(await interfaceOf('203.0.113.9'), undefined)
  t.equal(await localAddressTo('127.0.0.1'), '127.0.0.1')
  t.equal(await localAddressTo('no address'), undefined)
})

t.test('classes and flags', async t => {
  const wired = { name: 'eth0', kind: 'wired' as const, megabits: 1000 }
  const numbers = { rttMs: 0.2, jitterMs: 0.01, bytesPerSecond: 118e6 }
  const classOf = (facts: Partial<Parameters<typeof classifyLink>[0]>) =>
    classifyLink({ source: wired, destination: wired, ...numbers, ...facts })
  t.same(classOf({}), { kind: 'wired', from: 'interfaces', flags: ['below 1 Gb/s'] })
  t.match(classOf({ destination: { ...wired, kind: 'wifi' } }), { kind: 'wifi', from: 'interfaces' })
  t.match(classOf({ source: { ...wired, kind: 'mobile' } }), { kind: 'mobile' })
  t.match(classOf({ destination: undefined }), { kind: 'wired', from: 'numbers' })
  t.match(classOf({ destination: undefined, rttMs: 5, jitterMs: 2 }), { kind: 'wifi', from: 'numbers' })
  t.match(classOf({ destination: undefined, rttMs: 45, jitterMs: 9 }), { kind: 'mobile', from: 'numbers' })
  const nothing = {
    source: undefined,
    destination: undefined,
    rttMs: undefined,
    jitterMs: undefined,
    bytesPerSecond: undefined,
  }
  t.same(classifyLink(nothing), { kind: 'unknown', from: 'nothing', flags: [] })
  const flags = (rttMs: number, megabits: number) =>
    classOf({ rttMs, bytesPerSecond: megabits * 125_000 }).flags
  t.same(flags(10, 1000), [])
  t.same(flags(10.1, 999), ['RTT over 10 ms', 'below 1 Gb/s'])
  t.same(flags(51, 99), ['RTT over 50 ms', 'below 100 Mb/s'])
  t.same(flags(201, 49), ['RTT over 200 ms', 'below 50 Mb/s'])
})

t.test('a meter that was stopped, also while it measures, leaves no timer', async t => {
  const link = {
    ...{ closed: new Promise(() => {}), peer: { nodeId: b.nodeId }, transport: 'test', idle: true },
    ...{ addresses: { local: '127.0.0.1', remote: '127.0.0.1' }, call: async () => null },
    ...{ ping: async () => 1, probe: async () => 1 },
    pathStats: () => ({ sentPackets: 0, lostPackets: 0 }),
  } as unknown as FrameStream
  const timers = new Set<unknown>()
  const { setTimeout: begin, clearTimeout: end } = globalThis
  t.teardown(() => Object.assign(globalThis, { setTimeout: begin, clearTimeout: end }))
  Object.assign(globalThis, {
    setTimeout(act: () => void, ms: number) {
      const timer = begin(act, ms)
      if (ms >= 10_000) timers.add(timer)
      return timer
    },
    clearTimeout(timer: NodeJS.Timeout) {
      timers.delete(timer)
      end(timer)
    },
  })
  await measureLink(link)
  t.equal(timers.size, 0)
  const meter = new LinkMeter(link)
  const measured = meter.start()
  meter.stop()
  await measured
  t.equal(timers.size, 0)
})

/** Both ends of a link over loopback, or through a proxy. */
async function ends(t: Test, through?: (port: number) => Promise<number>, transport = tlsTransport()) {
  const listener = await transport.listen(b, openDoor)
  const echo = new EchoResponder()
  t.teardown(() => Promise.all([listener.close(), echo.close()]))
  const arriving = listener[Symbol.asyncIterator]().next()
  const port = through ? await through(listener.address.port) : listener.address.port
  const left = await transport.connect({ host: '127.0.0.1', port }, a, b.nodeId)
  const right = (await arriving).value as FrameStream
  answerMeasurements(right, echo)
  return { left, right }
}

for (const { name, open, skip } of transports.filter(({ name }) => name === 'tls' || name === 'quic')) {
  t.test(`${name}: a link of this machine`, { skip }, async t => {
    const { left } = await ends(t, undefined, open())
    const meter = new LinkMeter(left)
    t.match(linkRow(meter.report)[6], 'not measured')
    const report = await meter.start()
    t.match(report, {
      nodeId: b.nodeId,
      transport: name,
      source: { kind: 'loopback' },
      destination: { kind: 'loopback' },
      class: { kind: 'loopback', from: 'interfaces' },
    })
    t.ok(
      report.rtt!.minMs > 0 &&
        report.rtt!.minMs <= report.rtt!.p50Ms &&
        report.rtt!.p50Ms <= report.rtt!.p95Ms,
    )
    t.ok(report.bandwidth!.p25 > 1e6 && report.bandwidth!.from === 'probe')
    if (name === 'quic') t.equal(report.loss, undefined, 'too few packets besides those of the probe')
    else t.ok(report.loss !== undefined && report.loss < 0.05, `${report.loss}`)
    t.equal(report.stability, undefined, 'one round is no stability')
    const before = left.counts.bytesSent
    await meter.measureBandwidth()
    t.equal(left.counts.bytesSent, before, 'not again so soon')
    const row = linkRow(report, 'other')
    t.equal(row.length, linkColumns.length)
    t.match(row[3], 'this machine')
  })
}

t.test('a node that answers nothing leaves numbers open', async t => {
  const listener = await tlsTransport().listen(b, openDoor)
  t.teardown(() => listener.close())
  const left = await tlsTransport().connect(listener.address, a, b.nodeId)
  const report = await new LinkMeter(left).start()
  t.equal(report.loss, undefined)
  t.equal(report.destination, undefined)
  t.match(linkRow(report)[7], 'not measured')
  await left.close()
  const gone = await new LinkMeter(left).start()
  t.same([gone.rtt, gone.bandwidth, gone.loss], [undefined, undefined, undefined])
})

t.test('the echo answers nobody without a key', async t => {
  const { left } = await ends(t)
  const { port } = (await left.call('echo', null)) as { port: number }
  const socket = createSocket('udp4')
  t.teardown(() => socket.close())
  let answers = 0
  socket.on('message', () => answers++)
  for (const bytes of [Buffer.alloc(64), Buffer.alloc(0), Buffer.alloc(1400)])
    socket.send(bytes, port, '127.0.0.1')
  t.ok((await measureLoss(left, '127.0.0.1'))! < 0.05)
  t.equal(answers, 0)
})

t.test('20 ms on the way there and back', async t => {
  const { left } = await ends(t, async port => {
    const proxy = await delayProxy(port, 10)
    t.teardown(() => proxy.close())
    return proxy.port
  })
  const rtt = await new LinkMeter(left).measureRtt()
  t.ok(rtt!.minMs >= 19 && rtt!.p50Ms < 60, JSON.stringify(rtt))
})

t.test('100 Mb/s, and a tenth of the packets lost', { skip: canMakeNetworks() }, async t => {
  const network = new TestNetwork('lnk')
  t.teardown(() => network.close())
  const [left, right] = [network.host('left'), network.host('right')]
  const [end] = network.cable(left, '10.83.0.1/24', right, '10.83.0.2/24')
  network.limit(left, end, 100)
  network.lose(right, 10)
  const run = (host: string, task: object, told: (line: string) => void): void => {
    const [command, ...args] = network.inside(host, [process.execPath, linkHost, JSON.stringify(task)])
    const child = spawn(command, args, { env: { ...process.env, NODE_OPTIONS: '' } })
    let output = ''
    child.stdout.on('data', data => {
      output += data
      if (output.endsWith('\n')) told(output)
    })
    child.stderr.on('data', data => t.comment(`${data}`))
    t.teardown(() => child.kill('SIGKILL'))
  }
  const report = await new Promise<LinkReport>(resolve => {
    run(right, { own: b, listen: '10.83.0.2' }, line => {
      const address = { host: '10.83.0.2', port: Number(line) }
      run(left, { own: a, peer: b.nodeId, address }, text => resolve(JSON.parse(text)))
    })
  })
  const megabits = (report.bandwidth!.p50 * 8) / 1e6
  t.ok(megabits > 60 && megabits < 130, `${megabits} Mb/s of 100`)
  t.ok(report.loss! > 0.03 && report.loss! < 0.2, `${report.loss} of 0.1`)
  t.match(report, {
    source: { kind: 'virtual' },
    destination: { kind: 'virtual' },
    class: { flags: [/below/] },
  })
  t.comment(linkRow(report).join(' | '))
})
