// Tokens: who is let in, what each step may do, and what ends in the tick of a revocation.
import { createPrivateKey, generateKeyPairSync, randomUUID } from 'node:crypto'
import path from 'node:path'
import { SignJWT } from 'jose'
import t from 'tap'
import type { AuditEvent } from '#lib/cluster/trust/audit-record.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { RateLimits } from '#lib/cluster/trust/rate-limits.js'
import { eventOf, Refusals } from '#lib/cluster/trust/refusals.js'
import {
  type TokenClaims,
  TokenGate,
  TokenIssuer,
  type TokenRequest,
  thumbprintOf,
} from '#lib/cluster/trust/tokens.js'
import { scriptResult } from '../../fixtures/child.js'

type TapTest = Pick<typeof t, 'testdir' | 'teardown'>

async function openGate(t: TapTest, limits?: RateLimits) {
  const folder = t.testdir()
  const authority = await ClusterAuthority.create('lab', folder)
  const credentials = await authority.certify(await NodeIdentity.open(folder), { dns: [], ips: [] })
  const certificate = thumbprintOf(credentials.certificate)
  const issuer = new TokenIssuer(authority)
  const events: AuditEvent[] = []
  const ended: TokenClaims[] = []
  const gate = new TokenGate({
    credentials,
    revocations: authority.revocations,
    ...(limits && { limits }),
    refusals: new Refusals(refusal => events.push(eventOf(refusal))),
    onEvent: event => events.push(event),
    onRevoked: claims => ended.push(claims),
  })
  t.teardown(() => gate[Symbol.dispose]())
  const create = (request: Partial<TokenRequest> = {}) =>
    issuer.create({ subject: 'ada', scopes: ['gpu:compute'], certificate, ...request })
  return { folder, authority, credentials, certificate, issuer, gate, events, ended, create }
}

t.test('a token lets in who holds the certificate that it is bound to', async t => {
  const { gate, certificate, create, events, issuer } = await openGate(t)
  const { token, jti } = await create({ gpus: ['GPU-1'], memoryBytes: 1000, minutes: 5 })
  const grant = await gate.open(token, certificate, '10.0.0.9')
  t.match(grant.claims, { jti, subject: 'ada', scopes: ['gpu:compute'], gpus: ['GPU-1'], memoryBytes: 1000 })
  t.ok(await gate.open(token, certificate), 'again, on a connection with the same certificate')
  await t.rejects(gate.open(token, 'A'.repeat(43), '10.0.0.10'), {
    code: 'ERR_DENIED',
    message: /it was replayed/,
  })
  t.match(events, [
    { op: 'token-use', actor: 'ada', jti, result: 'ok' },
    { op: 'token-use' },
    { op: 'refusal', actor: '10.0.0.10', jti, result: /^token: .*replayed/ },
  ])
  grant.step('gpu:compute', 'GPU-1')
  t.throws(() => grant.step('gpu:compute', 'GPU-2'), {
    code: 'ERR_DENIED',
    message: /does not allow GPU GPU-2/,
  })
  t.throws(() => grant.step('admin'), { code: 'ERR_DENIED', message: /does not allow admin/ })
  t.same(gate.refusals.counts, { token: 1, scope: 2 })
  t.match(await issuer.list(), [{ jti, isRevoked: false }])
})

t.test('a variant of a token that is refused does not lock the token out', async t => {
  const { gate, certificate, create } = await openGate(t)
  const { token } = await create()
  // The last character of a signature has four bits that count for nothing.
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  const variant = token.slice(0, -1) + alphabet[alphabet.indexOf(token.at(-1)!) ^ 1]
  await t.rejects(gate.open(variant, 'A'.repeat(43)), { code: 'ERR_DENIED', message: /it was replayed/ })
  t.ok(await gate.open(token, certificate))
})

t.test('many refusals of an address are recorded once', async t => {
  const { gate, certificate, events } = await openGate(
    t,
    new RateLimits({ address: { count: 2, seconds: 60 } }),
  )
  for (let i = 0; i < 6; i++)
    await t.rejects(gate.open(`${i}`, certificate, '10.0.0.9'), { code: 'ERR_DENIED' })
  await t.rejects(gate.open('x', certificate, '10.0.0.10'), { code: 'ERR_DENIED' })
  t.same(gate.refusals.counts, { token: 7 })
  t.strictSame(
    events.map(({ actor }) => actor),
    ['10.0.0.9', '10.0.0.9', '10.0.0.9', '10.0.0.10'],
  )
})

