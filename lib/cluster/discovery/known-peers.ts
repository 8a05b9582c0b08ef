// known-peers.ts: where nodes of the cluster were reached last, kept in a file: they are asked again after a restart, on
// networks where multicast does not arrive.
import { readFile } from 'node:fs/promises'
import { writeFileAtomic } from '../../io/atomic-write.js'
import type { Address } from '../links/pipe.js'

/** A node and where it was reached. */
export interface KnownPeer extends Address {
  readonly nodeId: string
  /** Milliseconds since 1970. */
  readonly reachedAt: number
}

/** Peers and addresses that are kept: the latest ones. */
const maxPeers = 512
const maxFileBytes = 1 << 20

/** Peers of a file; of none, or of a damaged one, no peers and what is wrong with it. */
export async function readKnownPeers(file: string): Promise<{ peers: KnownPeer[]; problem?: string }> {
  let bytes: Buffer
  try {
    bytes = await readFile(file)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    return code === 'ENOENT' ? { peers: [] } : { peers: [], problem: `${file}: ${message}` }
  }
  try {
    if (bytes.length > maxFileBytes) throw new Error(`it has ${bytes.length} bytes`)
    const { peers } = JSON.parse(bytes.toString()) as { peers: unknown }
    if (!Array.isArray(peers)) throw new Error('it has no list of peers')
    return { peers: peers.filter(isPeer).slice(0, maxPeers) }
  } catch (error) {
    return { peers: [], problem: `${file} is not used: ${(error as Error).message}` }
  }
}

/** Whether something from a file or another node is a peer with an address. */
export function isPeer(value: unknown): value is KnownPeer {
  const { nodeId, host, port, reachedAt } = (value ?? {}) as Record<string, unknown>
  return (
    typeof nodeId === 'string' &&
    /^[0-9a-f-]{36}$/.test(nodeId) &&
    typeof host === 'string' &&
    /^[\w.:%-]{1,255}$/.test(host) &&
    Number.isInteger(port) &&
    (port as number) >= 1 &&
    (port as number) <= 65535 &&
    Number.isFinite(reachedAt)
  )
}

/** The latest peers first, one entry for each address. */
export function mergePeers(peers: readonly KnownPeer[]): KnownPeer[] {
  const latest = new Map<string, KnownPeer>()
  for (const peer of [...peers].sort((a, b) => b.reachedAt - a.reachedAt)) {
    const key = `${peer.nodeId} ${peer.host} ${peer.port}`
    if (!latest.has(key)) latest.set(key, peer)
  }
  return [...latest.values()].slice(0, maxPeers)
}

/** Replaces the file in one step. */
export const writeKnownPeers = (file: string, peers: readonly KnownPeer[]): Promise<void> =>
  writeFileAtomic(file, [Buffer.from(`${JSON.stringify({ peers }, null, 1)}\n`)])
