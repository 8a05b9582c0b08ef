// Three nodes on this machine: they begin a cluster, join it with codes, find each other, measure their links, show each other's
// devices, and notice who leaves or was revoked.

import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { get } from 'node:http'
import path from 'node:path'
import t, { type Test } from 'tap'
import { ClusterNode } from '#lib/cluster/node/cluster-node.js'
import type { ClusterEvent, ClusterState } from '#lib/cluster/node/cluster-state.js'
import { fleetOf } from '#lib/cluster/node/live-fleet.js'
import type { ClusterNodeOptions } from '#lib/cluster/node/node-options.js'
import { readFleet } from '#lib/cluster/placement/fleet.js'
import { AuditLog } from '#lib/cluster/trust/audit.js'
import { verifyAudit } from '#lib/cluster/trust/verify-audit.js'
import { freePort } from '../../fixtures/cluster/free-port.js'

const folder = t.testdir({})

async function start(t: Test, name: string, port: number, options: ClusterNodeOptions): Promise<ClusterNode> {
  const fixed = {
    ...{ home: path.join(folder, name), name, host: '127.0.0.1', port, mdns: false, statePort: 0 },
    pressure: { constraints: { read: async () => ({}) } },
  }
  const node = await ClusterNode.start({ ...fixed, ...options })
  t.teardown(() => node.close())
  return node
}

/** Resolves when the state of a node is as it should be. */
async function until(node: ClusterNode, isSo: (state: ClusterState) => boolean): Promise<ClusterState> {
  if (isSo(node.state)) return node.state
  const end = AbortSignal.timeout(90_000)
  return new Promise((resolve, reject) => {
    const unlisten = node.events.listen(() => {
      if (!isSo(node.state)) return
      unlisten()
      resolve(node.state)
    })
    end.addEventListener('abort', () => {
      unlisten()
      const events = node.events.since(0)?.map(({ type, subject, detail }) => `${type} ${subject} ${detail}`)
      reject(new Error(`${node.identity.nodeId} had only these events: ${events?.join('\n')}`))
    })
  })
}

const online = (count: number) => (state: ClusterState) =>
  state.nodes.filter(({ isOnline }) => isOnline).length === count
const measured = (count: number) => (state: ClusterState) =>
  state.links.filter(({ rtt, bandwidth }) => rtt && bandwidth).length === count

t.test('from nothing to three nodes that trust each other', async t => {
  const ports = [await freePort(), await freePort(), await freePort()]
  const seed = await start(t, 'seed', ports[0]!, { create: 'lab' })
  t.match(seed.state, {
    cluster: { name: 'lab', hasAuthority: true, enrolmentPort: null },
    nodes: [{ name: 'seed' }],
  })
  await t.rejects(start(t, 'late', ports[1]!, { code: 'nonsense' }), { code: 'ERR_FORMAT' })

  const at = { host: '127.0.0.1', port: ports[0]! }
  const peers = [`127.0.0.1:${ports[0]}`]
  const begin = performance.now()
  const second = await start(t, 'second', ports[1]!, { code: (await seed.invite()).code, at })
  const { code } = await seed.invite()
  const third = await start(t, 'third', ports[2]!, { code, at })
  for (const node of [seed, second, third]) {
    const state = await until(node, state => online(3)(state) && measured(2)(state))
    t.same(state.nodes.map(({ name }) => name).sort(), ['second', 'seed', 'third'])
    t.equal(state.cluster.fingerprint, seed.state.cluster.fingerprint)
  }
  t.comment(`trusted and measured after ${Math.round(performance.now() - begin)} ms`)
  const { routes, devices } = await until(
    seed,
    state =>
      state.devices.length === 3 && state.devices.every(({ rates }) => rates) && state.routes.length === 6,
  )
  const { fleet, leftOut } = fleetOf({ ...seed.state, routes, devices })
  t.strictSame(leftOut, [])
  t.equal(fleet.links!.length, 3)
  const { devices: places } = await readFleet(fleet)
  t.same(places.map(({ name }) => name).sort(), ['second', 'seed', 'third'])
  const heated = (temperature: number) =>
    devices.map(device => ({ ...device, telemetry: { time: 0, ...device.telemetry, temperature } }))
  const flopsAt = (temperature: number) =>
    fleetOf({ ...seed.state, routes, devices: heated(temperature) }).fleet.nodes[0]?.devices[0]?.flops?.f32
  t.equal(flopsAt(84.5), flopsAt(60)! / 2, 'a hot device counts for less')
  t.equal(flopsAt(88), undefined)
  t.match(seed.state.pressure, { level: /./ })
  const paused = seed.state.nodes.map(node => ({ ...node, pressure: 'paused' as const }))
  t.strictSame(fleetOf({ ...seed.state, nodes: paused }).fleet.nodes, [])
  const [, late] = fleetOf({
    ...seed.state,
    devices: devices.map(({ rates: _, ...device }) => device),
  }).leftOut
  t.match(late, /rates were not measured yet/)

  await seed.invite()
  await t.rejects(
    start(t, 'fourth', await freePort(), { code, at }),
    /used|expired/,
    'a code is good for one node',
  )
  t.ok(seed.events.since(0)!.some(({ type, detail }) => type === 'refused' && /code/.test(detail)))
  await t.rejects(second.invite(), /on the node that began/)
  await t.rejects(start(t, 'second', ports[1]!, {}), { code: 'ERR_BUSY' }, 'one process a node')

  await third.audit.record({ op: 'load', who: seed.identity.nodeId, device: 'cpu', bytes: 1000 })
  await third.close()
  const left = await until(seed, online(2))
  t.match(
    left.devices.filter(({ nodeId }) => nodeId === third.identity.nodeId),
    [{ state: 'offline' }],
  )
  const again = await start(t, 'third', ports[2]!, { peers })
  await until(again, online(3))
  await until(seed, online(3))
  const witnessed = await until(again, ({ audit }) => audit.witnesses === 2)
  t.match(witnessed.audit, { lost: 0 })
  const held = await (await fetch(`http://127.0.0.1:${again.statePort}/api/witnessed`)).json()
  t.match(held, [{ note: /\n1\n/ }, { note: /\n1\n/ }])
  const log = path.join(folder, 'third/audit')
  const witnesses = [seed, second].map(({ identity: { nodeId, publicKey } }) => ({ nodeId, publicKey }))
  await again.close()
  t.match(await verifyAudit(log, { peers: witnesses }), { isIntact: true, records: 1, cosigned: 1 })

  rmSync(log, { recursive: true })
  const forged = await AuditLog.open(again.identity, { folder: log })
  await forged.append({ actor: 'nobody', op: 'free', result: 'ok' })
  await forged.close()
  t.ok((await verifyAudit(log)).isIntact, 'alone it looks good')
  const forger = await start(t, 'third', ports[2]!, { peers })
  for (const node of [seed, second]) await until(node, ({ refused }) => refused.peer! >= 1)
  const reasons = seed.events.since(0)!.filter(({ type }) => type === 'refused')
  t.match(reasons.at(-1), { detail: /^peer: the log of .* was rewritten before record 1/ })

  await t.rejects(second.revoke({ nodes: [seed.identity.nodeId] }), /on the node that began/)
  await seed.revoke({ nodes: [again.identity.nodeId] })
  for (const node of [seed, second]) await until(node, online(2))
  await until(forger, online(1))
})

