// Attacks on the ports of a running node: strangers, members that lie, stolen tokens, floods. Each is refused, counted in
// /api/state and recorded, the node stays small, and honest nodes get through.
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect as connectPlain, type Socket } from 'node:net'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import type { FrameStream } from '#lib/cluster/links/frame-stream.js'
import { encodeControl, encodeHeader, recordKinds } from '#lib/cluster/links/record.js'
import { tlsTransport } from '#lib/cluster/links/tls.js'
import type { ClusterState } from '#lib/cluster/node/cluster-state.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import type { NodeCredentials } from '#lib/cluster/trust/credentials.js'
import { sendFrame } from '#lib/cluster/trust/frames.js'
import { Invitations } from '#lib/cluster/trust/invitations.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import type { RefusalKind } from '#lib/cluster/trust/refusals.js'
import { tlsOptions } from '#lib/cluster/trust/tls.js'
import { TokenIssuer, thumbprintOf } from '#lib/cluster/trust/tokens.js'
import { verifyAudit } from '#lib/cluster/trust/verify-audit.js'
import { freePort } from '../../fixtures/cluster/free-port.js'
import { openDoor } from '../../fixtures/cluster/lab.js'
import { up } from '../../fixtures/cluster/up.js'

/** How long floods last; minutes in the nightly run. */
const floodSeconds = Number(process.env.FLOOD_SECONDS ?? 4)
const host = '127.0.0.1'
const folder = t.testdir({})
const names = { dns: ['localhost'], ips: [host] }
/** Options of a connection, and the address of this machine that it is from. */
type From = ConnectionOptions & { localAddress?: string }
const anyServer: ConnectionOptions = { checkServerIdentity: () => undefined, rejectUnauthorized: false }

/** A node in a process of its own, and the CA of its cluster. */
async function victim(t: Test) {
  const home = path.join(folder, 'victim')
  const port = await freePort()
  const places = ['--host', host, '--port', `${port}`, '--state-port', `${await freePort()}`]
  const { child, first } = await up(t, ['--cluster', 'lab', '--no-mdns', '--home', home, ...places])
  const state = async (): Promise<ClusterState> =>
    (await (await fetch(`http://${host}:${places.at(-1)}/api/state`)).json()) as ClusterState
  const authority = await ClusterAuthority.open(home)
  return { home, port, child, state, authority, id: first.nodes[0].id as string }
}

const node = await victim(t)
const member = async (name: string, authority = node.authority, days?: number): Promise<NodeCredentials> =>
  authority.certify(await NodeIdentity.open(path.join(folder, name)), names, days)

/** Waits until so many of a kind were refused. */
async function reached(t: Test, kind: RefusalKind, count: number): Promise<void> {
  const found = async (): Promise<number> => (await node.state()).refused[kind] ?? 0
  for (let tries = 0; tries < 500 && (await found()) < count; tries++) await sleep(20)
  t.ok((await found()) >= count, kind)
}

/** Waits until one more of a kind was refused. */
async function refusedMore(t: Test, kind: RefusalKind, act: () => Promise<unknown>): Promise<void> {
  const before = (await node.state()).refused[kind] ?? 0
  await act()
  await reached(t, kind, before + 1)
}

function open(options: From, port = node.port): TLSSocket {
  const socket = connect({ host, port, ...options })
  socket.on('error', () => {})
  socket.resume()
  return socket
}

const closed = (socket: Socket): Promise<void> =>
  new Promise(resolve => (socket.closed ? resolve() : socket.once('close', () => resolve())))

/** Connects and waits until the node ends it. */
async function attack(
  options: ConnectionOptions,
  act: (socket: TLSSocket) => void = () => {},
): Promise<void> {
  const socket = open(options)
  socket.once('secureConnect', () => act(socket))
  await closed(socket)
}

/** A link of a node that says little of itself. */
async function linked(credentials: NodeCredentials): Promise<FrameStream> {
  const link = await tlsTransport().connect({ host, port: node.port }, credentials, node.id)
  link.handle('node', () => ({ name: 'test' }))
  link.handle('revoked', () => null)
  return link
}

