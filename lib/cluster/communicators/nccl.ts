// nccl.ts: ranks over NCCL, one for each GPU. Rank 0 makes the secret with which the others join; it travels over links.
import { existsSync, readdirSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { SparkError } from '../../core/errors.js'
import { requireAddon } from '../../native.js'
import type { Fabric } from '../links/fabric.js'
import type { FrameStream } from '../links/frame-stream.js'
import type { Communicator, RankOf } from './communicator.js'
import { fabricNetworks } from './fabric-networks.js'
import { NativeCommunicator } from './native.js'

const question = 'nccl.secret'
const retryMs = 50

/** What a rank of NCCL needs besides its place. */
export interface NcclParts {
  readonly interface: string
  readonly fabric: Fabric
  readonly device: number
  /** Links by rank: rank 0 needs those to all others, the others that to rank 0. */
  readonly peers: readonly (FrameStream | undefined)[]
}

/**
 * Joins the ranks of other processes or nodes, each with a GPU of its own.
 * @throws SparkError ERR_DENIED outside of the fabric; ERR_UNSUPPORTED without NCCL; ERR_NO_CUDA; ERR_CONFLICT; ERR_IO
 */
export async function joinNccl(rankOf: RankOf, parts: NcclParts, timeoutMs: number): Promise<Communicator> {
  const { interface: name, fabric, device, peers } = parts
  fabricNetworks('nccl', name, fabric)
  const { epoch, rank } = rankOf
  const secret = await (rank === 0 ? offer(epoch, peers) : ask(epoch, peers[0], timeoutMs))
  return openNccl(rankOf, { interface: name, device, secret }, timeoutMs)
}

/** What a rank of NCCL has once it knows the secret of its world. */
export interface NcclSeat {
  /** In the fabric. */
  readonly interface: string
  readonly device: number
  readonly secret: Uint8Array
}

/**
 * Joins the ranks that have the same secret.
 * @throws SparkError as {@link joinNccl}; ERR_IO with the reason of the signal
 */
export async function openNccl(
  rankOf: RankOf,
  { interface: name, device, secret }: NcclSeat,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<NativeCommunicator> {
  Object.assign(process.env, ncclParameters(name))
  const { epoch, rank, world } = rankOf
  const addon = requireAddon()
  const handle = addon.communicatorNccl({ epoch, rank, world, timeoutMs, device, secret })
  const aborted = (): void => addon.communicatorAbort(handle, (signal!.reason as Error).message)
  if (signal?.aborted) aborted()
  signal?.addEventListener('abort', aborted)
  try {
    return await NativeCommunicator.open('nccl', rankOf, handle)
  } finally {
    signal?.removeEventListener('abort', aborted)
  }
}

/** Keeps NCCL on an interface, and on its RDMA device where it has one; without GPUDirect, which GB10 lacks. */
export function ncclParameters(name: string): Record<string, string> {
  const folder = `/sys/class/net/${name}/device/infiniband`
  const rdma = existsSync(folder) ? readdirSync(folder) : []
  return {
    NCCL_SOCKET_IFNAME: `=${name}`,
    NCCL_NET_GDR_LEVEL: 'LOC',
    ...(rdma.length > 0 ? { NCCL_IB_HCA: `=${rdma.join(',')}` } : { NCCL_IB_DISABLE: '1' }),
  }
}

async function offer(epoch: number, peers: NcclParts['peers']): Promise<Uint8Array> {
  const secret = await requireAddon().ncclSecret()
  for (const link of peers) {
    link?.handle(question, params => {
      const asked = (params as { epoch?: unknown } | null)?.epoch
      // It may come before this rank joins the epoch, too.
      if (typeof asked === 'number' && asked > epoch) return null
      if (asked === epoch) return Buffer.from(secret).toString('base64')
      throw new SparkError('ERR_CONFLICT', `rank 0 is in epoch ${epoch}, not ${String(asked).slice(0, 20)}`)
    })
  }
  return secret
}

async function ask(epoch: number, link: FrameStream | undefined, timeoutMs: number): Promise<Uint8Array> {
  if (!link) throw new SparkError('ERR_ARGUMENT', 'peers must have the link to rank 0, which has the secret')
  const deadline = performance.now() + timeoutMs
  for (; performance.now() < deadline; await pause(retryMs)) {
    try {
      const answer = await link.call(question, { epoch }, { timeoutMs })
      if (answer !== null) return Buffer.from(String(answer), 'base64')
    } catch (error) {
      // Rank 0 knows no such question before it joins.
      if ((error as SparkError).code !== 'ERR_UNSUPPORTED') throw error
    }
  }
  throw new SparkError('ERR_IO', `rank 0 did not join epoch ${epoch} within ${timeoutMs} ms`)
}
