// audit.ts: `dgx-spark audit`: verifies and shows the audit log of a node.
import type { Command } from 'commander'
import { defaultStatePort } from '../../cluster/node/node-options.js'
import { auditFolder } from '../../cluster/trust/audit.js'
import { linesOf, readOwner, segmentsIn } from '../../cluster/trust/audit-files.js'
import { type AuditOp, type AuditRecord, auditOps, recordOf } from '../../cluster/trust/audit-record.js'
import { ClusterAuthority } from '../../cluster/trust/authority.js'
import { clusterHome } from '../../cluster/trust/home.js'
import { Members } from '../../cluster/trust/members.js'
import { verifyAudit } from '../../cluster/trust/verify-audit.js'
import type { SigningNode } from '../../cluster/trust/witness.js'
import { SparkError } from '../../core/errors.js'
import { readJson } from '../../io/read-file.js'
import { choice, withExamples } from '../command.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { formatBytes, print, printJson, printPairs, styled } from '../output.js'
import { printTable } from '../table.js'
import { witnessedAt } from './state-at.js'

interface VerifyFlags {
  witness?: string[] | true
  statePort: number
  home?: string
  json?: boolean
}

interface ShowFlags {
  last: number
  op?: AuditOp
  actor?: string
  home?: string
  json?: boolean
}

/** `dgx-spark audit`. */
export function addAudit(audit: Command): void {
  withExamples(audit, 'dgx-spark audit verify', 'dgx-spark audit show --last 20')
  const verify = withHome(
    audit
      .command('verify')
      .description('find edits, cuts, reorders and forks; exits with 1 when there are any')
      .argument('[folder]', 'audit log (default: that of this node)'),
  )
    .option(
      '--witness [file...]',
      'compare with checkpoints that other nodes keep in their folder witness (without files: the running node asks the others)',
    )
    .option(
      '--state-port <n>',
      'port of 127.0.0.1 where the running node tells its state',
      integerFrom(1, 65535),
      defaultStatePort,
    )
    .action(verifyLog)
  withExamples(
    verify,
    'dgx-spark audit verify --witness',
    'dgx-spark audit verify copy/audit --witness other/witness/0b7c.json',
  )
  const show = withHome(
    audit
      .command('show')
      .description('print records')
      .argument('[folder]', 'audit log (default: that of this node)'),
  )
    .option('--last <n>', 'how many', integerFrom(1, 100_000), 50)
    .addOption(choice('--op <name>', 'only those of an operation', auditOps))
    .option('--actor <name>', 'only those of a node, subject or address')
    .action(showLog)
  withExamples(show, 'dgx-spark audit show', 'dgx-spark audit show --op refusal --last 20 --json')
}

const withHome = (command: Command): Command =>
  command
    .option('--home <folder>', 'folder of the node (default: DGX_SPARK_CLUSTER_HOME)', pathFrom)
    .option('--json', 'print one JSON document')

async function verifyLog(
  folder: string | undefined,
  { witness = [], statePort, home, json }: VerifyFlags,
): Promise<void> {
  const notes =
    witness === true
      ? (await witnessedAt(statePort)).map(({ note }) => note)
      : await Promise.all(witness.map(noteIn))
  if (witness === true && notes.length === 0)
    throw new SparkError('ERR_IO', 'no other node that is there keeps a checkpoint of this log')
  const report = await verifyAudit(folder ?? auditFolder(home), { notes, peers: await knownNodes(home) })
  if (json) printJson(report)
  else {
    const { nodeId, records, checkpoints, covered, cosigned, problems } = report
    printPairs([
      ['node', nodeId],
      ['records', String(records)],
      ['checkpoints', `${checkpoints}, the last good one covers ${covered} records`],
      ['cosigned by peers', `${cosigned} records`],
    ])
    for (const { kind, message } of problems) print(styled('red', kind), `: ${message}`)
    if (report.isIntact) print('nothing was changed')
  }
  if (!report.isIntact) process.exitCode = 1
}

/** The note in a file of a witness. */
async function noteIn(file: string): Promise<string> {
  const value = (await readJson(file)) as { note?: unknown } | null
  if (typeof value?.note === 'string') return value.note
  throw new SparkError('ERR_FORMAT', `${file} holds no checkpoint of a witness`)
}

/** Nodes whose keys are known here: those that were met, and where the CA is, all that have certificates. */
async function knownNodes(home = clusterHome()): Promise<readonly SigningNode[]> {
  const met = await new Members(home).list()
  if (!(await ClusterAuthority.isIn(home))) return met
  const issued = await (await ClusterAuthority.open(home)).issued()
  return [...met, ...issued.map(({ nodeId, identityKey }) => ({ nodeId, publicKey: identityKey }))]
}

async function showLog(
  folder: string | undefined,
  { last, op, actor, home, json }: ShowFlags,
): Promise<void> {
  const log = folder ?? auditFolder(home)
  await readOwner(log)
  const records: AuditRecord[] = []
  for (const segment of await segmentsIn(log)) {
    for await (const { bytes } of linesOf(segment)) {
      const record = recordOf(bytes)
      if (!record || (op !== undefined && record.op !== op)) continue
      if (actor !== undefined && record.actor !== actor) continue
      records.push(record)
      if (records.length >= 2 * last) records.splice(0, records.length - last)
    }
  }
  const shown = records.slice(-last)
  if (json) printJson(shown)
  else if (shown.length === 0) print('no such record')
  else
    printTable(['seq', 'time', 'actor', 'token', 'op', 'device', 'bytes', 'result'], shown.map(row), [0, 6])
}

const row = ({ seq, time, actor, jti, op, device, bytes, result }: AuditRecord): string[] =>
  [seq, time, actor, jti ?? '', op, device ?? '', bytes === undefined ? '' : formatBytes(bytes), result].map(
    String,
  )
