// The commands invite, token and audit, as a user types them.
import { randomUUID } from 'node:crypto'
import { appendFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { createProgram } from '#lib/cli/program.js'
import { AuditLog } from '#lib/cluster/trust/audit.js'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { saveCredentials } from '#lib/cluster/trust/credentials.js'
import { parseCode } from '#lib/cluster/trust/invitations.js'
import { NodeIdentity } from '#lib/cluster/trust/node-identity.js'
import { SparkError } from '#lib/core/errors.js'

/** Runs a command in this process: what it prints, or why it fails. */
async function cli(home: string, ...args: string[]): Promise<{ code: number; text: string }> {
  const out = t.capture(process.stdout, 'write', () => true)
  const err = t.capture(process.stderr, 'write', () => true)
  const [, inner] = args
  try {
    const isInner = args[0] !== 'invite' && inner !== undefined
    const words = [...args.slice(0, isInner ? 2 : 1), '--home', home, ...args.slice(isInner ? 2 : 1)]
    await (await createProgram(args)).parseAsync(words, { from: 'user' })
    return { code: Number(process.exitCode ?? 0), text: texts(out) }
  } catch (error) {
    return { code: error instanceof SparkError ? 1 : 2, text: `${(error as Error).message}\n${texts(err)}` }
  } finally {
    out.restore()
    err.restore()
    process.exitCode = 0
  }
}

const texts = (captured: () => readonly { args: readonly unknown[] }[]): string =>
  captured()
    .map(({ args }) => String(args[0]))
    .join('')

t.test('what a node prints', async t => {
  const home = t.testdir()
  t.match(await cli(home, 'invite'), { code: 1, text: /holds no CA of a cluster/ })
  const authority = await ClusterAuthority.create('lab', home)
  const identity = await NodeIdentity.open(home)
  t.match(await cli(home, 'token', 'create', '--scope', 'admin'), {
    code: 1,
    text: /this node has no certificate/,
  })
  const credentials = await authority.certify(identity, { dns: [], ips: [] })
  await saveCredentials(credentials, home)

  const invitation = JSON.parse((await cli(home, 'invite', '--minutes', '5', '--json')).text)
  t.match(invitation, {
    clusterName: 'lab',
    fingerprint: authority.fingerprint,
    command: /^dgx-spark up --join /,
  })
  t.ok(authority.fingerprint.startsWith(parseCode(invitation.code).fingerprint))
  t.match((await cli(home, 'invite')).text, /^(\w{4}-){12}\w{4}\nOne machine may join lab/)

  const args = ['--scope', 'gpu:allocate', 'gpu:compute', '--gpu', 'GPU-1', '--memory', '8GiB']
  const made = JSON.parse((await cli(home, 'token', 'create', ...args, '--json')).text)
  t.match(made, { subject: identity.nodeId, scopes: ['gpu:allocate', 'gpu:compute'], memoryBytes: 2 ** 33 })
  t.match((await cli(home, 'token', 'create', '--scope', 'admin')).text, /^[\w-]+\.[\w-]+\.[\w-]+\n$/)
  t.match(await cli(home, 'token', 'revoke', made.jti), { code: 0, text: /is revoked/ })
  t.match((await cli(home, 'token', 'list')).text, /revoked/)
  t.match(JSON.parse((await cli(home, 'token', 'list', '--json')).text), [
    { isRevoked: true },
    { isRevoked: false },
  ])
  t.match(await cli(home, 'token', 'create', '--scope', 'root'), {
    code: 2,
    text: /Allowed choices are gpu:allocate/,
  })
  t.match(await cli(home, 'token', 'create', '--scope', 'admin', '--memory', 'much'), { code: 2 })
  writeFileSync(path.join(home, 'x.pem'), 'x')
  const file = ['--certificate', path.join(home, 'x.pem')]
  t.match(await cli(home, 'token', 'create', '--scope', 'admin', ...file), {
    code: 1,
    text: /needs --subject/,
  })
  t.match(await cli(home, 'token', 'create', '--scope', 'admin', '--subject', 'ada', ...file), {
    code: 1,
    text: /no certificate in PEM/,
  })
})

t.test('a node that is revoked by its id', async t => {
  const home = t.testdir()
  const authority = await ClusterAuthority.create('lab', home)
  const own = await authority.certify(await NodeIdentity.open(home), { dns: [], ips: [] })
  const other = await authority.certify(await NodeIdentity.open(path.join(home, 'other')))
  const revoke = (id: string) => cli(home, 'node', '--json', '--revoke', id)
  t.match(await revoke('spark-2'), { code: 1, text: /^--revoke spark-2: an id of a node is a uuid/ })
  t.match(await revoke(own.nodeId), { code: 1, text: /this is the node that began the cluster/ })
  t.match(await revoke(randomUUID()), { code: 1, text: /^there is no node .* with a certificate/ })
  t.match(await revoke(other.nodeId), { code: 0, text: other.nodeId })
  const { nodes } = (await ClusterAuthority.open(home)).revocations.list()
  t.strictSame(nodes, [other.nodeId])
})

t.test('what was recorded, and whether it was changed', async t => {
  const home = t.testdir()
  const log = await AuditLog.open(await NodeIdentity.open(home))
  await log.append({ actor: 'ada', op: 'allocate', device: 'GPU-1', bytes: 2 ** 20, result: 'ok' })
  await log.append({ actor: '10.0.0.9', op: 'refusal', result: 'code: it was used' })
  await log.close()
  t.match(await cli(home, 'audit', 'verify'), { code: 0, text: /records +2\n(.*\n)*nothing was changed/ })
  t.match(JSON.parse((await cli(home, 'audit', 'show', '--op', 'refusal', '--json')).text), [
    { seq: 1, actor: '10.0.0.9' },
  ])
  t.match((await cli(home, 'audit', 'show', '--actor', 'ada')).text, /allocate .*GPU-1 .*1\.0 MiB/)
  appendFileSync(path.join(log.folder, 'audit-00000001.jsonl'), 'x\n')
  t.match(await cli(home, 'audit', 'verify', log.folder), { code: 1, text: /edit: .*record 2 is no record/ })
  t.match(JSON.parse((await cli(home, 'audit', 'verify', '--json')).text), { isIntact: false })
  for (const command of ['verify', 'show'])
    t.match(await cli(home, 'audit', command, path.join(home, 'none')), {
      code: 1,
      text: /holds no audit log/,
    })
})
