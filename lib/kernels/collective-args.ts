// collective-args.ts: arguments of what the ranks of a communicator do together. Contract: native/napi/operations.cc.

/** y = the sums of x over all ranks, as `Communicator::all_reduce` adds; y may be x. */
export interface AllReduceArgs {
  /** Elements of x and y. */
  count: number
  /** Ranks of the communicator. */
  world: number
  /** [count] */
  x: Float32Array
  /** Output, [count]. */
  y: Float32Array
}

/** Arguments of collectives. */
export interface CollectiveKernelArgs {
  /** Sums over all ranks. */
  allReduce: AllReduceArgs
}

/** A rank of a world, as plans need it. Communicators of dgx-spark/cluster are that. */
export interface PlanCommunicator {
  /** This rank: 0 to world − 1. */
  readonly rank: number
  /** How many ranks there are. */
  readonly world: number
  /** The handle of the addon that steps call; undefined where only JavaScript can call it. */
  readonly native?: unknown
  /** Ends what the ranks do together, on all of them. */
  abort(reason: string): void
}
