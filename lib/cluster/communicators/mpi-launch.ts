// mpi-launch.ts: starts the ranks of an epoch on several nodes by mpirun. They are processes of their own, since MPI starts
// once in a process and ends it when a rank dies; this process only sees how the job ends.
import { randomUUID } from 'node:crypto'
import { chmod, writeFile } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import path from 'node:path'
import { argumentError, expectInteger, expectKnownOptions } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { packageFolder } from '../../core/package-folder.js'
import type { Fabric } from '../links/fabric.js'
import type { FrameStream } from '../links/frame-stream.js'
import { fabricNetworks } from './fabric-networks.js'
import { mpiNetworks, mpiParameters, readyVariable } from './mpi.js'
import { daemonParameters, startQuestion, stopQuestion } from './mpi-daemon.js'
import { type MpiEnd, MpiProcess, makeFolder } from './mpi-processes.js'

/** A node that ranks run on. */
export interface MpiHost {
  /** Its address in the fabric. */
  readonly address: string
  /** How many ranks. Default 1. */
  readonly ranks?: number
  /** The link to it, whose other end called {@link hostMpi}; undefined: this machine. */
  readonly link?: FrameStream
}

/** Options of {@link launchMpi}. */
export interface MpiLaunchOptions {
  /** Of the world. */
  readonly epoch: number
  /** In the order of ranks; this machine must be among them, or come first. */
  readonly hosts: readonly MpiHost[]
  /** What each rank runs: a program and its arguments, the same on all nodes. It calls `join` with kind `mpi`. */
  readonly command: readonly string[]
  /** Variables of the ranks, besides those that they inherit. */
  readonly env?: Readonly<Record<string, string>>
  /** The interface of this node that messages go over; it must be fabric. */
  readonly interface: string
  /** Networks that may carry plaintext. */
  readonly fabric: Fabric
  /** Milliseconds until all ranks have joined; after that it is tried once more. Default 20 s. */
  readonly timeoutMs?: number
  /** Is told each line that a rank prints. */
  readonly onLine?: (line: string) => void
}

/** Ranks that run. */
export interface MpiJob {
  /** Of the world. */
  readonly epoch: number
  /** Resolves when all ranks have ended: undefined where they left, else what went wrong. */
  readonly ended: Promise<SparkError | undefined>
  /** Ends all ranks. */
  stop(): Promise<void>
}

const options = ['epoch', 'hosts', 'command', 'env', 'interface', 'fabric', 'timeoutMs', 'onLine']
const attempts = 2
const maxQuestionBytes = 64 << 10

/**
 * Starts ranks on several nodes; resolves when all have joined. The commands for other nodes go over the links to them, and
 * ranks and daemons use networks of the fabric only: close the ports of those to everybody else.
 * @throws SparkError ERR_ARGUMENT; ERR_DENIED outside of the fabric; ERR_UNSUPPORTED without Open MPI; ERR_IO where ranks do
 * not come, twice
 * @example
 * const job = await launchMpi({ epoch: 7, hosts: [{ address: '10.77.0.1' }, { address: '10.77.0.2', link }],
 *   command: ['node', '/srv/rank.js'], interface: 'enp1s0f0np0', fabric: new Fabric(['10.77.0.0/24']) })
 * const failure = await job.ended
 */
export async function launchMpi(launch: MpiLaunchOptions): Promise<MpiJob> {
  const { epoch, hosts, command, timeoutMs = 20_000 } = launch
  expectKnownOptions('options', launch, options)
  expectInteger('epoch', epoch, 0, 0xffffffff)
  expectInteger('timeoutMs', timeoutMs, 1, 3_600_000)
  if (!Array.isArray(hosts) || hosts.length === 0) throw argumentError('hosts', 'a list of nodes', hosts)
  for (const { address, ranks = 1 } of hosts) {
    expectInteger('ranks', ranks, 1, 1024)
    if (typeof address !== 'string' || !/^[\w.-]+$/.test(address))
      throw argumentError('address', 'an IPv4 address', address)
    launch.fabric.expect(address)
  }
  if (!Array.isArray(command) || command.length === 0 || !command.every(word => typeof word === 'string'))
    throw argumentError('command', 'a program and its arguments', command)
  const networks = fabricNetworks('mpi', launch.interface, launch.fabric)
  const parameters = {
    ...mpiParameters(launch.interface, networks),
    ...daemonParameters(mpiNetworks(launch.interface, networks)),
  }
  for (let attempt = 1; ; attempt++) {
    try {
      return await tryLaunch(launch, parameters, timeoutMs)
    } catch (error) {
      if (attempt === attempts || (error as SparkError).code !== 'ERR_IO') throw error
    }
  }
}

