// members.ts: the keys by which nodes sign their audit logs, as each told it when it was first met.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { clusterHome, makeSecretFolder, readSecret, withLock, writeSecret } from './home.js'
import { isUuid, publicKeyFrom } from './node-identity.js'
import type { SigningNode } from './witness.js'

const fileName = 'members.json'
/** Nodes that are remembered at most. */
const maxMembers = 4096

/** Keys of nodes in a folder. A node keeps the key that it first had. */
export class Members {
  readonly #folder: string

  constructor(folder = clusterHome()) {
    this.#folder = folder
  }

  /** All of them. @throws SparkError ERR_FORMAT, ERR_DENIED, ERR_IO */
  async list(): Promise<readonly SigningNode[]> {
    const value = (await readSecret(path.join(this.#folder, fileName))) ?? {}
    return Object.entries(value as Record<string, string>).map(([nodeId, publicKey]) => ({
      nodeId,
      publicKey,
    }))
  }

  /** A node, where it is known. */
  async find(nodeId: string): Promise<SigningNode | undefined> {
    return (await this.list()).find(each => each.nodeId === nodeId)
  }

  /**
   * Notes the key of a node, as it told it over a link with its certificate.
   * @throws SparkError ERR_FORMAT for what is no key, ERR_DENIED when it had another one
   */
  async met(nodeId: string, publicKey: unknown): Promise<SigningNode> {
    publicKeyFrom(publicKey)
    const key = publicKey as string
    if (!isUuid(nodeId)) throw new SparkError('ERR_FORMAT', 'nodeId must be a uuid in lower case')
    const expectSame = (known: SigningNode | undefined): SigningNode | undefined => {
      if (known && known.publicKey !== key)
        throw new SparkError('ERR_DENIED', `node ${nodeId} signs with another key than before`)
      return known
    }
    const known = expectSame(await this.find(nodeId))
    if (known) return known
    await makeSecretFolder(this.#folder)
    return withLock(this.#folder, async () => {
      const list = await this.list()
      const meanwhile = expectSame(list.find(each => each.nodeId === nodeId))
      if (meanwhile) return meanwhile
      if (list.length >= maxMembers) throw new SparkError('ERR_BUSY', `${maxMembers} nodes are known already`)
      const all = [...list, { nodeId, publicKey: key }].map(each => [each.nodeId, each.publicKey])
      await writeSecret(path.join(this.#folder, fileName), Object.fromEntries(all))
      return { nodeId, publicKey: key }
    })
  }
}
