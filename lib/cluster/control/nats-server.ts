// nats-server.ts: a nats-server of our own: found on PATH, configured, started, watched, stopped.
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { readFile, realpath } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { SparkError } from '../../core/errors.js'
import { ioError, writeFileAtomic } from '../../io/atomic-write.js'
import { type Lock, lockFolder } from '../../io/lock.js'
import type { Address } from '../links/pipe.js'
import type { NodeCredentials } from '../trust/credentials.js'
import { makeSecretFolder } from '../trust/home.js'
import { type NatsConfig, type NatsVersion, natsConfigText, parseNatsVersion } from './nats-config.js'

/** Something about the nats-server of this machine that the user should know. */
export interface NatsServerProblem {
  /** Stable. */
  readonly name: 'missing' | 'sync-interval' | 'min-version'
  /** What it means, and what to do. */
  readonly text: string
}

/** What is on PATH. */
export interface NatsServerCheck {
  /** null where there is none. */
  readonly version: string | null
  /** What speaks against it; empty where nothing does. */
  readonly problems: readonly NatsServerProblem[]
}

/** Looks for nats-server on PATH, and for what its version cannot do. Starts nothing and never throws. */
export async function checkNatsServer(): Promise<NatsServerCheck> {
  const version = await probe()
  if (!version) {
    const text =
      'no nats-server on PATH: install it (Debian, Ubuntu: apt install nats-server) or give a server'
    return { version: null, problems: [{ name: 'missing', text }] }
  }
  const problems: NatsServerProblem[] = []
  if (!version.syncs) {
    const text = `nats-server ${version.text} syncs its files every two minutes: when the power of most servers fails at once, what was acknowledged since may be lost; 2.10 and later sync always`
    problems.push({ name: 'sync-interval', text })
  }
  if (!version.hasMinVersion) {
    const text = `nats-server ${version.text} takes TLS 1.2, too; our nodes insist on 1.3, other clients with a certificate of the cluster need not; 2.11 and later refuse it`
    problems.push({ name: 'min-version', text })
  }
  return { version: version.text, problems }
}

async function probe(): Promise<NatsVersion | undefined> {
  const output = await new Promise<string>(resolve => {
    execFile('nats-server', ['-v'], { timeout: 10_000 }, (error, stdout) => resolve(error ? '' : stdout))
  })
  return parseNatsVersion(output)
}

/** What a server is started with. */
export interface NatsServerOptions {
  /** Of this node: the server shows its certificate. */
  readonly credentials: NodeCredentials
  /** Where its files are. One server at a time may have it. */
  readonly folder: string
  /** Ids of the nodes that may connect. */
  readonly nodes: readonly string[]
  /** Where clients connect; port 0 for any. */
  readonly listen: Address
  /** Three servers or more: where the others connect, and where they are, as host:port. Their certificates have these names. */
  readonly cluster?: Address & {
    /** The other servers, `host:port`. */
    readonly routes: readonly string[]
  }
  /** Port of its monitoring on 127.0.0.1; by default there is none. */
  readonly monitorPort?: number
  /** Buckets beside those of the cluster that nodes may write to. */
  readonly buckets?: readonly string[]
  /** Most bytes that it stores: 1 GiB by default. */
  readonly maxStoreBytes?: number
}

const stopMs = 10_000
const startMs = 20_000

/**
 * A nats-server with JetStream that takes mutual TLS only. Each node is a user of its own, by the URI in its certificate. One whose
 * disk is full ends, as JetStream would stay off: start it again.
 * It is ended with {@link NatsServer.stop}; one that a killed process left behind is ended by the next start in its folder.
 * @example
 * const listen = { host: '127.0.0.1', port: 0 }
 * const server = await NatsServer.start({ credentials, folder: 'nats', nodes: [credentials.nodeId], listen })
 * const control = await NatsControlPlane.connect({ servers: [server.address], credentials })
 * await control.close()
 * await server.stop()
 */
export class NatsServer {
  readonly #child: ChildProcess
  readonly #version: NatsVersion
  readonly #log: string[]
  #options: NatsServerOptions
  /** Where clients connect: host:port. */
  readonly address: string
  /** Resolves with the last lines of its log when it has ended, whoever ended it. */
  readonly ended: Promise<string>

  private constructor(
    child: ChildProcess,
    lock: Lock,
    version: NatsVersion,
    log: string[],
    options: NatsServerOptions,
  ) {
    this.#child = child
    this.#version = version
    this.#log = log
    this.#options = options
    this.address = addressIn(log, options)
    this.ended = exitOf(child).then(() => {
      lock.release()
      return log.slice(-5).join('\n')
    })
  }

  /** Of the version that runs. */
  get version(): string {
    return this.#version.text
  }

  /** Process id. */
  get pid(): number {
    return this.#child.pid!
  }

  /**
   * Starts a server and waits until it takes clients.
   * @throws SparkError ERR_UNSUPPORTED where there is no nats-server; ERR_BUSY naming the process that has the folder; ERR_IO
   * with the log where it does not start
   */
  static async start(options: NatsServerOptions): Promise<NatsServer> {
    const version = await probe()
    if (!version) throw new SparkError('ERR_UNSUPPORTED', (await checkNatsServer()).problems[0]!.text)
    await makeSecretFolder(options.folder)
    const lock = await lockFolder(options.folder)
    try {
      await endLeftOver(options.folder)
      const config = await writeConfig(options, version)
      const child = spawn('nats-server', ['-c', config], { stdio: ['ignore', 'ignore', 'pipe'] })
      const log = await untilReady(child, options.folder)
      return new NatsServer(child, lock, version, log, options)
    } catch (error) {
      lock.release()
      throw error
    }
  }

