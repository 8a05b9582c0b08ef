// Stages that are loaded with a token: what it allows, and what is left when it is revoked in the middle of a sequence.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Cluster } from '#lib/cluster/cluster.js'
import { ClusterNode } from '#lib/cluster/node/cluster-node.js'
import { graphCosts } from '#lib/cluster/placement/graph-costs.js'
import { readCanonical } from '#lib/cluster/stages/staged-model.js'
import type { AuditRecord } from '#lib/cluster/trust/audit-record.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import type { TokenScope } from '#lib/cluster/trust/token-claims.js'
import { TokenIssuer } from '#lib/cluster/trust/tokens.js'
import { freePort } from '../../fixtures/cluster/free-port.js'

const folder = t.testdir({})
const width = 16

/** Two layers that remember. */
async function writeModel(file: string): Promise<void> {
  const g = new GraphBuilder()
  let h = g.input('x', 'f32', [1, width])
  for (let i = 0; i < 2; i++) {
    const state = g.input(`past_${i}`, 'f32', [1, width])
    const w = g.initializer(`w${i}`, Tensor.random([width, width], { seed: i + 1, distribution: 'normal' }))
    h = g.add('Tanh', [g.add('Add', [g.add('MatMul', [h, w]), state])])
    g.output(g.add('Identity', [h]), `present_${i}`)
  }
  g.output(h, 'y')
  using model = await Model.fromGraph(g.build(), { backend: 'cpu' })
  await model.save(file)
}

async function start(t: Test, name: string, options: object): Promise<ClusterNode> {
  const fixed = { host: '127.0.0.1', mdns: false, statePort: null, pressure: null, jobs: false } as const
  const node = await ClusterNode.start({ home: path.join(folder, name), name, ...fixed, ...options })
  t.teardown(() => node.close())
  return node
}

t.test('stages of a tenant', async t => {
  const file = path.join(folder, 'model.onnx')
  await writeModel(file)
  const port = await freePort()
  const host = await start(t, 'host', { create: 'lab', port })
  const at = { host: '127.0.0.1', port }
  const tenant = await start(t, 'tenant', {
    ...{ code: (await host.invite()).code, at, port: await freePort() },
  })
  const authority = await ClusterAuthority.open(path.join(folder, 'host'))
  const thumbprintOf = async ({ identity }: ClusterNode): Promise<string> =>
    (await authority.issued()).filter(({ nodeId }) => nodeId === identity.nodeId).at(-1)!.thumbprint
  const token = async (scopes: readonly TokenScope[], more: { memoryBytes?: number } = {}, of = tenant) =>
    new TokenIssuer(authority).create({
      ...{ subject: 'ada', scopes, certificate: await thumbprintOf(of), ...more },
    })
  const last = graphCosts('model', await readCanonical(file)).layers.length - 1
  const load = (token: string, on = 'host', nodes = 2) =>
    new Cluster(tenant).load(file, {
      ...{ pins: [`0-${last}=${on}`], nodes, backend: 'cpu', threads: 1, token },
    })
  const feeds = { x: Tensor.random([1, width], { seed: 9 }) }

  const denied = async (scopes: TokenScope[], message: RegExp, more = {}): Promise<void> => {
    const made = await token(scopes, more)
    await t.rejects(load(made.token), { code: 'ERR_DENIED', message }, `${message}`)
  }
  await denied(['gpu:compute', 'gpu:allocate'], /does not allow model:load/)
  await denied(['model:load'], /does not allow gpu:allocate/)
  await denied(['model:load', 'gpu:allocate'], /may not allocate/, { memoryBytes: 100 })
  const ofAnother = await token(['model:load', 'gpu:allocate'], {}, host)
  await t.rejects(load(ofAnother.token), { code: 'ERR_DENIED', message: /certificate/ })
  await t.rejects(load('no token'), { code: 'ERR_DENIED' })
  await t.rejects(load(5 as never), { code: 'ERR_ARGUMENT' })

  const reads = await load((await token(['model:load', 'gpu:allocate'])).token)
  await t.rejects(reads.bindState().run(feeds), { code: 'ERR_DENIED', message: /does not allow gpu:compute/ })
  await reads.dispose()

  const whole = await token(['model:load', 'gpu:allocate', 'gpu:compute'])
  const model = await load(whole.token)
  const sequence = model.bindState()
  for (let step = 0; step < 3; step++) t.match((await sequence.run(feeds)).y?.shape, [1, width])
  t.equal(host.gate.tenants.length > 0, true)
  await host.revoke({ tokens: { [whole.jti]: whole.expires } })
  await t.rejects(sequence.run(feeds), { code: 'ERR_DENIED', message: /revoked|ended/ }, 'no step begins')
  await t.rejects(load(whole.token), { code: 'ERR_DENIED', message: /revoked/ }, 'and nothing is loaded')
  t.notOk(
    host.gate.tenants.some(({ jti }) => jti === whole.jti),
    'the tenant has gone',
  )

  const worker = await start(t, 'worker', {
    ...{ code: (await host.invite()).code, at, port: await freePort() },
  })
  const other = await token(['model:load', 'gpu:allocate', 'gpu:compute'])
  const elsewhere = (await load(other.token, 'worker', 3)).bindState()
  let [began, revoked] = [0, 0]
  let revoking = Promise.resolve()
  await t.rejects(
    async () => {
      for (let step = 0; step < 10_000; step++) {
        const now = performance.now()
        await elsewhere.run(feeds)
        began = now
        if (step !== 20) continue
        revoked = performance.now()
        revoking = host.revoke({ tokens: { [other.jti]: other.expires } })
      }
    },
    { code: 'ERR_DENIED' },
    'the node with the stage is another one than that which revokes',
  )
  await revoking
  t.comment(`a step began ${Math.max(0, began - revoked).toFixed(1)} ms after the revocation on another node`)

  await worker.close()
  await host.close()
  await tenant.close()
  const [hosted, given] = [recordsOf('host'), recordsOf('tenant')]
  const ofToken = hosted.filter(({ jti }) => jti === whole.jti).map(({ op }) => op)
  for (const op of ['token-use', 'load', 'compute', 'free'] as const) t.ok(ofToken.includes(op), op)
  const isRefused = ({ op, jti }: AuditRecord): boolean => op === 'refusal' && jti !== undefined
  t.match(hosted.find(isRefused), { result: /does not allow model:load/ })
  const { nodeId } = tenant.identity
  t.match(hosted.find(({ op }) => op === 'transfer')?.actor, nodeId, 'who gave the weights')
  const bytes = given.find(({ op, actor }) => op === 'transfer' && actor === host.identity.nodeId)?.bytes
  t.ok(Number(bytes) > 0, `and who got them, ${bytes} bytes`)
})

/** The audit log of a node that has ended. */
function recordsOf(name: string): AuditRecord[] {
  const audit = path.join(folder, name, 'audit')
  const [first] = readdirSync(audit).filter(each => each.startsWith('audit-'))
  const lines = readFileSync(path.join(audit, first!), 'utf8').trim().split('\n')
  return lines.map(line => JSON.parse(line) as AuditRecord)
}
