// The CA: certificates that OpenSSL and Node.js accept, who gets one, and mutual TLS 1.3 between nodes.
import { execFileSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { connect, createServer, type TLSSocket } from 'node:tls'
import t from 'tap'
import { ClusterAuthority, requestFor } from '#lib/cluster/trust/authority.js'
import {
  loadCredentials,
  type NodeCredentials,
  needsRenewal,
  type PeerPolicy,
  saveCredentials,
  validityOf,
} from '#lib/cluster/trust/credentials.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { tlsOptions } from '#lib/cluster/trust/tls.js'

const names = { dns: ['localhost', 'one.local'], ips: ['127.0.0.1', '::1'] }

t.test('a certificate of 30 days names the node, its names and addresses', async t => {
  const folder = t.testdir()
  const authority = await ClusterAuthority.create('lab 1', path.join(folder, 'ca'))
  await t.rejects(ClusterAuthority.create('again', path.join(folder, 'ca')), { code: 'ERR_BUSY' })
  const identity = await NodeIdentity.open(path.join(folder, 'one'))
  const credentials = await authority.certify(identity, names)
  const certificate = new X509Certificate(credentials.certificate)
  t.equal(
    certificate.subjectAltName,
    `URI:spiffe://${authority.clusterId}/node/${identity.nodeId}, DNS:localhost, DNS:one.local, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1`,
  )
  t.equal(certificate.serialNumber.toLowerCase(), credentials.serial)
  const { from, to } = validityOf(credentials.certificate)
  t.equal(Math.round((to.getTime() - from.getTime()) / 86_400_000), 30)
  t.notOk(needsRenewal(credentials))
  t.ok(needsRenewal(credentials, Date.now() + 15.1 * 86_400_000))
  t.match(await authority.issued(), [{ serial: credentials.serial, nodeId: identity.nodeId }])
  await saveCredentials(credentials, path.join(folder, 'one'))
  t.same(await loadCredentials(path.join(folder, 'one')), credentials)
  t.equal(await loadCredentials(path.join(folder, 'none')), undefined)
  const reopened = await ClusterAuthority.open(path.join(folder, 'ca'))
  t.equal(reopened.fingerprint, authority.fingerprint)
})

t.test('openssl verifies it', async t => {
  const folder = t.testdir()
  const authority = await ClusterAuthority.create('lab', folder)
  const { certificate, ca } = await authority.certify(await NodeIdentity.open(folder), names)
  const [caFile, file] = [path.join(folder, 'ca.pem'), path.join(folder, 'node.pem')]
  writeFileSync(caFile, ca)
  writeFileSync(file, certificate)
  let printed: string
  try {
    printed = execFileSync('openssl', ['verify', '-x509_strict', '-CAfile', caFile, file], {
      encoding: 'utf8',
    })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return t.pass('no openssl here')
    throw error
  }
  t.match(printed, /node\.pem: OK/)
})

t.test('what is not signed for', async t => {
  const folder = t.testdir()
  const authority = await ClusterAuthority.create('lab', path.join(folder, 'ca'))
  const identity = await NodeIdentity.open(path.join(folder, 'one'))
  const other = await NodeIdentity.open(path.join(folder, 'other'))
  const { privateKey: _, ...request } = await requestFor(identity, names)
  const { signature, identityKey } = await requestFor(other, names)
  await t.rejects(authority.sign({ ...request, signature }), { code: 'ERR_FORMAT', message: /not signed/ })
  await t.rejects(authority.sign({ ...request, identityKey }), { code: 'ERR_FORMAT' })
  await t.rejects(authority.sign({ ...request, nodeId: 'me' }), { code: 'ERR_FORMAT' })
  await t.rejects(authority.sign({ ...request, request: 5 as never }), { code: 'ERR_FORMAT' })
  const text = 'no request'
  const signed = Buffer.from(identity.sign(Buffer.from(text))).toString('base64url')
  await t.rejects(authority.sign({ ...request, request: text, signature: signed }), { message: /PKCS #10/ })
  await authority.sign(request)
  const impostor = await requestFor(other, names)
  await t.rejects(authority.sign({ ...impostor, nodeId: identity.nodeId }), {
    code: 'ERR_DENIED',
    message: /belongs to another node/,
  })
  const second = await authority.certify(other, { dns: ['one.local', 'two.local', 'a b'], ips: ['::1', 'x'] })
  const { subjectAltName } = new X509Certificate(second.certificate)
  t.notMatch(subjectAltName, /one\.local/, 'the name of another node is not given again')
  t.match(subjectAltName, /two\.local, IP Address:0:0:0:0:0:0:0:1$/)
  await authority.revocations.add({ nodes: [other.nodeId] })
  await t.rejects(authority.certify(other, names), { code: 'ERR_DENIED', message: /was revoked/ })
  for (const bad of ['', 'a,CN=b', ' a', 'x'.repeat(65), 'ü'])
    await t.rejects(ClusterAuthority.create(bad, path.join(folder, 'x')), { code: 'ERR_ARGUMENT' })
  await t.rejects(ClusterAuthority.open(path.join(folder, 'x')), { code: 'ERR_IO', message: /no CA/ })
})

/** A connection from one node to another: who each side sees, or why it is refused. */
async function meet(server: NodeCredentials, client: NodeCredentials, policy: PeerPolicy, expected?: string) {
  const secure = tlsOptions(server, policy)
  const listener = createServer(secure.server)
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as { port: number }
  const atServer = new Promise<string>(resolve => {
    listener.on('tlsClientError', error => resolve((error as NodeJS.ErrnoException).code ?? error.message))
    listener.on('secureConnection', (socket: TLSSocket) => {
      socket.on('error', () => {})
      try {
        resolve(secure.admit(socket).nodeId)
      } catch (error) {
        resolve((error as Error).message)
      }
    })
  })
  const socket = connect({ host: '127.0.0.1', port, ...tlsOptions(client, policy).client(expected) })
  const atClient = new Promise<string>(resolve => {
    socket.on('secureConnect', () => resolve(socket.getProtocol()!))
    socket.on('error', error => resolve(error.message))
  })
  const seen = { atServer: await atServer, atClient: await atClient }
  socket.destroy()
  listener.close()
  return seen
}

t.test('nodes meet over TLS 1.3; who is revoked or another one is refused by name', async t => {
  const folder = t.testdir()
  const authority = await ClusterAuthority.create('lab', folder)
  const one = await authority.certify(await NodeIdentity.open(path.join(folder, 'one')), names)
  const two = await authority.certify(await NodeIdentity.open(path.join(folder, 'two')), names)
  const { revocations } = authority
  t.same(await meet(one, two, revocations, one.nodeId), { atServer: two.nodeId, atClient: 'TLSv1.3' })
  t.match(await meet(one, two, revocations, two.nodeId), {
    atClient: `the peer was refused: it is node ${one.nodeId}, not ${two.nodeId}`,
  })
  await revocations.add({ serials: [two.serial] })
  t.match(await meet(one, two, revocations), { atServer: /refused: certificate [0-9a-f]{32} was revoked/ })
  t.match(await meet(two, one, revocations), { atClient: /refused: certificate [0-9a-f]{32} was revoked/ })
  const again = await ClusterAuthority.open(folder)
  t.match(again.revocations.accepts({ ...two, thumbprint: '' }), /was revoked/, 'the list survives')
})
