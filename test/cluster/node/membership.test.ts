// How a node comes to its credentials where something is wrong: a certificate that has expired, an address that cannot be.
import path from 'node:path'
import t from 'tap'
import { ClusterNode } from '#lib/cluster/node/cluster-node.js'
import { becomeMember } from '#lib/cluster/node/membership.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { loadCredentials, saveCredentials } from '#lib/cluster/trust/credentials.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { freePort } from '../../fixtures/cluster/free-port.js'

const look = { mdns: false }

t.test('a node whose certificate has expired joins again', async t => {
  const folder = t.testdir({})
  const home = path.join(folder, 'lead')
  const port = await freePort()
  const options = {
    home,
    name: 'lead',
    host: '127.0.0.1',
    mdns: false,
    statePort: null,
    pressure: null,
    port,
  }
  const lead = await ClusterNode.start({ ...options, create: 'lab' })
  t.teardown(() => lead.close())
  const identity = await NodeIdentity.open(path.join(folder, 'late'))
  const authority = await ClusterAuthority.open(home)
  const old = await authority.certify(identity, undefined, 0)
  await saveCredentials(old, identity.folder)
  await t.rejects(becomeMember(identity, {}, look), {
    code: 'ERR_DENIED',
    message: /in cluster 'lab' expired at 20.*: join again: dgx-spark up --join/,
  })
  const { code } = await lead.invite()
  const at = { host: '127.0.0.1', port }
  const { credentials } = await becomeMember(identity, { code, at }, look)
  t.match(credentials, { nodeId: old.nodeId, clusterId: old.clusterId })
  t.not(credentials.serial, old.serial)
  t.equal((await loadCredentials(identity.folder))!.serial, credentials.serial)
  t.equal((await becomeMember(identity, {}, look)).credentials.serial, credentials.serial)
  await t.rejects(becomeMember(identity, { code, at }, look), { code: 'ERR_ARGUMENT', message: /already/ })
})

t.test('an address without a port behind it is no member', async t => {
  const identity = await NodeIdentity.open(path.join(t.testdir({}), 'node'))
  await t.rejects(becomeMember(identity, { trustLan: true }, { ...look, peers: ['127.0.0.1:65535'] }), {
    code: 'ERR_DENIED',
    message: /no node lets this one join: .*65536/,
  })
})
