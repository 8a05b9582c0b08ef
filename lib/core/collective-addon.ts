// collective-addon.ts: the part of the contract with the addon that is about communicators.

/** A rank of a world that native code holds; see native/collective/communicator.h. */
export type CommunicatorHandle = object & { readonly communicatorHandle: never }

/** What {@link CollectiveAddon.communicatorCall} does. */
export type CommunicatorOp =
  | 'open'
  | 'send'
  | 'recv'
  | 'allReduce'
  | 'allGather'
  | 'broadcast'
  | 'barrier'
  | 'leave'

/** Communicators of the addon; see native/napi/collective.h. */
export interface CollectiveAddon {
  /** A rank of a world within this process; ERR_CONFLICT where it is taken, or the epoch over. Nothing waits yet. */
  communicatorLocal(seat: {
    name: string
    epoch: number
    rank: number
    world: number
    timeoutMs: number
  }): CommunicatorHandle
  /** The rank that mpirun started this process as; ERR_CONFLICT for a second one. */
  communicatorMpi(seat: { epoch: number; rank: number; world: number; timeoutMs: number }): CommunicatorHandle
  /** What one rank makes for all: whoever has it can join. ERR_UNSUPPORTED without NCCL. */
  ncclSecret(): Promise<Uint8Array>
  /** The number of the version of NCCL, such as 22803. ERR_UNSUPPORTED without NCCL. */
  ncclVersion(): Promise<number>
  /** A rank with the GPU `device`, a CUDA ordinal. Nothing waits yet. */
  communicatorNccl(seat: {
    epoch: number
    rank: number
    world: number
    timeoutMs: number
    device: number
    secret: Uint8Array
  }): CommunicatorHandle
  /** A rank for plans whose sums JavaScript makes: `sum` is called for each, and answers with `communicatorSummed` or an abort. */
  communicatorDelegate(
    seat: { rank: number; world: number },
    sum: (number: number, values: Float32Array) => void,
  ): CommunicatorHandle
  /** Answers `sum`. Nothing happens where nobody waits any more. */
  communicatorSummed(handle: CommunicatorHandle, number: number, sums: Float32Array): void
  /** Off the JavaScript thread. `peer`: the other rank, or the root. Arrays that could be transferred meanwhile are copied. */
  communicatorCall(
    handle: CommunicatorHandle,
    op: CommunicatorOp,
    args: { bytes?: Uint8Array; values?: Float32Array; all?: Uint8Array; peer?: number },
  ): Promise<void>
  /** Ends what is in progress, on all ranks. */
  communicatorAbort(handle: CommunicatorHandle, reason: string): void
}
