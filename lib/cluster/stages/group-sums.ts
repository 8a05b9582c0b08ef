// group-sums.ts: what the ranks of a group sum over: NCCL where all of them have GPUs on a fabric, else the links of the nodes.
import { networkInterfaces } from 'node:os'
import { SparkError } from '../../core/errors.js'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import { requireAddon } from '../../native.js'
import type { RankOf } from '../communicators/communicator.js'
import { fabricNetworks } from '../communicators/fabric-networks.js'
import { forPlans, type PlanRank } from '../communicators/for-plans.js'
import { openNccl } from '../communicators/nccl.js'
import { StreamCommunicator } from '../communicators/stream.js'
import type { LinkChannel } from '../links/channels.js'
import type { Fabric } from '../links/fabric.js'
import { plainAddress } from '../links/pipe.js'
import type { StageOptions } from './questions.js'

/** How a group computes, once its ranks have agreed. */
export interface GroupSums {
  readonly sums: 'stream' | 'nccl'
  readonly backend: 'cpu' | 'cuda'
}

/** A rank of a group. */
export interface GroupSeat extends RankOf {
  /** Links by rank. */
  readonly links: readonly (LinkChannel | undefined)[]
  /** Ends the links of the group. */
  readonly close: () => void
  readonly fabric: Fabric
  /** Those of all ranks. */
  readonly options: StageOptions
}

const timeoutMs = 30_000
/** Of what `ncclSecret` gives. */
const secretBytes = 384
/** Of what a rank says of itself. */
const maxReasonBytes = 512

/**
 * Joins the other ranks over their links. Where all have a GPU, NCCL and an interface in the fabric, they join over NCCL, too: its
 * secret travels over the links, and a rank that goes away there ends the sums here.
 * @throws SparkError ERR_IO; ERR_UNSUPPORTED, ERR_DENIED or ERR_NO_CUDA where options want NCCL or the GPU and a rank cannot; the reason
 * of the signal
 */
export async function joinSums(seat: GroupSeat, signal: AbortSignal): Promise<PlanRank & GroupSums> {
  const { epoch, rank, world, links, close, options } = seat
  const stream = await untilAborted(signal, close, () =>
    StreamCommunicator.open({ epoch, rank, world }, links, timeoutMs),
  )
  try {
    return await untilAborted(
      signal,
      () => stream.abort(reasonOf(signal)),
      async () => {
        const gpu = wantsGpu(options) ? await agreeOnGpu(stream, seat) : undefined
        if (!gpu) return { ...forPlans(stream), sums: 'stream', backend: 'cpu' }
        return { ...(await joinOver(stream, gpu)), sums: 'nccl', backend: 'cuda' }
      },
    )
  } catch (error) {
    stream.abort(`rank ${rank} failed: ${(error as Error).message}`)
    await stream.leave()
    throw error
  }
}

const wantsGpu = ({ backend, sums }: StageOptions): boolean =>
  sums !== 'stream' && (backend === 'auto' || backend === 'cuda')

/** A GPU for NCCL, and the interface that it sends over. */
interface RankGpu {
  readonly device: number
  readonly interface: string
}

/** The GPU of this rank, where all ranks have one; undefined where they do not and need not. */
async function agreeOnGpu(stream: StreamCommunicator, seat: GroupSeat): Promise<RankGpu | undefined> {
  const { backend, sums } = seat.options
  const own = await gpuOf(seat).catch((error: SparkError) => error)
  const told = new Uint8Array(maxReasonBytes)
  const { code, message } = own instanceof Error ? own : { code: '', message: '' }
  new TextEncoder().encodeInto(code && JSON.stringify([code, message.slice(0, maxReasonBytes / 4)]), told)
  const all = await stream.allGather(told)
  const rank = all.findIndex(([first]) => first !== 0)
  if (rank < 0) return own as RankGpu
  if (sums !== 'nccl' && backend !== 'cuda') return undefined
  const [why, words] = readReason(all[rank]!)
  throw new SparkError(why, `rank ${rank} of the group cannot sum over NCCL: ${words}`)
}

function readReason(bytes: Uint8Array): [SparkError['code'], string] {
  try {
    const [code, words] = JSON.parse(Buffer.from(bytes).toString().replace(/\0+$/, ''))
    return [['ERR_DENIED', 'ERR_NO_CUDA'].includes(code) ? code : 'ERR_UNSUPPORTED', `${words}`]
  } catch {
    return ['ERR_UNSUPPORTED', 'it does not say why']
  }
}

/** @throws SparkError why this rank cannot sum over NCCL */
async function gpuOf({ links, fabric, options }: GroupSeat): Promise<RankGpu> {
  const { bestGpu, backend } = await HardwareInfo.detect()
  const device = bestGpu?.cudaIndex ?? undefined
  if (device === undefined || (options.backend === 'auto' && backend.name !== 'cuda'))
    throw new SparkError('ERR_NO_CUDA', backend.reason)
  const name = interfaceOf(links.flatMap(link => (link ? [plainAddress(link.link.addresses.local)] : [])))
  fabricNetworks('nccl', name, fabric)
  await requireAddon().ncclVersion()
  return { device, interface: name }
}

/** The interface that has some addresses of this machine. @throws SparkError ERR_UNSUPPORTED where there are several */
function interfaceOf(addresses: readonly string[]): string {
  const all = Object.entries(networkInterfaces())
  const names = new Set(
    addresses.map(
      own => all.find(([, list = []]) => list.some(({ address }) => address === own))?.[0] ?? own,
    ),
  )
  const [name, ...others] = names
  if (name !== undefined && others.length === 0) return name
  throw new SparkError('ERR_UNSUPPORTED', `its links go over several interfaces: ${[...names].join(', ')}`)
}

/** A world of NCCL beside that of the links. Each ends with the other. */
async function joinOver(stream: StreamCommunicator, gpu: RankGpu): Promise<PlanRank> {
  const { epoch, rank, world } = stream
  const secret = rank === 0 ? await requireAddon().ncclSecret() : new Uint8Array(secretBytes)
  await stream.broadcast(secret, 0)
  const opening = openNccl({ epoch, rank, world }, { ...gpu, secret }, timeoutMs, stream.signal)
  const nccl = await opening.catch(cause => {
    stream.signal.throwIfAborted()
    const message = `NCCL does not join the ranks: ${cause.message}: use sums 'stream'`
    throw new SparkError('ERR_UNSUPPORTED', message, { cause })
  })
  stream.signal.addEventListener('abort', () => nccl.abort(reasonOf(stream.signal)))
  return {
    ...{ rank, world, native: nccl.native },
    abort(reason) {
      nccl.abort(reason)
      stream.abort(reason)
    },
    async leave() {
      await nccl.leave()
      await stream.leave()
    },
  }
}

const reasonOf = ({ reason }: AbortSignal): string => String(reason?.message ?? reason)

/** Does something that a signal ends by `abort`. @throws the reason of the signal once it is aborted */
async function untilAborted<T>(signal: AbortSignal, abort: () => void, act: () => Promise<T>): Promise<T> {
  signal.throwIfAborted()
  signal.addEventListener('abort', abort, { once: true })
  try {
    return await act()
  } catch (error) {
    throw signal.aborted ? signal.reason : error
  } finally {
    signal.removeEventListener('abort', abort)
  }
}
