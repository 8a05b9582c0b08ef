// revocations.ts: certificates, nodes and tokens that count no more.
import { type FSWatcher, watch } from 'node:fs'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { Peer, PeerPolicy } from './credentials.js'
import { clusterHome, makeSecretFolder, readSecret, withLock, writeSecret } from './home.js'
import { isUuid } from './node-identity.js'

/** What is revoked. */
export interface Revoked {
  /** Serials of certificates, lower-case hex. */
  readonly serials?: readonly string[]
  /** Uuids of nodes. */
  readonly nodes?: readonly string[]
  /** Ids (jti) of tokens, and when each ends anyway: seconds since 1970. */
  readonly tokens?: Readonly<Record<string, number>>
}

const fileName = 'revoked.json'

/**
 * What is revoked in a cluster. It is kept in a file, which other processes of this node change too; nodes hand each other
 * their lists with {@link Revocations.list} and {@link Revocations.add}. Nothing that was revoked counts again.
 * @example
 * const revocations = await Revocations.open()
 * await revocations.add({ nodes: [nodeId] })
 * console.log(revocations.isNodeRevoked(nodeId))
 */
export class Revocations implements PeerPolicy {
  readonly #folder: string
  readonly #serials = new Set<string>()
  readonly #nodes = new Set<string>()
  readonly #tokens = new Map<string, number>()
  readonly #listeners = new Set<(added: Required<Revoked>) => void>()
  #watcher: FSWatcher | undefined

  private constructor(folder: string) {
    this.#folder = folder
  }

  /**
   * Opens the list of a folder; where there is none it is empty.
   * @throws SparkError ERR_FORMAT when the file is torn, ERR_DENIED when others may read it, ERR_IO
   */
  static async open(folder = clusterHome()): Promise<Revocations> {
    const opened = new Revocations(folder)
    await opened.#read()
    return opened
  }

  /** Whether a node was revoked. */
  isNodeRevoked(nodeId: string): boolean {
    return this.#nodes.has(nodeId)
  }

  /** Whether a token was revoked. */
  isTokenRevoked(jti: string): boolean {
    return this.#tokens.has(jti)
  }

  /** @returns null, or why a peer is refused */
  accepts({ nodeId, serial }: Peer): string | null {
    if (this.#nodes.has(nodeId)) return `node ${nodeId} was revoked`
    return this.#serials.has(serial) ? `certificate ${serial} was revoked` : null
  }

  /** All that is revoked, without tokens that have ended. */
  list(): Required<Revoked> {
    const now = Date.now() / 1000
    return {
      serials: [...this.#serials],
      nodes: [...this.#nodes],
      tokens: Object.fromEntries([...this.#tokens].filter(([, until]) => until > now)),
    }
  }

  /**
   * Revokes: listeners are called before this returns its promise, which resolves when the file is on the disk.
   * @throws SparkError ERR_FORMAT for what is no serial, uuid or id of a token; ERR_IO
   */
  add(revoked: Revoked): Promise<void> {
    this.#take(checked(revoked, 'the list of what is revoked'))
    return this.#write()
  }

  /** Calls `listener` with what is revoked from now on, in the same tick. @returns a function that ends it */
  onAdded(listener: (added: Required<Revoked>) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Follows what other processes of this node write into the file, until the signal aborts. */
  async follow(signal: AbortSignal): Promise<void> {
    await makeSecretFolder(this.#folder)
    if (signal.aborted || this.#watcher) return
    const read = (): void => {
      this.#read().catch(error => debug(`revocations: ${(error as Error).message}`))
    }
    const watcher = watch(this.#folder, { persistent: false }, (_event, name) => {
      if (name === null || name === fileName) read()
    })
    watcher.on('error', error => debug(`revocations: ${error.message}`))
    this.#watcher = watcher
    const end = (): void => {
      watcher.close()
      this.#watcher = undefined
    }
    signal.addEventListener('abort', end, { once: true })
    read()
  }

  /** Takes what is not known yet, and tells the listeners. */
  #take({ serials, nodes, tokens }: Required<Revoked>): void {
    const added = {
      serials: serials.filter(serial => !this.#serials.has(serial)),
      nodes: nodes.filter(node => !this.#nodes.has(node)),
      tokens: Object.fromEntries(Object.entries(tokens).filter(([jti]) => !this.#tokens.has(jti))),
    }
    for (const serial of added.serials) this.#serials.add(serial)
    for (const node of added.nodes) this.#nodes.add(node)
    for (const [jti, until] of Object.entries(added.tokens)) this.#tokens.set(jti, until)
    if (added.serials.length + added.nodes.length + Object.keys(added.tokens).length === 0) return
    for (const listener of this.#listeners) listener(added)
  }

  async #read(): Promise<void> {
    const file = path.join(this.#folder, fileName)
    this.#take(checked(((await readSecret(file)) ?? {}) as Revoked, file))
  }

  async #write(): Promise<void> {
    await makeSecretFolder(this.#folder)
    await withLock(this.#folder, async () => {
      await this.#read()
      await writeSecret(path.join(this.#folder, fileName), this.list())
    })
  }
}

const isSerial = (value: unknown): boolean => typeof value === 'string' && /^[0-9a-f]{1,64}$/.test(value)

/** Checks a list of revocations from `source`. */
function checked(value: Revoked, source: string): Required<Revoked> {
  const { serials = [], nodes = [], tokens = {} } = value ?? {}
  const isValid =
    Array.isArray(serials) &&
    serials.every(isSerial) &&
    Array.isArray(nodes) &&
    nodes.every(isUuid) &&
    typeof tokens === 'object' &&
    tokens !== null &&
    Object.entries(tokens).every(([jti, until]) => isUuid(jti) && Number.isFinite(until))
  if (isValid) return { serials, nodes, tokens }
  const expected = 'serials in hex, uuids of nodes and, by their uuid, the ends of tokens'
  throw new SparkError('ERR_FORMAT', `${source} must hold ${expected}`)
}