  /**
   * Tells a running server of other nodes, routes or credentials. Connections of nodes that are left out end.
   * @throws SparkError ERR_IO
   */
  async update(change: Partial<Pick<NatsServerOptions, 'nodes' | 'credentials' | 'cluster'>>): Promise<void> {
    this.#options = { ...this.#options, ...change }
    const listen = {
      ...this.#options.listen,
      port: Number(this.address.slice(this.address.lastIndexOf(':') + 1)),
    }
    await writeConfig({ ...this.#options, listen }, this.#version)
    const before = this.#log.length
    this.#child.kill('SIGHUP')
    const giveUp = performance.now() + stopMs
    const answer = (): string | undefined =>
      this.#log
        .slice(before)
        .find(line => /Reloaded server configuration|Failed to reload|\[ERR\].*reload/i.test(line))
    const isUp = (): boolean => this.#child.exitCode === null && this.#child.signalCode === null
    while (answer() === undefined && isUp() && performance.now() < giveUp) await sleep(10)
    const line = answer() ?? 'it did not answer'
    if (!line.includes('Reloaded'))
      throw new SparkError('ERR_IO', `nats-server did not take its new configuration: ${line}`)
  }

  /** Ends a server that does not answer, at once. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.ended
  }

  /** Ends the server. */
  async stop(): Promise<void> {
    this.#child.kill('SIGTERM')
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), stopMs)
    await this.ended
    clearTimeout(timer)
  }
}

const exitOf = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
}

const nameIn = (folder: string) => ({
  config: path.join(folder, 'server.conf'),
  pid: path.join(folder, 'nats-server.pid'),
  ca: path.join(folder, 'ca.pem'),
  certificate: path.join(folder, 'node.pem'),
  key: path.join(folder, 'key.pem'),
  store: path.join(folder, 'store'),
})

async function writeConfig(options: NatsServerOptions, version: NatsVersion): Promise<string> {
  const folder = await realpath(options.folder)
  const { credentials, nodes, cluster, monitorPort, buckets = [], maxStoreBytes = 2 ** 30 } = options
  const files = nameIn(folder)
  const { host, port } = options.listen
  const config: NatsConfig = {
    version,
    clusterId: credentials.clusterId,
    serverId: credentials.nodeId,
    nodes,
    // -1 is any.
    listen: { host, port: port === 0 ? -1 : port },
    ...(cluster && { cluster }),
    files,
    ...(monitorPort !== undefined && { monitorPort }),
    maxStoreBytes,
  }
  const text = `pid_file: ${JSON.stringify(files.pid)}\n${natsConfigText(config, buckets)}`
  const contents = [
    [files.ca, credentials.ca],
    [files.certificate, credentials.certificate],
    [files.key, credentials.privateKey],
    [files.config, text],
  ] as const
  for (const [file, content] of contents) await writeFileAtomic(file, [Buffer.from(content)], 0o600)
  return files.config
}

/** Ends the server of a process that was killed: it still has the folder and the port. */
async function endLeftOver(folder: string): Promise<void> {
  const files = nameIn(await realpath(folder))
  const pid = Number((await readFile(files.pid, 'utf8').catch(() => '')).trim())
  if (!Number.isSafeInteger(pid) || pid < 2) return
  const isOurs = (): boolean => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(files.config)
    } catch {
      return false
    }
  }
  const giveUp = performance.now() + stopMs
  for (
    let signal: NodeJS.Signals = 'SIGTERM';
    isOurs();
    signal = performance.now() < giveUp ? 'SIGTERM' : 'SIGKILL'
  ) {
    try {
      process.kill(pid, signal)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw ioError('write', folder, error)
    }
    await sleep(50)
  }
}

/** Collects the log of a server, and returns it when the server is ready. */
async function untilReady(child: ChildProcess, folder: string): Promise<string[]> {
  const log: string[] = []
  let failure: Error | undefined
  child.on('error', error => {
    failure = error
  })
  createInterface({ input: child.stderr! }).on('line', line => {
    log.push(line)
    if (log.length > 1000) log.splice(20, 500)
    // It turns JetStream off until it is started again, and goes on without.
    if (/JetStream out of .* DISABLED/i.test(line)) child.kill('SIGTERM')
  })
  const giveUp = performance.now() + startMs
  const hasEnded = (): boolean =>
    failure !== undefined || child.exitCode !== null || child.signalCode !== null
  while (!log.some(line => line.includes('Server is ready'))) {
    if (hasEnded() || performance.now() > giveUp) {
      child.kill('SIGKILL')
      const why = failure?.message ?? log.filter(line => /\[(ERR|FTL)\]|nats-server:/.test(line)).join('; ')
      throw new SparkError('ERR_IO', `nats-server did not start in ${folder}: ${why || 'it said nothing'}`)
    }
    await sleep(10)
  }
  return log
}

function addressIn(log: readonly string[], { listen }: NatsServerOptions): string {
  const line = log.find(text => text.includes('Listening for client connections on')) ?? ''
  const port = /:(\d+)\s*$/.exec(line)?.[1] ?? `${listen.port}`
  const isAny = ['0.0.0.0', '::'].includes(listen.host)
  const host = isAny ? '127.0.0.1' : listen.host
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}
