// native.ts: communicators whose calls run in the addon, on threads of their own.
import { expectText } from '../../core/checks.js'
import type { CollectiveAddon, CommunicatorHandle, CommunicatorOp } from '../../core/collective-addon.js'
import { SparkError } from '../../core/errors.js'
import { requireAddon } from '../../native.js'
import {
  type Communicator,
  type CommunicatorKind,
  expectBytes,
  expectOther,
  expectValues,
  partsOf,
  type RankOf,
} from './communicator.js'

type CallArguments = Parameters<CollectiveAddon['communicatorCall']>[2]

/** A communicator of the addon. */
export class NativeCommunicator implements Communicator {
  readonly kind: CommunicatorKind
  readonly epoch: number
  readonly rank: number
  readonly world: number
  readonly native: CommunicatorHandle
  readonly #addon = requireAddon()
  readonly #calls = new Set<Promise<void>>()
  #left: Promise<void> | undefined

  private constructor(kind: CommunicatorKind, { epoch, rank, world }: RankOf, native: CommunicatorHandle) {
    this.kind = kind
    this.epoch = epoch
    this.rank = rank
    this.world = world
    this.native = native
  }

  /** Waits until all ranks are there. */
  static async open(
    kind: CommunicatorKind,
    rankOf: RankOf,
    native: CommunicatorHandle,
  ): Promise<NativeCommunicator> {
    const communicator = new NativeCommunicator(kind, rankOf, native)
    try {
      await communicator.#call('open', {})
    } catch (error) {
      await communicator.leave().catch(() => {}) // what went wrong was that it could not be opened
      throw error
    }
    return communicator
  }

  async send(to: number, bytes: Uint8Array): Promise<void> {
    expectOther('to', to, this)
    expectBytes('bytes', bytes)
    await this.#call('send', { bytes, peer: to })
  }

  async recv(from: number, into: Uint8Array): Promise<void> {
    expectOther('from', from, this)
    expectBytes('into', into)
    await this.#call('recv', { bytes: into, peer: from })
  }

  async allReduce(values: Float32Array): Promise<void> {
    expectValues(values)
    await this.#call('allReduce', { values })
  }

  async allGather(bytes: Uint8Array): Promise<Uint8Array[]> {
    expectBytes('bytes', bytes)
    const all = new Uint8Array(bytes.length * this.world)
    await this.#call('allGather', { bytes, all })
    return partsOf(all, this.world)
  }

  async broadcast(bytes: Uint8Array, root: number): Promise<void> {
    expectBytes('bytes', bytes)
    if (root !== this.rank) expectOther('root', root, this)
    await this.#call('broadcast', { bytes, peer: root })
  }

  async barrier(): Promise<void> {
    await this.#call('barrier', {})
  }

  abort(reason: string): void {
    expectText('reason', reason)
    if (!this.#left) this.#addon.communicatorAbort(this.native, reason)
  }

  leave(): Promise<void> {
    this.#left ??= Promise.allSettled(this.#calls).then(() =>
      this.#addon.communicatorCall(this.native, 'leave', {}),
    )
    return this.#left
  }

  async #call(op: CommunicatorOp, args: CallArguments): Promise<void> {
    if (this.#left) throw new SparkError('ERR_DISPOSED', `rank ${this.rank} has left its communicator`)
    const call = this.#addon.communicatorCall(this.native, op, args)
    this.#calls.add(call)
    try {
      await call
    } finally {
      this.#calls.delete(call)
    }
  }
}