t.test('what is no request for a token', async t => {
  const { create } = await openGate(t)
  for (const bad of [
    { subject: '' },
    { scopes: [] },
    { scopes: ['root' as never] },
    { gpus: [] },
    { gpus: [''] },
    { memoryBytes: -1 },
    { minutes: 16 },
    { minutes: 0 },
    { certificate: 'x' },
  ])
    await t.rejects(create(bad), { code: 'ERR_ARGUMENT' }, JSON.stringify(bad))
})

t.test('tokens that are forged, foreign, of another kind or too old', async t => {
  const { gate, certificate, create, authority, folder } = await openGate(t)
  const { token } = await create()
  const [head, payload, signature] = token.split('.') as [string, string, string]
  const { x5c } = JSON.parse(Buffer.from(head, 'base64url').toString())
  const signer = JSON.parse(
    await (await import('node:fs/promises')).readFile(path.join(folder, 'token-signer.json'), 'utf8'),
  )
  const key = createPrivateKey(signer.privateKey)
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString())
  const forge = (changes: object, header: object = {}, by = key) =>
    new SignJWT({ ...claims, jti: randomUUID(), ...changes })
      .setProtectedHeader({ alg: 'EdDSA', typ: 'at+jwt', x5c, ...header })
      .sign(by)
  t.ok(await gate.open(await forge({}), certificate), 'the forger of this test makes good ones')
  const now = Math.floor(Date.now() / 1000)
  const coded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const other = await ClusterAuthority.create('other', path.join(folder, 'other'))
  const foreign = await new TokenIssuer(other).create({ subject: 'a', scopes: ['admin'], certificate })
  const refused = {
    empty: '',
    number: 5,
    long: 'x'.repeat(20_000),
    'other payload': [head, coded({ ...claims, scope: 'admin' }), signature].join('.'),
    'no signature': [coded({ alg: 'none', typ: 'at+jwt' }), payload, ''].join('.'),
    'no certificate': await forge({}, { x5c: undefined }),
    'another key': await forge({}, {}, generateKeyPairSync('ed25519').privateKey),
    'a certificate of a node': await forge(
      {},
      { x5c: [authority.certificate.replace(/-----.*?-----|\s/g, '')] },
    ),
    'another type': await forge({}, { typ: 'JWT' }),
    'another cluster': foreign.token,
    'another audience': await forge({ aud: 'x' }),
    'another issuer': await forge({ iss: 'x' }),
    expired: await forge({ iat: now - 1000, exp: now - 100 }),
    'living too long': await forge({ exp: now + 86_400 }),
    'an unknown scope': await forge({ scope: 'gpu:compute root' }),
    unbound: await forge({ cnf: {} }),
    'without an id': await forge({ jti: undefined }),
    'the id of another one': await forge({ jti: claims.jti, scope: 'admin' }),
  }
  await gate.open(token, certificate)
  for (const [name, bad] of Object.entries(refused)) {
    await t.rejects(gate.open(bad, certificate), { code: 'ERR_DENIED', message: /was refused: / }, name)
  }
  t.equal(gate.refusals.counts.token, Object.keys(refused).length)
})