async function tryLaunch(
  launch: MpiLaunchOptions,
  parameters: Record<string, string>,
  timeoutMs: number,
): Promise<MpiJob> {
  const { epoch, hosts, env, onLine } = launch
  const folder = await makeFolder()
  const agent = await writeAgent(folder)
  const socket = path.join(folder, 'agent.sock')
  const problems: string[] = []
  const server = await listen(socket, question => startDaemon(launch, question), problems)
  const ready = randomUUID()
  const world = hosts.reduce((sum, { ranks = 1 }) => sum + ranks, 0)
  let missing = world
  let allReady = (): void => {}
  const joined = new Promise<void>(resolve => {
    allReady = resolve
  })
  const program = {
    command: 'mpirun',
    args: mpirunArguments(launch, world, [readyVariable, ...Object.keys(env ?? {})]),
    env: {
      ...process.env,
      ...env,
      ...parameters,
      OMPI_MCA_plm: 'rsh',
      OMPI_MCA_plm_rsh_agent: agent,
      OMPI_MCA_plm_rsh_no_tree_spawn: '1',
      OMPI_MCA_mpi_yield_when_idle: '1',
      PRTE_MCA_plm: 'ssh',
      PRTE_MCA_plm_ssh_agent: agent,
      PRTE_MCA_plm_ssh_no_tree_spawn: '1',
      DGX_SPARK_MPI_SOCKET: socket,
      [readyVariable]: ready,
    },
    folder,
  }
  const close = async (): Promise<void> => {
    server.close()
    const links = new Set(hosts.flatMap(({ link }) => link ?? []))
    for (const link of links) {
      const answer = await link.call(stopQuestion, { epoch }).catch(() => undefined)
      const { problem } = (answer ?? {}) as { problem?: unknown }
      if (typeof problem === 'string') problems.push(`node ${link.peer.nodeId}: ${problem}`)
    }
  }
  const mpirun = await MpiProcess.start(program, line => {
    if (line !== ready) onLine?.(line)
    else if (--missing === 0) allReady()
  }).catch(async error => {
    await close()
    throw error
  })
  const stop = async (): Promise<void> => {
    await mpirun.stop()
    await close()
  }
  const ended = mpirun.ended.then(async end => {
    await close()
    return failureOf(end, problems)
  })
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<string>(resolve => {
    timer = setTimeout(
      () => resolve(`${missing} of ${world} ranks did not join within ${timeoutMs} ms`),
      timeoutMs,
    )
  })
  const early = ended.then(error => error?.message ?? 'the ranks ended before they joined')
  const failure = await Promise.race([joined, late, early])
  clearTimeout(timer)
  if (failure === undefined) return { epoch, ended, stop }
  await stop()
  throw new SparkError('ERR_IO', `epoch ${epoch} could not be launched: ${failure}`)
}

function mpirunArguments(
  { hosts, command }: MpiLaunchOptions,
  world: number,
  exported: readonly string[],
): string[] {
  return [
    ...(process.getuid?.() === 0 ? ['--allow-run-as-root'] : []),
    ...['--bind-to', 'none', '--oversubscribe', '-np', `${world}`],
    ...['-H', hosts.map(({ address, ranks = 1 }) => `${address}:${ranks}`).join(',')],
    ...exported.flatMap(name => ['-x', name]),
    ...['--wdir', '/'],
    ...command,
  ]
}

/** mpirun splits the agent's command at spaces, so it gets a file of one name. */
async function writeAgent(folder: string): Promise<string> {
  if (/\s/.test(folder)) throw new SparkError('ERR_UNSUPPORTED', `TMPDIR must not have spaces: ${folder}`)
  const root = packageFolder()
  if (root === undefined)
    throw new SparkError('ERR_UNSUPPORTED', "kind 'mpi' needs the files of the package, not a bundle of it")
  const script = path.join(root, 'dist', 'cluster', 'communicators', 'mpi-agent.js')
  const agent = path.join(folder, 'agent')
  const quoted = [process.execPath, script].map(word => `'${word.replaceAll("'", "'\\''")}'`)
  await writeFile(agent, `#!/bin/sh\nexec ${quoted.join(' ')} "$@"\n`)
  await chmod(agent, 0o700)
  return agent
}

/** Answers agents; their folder is this user's alone. */
async function listen(
  socket: string,
  start: (question: { host: string; words: string[] }) => Promise<void>,
  problems: string[],
): Promise<Server> {
  const answer = (connection: Socket): void => {
    let text = ''
    connection.setEncoding('utf8').on('error', () => {})
    connection.on('data', part => {
      text += part
      if (text.length > maxQuestionBytes) connection.destroy()
    })
    connection.on('end', async () => {
      try {
        await start(JSON.parse(text))
        connection.end('started')
      } catch (error) {
        problems.push((error as Error).message)
        connection.end('failed')
      }
    })
  }
  const server = createServer({ allowHalfOpen: true }, answer)
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(socket, resolve))
  return server
}

async function startDaemon(
  { hosts, epoch }: MpiLaunchOptions,
  { host, words }: { host: string; words: string[] },
): Promise<void> {
  const link = hosts.find(({ address }) => address === host)?.link
  if (!link) throw new SparkError('ERR_IO', `mpirun wants ranks on ${host}, to which there is no link`)
  await link.call(startQuestion, { epoch, words })
}

function failureOf({ code, signal, words }: MpiEnd, problems: readonly string[]): SparkError | undefined {
  if (code === 0) return undefined
  const details = [...problems, words].filter(text => text !== '').join('; ')
  return new SparkError(
    'ERR_IO',
    `mpirun ended with ${signal ?? `code ${code}`}: ${details || 'no reason given'}`,
  )
}
