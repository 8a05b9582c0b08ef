// token.ts: `dgx-spark token`: makes, revokes and lists tokens of tenants.
import { type Command, InvalidArgumentError } from 'commander'
import { ClusterAuthority } from '../../cluster/trust/authority.js'
import { loadCredentials } from '../../cluster/trust/credentials.js'
import {
  maxTokenMinutes,
  type TokenClaims,
  TokenIssuer,
  type TokenRequest,
  type TokenScope,
  thumbprintOf,
  tokenScopes,
} from '../../cluster/trust/tokens.js'
import { SparkError } from '../../core/errors.js'
import { readText } from '../../io/read-file.js'
import { choice, UsageError, withExamples } from '../command.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { formatBytes, print, printJson } from '../output.js'
import { printTable } from '../table.js'

interface CommonFlags {
  home?: string
  json?: boolean
}

interface CreateFlags extends CommonFlags {
  scope: TokenScope[]
  gpu?: string[]
  memory?: number
  minutes?: number
  node?: string
  certificate?: string
  subject?: string
}

/** `dgx-spark token`. */
export function addToken(token: Command): void {
  withExamples(token, 'dgx-spark token create --scope gpu:compute', 'dgx-spark token list')
  const create = withHome(
    token.command('create').description('make a token that ends after 15 minutes at most'),
  )
    .addOption(
      choice('--scope <name...>', 'what it allows', tokenScopes)
        .argParser((text: string, before: TokenScope[] | undefined) => [...(before ?? []), scopeFrom(text)])
        .makeOptionMandatory(),
    )
    .option('--gpu <id...>', 'GPUs that it allows (default: all)')
    .option('--memory <size>', 'memory that it may hold, such as 8GiB (default: no limit)', bytesFrom)
    .option('--minutes <n>', `until it ends (default: ${maxTokenMinutes})`, integerFrom(1, maxTokenMinutes))
    .option('--node <uuid>', 'node whose certificate it is bound to (default: this one)')
    .option('--certificate <file>', 'certificate of a client that it is bound to instead (PEM)', pathFrom)
    .option('--subject <name>', 'who it is for (default: the node)')
    .action(createToken)
  withExamples(
    create,
    'dgx-spark token create --scope gpu:compute',
    'dgx-spark token create --scope gpu:allocate gpu:compute --gpu GPU-1 --memory 8GiB --minutes 5 --json',
    'dgx-spark token create --scope model:load --subject ada --certificate ada.pem',
  )
  const revoke = withHome(
    token
      .command('revoke')
      .description('end a token: no step of it begins from now on')
      .argument('<jti>', 'its id'),
  ).action(revokeToken)
  withExamples(revoke, 'dgx-spark token revoke 2f1c5a0e-9d7b-4e59-8f43-0d8f0f9b7a11')
  const list = withHome(token.command('list').description('show tokens that have not ended')).action(
    listTokens,
  )
  withExamples(list, 'dgx-spark token list', 'dgx-spark token list --json')
}

const withHome = (command: Command): Command =>
  command
    .option('--home <folder>', 'folder of the node (default: DGX_SPARK_CLUSTER_HOME)', pathFrom)
    .option('--json', 'print one JSON document')

function scopeFrom(text: string): TokenScope {
  const found = tokenScopes.find(scope => scope === text)
  if (found) return found
  throw new InvalidArgumentError(`Allowed choices are ${tokenScopes.join(', ')}`)
}

const units: Readonly<Record<string, number>> = {
  b: 1,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
}

function bytesFrom(text: string): number {
  const [, digits, unit = 'b'] = /^(\d+(?:\.\d+)?)\s*([kmgt]ib|b)?$/i.exec(text) ?? []
  const bytes = Math.round(Number(digits) * (units[unit.toLowerCase()] ?? 1))
  if (digits !== undefined && Number.isSafeInteger(bytes)) return bytes
  throw new InvalidArgumentError('expected bytes, or a size such as 512MiB or 8GiB')
}

async function createToken(flags: CreateFlags): Promise<void> {
  const { scope: scopes, gpu: gpus, memory: memoryBytes, minutes, home, json } = flags
  const authority = await ClusterAuthority.open(home)
  const bound = await boundTo(authority, flags)
  const request: TokenRequest = {
    scopes,
    ...bound,
    ...(gpus && { gpus }),
    ...(memoryBytes !== undefined && { memoryBytes }),
    ...(minutes !== undefined && { minutes }),
  }
  const made = await new TokenIssuer(authority).create(request)
  if (json) printJson(made)
  else print(made.token)
}

/** Who a token is for, and the certificate that it is bound to. */
async function boundTo(
  authority: ClusterAuthority,
  { node, certificate, subject, home }: CreateFlags,
): Promise<Pick<TokenRequest, 'subject' | 'certificate'>> {
  if (node !== undefined && certificate !== undefined) throw new UsageError('give --node or --certificate')
  if (certificate !== undefined) {
    if (subject === undefined) throw new UsageError('--certificate needs --subject: who the token is for')
    return { subject, certificate: thumbprintOfFile(certificate, await readText(certificate)) }
  }
  const nodeId = node ?? (await loadCredentials(home))?.nodeId
  const issued = (await authority.issued()).filter(each => each.nodeId === nodeId).at(-1)
  if (nodeId === undefined || !issued) {
    const who = nodeId === undefined ? 'this node' : `node ${nodeId}`
    throw new SparkError(
      'ERR_DENIED',
      `${who} has no certificate of this cluster: run dgx-spark up there first`,
    )
  }
  return { subject: subject ?? nodeId, certificate: issued.thumbprint }
}

function thumbprintOfFile(file: string, text: string): string {
  try {
    return thumbprintOf(text)
  } catch (cause) {
    throw new SparkError('ERR_FORMAT', `${file} is no certificate in PEM`, { cause })
  }
}

async function revokeToken(jti: string, { home, json }: CommonFlags): Promise<void> {
  await new TokenIssuer(await ClusterAuthority.open(home)).revoke(jti)
  if (json) printJson({ jti, isRevoked: true })
  else print(`${jti} is revoked`)
}

async function listTokens({ home, json }: CommonFlags): Promise<void> {
  const tokens = await new TokenIssuer(await ClusterAuthority.open(home)).list()
  if (json) {
    printJson(tokens)
    return
  }
  if (tokens.length === 0) print('no token is out')
  else printTable(['id', 'for', 'allows', 'GPUs', 'memory', 'until'], tokens.map(row))
}

const row = (claims: TokenClaims & { isRevoked: boolean }): string[] => [
  claims.jti,
  claims.subject,
  claims.scopes.join(' '),
  claims.gpus?.join(' ') ?? 'all',
  claims.memoryBytes === null ? 'no limit' : formatBytes(claims.memoryBytes),
  claims.isRevoked ? 'revoked' : new Date(claims.expires * 1000).toISOString(),
]