t.test('a revocation ends a tenant in the same tick: no step begins, memory is zeroed', async t => {
  const { gate, certificate, create, issuer, ended, authority } = await openGate(t)
  const { token, jti } = await create({ scopes: ['gpu:allocate', 'gpu:compute'], memoryBytes: 100 })
  const other = await create({ scopes: ['gpu:compute'] })
  const grant = await gate.open(token, certificate)
  const second = await gate.open(token, certificate)
  const unharmed = await gate.open(other.token, certificate)
  const memory = new Uint8Array(60).fill(7)
  const freed = new Uint8Array(30).fill(8)
  grant.allocate(60, undefined, () => memory.fill(0))
  const free = second.allocate(30, undefined, () => freed.fill(0))
  t.throws(() => grant.allocate(11, undefined, () => {}), {
    code: 'ERR_DENIED',
    message: /has 90 of 100 bytes/,
  })
  free()
  free()
  t.equal(grant.allocatedBytes, 60)
  t.throws(() => grant.allocate(-1, undefined, () => {}), { code: 'ERR_ARGUMENT' })
  const order: string[] = []
  grant.signal.addEventListener('abort', () => order.push(`aborted, memory ${memory[0]}`))
  const revoked = authority.revocations.add({ tokens: { [jti]: Date.now() / 1000 + 900 } })
  t.same(order, ['aborted, memory 7'], 'before the call returns, work first')
  t.ok(memory.every(value => value === 0))
  t.ok(
    freed.every(value => value === 8),
    'what was freed is of others now',
  )
  t.same(
    ended.map(claims => claims.jti),
    [jti],
  )
  for (const each of [grant, second]) {
    t.ok(each.signal.aborted)
    t.throws(() => each.step('gpu:compute'), { code: 'ERR_DENIED', message: /ended: .*it was revoked/ })
    t.throws(() => each.allocate(1, undefined, () => {}), { code: 'ERR_DENIED' })
  }
  unharmed.step('gpu:compute')
  await revoked
  await t.rejects(gate.open(token, certificate), { message: /it was revoked/ })
  t.match(await issuer.list(), [{ jti, isRevoked: true }, { isRevoked: false }])
  await t.rejects(issuer.revoke('x'), { code: 'ERR_ARGUMENT' })
  await t.rejects(issuer.revoke(randomUUID()), { code: 'ERR_DENIED' })
})

t.test('a node that is revoked, and a node that stops, end tenants', async t => {
  const { gate, certificate, create, authority, ended, events } = await openGate(t)
  const nodeId = randomUUID()
  const scopes = ['gpu:allocate'] as const
  const grant = await gate.open((await create({ subject: nodeId, scopes })).token, certificate)
  const memory = new Uint8Array(4).fill(1)
  grant.allocate(4, undefined, () => {
    throw new Error('the device is gone')
  })
  grant.allocate(4, undefined, () => memory.fill(0))
  const other = await gate.open((await create()).token, certificate)
  const adding = authority.revocations.add({ nodes: [nodeId] })
  t.ok(grant.signal.aborted)
  t.match(events.at(-1), { op: 'free', actor: nodeId, result: 'memory was not zeroed: the device is gone' })
  t.equal(memory[0], 0, 'the other memory is')
  t.notOk(other.signal.aborted)
  await adding
  gate[Symbol.dispose]()
  t.ok(other.signal.aborted)
  t.equal(ended.length, 2)
})

t.test('a tenant that cannot be ended does not keep others alive', async t => {
  const { gate, certificate, create, authority, ended, events } = await openGate(t)
  const nodeId = randomUUID()
  ended.push = () => {
    throw new Error('no such tenant')
  }
  const made = [await create({ subject: nodeId }), await create({ subject: nodeId })]
  const grants = await Promise.all(made.map(({ token }) => gate.open(token, certificate)))
  await authority.revocations.add({ nodes: [nodeId] })
  t.ok(grants.every(({ signal }) => signal.aborted))
  t.match(events.at(-1), { op: 'free', actor: nodeId, result: /no such tenant/ })
})

t.test('another process revokes', async t => {
  const { gate, certificate, create, authority, folder } = await openGate(t)
  const stop = new AbortController()
  t.teardown(() => stop.abort())
  await authority.revocations.follow(stop.signal)
  const { token, jti } = await create()
  const grant = await gate.open(token, certificate)
  const aborted = new Promise<void>(resolve => grant.signal.addEventListener('abort', () => resolve()))
  await scriptResult(`
    const { ClusterAuthority } = await import('#lib/cluster/trust/authority.js')
    const { TokenIssuer } = await import('#lib/cluster/trust/tokens.js')
    await new TokenIssuer(await ClusterAuthority.open(${JSON.stringify(folder)})).revoke('${jti}')
    console.log('{}')`)
  await aborted
  t.throws(() => grant.step('gpu:compute'), { code: 'ERR_DENIED' })
})

t.test('a token that is used too often', async t => {
  const { gate, certificate, create, events } = await openGate(
    t,
    new RateLimits({ token: { count: 2, seconds: 60 } }),
  )
  const { token } = await create()
  for (let i = 0; i < 2; i++) await gate.open(token, certificate)
  for (let i = 0; i < 3; i++) await t.rejects(gate.open(token, certificate), { code: 'ERR_BUSY' })
  t.same(gate.refusals.counts, { 'too many': 3 })
  t.equal(events.filter(({ op }) => op === 'refusal').length, 1)
})
