// Nodes that keep their decisions in NATS: the node with the CA starts the server, another one uses it.
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { ClusterNode } from '#lib/cluster/node/cluster-node.js'
import type { ClusterNodeOptions } from '#lib/cluster/node/node-options.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { Invitations } from '#lib/cluster/trust/invitations.js'
import { freePort } from '../../fixtures/cluster/free-port.js'
import { canMakeNetworks, TestNetwork } from '../../fixtures/cluster/namespaces.js'
import { needsNats } from '../../fixtures/cluster/nats.js'
import { up } from '../../fixtures/cluster/up.js'

const folder = t.testdir({})

t.test('two nodes share decisions in the nats-server of the first one', needsNats, async t => {
  const start = async (t: Test, name: string, options: ClusterNodeOptions) => {
    const fixed = { home: path.join(folder, name), name, host: '127.0.0.1', mdns: false, statePort: null }
    const node = await ClusterNode.start({ port: await freePort(), ...fixed, ...options })
    t.teardown(() => node.close())
    return node
  }
  const port = await freePort()
  const seed = await start(t, 'seed', { create: 'lab', control: 'nats', port })
  t.match(seed.state.control, { kind: 'nats', quorum: { members: 1, note: /there is no quorum/ } })
  const at = { host: '127.0.0.1', port }
  const { code } = await seed.invite()
  await t.rejects(start(t, 'second', { code, at, control: 'nats' }), {
    code: 'ERR_IO',
    message: /runs on the node with the CA: give its address with --nats host:/,
  })
  const second = await start(t, 'second', { peers: [`127.0.0.1:${port}`], nats: [`127.0.0.1:${port + 3}`] })
  t.match(second.state.control, { kind: 'nats', quorum: { writable: true } })
  const seq = await second.control.log.append({ layers: 7 })
  const found: unknown[] = []
  for await (const { seq: at, record } of seed.control.log.read(seq)) {
    found.push([at, record])
    break
  }
  t.strictSame(found, [[seq, { layers: 7 }]])
  const pid = Number(readFileSync(path.join(folder, 'seed', 'nats', 'nats-server.pid'), 'utf8'))
  process.kill(pid, 'SIGKILL')
  t.ok((await second.control.log.append({ layers: 8 })) > seq, 'a server that was killed is started again')
  await seed.revoke({ nodes: [second.identity.nodeId] })
  await t.rejects(start(t, 'third', { control: 'other' as never }), { code: 'ERR_ARGUMENT' })
})

t.test('two machines on a cable', { skip: needsNats.skip ?? canMakeNetworks() }, async t => {
  const network = new TestNetwork('nat')
  t.teardown(() => network.close())
  const [one, two] = [network.host('one'), network.host('two')]
  network.cable(one, '10.94.0.1/24', two, '10.94.0.2/24')
  const start = (host: string, name: string, ...args: string[]) =>
    up(t, ['--home', path.join(folder, name), '--name', name, ...args], network.inside(host, []))
  const first = await start(one, 'one', '--cluster', 'pair', '--control', 'nats')
  t.match(first.first.control, { kind: 'nats', quorum: { note: /there is no quorum/ } })
  const authority = await ClusterAuthority.open(path.join(folder, 'one'))
  const { code } = await new Invitations(authority.folder).create(authority.fingerprint)
  const second = await start(two, 'two', '--join', code, '--nats', 'nats://10.94.0.1:7436')
  t.match(second.first.control, { kind: 'nats', quorum: { members: 1, writable: true } })
  await first.until(new RegExp(`"node-online".*"${second.first.nodes[0].id}"`))
  for (const { child } of [second, first]) {
    child.kill('SIGINT')
    await once(child, 'exit')
  }
})
