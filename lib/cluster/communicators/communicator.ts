// communicator.ts: what the ranks of a world do together, whatever carries it.
import { argumentError, expectAttached, expectInteger } from '../../core/checks.js'

/** What carries the messages of a communicator. */
export type CommunicatorKind = 'local' | 'mpi' | 'nccl' | 'stream'

/** Where a rank belongs. */
export interface RankOf {
  /** Number of the placement that the world belongs to; a later one has a higher number. */
  readonly epoch: number
  /** This rank: 0 to world − 1. */
  readonly rank: number
  /** How many ranks there are. */
  readonly world: number
}

/**
 * One rank of a world. All ranks call the same collectives in the same order with the same lengths; messages between two
 * ranks arrive in the order in which they were sent. An array must not be used until the promise of its call settles.
 *
 * Calls reject with ERR_ARGUMENT for a wrong rank, ERR_SHAPE for lengths that differ, ERR_CONFLICT once a later epoch has
 * begun, ERR_IO where a peer is gone, does not come in time or aborted. A collective that fails ends the communicator: later
 * calls reject with the same error. After {@link leave} they reject with ERR_DISPOSED.
 * @example
 * const communicator = await join({ kind: 'local', epoch: 1, rank, world: 2 })
 * await communicator.allReduce(gradients)
 * await communicator.leave()
 */
export interface Communicator extends RankOf {
  /** What carries it. */
  readonly kind: CommunicatorKind
  /** What a plan takes for the AllReduce nodes of its graph; undefined where only JavaScript can call it. */
  readonly native?: unknown
  /** Sends a message to another rank; resolves when `bytes` may change. */
  send(to: number, bytes: Uint8Array): Promise<void>
  /** Receives the next message of another rank, which has as many bytes as `into`. */
  recv(from: number, into: Uint8Array): Promise<void>
  /**
   * Replaces the values by their sums over all ranks. `local` and `stream` add in the order of ranks, so that all ranks and
   * all runs get the same bits; others stay within 1e-5 of that.
   */
  allReduce(values: Float32Array): Promise<void>
  /** The bytes of all ranks, in their order. */
  allGather(bytes: Uint8Array): Promise<Uint8Array[]>
  /** Replaces the bytes by those of rank `root`. */
  broadcast(bytes: Uint8Array, root: number): Promise<void>
  /** Resolves when all ranks are here. */
  barrier(): Promise<void>
  /** Ends all calls in progress, on all ranks that can be reached. */
  abort(reason: string): void
  /** Ends the communicator of this rank, after the calls in progress. */
  leave(): Promise<void>
}

/** The most ranks of a world. */
export const maxWorld = 1024

/**
 * Checks where a rank belongs.
 * @throws SparkError ERR_ARGUMENT
 */
export function expectRankOf({ epoch, rank, world }: RankOf): void {
  expectInteger('epoch', epoch, 0, 0xffffffff)
  expectInteger('world', world, 1, maxWorld)
  expectInteger('rank', rank, 0, world - 1)
}

/**
 * Checks the other rank of a message.
 * @throws SparkError ERR_ARGUMENT
 */
export function expectOther(name: string, other: number, { rank, world }: RankOf): void {
  expectInteger(name, other, 0, world - 1)
  if (other === rank) throw argumentError(name, `another rank than ${rank}, which is this one`, other)
}

/**
 * Checks the bytes of a call.
 * @throws SparkError ERR_ARGUMENT, ERR_DISPOSED for memory that is gone
 */
export function expectBytes(name: string, bytes: unknown): asserts bytes is Uint8Array {
  if (!(bytes instanceof Uint8Array)) throw argumentError(name, 'a Uint8Array', bytes)
  expectAttached(name, bytes)
}

/**
 * Checks the values of an all-reduce.
 * @throws SparkError ERR_ARGUMENT, ERR_DISPOSED for memory that is gone
 */
export function expectValues(values: unknown): asserts values is Float32Array {
  if (!(values instanceof Float32Array)) throw argumentError('values', 'a Float32Array', values)
  expectAttached('values', values)
}

/** Copies of the parts of `all`, which holds those of all ranks. */
export const partsOf = (all: Uint8Array, world: number): Uint8Array[] => {
  const size = all.length / world
  return Array.from({ length: world }, (_, rank) => all.slice(rank * size, (rank + 1) * size))
}
