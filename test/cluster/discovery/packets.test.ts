// Discovery without sockets: names, probes, announcements, known answers, goodbyes, and packets that lie or make no sense.
import { randomUUID } from 'node:crypto'
import dnsPacket, { type Answer, type Packet } from 'dns-packet'
import t, { type Test } from 'tap'
import { Discovery, type DiscoveryOptions } from '#lib/cluster/discovery/discovery.js'
import { type Announcement, recordsOf, sightingsIn } from '#lib/cluster/discovery/packets.js'
import { randomGenerator } from '#lib/core/random.js'
import { PacketBus } from '../../fixtures/cluster/packet-bus.js'

const domain = '_exo-gpu._tcp.local'
const timing = { probeMs: 5, announceMs: 5, queryMs: 40, goodbyeMs: 5 }
const fingerprint = 'ab'.repeat(32)

const announcement = (changes: Partial<Announcement> = {}): Announcement => ({
  nodeId: randomUUID(),
  name: 'spark',
  port: 7433,
  fingerprint,
  namespace: '0123456789abcdef',
  devices: 2,
  memoryGiB: 119,
  ...changes,
})

function node(
  t: Test,
  bus: PacketBus,
  address: string,
  changes: Partial<Announcement> = {},
  options: DiscoveryOptions = {},
) {
  const announce = announcement(changes)
  const discovery = new Discovery({ announce, network: bus.join(address), timing, ...options })
  t.teardown(() => discovery.close())
  return { discovery, announce }
}

const isProbe = ({ packet }: { packet: Packet }): boolean => (packet.authorities?.length ?? 0) > 0
const isAnnouncement = ({ packet }: { packet: Packet }): boolean => packet.type === 'response'

t.test('three probes, two announcements below 400 B of TXT, and a goodbye', async t => {
  const bus = new PacketBus()
  const { discovery } = node(t, bus, '10.0.0.1')
  await discovery.start()
  while (bus.sent.filter(isAnnouncement).length < 2) await new Promise(setImmediate)
  t.equal(bus.sent.filter(isProbe).length, 3)
  const { packet } = bus.sent.find(isAnnouncement)!
  const types = packet.answers!.map(({ type }) => type)
  t.same(types, ['PTR', 'SRV', 'TXT', 'A', 'PTR'])
  const txt = packet.answers![2] as { data: Buffer[] }
  t.ok(txt.data.reduce((sum, part) => sum + part.length + 1, 0) < 400)
  await discovery.close()
  t.match(bus.sent.at(-1)!.packet.answers, [{ type: 'PTR', ttl: 0 }])
})

t.test('nodes find each other, tell changes and are lost after a goodbye', async t => {
  const bus = new PacketBus()
  const one = node(t, bus, '10.0.0.1', { name: 'one' })
  const two = node(t, bus, '10.0.0.2', { name: 'two' })
  await Promise.all([one.discovery.start(), two.discovery.start()])
  const events = one.discovery.events()
  const found = (await events.next()).value!
  t.match(found, {
    type: 'found',
    node: {
      nodeId: two.announce.nodeId,
      name: 'two',
      cluster: 'own',
      addresses: [{ host: '10.0.0.2', port: 7433 }],
      devices: 2,
      memoryGiB: 119,
      sources: ['mdns'],
    },
  })
  two.discovery.update({ ...two.announce, devices: 3 })
  t.match((await events.next()).value, { type: 'updated', node: { devices: 3 } })
  await two.discovery.close()
  t.match((await events.next()).value, { type: 'lost', node: { name: 'two' } })
  t.same(one.discovery.nodes, [])
})

t.test('a name that is taken gets a number; both nodes stay', async t => {
  const bus = new PacketBus()
  const first = node(t, bus, '10.0.0.1')
  await first.discovery.start()
  const second = node(t, bus, '10.0.0.2')
  await second.discovery.start()
  t.equal(first.discovery.name, 'spark')
  t.equal(second.discovery.name, 'spark (2)')
  const together = new PacketBus()
  const rivals = ['10.0.0.1', '10.0.0.2', '10.0.0.3'].map(address => node(t, together, address))
  await Promise.all(rivals.map(({ discovery }) => discovery.start()))
  t.equal(new Set(rivals.map(({ discovery }) => discovery.name)).size, 3)
})

t.test('another cluster is called so, whatever else it claims', async t => {
  const bus = new PacketBus()
  const one = node(t, bus, '10.0.0.1', { name: 'one' })
  const other = node(t, bus, '10.0.0.2', { name: 'two', fingerprint: 'cd'.repeat(32) })
  await Promise.all([one.discovery.start(), other.discovery.start()])
  t.match((await one.discovery.events().next()).value, { node: { cluster: 'other' } })
})