t.test('strangers', async t => {
  const own = await member('member')
  const secure = tlsOptions(own, openDoor).client()
  const { cert: _cert, key: _key, ...anonymous } = secure
  await refusedMore(t, 'tls version', () =>
    attack({ ...secure, minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' }),
  )
  await refusedMore(t, 'no certificate', () => attack(anonymous))
  const foreign = await ClusterAuthority.create('foreign', path.join(folder, 'foreign'))
  const strange = await member('member', foreign)
  await refusedMore(t, 'foreign certificate', () =>
    attack({ ...tlsOptions(strange, openDoor).client(), ...anyServer }),
  )
  const expired = await member('member', node.authority, -0.001)
  await refusedMore(t, 'expired certificate', () => attack(tlsOptions(expired, openDoor).client()))
  const revoked = await member('revoked')
  const link = await linked(revoked)
  await refusedMore(t, 'peer', () => node.authority.revocations.add({ nodes: [revoked.nodeId] }))
  t.match((await link.closed).reason, /was revoked/, 'the link that was open')
  await refusedMore(t, 'peer', () => attack(tlsOptions(revoked, openDoor).client()))
})

t.test('members that lie', async t => {
  const secure = tlsOptions(await member('liar'), openDoor).client()
  const window = { bytes: 1 << 20, frames: 16, maxFrameBytes: 1 << 20 }
  const words = { version: 1, session: crypto.randomUUID(), resumes: false, window }
  const hello = encodeControl(recordKinds.hello, 0, 0, Buffer.from(JSON.stringify(words)))
  const cases: [string, Buffer][] = [
    ['first words of 1 MiB', encodeHeader(recordKinds.hello, 0, 0, 0, 1 << 20)],
    ['no first words', Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')],
    ['a frame of 4 GiB', Buffer.concat([hello, encodeHeader(recordKinds.data, 0, 0, 0xffffffff, 16)])],
    ['a record of 1 MiB', Buffer.concat([hello, encodeHeader(recordKinds.call, 0, 0, 0, 1 << 20)])],
    ['no kind', Buffer.concat([hello, Buffer.alloc(64, 0xff)])],
  ]
  for (const [name, bytes] of cases) {
    t.comment(name)
    await refusedMore(t, 'frame', () => attack(secure, socket => socket.write(bytes)))
  }
})

t.test('tokens', async t => {
  const [own, thief] = [await member('tenant'), await member('thief')]
  const issuer = new TokenIssuer(node.authority)
  const certificate = thumbprintOf(own.certificate)
  const { token, jti } = await issuer.create({ subject: 'ada', scopes: ['gpu:compute'], certificate })
  const [link, stolen] = await Promise.all([own, thief].map(linked))
  t.match(await link!.call('token', { token, scope: 'gpu:compute' }), { jti, scopes: ['gpu:compute'] })
  const fails = async (end: typeof link, question: unknown, message: RegExp): Promise<void> =>
    refusedMore(t, /allow/.test(message.source) ? 'scope' : 'token', () =>
      t.rejects(end!.call('token', question), { message }),
    )
  await fails(link, { token, scope: 'admin' }, /does not allow admin/)
  await fails(stolen, { token }, /another certificate|bound/)
  await fails(link, { token: 'x.y.z' }, /was refused/)
  await fails(link, null, /no token/)
  await issuer.revoke(jti)
  // The node hears of it from the folder.
  const isGood = (): Promise<boolean> =>
    link!.call('token', { token }).then(
      () => true,
      () => false,
    )
  for (let tries = 0; tries < 500 && (await isGood()); tries++) await sleep(10)
  await fails(link, { token }, /revoked/)
  await Promise.all([link!.close(), stolen!.close()])
})

/** Resident memory of the node, MiB. */
const residentMiB = (): number =>
  Number(readFileSync(`/proc/${node.child.pid}/statm`, 'utf8').split(' ')[1]) / 256

const skip = process.platform === 'linux' ? false : 'addresses of loopback and /proc are those of Linux'

t.test('floods and slow lorises: memory is flat, and an honest node gets through', { skip }, async t => {
  const { fingerprint, folder: home } = node.authority
  await new Invitations(home).create(fingerprint, 15)
  const before = (await node.state()).refused
  const secure = tlsOptions(await member('slow'), openDoor).client()
  const slow = Array.from({ length: 40 }, (_, i) =>
    open({ ...secure, localAddress: `127.0.2.${1 + (i % 4)}` }),
  )
  const ending = AbortSignal.timeout(floodSeconds * 1000)
  /** Connects again and again, from another address each time. */
  const flood = async (
    first: number,
    port: number,
    options: ConnectionOptions,
    act: (s: TLSSocket) => void,
  ) => {
    for (let round = 0; !ending.aborted; round++) {
      const socket = open({ ...options, localAddress: `127.0.1.${first + (round % 12)}` }, port)
      socket.once('secureConnect', () => act(socket))
      await Promise.race([closed(socket), sleep(1000)])
      socket.destroy()
    }
  }
  const burst = Array.from({ length: 150 }, async () => {
    const socket = connectPlain({ host, port: node.port, localAddress: '127.0.3.1' })
    socket.on('error', () => {}).resume()
    await Promise.race([closed(socket), sleep(1000)])
    socket.destroy()
  })
  const join = { request: '{}', invitation: '00'.repeat(16), mac: '00'.repeat(32) }
  const anonymous = { ...anyServer, minVersion: 'TLSv1.3' as const }
  const floods = [
    ...[1, 13].map(i => flood(i, node.port, anonymous, () => {})),
    ...[25, 37].map(i => flood(i, node.port + 1, anonymous, socket => sendFrame(socket, join))),
    flood(49, node.port + 1, anonymous, socket => socket.write(Buffer.alloc(8, 0xff))),
    ...burst,
    flood(61, node.port, secure, socket => socket.write(Buffer.alloc(4096, 0xff))),
  ]
  await sleep(floodSeconds * 400)
  const early = residentMiB()
  await Promise.all(floods)
  const late = residentMiB()
  const { refused } = await node.state()
  const more = Object.entries(refused).map(([kind, count]) => [
    kind,
    count - (before[kind as RefusalKind] ?? 0),
  ])
  t.comment(`${floodSeconds} s: ${JSON.stringify(Object.fromEntries(more))}`)
  t.ok(late < early + 48, `${early.toFixed(0)} MiB, then ${late.toFixed(0)} MiB`)
  for (const kind of ['too many', 'no certificate', 'frame', 'code'] as const)
    t.ok(refused[kind]! > (before[kind] ?? 0), kind)
  const link = await linked(await member('honest'))
  t.ok((await link.ping()) > 0)
  await link.close()
  await Promise.all(slow.map(closed))
  await reached(t, 'timeout', (before.timeout ?? 0) + slow.length)
})

t.test('the audit log has them all', async t => {
  const { refused, audit } = await node.state()
  node.child.kill('SIGINT')
  await once(node.child, 'exit')
  const log = path.join(node.home, 'audit')
  const { isIntact, records } = await verifyAudit(log)
  // What was still on its way is counted after the state was read.
  t.ok(isIntact && records >= audit.records, `${records} records`)
  t.equal(audit.lost, 0)
  const lines = readFileSync(path.join(log, 'audit-00000001.jsonl'), 'utf8').trim().split('\n')
  const results: string[] = lines.map(line => JSON.parse(line)).map(({ op, result }) => `${op} ${result}`)
  for (const [kind, count] of Object.entries(refused)) {
    const found = results.filter(result => result.startsWith(`refusal ${kind}:`)).length
    // Of many that come too fast the first one is recorded.
    if (kind === 'too many') t.ok(found > 0 && found <= count)
    else t.ok(found >= count, kind)
  }
  t.notOk(
    results.some(result => /telemetry/.test(result)),
    'decisions only',
  )
})
