// own-links.ts: links of programs of this machine that show the certificate of its own node: who can read the key of the node is
// its owner, and may use it while it runs.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { writeFileAtomic } from '../../io/atomic-write.js'
import type { FrameStream } from '../links/frame-stream.js'
import type { Address } from '../links/pipe.js'
import { tlsTransport } from '../links/tls.js'
import { loadCredentials } from '../trust/credentials.js'
import { readSecret } from '../trust/home.js'

const addressFile = 'address.json'

/** Takes the links of the owner of a node. */
export class OwnLinks {
  /** Has them; by default they are closed. */
  onLink: ((link: FrameStream) => void) | undefined

  /** Tells programs of this machine where the node takes links. @throws SparkError ERR_IO */
  async announce(folder: string, address: Address): Promise<void> {
    await writeFileAtomic(path.join(folder, addressFile), [Buffer.from(JSON.stringify(address))], 0o600)
  }

  /** Takes a link to this node itself. One from another machine has a stolen key, or was made by mistake. */
  take(link: FrameStream): void {
    const { local, remote } = link.addresses
    if (local === remote && this.onLink) this.onLink(link)
    else
      void link.close(this.onLink ? 'the owner of a node is on its machine' : 'this node serves no programs')
  }
}

/**
 * A link to the node that runs on this machine, as its owner.
 * @throws SparkError ERR_ARGUMENT where the folder holds no node of a cluster; ERR_IO where it does not run, or runs another version
 */
export async function connectToOwn(folder: string): Promise<FrameStream> {
  const credentials = await loadCredentials(folder)
  const address = (await readSecret(path.join(folder, addressFile))) as Partial<Address> | undefined
  if (!credentials) throw new SparkError('ERR_ARGUMENT', `${folder} holds no node of a cluster`)
  const { host, port } = address ?? {}
  if (typeof host !== 'string' || !Number.isInteger(port))
    throw new SparkError('ERR_IO', `no node runs in ${folder}: start it with dgx-spark up`)
  const at = { host: ['::', '0.0.0.0'].includes(host) ? '127.0.0.1' : host, port: port! }
  return tlsTransport().connect(at, credentials, credentials.nodeId)
}