t.test('answers are not given to those who know them, and given to those who ask once', async t => {
  const bus = new PacketBus()
  const { discovery, announce } = node(t, bus, '10.0.0.1')
  await discovery.start()
  while (bus.sent.filter(isAnnouncement).length < 2) await new Promise(setImmediate)
  const question = { name: domain, type: 'PTR' as const, class: 'IN' as const }
  const [pointer] = recordsOf(domain, announce, 'spark', [])
  const answers = (): number => bus.sent.filter(isAnnouncement).length
  const before = answers()
  await new Promise(resolve => setTimeout(resolve, 10))
  bus.send('10.0.0.9', { type: 'query', questions: [question], answers: [pointer] })
  bus.send('10.0.0.9', { type: 'query', questions: [question], answers: [{ ...pointer, ttl: 30 } as Answer] })
  while (answers() === before) await new Promise(resolve => setTimeout(resolve, 5))
  t.equal(answers(), before + 1, 'one answer, to the one who knew half a minute only')
  const replies = bus.send('10.0.0.9', { type: 'query', id: 77, questions: [question] }, 40_000)
  t.match(replies, [{ id: 77, questions: [{ name: domain }] }])
})

t.test('records are asked for again at 80 % of their life, and forgotten at its end', async t => {
  const bus = new PacketBus()
  const discovery = new Discovery({ network: bus.join('10.0.0.1'), timing: { ...timing, queryMs: 30_000 } })
  t.teardown(() => discovery.close())
  await discovery.start()
  const records = recordsOf(domain, announcement(), 'brief', ['10.0.0.5'], 1)
  bus.send('10.0.0.5', { type: 'response', answers: records })
  const events = discovery.events()
  t.match((await events.next()).value, { type: 'found' })
  t.match((await events.next()).value, { type: 'lost' })
  t.equal(
    bus.sent.filter(({ packet }) => packet.type === 'query').length,
    3,
    'at the start, at 80 % and at 90 %',
  )
})

t.test('tables are bounded, and records that lie change nothing', async t => {
  const bus = new PacketBus()
  const { discovery, announce } = node(t, bus, '10.0.0.1')
  await discovery.start()
  const say = (answers: Answer[]): unknown => bus.send('10.0.0.66', { type: 'response', answers })
  const whole = recordsOf(domain, announcement(), 'evil', ['10.0.0.66'])
  say([...whole].filter(({ type }) => type !== 'TXT'))
  say([...whole].filter(({ type }) => type !== 'SRV'))
  say(
    whole.map(record =>
      record.type === 'TXT' ? { ...record, data: ['id=../../etc/passwd'] } : record,
    ) as Answer[],
  )
  say(
    whole.map(record =>
      record.type === 'TXT' ? { ...record, data: Array(200).fill('x=y') } : record,
    ) as Answer[],
  )
  say(
    whole.map(record =>
      record.type === 'SRV' ? { ...record, data: { port: 0, target: 'a' } } : record,
    ) as Answer[],
  )
  say([...recordsOf(domain, announce, 'mirror', ['10.0.0.66'])])
  t.same(discovery.nodes, [], 'none of them is a node')
  for (let i = 0; i < 400; i++) say([...recordsOf(domain, announcement(), `n${i}`, ['10.0.0.66'])])
  t.equal(discovery.nodes.length, 256)
  t.equal(discovery.problems.overflow, 144)
})

t.test('names that cannot be sent again are none', t => {
  const seen = (label: string) =>
    sightingsIn(
      { type: 'response', answers: [...recordsOf(domain, announcement(), label, ['10.0.0.66'])] },
      domain,
    ).length
  t.equal(seen('é'.repeat(31)), 1)
  for (const label of ['é'.repeat(32), 'Ⱥ'.repeat(31), '\ufffd', 'a..b', 'x'.repeat(64)])
    t.equal(seen(label), 0, label)
  t.end()
})

t.test('random packets', async t => {
  const random = randomGenerator(Number(process.env.FUZZ_SEED ?? 19))
  const rounds = Number(process.env.FUZZ_ROUNDS ?? 3000)
  const valid = dnsPacket.encode({
    type: 'response',
    answers: [...recordsOf(domain, announcement(), 'spark', ['10.0.0.1', 'fe80::1'])],
  })
  const bus = new PacketBus()
  const { discovery } = node(t, bus, '10.0.0.1')
  await discovery.start()
  let decoded = 0
  for (let round = 0; round < rounds; round++) {
    const bytes = Buffer.from(valid)
    for (let i = 0; i < 1 + (round % 8); i++)
      bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256)
    const cut = round % 3 === 0 ? bytes.subarray(0, Math.floor(random() * bytes.length)) : bytes
    let packet: Packet
    try {
      packet = dnsPacket.decode(cut)
    } catch {
      continue
    }
    decoded++
    for (const { name, port, addresses } of sightingsIn(packet, domain))
      if (name.length > 63 || port < 1 || addresses.length > 8) t.fail(`round ${round}: ${name} ${port}`)
    bus.deliver('10.0.0.66', packet)
  }
  t.ok(decoded > rounds / 10, `${decoded} of ${rounds} could be decoded`)
  t.ok(discovery.nodes.length <= 256)
})
