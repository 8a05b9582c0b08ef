// join.ts: how a rank joins its world.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectOneOf,
  expectText,
} from '../../core/checks.js'
import { Fabric } from '../links/fabric.js'
import type { FrameStream } from '../links/frame-stream.js'
import { type Communicator, expectRankOf, type RankOf } from './communicator.js'
import type { RankLink } from './link-reader.js'
import { joinLocal } from './local.js'
import { joinMpi } from './mpi.js'
import { joinNccl } from './nccl.js'
import { StreamCommunicator } from './stream.js'

/** Options of every kind. */
export interface JoinCommon extends RankOf {
  /** Milliseconds that a call waits for other ranks. Default 30 s. */
  readonly timeoutMs?: number
}

/** Ranks within one process. */
export interface JoinLocal extends JoinCommon {
  /** Which. */
  readonly kind: 'local'
  /** Ranks with the same name meet. Default `default`. */
  readonly name?: string
}

/** Ranks over links, encrypted and of any network. */
export interface JoinStream extends JoinCommon {
  /** Which. */
  readonly kind: 'stream'
  /** Links by rank; that of this rank is not looked at. Nobody else may read them; they outlive the epoch. */
  readonly peers: readonly (RankLink | undefined)[]
}

/** Ranks over Open MPI, in processes of {@link launchMpi}. */
export interface JoinMpi extends JoinCommon {
  /** Which. */
  readonly kind: 'mpi'
  /** The interface of this machine that messages go over, such as `enp1s0f0np0`; it must be fabric. */
  readonly interface: string
  /** Networks that may carry plaintext. Default: this machine's loopback only. */
  readonly fabric?: Fabric
}

/** Ranks over NCCL, each with a GPU of its own. */
export interface JoinNccl extends JoinCommon {
  /** Which. */
  readonly kind: 'nccl'
  /** The interface of this machine that messages go over; it must be fabric. */
  readonly interface: string
  /** Networks that may carry plaintext. Default: this machine's loopback only. */
  readonly fabric?: Fabric
  /** Links by rank, for the secret of the world: rank 0 has those to all others, the others that to rank 0. */
  readonly peers: readonly (FrameStream | undefined)[]
  /** CUDA ordinal of the GPU. Default 0. */
  readonly device?: number
}

/** Options of {@link join}. */
export type JoinOptions = JoinLocal | JoinStream | JoinMpi | JoinNccl

const common = ['kind', 'epoch', 'rank', 'world', 'timeoutMs']
const optionsOf: Record<JoinOptions['kind'], readonly string[]> = {
  local: ['name'],
  stream: ['peers'],
  mpi: ['interface', 'fabric'],
  nccl: ['interface', 'fabric', 'peers', 'device'],
}

/**
 * Joins a world; resolves when all of its ranks have. A rank that does not come within `timeoutMs` is named by the error.
 * @throws SparkError ERR_ARGUMENT; ERR_CONFLICT for a rank that is taken, and for an epoch that is over; ERR_IO where other
 * ranks do not come; ERR_DENIED for an interface that is not fabric; ERR_UNSUPPORTED where a library is missing
 * @example
 * const [a, b] = await Promise.all([0, 1].map(rank => join({ kind: 'local', epoch: 1, rank, world: 2 })))
 */
export async function join(options: JoinOptions): Promise<Communicator> {
  expectOneOf('kind', options?.kind, Object.keys(optionsOf) as JoinOptions['kind'][])
  expectKnownOptions('options', options, [...common, ...optionsOf[options.kind]])
  expectRankOf(options)
  const { timeoutMs = 30_000 } = options
  expectInteger('timeoutMs', timeoutMs, 1, 86_400_000)
  if (options.kind === 'stream') {
    if (!Array.isArray(options.peers)) throw argumentError('peers', 'an array of links', options.peers)
    return StreamCommunicator.open(options, options.peers, timeoutMs)
  }
  if (options.kind === 'mpi') {
    const { interface: name, fabric = new Fabric() } = options
    return joinMpi(options, { interface: name, fabric }, timeoutMs)
  }
  if (options.kind === 'nccl') {
    const { interface: name, fabric = new Fabric(), peers, device = 0 } = options
    if (!Array.isArray(peers)) throw argumentError('peers', 'an array of links', peers)
    expectInteger('device', device, 0, 1023)
    return joinNccl(options, { interface: name, fabric, peers, device }, timeoutMs)
  }
  const { name = 'default' } = options
  expectText('name', name)
  return joinLocal(options, name, timeoutMs)
}
