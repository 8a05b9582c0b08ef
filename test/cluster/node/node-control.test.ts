// The nats-server of a node: it is told of the last certificate and the last list of nodes, also after it was killed.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { NodeControl } from '#lib/cluster/node/node-control.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { freePort } from '../../fixtures/cluster/free-port.js'
import { needsNats } from '../../fixtures/cluster/nats.js'

async function open(t: Test, options: { silenceMs?: number } = {}) {
  const folder = t.testdir({})
  const authority = await ClusterAuthority.create('lab', folder)
  const identity = await NodeIdentity.open(folder)
  const credentials = await authority.certify(identity)
  const control = await NodeControl.open({
    ...{ control: 'nats', host: '127.0.0.1', port: await freePort() },
    ...{ folder, credentials, authority, revocations: authority.revocations, ...options },
  })
  t.teardown(() => control.close())
  const read = (name: string) => readFile(path.join(folder, 'nats', name), 'utf8').catch(() => '')
  const restarted = async (pid: string): Promise<void> => {
    for (let left = 1500; left > 0 && (await read('nats-server.pid')) === pid; left--) await sleep(20)
    t.not(await read('nats-server.pid'), pid)
  }
  return { folder, authority, identity, control, read, restarted }
}

t.test('a server that is started again shows the last certificate', needsNats, async t => {
  const { folder, authority, identity, control, read, restarted } = await open(t)
  const next = await authority.certify(identity)
  await control.renew(next)
  t.equal(await read('node.pem'), next.certificate)
  const pid = await read('nats-server.pid')
  process.kill(Number(pid), 'SIGKILL')
  const other = await NodeIdentity.open(path.join(folder, 'other'))
  await authority.certify(other)
  await control.update()
  await restarted(pid)
  // It is its turn when the server has been started.
  await control.update()
  t.equal(await read('node.pem'), next.certificate)
  t.match(await read('server.conf'), other.nodeId)
  t.ok((await control.plane.log.append({ n: 1 })) >= 1)
})

t.test('a server that answers nothing is started again', needsNats, async t => {
  const { control, read, restarted } = await open(t, { silenceMs: 1000 })
  await control.plane.log.append({ n: 1 })
  const pid = await read('nats-server.pid')
  process.kill(Number(pid), 'SIGSTOP')
  await restarted(pid)
  t.equal(await control.plane.log.append({ n: 2 }), 2, 'and has what it had')
})