t.test('the state over HTTP', async t => {
  const node = await start(t, 'alone', await freePort(), { create: 'alone' })
  const at = `http://127.0.0.1:${node.statePort}`
  const response = await fetch(`${at}/api/state`)
  t.match(await response.json(), { cluster: { name: 'alone' }, control: { kind: 'embedded' } })
  const tag = response.headers.get('etag')!
  const second = await fetch(`${at}/api/state`, { headers: { 'If-None-Match': tag } })
  t.ok(second.status === 304 || second.headers.get('etag') !== tag)
  await second.arrayBuffer()
  t.equal((await fetch(`${at}/api/other`)).status, 404)
  t.equal((await fetch(`${at}/api/state`, { method: 'POST' })).status, 405)
  const [answer] = await once(get(`${at}/api/state`, { headers: { Host: 'evil.example' } }), 'response')
  t.equal(answer.statusCode, 403, 'a page of another name must not read')
  answer.resume()

  const events = async (last: string | undefined, count: number): Promise<string[]> => {
    const stream = await fetch(
      `${at}/events`,
      last === undefined ? {} : { headers: { 'Last-Event-ID': last } },
    )
    const reader = stream.body!.pipeThrough(new TextDecoderStream()).getReader()
    let text = ''
    for (let i = 0; i < 1000 && text.split('\n\n').length <= count; i++)
      text += (await reader.read()).value ?? ''
    await reader.cancel()
    return text.split('\n\n').slice(0, count)
  }
  t.match((await events(undefined, 1))[0], /^event: state\nid: \d+\ndata: \{/)
  const before = node.events.version
  node.events.add('refused', 'somebody', 'a\nb')
  node.events.add('refused', 'somebody else')
  const missed = await events(`${before}`, 2)
  const told = missed.map(text => JSON.parse(text.split('\n')[2]!.slice('data: '.length)) as ClusterEvent)
  t.strictSame(
    told.map(({ version, subject }) => [version, subject]),
    [
      [before + 1, 'somebody'],
      [before + 2, 'somebody else'],
    ],
  )
  t.match((await events('999999', 1))[0], /^event: state/, 'whoever knows too much gets everything')
})

t.test('a start that fails leaves nothing behind', async t => {
  const port = await freePort()
  const options = { create: 'again' }
  await t.rejects(start(t, 'again', port, { ...options, pressure: { wrong: 1 } as never }), {
    code: 'ERR_ARGUMENT',
  })
  await t.rejects(start(t, 'again', port, { ...options, control: 'embedded', nats: ['127.0.0.1:1'] }), {
    code: 'ERR_ARGUMENT',
    message: /options.control must be 'nats' where options.nats is given/,
  })
  // Jobs are the last thing that a node opens.
  const jobs = {
    get skills(): never {
      throw new Error('no skills')
    },
  }
  await t.rejects(start(t, 'again', port, { ...options, jobs }), { message: 'no skills' })
  await (await start(t, 'again', port, {})).close()
})
