// Discovery on sockets and files: two processes on loopback or a test network, static and known peers, gossip.
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { Socket } from 'node:dgram'
import { readFileSync, writeFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import path from 'node:path'
import t, { type Test } from 'tap'
import { parseAddress } from '#lib/cluster/discovery/addresses.js'
import { Discovery } from '#lib/cluster/discovery/discovery.js'
import { MulticastNetwork } from '#lib/cluster/discovery/network.js'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import { lab, openDoor } from '../../fixtures/cluster/lab.js'
import { canMakeNetworks, TestNetwork } from '../../fixtures/cluster/namespaces.js'

const discoveryChild = path.resolve(import.meta.dirname, '../../fixtures/cluster/discovery-child.js')

t.test('addresses', async t => {
  t.same(parseAddress('10.0.0.7:7433'), { host: '10.0.0.7', port: 7433 })
  t.same(parseAddress('[fe80::1%eth0]:7433'), { host: 'fe80::1%eth0', port: 7433 })
  t.same(parseAddress('spark.local:1'), { host: 'spark.local', port: 1 })
  for (const text of [
    '10.0.0.7',
    ':1',
    '10.0.0.7:0',
    '10.0.0.7:65536',
    '::1:7433',
    '[10.0.0.7]:1',
    'a b:1',
    7 as never,
  ])
    t.throws(() => new Discovery({ mdns: false, peers: [text] }), { code: 'ERR_ARGUMENT' }, String(text))
})

t.test('an interface on which multicast cannot be joined', async t => {
  const [name] = Object.entries(networkInterfaces()).find(([, all]) =>
    all?.some(({ family, internal }) => family === 'IPv4' && internal),
  ) ?? ['lo']
  const { addMembership } = Socket.prototype
  t.teardown(() => Object.assign(Socket.prototype, { addMembership }))
  Socket.prototype.addMembership = () => {
    throw Object.assign(new Error('addMembership ENODEV'), { syscall: 'addMembership' })
  }
  const network = new MulticastNetwork([name])
  await network.start(
    () => {},
    () => {},
  )
  await new Promise(resolve => setImmediate(resolve))
  t.match(network.counts.failure, /addMembership ENODEV/)
  await network.close()
})

t.test('static peers, and peers that were reached before', async t => {
  const file = path.join(t.testdir(), 'peers.json')
  const options = { mdns: false, peers: ['10.0.0.7:7433'], knownPeersFile: file }
  const first = new Discovery(options)
  await first.start()
  t.match(first.nodes, [{ key: '10.0.0.7:7433', nodeId: undefined, sources: ['static'] }])
  const nodeId = randomUUID()
  await first.remember(nodeId, { host: '10.0.0.8', port: 7433 })
  await first.remember(nodeId, { host: '10.1.0.8', port: 7433 })
  await t.rejects(first.remember('nobody', { host: '10.0.0.8', port: 7433 }), { code: 'ERR_ARGUMENT' })
  await first.close()
  const second = new Discovery(options)
  await second.start()
  const known = second.nodes.find(node => node.nodeId === nodeId)
  t.match(known, { sources: ['known'] })
  t.same(known!.addresses.map(({ host }) => host).sort(), ['10.0.0.8', '10.1.0.8'])
  await second.forget(nodeId)
  t.equal(second.nodes.length, 1)
  await second.close()
  t.same(JSON.parse(readFileSync(file, 'utf8')), { peers: [] })
  for (const text of ['', '{"peers":7}', '{"peers":[{"nodeId":"x"},7,null]}', 'x'.repeat(2 << 20)]) {
    writeFileSync(file, text)
    const damaged = new Discovery(options)
    await damaged.start()
    t.equal(damaged.nodes.length, 1, `${text.length} bytes`)
    if (!text.includes('null')) t.match(damaged.problems.file, /is not used/)
    await damaged.close()
  }
})

t.test('peers of peers come over a link', async t => {
  const [a, b] = await lab(t, 2)
  const [one, two] = [new Discovery({ mdns: false }), new Discovery({ mdns: false })]
  const third = randomUUID()
  await two.remember(third, { host: '10.0.0.9', port: 7433 })
  const listener = await tlsTransport().listen(b, openDoor)
  const arriving = listener[Symbol.asyncIterator]().next()
  const left = await tlsTransport().connect(listener.address, a, b.nodeId)
  two.gossip((await arriving).value as FrameStream)
  const events = one.events()
  one.gossip(left)
  t.match((await events.next()).value, {
    type: 'found',
    node: { nodeId: third, sources: ['gossip'], cluster: 'own' },
  })
  await left.close()
  t.match((await events.next()).value, { type: 'lost', node: { nodeId: third } })
  await Promise.all([one.close(), two.close(), listener.close()])
})

/** Where a node on a host finds `count` others, by name. */
const finder =
  (t: Test, network: TestNetwork) =>
  (name: string, host: string, count: number, start: string): Promise<Record<string, string[]>> =>
    new Promise((resolve, reject) => {
      const command = network.inside(host, [process.execPath, discoveryChild, name, `${count}`, start])
      const child = spawn(command[0], command.slice(1), { env: { ...process.env, NODE_OPTIONS: '' } })
      let output = ''
      child.stdout.on('data', data => {
        output += data
        if (output.includes('\n')) resolve(JSON.parse(output.split('\n')[0]))
      })
      child.stderr.on('data', data => t.comment(`${name}: ${data}`))
      child.on('exit', code => reject(new Error(`${name} ended with ${code}`)))
      t.teardown(() => child.kill('SIGKILL'))
    })

t.test('a node on two networks finds its neighbour on each', { skip: canMakeNetworks() }, async t => {
  const network = new TestNetwork('dsc')
  t.teardown(() => network.close())
  const [left, middle, right] = ['left', 'middle', 'right'].map(name => network.host(name))
  network.cable(left, '10.81.0.1/24', middle, '10.81.0.2/24')
  network.cable(middle, '10.82.0.2/24', right, '10.82.0.3/24')
  const found = finder(t, network)
  const [byLeft, byMiddle, byRight] = await Promise.all([
    found('left', left, 1, '10.'),
    found('middle', middle, 2, '10.'),
    found('right', right, 1, '10.'),
  ])
  t.same(Object.keys(byLeft), ['middle'])
  t.same(Object.keys(byRight), ['middle'])
  t.same(Object.keys(byMiddle).sort(), ['left', 'right'])
  t.equal(byMiddle.left[0], '10.81.0.1:7433')
  t.equal(byMiddle.right[0], '10.82.0.3:7433')
  t.equal(byLeft.middle[0], '10.81.0.2:7433')
})

t.test('a cable without IPv4: link-local addresses', { skip: canMakeNetworks() }, async t => {
  const network = new TestNetwork('ds6')
  t.teardown(() => network.close())
  const [left, right] = [network.host('left'), network.host('right')]
  const [, end] = network.cable(left, '', right, '')
  const found = finder(t, network)
  const [byLeft] = await Promise.all([found('left', left, 1, '[fe80:'), found('right', right, 1, '[fe80:')])
  t.match(byLeft.right[0], /^\[fe80::[0-9a-f:]+%eth0a\]:7433$/, end)
})
